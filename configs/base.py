"""Every default, once. A recipe takes this and changes a few lines."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0
    config.train_length = 128  # L: tokens per row in training

    config.model = ConfigDict()
    config.model.layers = 4
    config.model.width = 128
    config.model.heads = 4
    config.model.kv_heads = 4  # groups of keys and values
    config.model.head_dim = 32
    config.model.hidden = 512  # width of the MLP
    config.model.vocab = 256  # bytes
    config.model.norm = "rms"  # rms, layer
    config.model.norm_place = "pre"  # pre, post
    config.model.activation = "gelu"  # gelu, swiglu
    config.model.tied = True  # the output projection is the token embedding
    config.model.scan = True  # layers as a loop in the program; False: written out
    config.model.dtype = "float32"  # float32, bfloat16; parameters are float32 either way

    config.encoding = ConfigDict({"name": "nope"})  # a file in posenc_jax/schemes, and its options
    return config
