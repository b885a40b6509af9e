"""Every default, once. A recipe takes this and changes a few lines."""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

SIZES = {
    "tiny": dict(layers=4, width=128, heads=4, train_length=128, batch_size=32, steps=600),
    "small": dict(layers=6, width=384, heads=6, train_length=256, batch_size=64, steps=5_000),
    "base": dict(layers=12, width=512, heads=8, train_length=512, batch_size=64, steps=20_000),
    "125m": dict(layers=12, width=768, heads=12, train_length=1024, batch_size=256, steps=20_000),
}


def get_config(size: str = "tiny") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; have: {', '.join(SIZES)}")
    sizes = SIZES[size]
    config = ConfigDict()
    config.seed = 0  # of the weights, the order of the data, and every draw in training
    config.train_length = sizes["train_length"]  # L: tokens per row
    config.batch_size = sizes["batch_size"]  # rows per step
    config.steps = sizes["steps"]
    config.stop_at = 0  # save and stop here, exit 75; the same command then goes on; 0: never
    config.init_from = ""  # a workdir to take the weights from
    config.original_length = placeholder(
        int
    )  # L of the encoding; None: init_from's, or train_length

    config.model = ConfigDict()
    config.model.layers = sizes["layers"]
    config.model.width = sizes["width"]
    config.model.heads = sizes["heads"]
    config.model.kv_heads = placeholder(int)  # groups of keys and values; None: one per head
    config.model.head_dim = placeholder(int)  # None: width / heads
    config.model.hidden = placeholder(int)  # of the MLP; None: 4 width (gelu), 8/3 width (swiglu)
    config.model.vocab = placeholder(int)  # None: that of the tokenizer
    config.model.norm = "rms"  # rms, layer
    config.model.norm_place = "pre"  # pre, post
    config.model.activation = "gelu"  # gelu, swiglu
    config.model.tied = True  # the output projection is the token embedding
    config.model.scan = placeholder(bool)  # layers as a loop; None: where they are more than 8
    config.model.remat = False  # compute each layer again in the backward pass, to save memory
    config.model.dtype = "float32"  # float32, bfloat16; parameters are float32 either way
    config.model.attention = "auto"  # auto, plain, blockwise, kernel

    config.encoding = ConfigDict({"name": "nope"})  # a file in posenc_jax/schemes, and its options
    config.encoding.per_layer = False  # True: each layer has trained arrays of its own
    config.extension = ConfigDict()  # in place while training
    config.extension.name = "none"
    config.extension.scale = 1.0
    # Its options; None: the default it has in posenc_jax/extensions.py.
    config.extension.beta_fast = placeholder(float)  # yarn, ntk_by_parts; so for the next two
    config.extension.beta_slow = placeholder(float)
    config.extension.truncate = placeholder(bool)
    config.extension.ramp = placeholder(str)  # yarn
    config.extension.attention_factor = placeholder(float)  # yarn
    config.extension.low = placeholder(float)  # llama3
    config.extension.high = placeholder(float)  # llama3
    config.extension.lambdas = placeholder(tuple)  # longrope, one per pair
    config.extension.base = placeholder(float)  # abf

    config.learning_rate = 3e-3
    config.encoding_rate = 1.0  # times the learning rate: that of the encoding's trained arrays
    config.schedule = "cosine"  # cosine; linear: constant, then down over the last fifth
    config.warmup_steps = min(100, sizes["steps"] // 10)
    config.final_rate = 0.1  # of the learning rate, at the last step
    config.weight_decay = 0.1  # of the matrices in the blocks, and of nothing else
    config.beta1 = 0.9
    config.beta2 = 0.95
    config.clip = 1.0  # largest global norm of a gradient
    config.skip_not_finite = False  # True: such a loss or gradient changes nothing; False: a stop
    config.accumulate = 1  # pieces a batch is cut into; the gradient is that of the whole

    config.data = ConfigDict()
    config.data.source = "stdlib"  # stdlib, text, jsonl, hub, synthetic
    config.data.path = ""  # files or globs with commas between; a data set's name for hub
    config.data.tokenizer = "bytes"  # bytes, a tokenizer.json, a folder with vocab and merges
    config.data.field = placeholder(str)  # of jsonl and hub, what holds the text; None: text
    config.data.split = placeholder(str)  # of hub; None: train
    # Of synthetic: copy, induction, passkey, delayed_repeat; None: copy.
    config.data.task = placeholder(str)
    config.data.documents = placeholder(int)  # of synthetic; None: 2,000
    config.data.document_length = placeholder(int)  # of synthetic, in tokens; None: 2,048
    config.data.valid_fraction = 0.1  # of the documents, chosen by a hash of their text
    config.data.choose_fraction = 0.0  # a third split, off the training side; to choose rates on
    config.data.mask_documents = False  # attention stays within a document
    config.data.cache = ""  # folder for tokens; empty: XDG_CACHE_HOME or ~/.cache, posenc-jax

    config.sharding = "replicated"  # of parameters and optimizer: replicated, fsdp

    config.distributed = False  # several processes train together; see docs/reliability.md

    config.log_every = 20  # steps; so for the next two
    config.valid_every = 200
    config.save_every = 200
    config.valid_batches = 16  # of batch_size rows
    config.keep = 2  # checkpoints

    config.wandb = ConfigDict()
    config.wandb.mode = (
        "auto"  # auto: online with a key, offline without; online, offline, disabled
    )
    config.wandb.project = "posenc-jax"
    config.wandb.name = ""  # empty: that of the workdir
    config.wandb.group = ""  # empty: that of the data, the tokenizer and the size
    config.wandb.dir = ""  # where wandb keeps its files; empty: the workdir
    config.wandb.required = False  # True: fail where wandb fails
    return config


def left_open(fields: ConfigDict) -> ConfigDict:
    """The same fields without values: those of the run that `init_from` names are taken."""
    return ConfigDict({name: placeholder(fields.get_type(name)) for name in fields})
