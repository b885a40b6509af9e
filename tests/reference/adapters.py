"""Other libraries, to be asked as `conformance` asks a function; libraries.py asks them.

An adapter imports its library, in a process of its own, and returns functions by subject. Most have
one of `configuration`, by which older subjects are asked too; and, where rotated keys are cached,
one that makes a rotation of a configuration. What a library imports and the rotation does not need
is replaced by mocks.
"""

import ctypes
import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

from conformance.reading import FULL, KEYS, LATENT, LONGEST, ORIGINAL, by_kind, settings

LLAMA3 = f"low_freq_factor high_freq_factor {ORIGINAL}"


def same(*arguments, **_):
    """A decorator that changes nothing, with arguments or without."""
    return arguments[0] if arguments and callable(arguments[0]) else lambda each: each


def nothing(*_, **__):
    """A function that does nothing, or the constructor of a mock."""


def mock(_, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Mocked(name, (), {}) if name[0].isupper() and not name.isupper() else MagicMock()


class Mocked(type):
    """The class of classes that take any arguments and can be inherited from."""

    def __new__(cls, name, bases, members):
        anything = {} if bases else {"__init__": nothing, "__getattr__": mock}
        return super().__new__(cls, name, bases, anything | members)

    def __init__(self, name, bases, members, **_):
        super().__init__(name, bases, members)

    __getattr__ = mock


class Stub(ModuleType):
    __getattr__ = mock


@dataclasses.dataclass
class Stubs:
    """A finder of empty modules in place of all of some packages but the wanted ones."""

    roots: list[str]
    wanted: list[str]
    given: dict[str, dict]

    def find_spec(self, name, path=None, target=None):
        wanted = any(name == each or name.startswith(each + ".") for each in self.wanted)
        if name.partition(".")[0] not in self.roots or wanted:
            return None
        spec = ModuleSpec(name, self, is_package=True)
        if any(each.startswith(name + ".") for each in self.wanted):
            real = PathFinder.find_spec(name, path)
            spec.submodule_search_locations = list(real.submodule_search_locations)
        return spec

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        vars(module).update(self.given.get(module.__name__, {}))


def only(roots: str, names: str, **given) -> list[ModuleType]:
    """Import modules of the first package of `roots`, all else in these packages being mocks but
    the attributes `given` by module. `a.b: c d` stands for `a.b.c a.b.d`."""
    wanted, within = [], ""
    for name in names.split():
        if name.endswith(":"):
            within = name[:-1] + "."
        else:
            wanted.append(f"{roots.split()[0]}.{within}{name}")
    given = {name.replace("__", "."): members for name, members in given.items()}
    sys.meta_path.insert(0, Stubs(roots.split(), wanted, given))
    return [importlib.import_module(name) for name in wanted]


def turned(row) -> dict:
    """Frequencies and factor of the cosines and sines of position 1."""
    cos, sin = np.split(np.asarray(row, np.float64), 2)
    return {"inv_freq": np.arctan2(sin, cos), "attention_factor": np.hypot(cos, sin)[0]}


def measured(rotate: Callable, rope, length=None, size=0, neighbours=False) -> dict:
    """The same of a rotation of rows [T, K] with the settings `rope`."""
    order = np.arange(rope["rotary_dims"])
    order = order.reshape(-1, 2).T.reshape(-1) if neighbours else order
    x = np.zeros((max(2, length or 0), max(size, len(order))), np.float32)
    x[:, order[: len(order) // 2]] = 1
    return turned(np.asarray(rotate(x))[1, order])


def size_of(config) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def model_type(config) -> str:
    kind = config.get("model_type") or ("laguna" if by_kind(config) else "llama")
    return {"kimi_k2": "deepseek_v3"}.get(kind, kind)


def on_logits(attention, config) -> dict:
    """The factor of an attention's scale, but for Gemma 4's, whose keys are scaled otherwise."""
    sizes = [getattr(attention, name, None) for name in ("qk_head_dim", "q_head_dim")]
    scales = [getattr(attention, name, None) for name in ("scaling", "scale", "sm_scale")]
    size, scale = (next(filter(None, each)) for each in ([*sizes, size_of(config)], scales))
    return {} if model_type(config) == "gemma4_text" else {"logit_factor": scale * size**0.5}


def of_class(config):
    """transformers' configuration of the model type, or of Llama where it has none."""
    from transformers import CONFIG_MAPPING

    kind = model_type(config)
    config = {"moe_layer_freq": 1} | json.loads(json.dumps(config))  # DeepSeek's, not rotary
    if "layer_types" in config:
        config["num_hidden_layers"] = len(config["layer_types"])
    return CONFIG_MAPPING[kind if kind in CONFIG_MAPPING else "llama"](**config)


def of_server(models, config, made, layer_type, **known):
    """The rotation and the factor on logits of a layer that an engine builds: its class is given
    what the configuration has, and mocks of the rest."""
    kind = model_type(config)
    name = "llama" if kind in ("phi3", "internlm2", "hunyuan_v1_dense") else kind.split("_text")[0]
    name = {"deepseek_v3": "deepseek_v2"}.get(name, name)
    modules = {module.__name__.rpartition(".")[2].split("_causal")[0]: module for module in models}
    modules |= {"olmo3": modules.get("olmo2"), "ministral3": modules.get("mistral")} | modules
    if modules.get(name) is None:
        raise NotImplementedError(f"its model of {kind} was not run")
    ends = ("DecoderLayer", "OAIAttention")
    (of,) = (
        of
        for each, of in vars(modules[name]).items()
        if each.endswith(ends) and of.__module__ == modules[name].__name__
    )
    kinds = list(getattr(made, "layer_types", None) or [layer_type])
    index = kinds.index(layer_type)
    known |= {"config": made, "prefix": f"layers.{index}", "layer_id": index, "layer_idx": index}
    arguments = {
        name: known[name] if name in known else getattr(made, name, None) or MagicMock()
        for name, parameter in inspect.signature(of).parameters.items()
        if name in known or parameter.default is parameter.empty
    }
    layer = of(**arguments)
    attention = getattr(layer, "self_attn", layer)
    return attention.rotary_emb, on_logits(attention, config)


def transformers():
    import torch
    from transformers import MODEL_MAPPING
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    def built(config, layer_type=FULL):
        made = of_class(config)
        model = vars(sys.modules[MODEL_MAPPING[type(made)].__module__])
        rotary, attention = (
            [each for name, each in model.items() if name.endswith(ending)][-1]
            for ending in ("RotaryEmbedding", "Attention")
        )
        rotary = rotary(made)
        kind = {"layer_type": layer_type} if hasattr(rotary, "layer_types") else {}

        def angles(start, stop):
            out = rotary(torch.ones(1), torch.arange(start, stop)[None], **kind)
            return out if isinstance(out, tuple) else (out.real, out.imag)  # DeepSeek-V2's phases

        return made, attention, angles

    def read(config, length, layer_type):
        made, attention, angles = built(config, layer_type)
        pairs = settings(config, layer_type)["rotary_dims"] // 2
        row = torch.cat([each[0, 1, :pairs] for each in angles(0, max(2, length or 0))])
        heads = {"num_heads": 1} if "num_heads" in inspect.signature(attention).parameters else {}
        with torch.device("meta"):
            return turned(row) | on_logits(attention(made, layer_idx=0, **heads), config)

    def rotator(config):
        angles = built(config)[2]

        def rotate(x, start):
            x = torch.from_numpy(x)[None, None]
            return apply_rotary_pos_emb(x, x, *angles(start, start + x.shape[2]))[0][0, 0].numpy()

        return rotate

    return {"configuration": read, "rotator": rotator}


def mlx_lm():
    import mlx.core as mx

    only("mlx_lm", "models")

    def built(config, layer_type=FULL):
        kind = model_type(config)
        kind = kind if importlib.util.find_spec(f"mlx_lm.models.{kind}") else "llama"
        theirs = importlib.import_module(f"mlx_lm.models.{kind}")
        kinds = config.get("layer_types", ["sliding_attention"] * 5 + [FULL])
        fields, missing = dataclasses.fields(theirs.ModelArgs), dataclasses.MISSING
        filled = {
            each.name: 1 for each in fields if each.default is each.default_factory is missing
        }
        filled |= {"hidden_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1}
        filled |= {"num_hidden_layers": len(kinds), "layer_types": kinds, "num_kv_shared_layers": 0}
        args = theirs.ModelArgs.from_dict(filled | json.loads(json.dumps(config)))
        layer = theirs.Model(args).layers[kinds.index(layer_type)]  # weights are never computed
        return getattr(layer, "self_attn", None) or layer.attention

    def rotator(config, *layer_type):
        rope = built(config, *layer_type).rope
        return lambda x, start=0: np.array(rope(mx.array(x)[None, None], offset=start))[0, 0]

    def read(config, length, layer_type):
        attention = built(config, layer_type)
        neighbours = getattr(attention.rope, "traditional", LATENT in config)
        size = 0 if LATENT in config else size_of(config)
        rope = settings(config, layer_type)
        got = measured(rotator(config, layer_type), rope, length, size, neighbours)
        return got | on_logits(attention, config)

    return {"configuration": read, "rotator": rotator}


def vllm():
    import torch

    class Op(torch.nn.Module):
        register, enabled = staticmethod(same), staticmethod(nothing)

    server = MagicMock(use_mla=False)
    configs, _, rotary, *models = only(
        "vllm flashinfer triton",
        "transformers_utils.config config.utils model_executor.layers.rotary_embedding "
        "model_executor.models: llama mistral qwen2 qwen3 gpt_oss gemma3 glm4_moe laguna "
        "deepseek_v2",
        vllm={"envs": SimpleNamespace(VLLM_USE_MODELSCOPE=False)},
        vllm__config={"get_current_vllm_config": lambda: MagicMock(model_config=server)},
        vllm__distributed={"get_tensor_model_parallel_world_size": lambda: 1},
        vllm__model_executor__custom_op={"CustomOp": Op},
        vllm__model_executor__models__utils={"extract_layer_index": lambda name: int(name[7])},
    )
    rotary.base.ApplyRotaryEmb = nothing  # of kernels

    def read(config, length, layer_type):
        made = of_class(config)
        configs.patch_rope_parameters(made)
        rotary._ROPE_DICT.clear()  # its keys lack the length that a server is for
        server.hf_config, server.max_model_len = made, length or made.max_position_embeddings
        known = {"vllm_config": MagicMock(model_config=server)}
        rope, factor = of_server(models, config, made, layer_type, **known)
        table = getattr(rope, "cos_sin_cache", None)
        if table is None:  # LongRoPE's two tables
            start = rope.original_max_position_embeddings if rope.use_long_rope else 0
            table = rope.long_short_cos_sin_cache[start:]
        return turned(table[1]) | factor

    return {"configuration": read}


def sglang():
    import torch
    import torch.utils.flop_counter  # noqa: F401, before mocks, which it would take for triton's

    class Op(torch.nn.Module):
        def __init__(self, *_, **__):
            super().__init__()

    torch.Tensor.cuda = lambda self, *_, **__: self
    utils = dict.fromkeys([f"is_{x}" for x in "hip cuda npu xpu cpu musa mps".split()], nothing)
    utils |= {"get_bool_env_var": nothing, "cpu_has_amx_support": nothing, "add_prefix": nothing}
    ranks = MagicMock(tp_size=1, attn_tp_size=1, dwdp_size=1, attn_dcp_size=1)
    *models, laguna, olmo3, _, common, _ = only(
        "sglang sgl_kernel flashinfer einops modelscope",
        "srt.models: deepseek_v2 llama ministral3 qwen2 qwen3 gpt_oss gemma3_causal glm4_moe "
        "laguna olmo2 srt: configs.laguna configs.olmo3 configs.model_config "
        "utils.hf_transformers.common layers.rotary_embedding",
        sglang__srt__utils=utils | {"get_device": lambda: "cpu"},
        sglang__kernels__fused_op={"BaseFusedOp": Op},
        sglang__srt__runtime_context={"publish_role": same, "get_parallel": lambda: ranks},
        sglang__srt__layers__layer_boundary={"append_stages": lambda *_, **__: (None, None)},
        sglang__srt__layers__moe__ep_moe__layer={
            "get_moe_impl_class": lambda _: Mocked("", (), {})
        },
    )
    models[0].DeepseekV2MoE = MagicMock()
    for each in "mha mla mla_fused_rope_rocm mla_fused_rope_cpu".split():  # the kernels' own
        setattr(models[0].DeepseekV2AttentionMLA, f"init_{each}_forward", nothing)
    for model in models:
        model.get_rope_config = common.get_rope_config  # else of a mock that exports it

    def read(config, length, layer_type):
        own = {"laguna": laguna.LagunaConfig, "olmo3": olmo3.Olmo3Config}.get(model_type(config))
        made = own(**config) if own else of_class(config)
        rotary, factor = of_server(models, config, made, layer_type)
        if hasattr(rotary, "cos_sin_cache"):
            return turned(rotary.cos_sin_cache[1]) | factor

        def rotate(x):
            return rotary(torch.arange(len(x)), torch.from_numpy(x), torch.from_numpy(x))[0]

        return measured(rotate, settings(config, layer_type), length, size_of(config)) | factor

    return {"configuration": read}


def exllamav3():
    model, ropes, file, *models = only(
        "exllamav3",
        "model.config util.rope util.file architecture: llama phi3 qwen2 qwen3 gpt_oss gemma3 "
        "glm4_moe olmo3 laguna ministral3 deepseek_v3",
    )

    def init(self, excerpt, *_, **__):
        self.config_dict, self.vocab_size = excerpt, 1

    def read_cfg(self, types, keys, default=file.no_default):
        """What the excerpt lacks is 1."""
        default = 1 if default == file.no_default else default
        return file.read_dict(self.config_dict, types, keys, default)

    model.Config.__init__, model.Config.read_cfg = init, read_cfg
    model.Config.assert_cfg = nothing
    classes = {name.lower(): of for module in models for name, of in vars(module).items()}

    def read(config, length, layer_type):
        of = classes.get(model_type(config).replace("_", "") + "config")
        if of is None or settings(config)["rope_type"] == "dynamic":
            raise NotImplementedError(f"its model of {model_type(config)} was not run")
        kinds = config.get("layer_types", [FULL])
        made = of(config | {"num_hidden_layers": len(kinds), "layer_types": kinds})
        if length and settings(config)["rope_type"] == "longrope":
            made.override_dynamic_seq_len(length)
        names = ("_global", "") if layer_type == FULL else ("_local", "_swa", "")
        rope = [
            vars(made)[x] for x in (f"rope_settings{name}" for name in names) if hasattr(made, x)
        ]
        rope = rope[0] if rope else made.rope_settings_list[kinds.index(layer_type)]
        factor = {"logit_factor": made.sm_scale * made.head_dim**0.5} if LATENT in config else {}
        rope = ropes.RoPE("cpu", rope)
        return {"inv_freq": rope.inv_freq, "attention_factor": rope.attn_factor} | factor

    return {"configuration": read}


def easydel():
    rotary, configs, _ = only(
        "easydel spectrax eformer ejkernel chex",
        "layers.rotary._rotary layers.rotary._configs layers.rotary",
        chex={"dataclass": dataclasses.dataclass},
        easydel__utils={"ejit": same},
    )
    models = Path(rotary.__file__).parents[2] / "modules"

    def read(config, length, layer_type):
        if not (models / model_type(config)).exists():
            raise NotImplementedError(f"no model {model_type(config)}")
        rope = settings(config, layer_type)
        given = configs.RopeConfig.from_dict({ORIGINAL: config.get(ORIGINAL)} | rope["given"])
        sizes = (rope["rotary_dims"], rope["rotary_dims"], rope[LONGEST], rope["rope_theta"])
        table = np.asarray(rotary.get_frequencies(*sizes, given.to_dict()))
        halves = np.split(table.reshape(-1, table.shape[-1])[1], 2)
        return turned(np.concatenate([each[: rope["rotary_dims"] // 2] for each in halves]))

    return {"configuration": read}


def named(made: Callable, common="", **types) -> dict[str, Callable]:
    """The reader of a library of arguments, which are `theirs=ours`, or a name of both, for all
    rope types or for one; made(kind, rope, arguments) calls it."""

    def read(config, length, layer_type):
        rope = settings(config, layer_type) | {"length": length}
        if (kind := rope["rope_type"]) not in types:
            raise NotImplementedError(f"no rope type {kind}")
        pairs = [each.partition("=") for each in f"{common} {types[kind]}".split()]
        names = {theirs: ours or theirs for theirs, _, ours in pairs}
        if beyond := KEYS[kind][1] & set(rope) - set(names.values()) - {"factor"}:
            raise NotImplementedError(f"no argument {', '.join(sorted(beyond))}")
        rope = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True} | rope
        return made(kind, rope, {name: rope[ours] for name, ours in names.items() if ours in rope})

    return {"configuration": read}


def levanter():
    (rotary,) = only("levanter aqt", "layers.rotary")
    import haliax

    def made(kind, rope, _):
        config = rotary.RotaryEmbeddingsConfig.from_hf_config(rope["rope_theta"], rope["given"])
        head, row = haliax.Axis("head", rope["rotary_dims"]), haliax.Axis("row", 2)

        def rotate(x):
            out = config.build(head)(haliax.named(x, (row, head)), haliax.arange(row))
            return out.rearrange((row, head)).array

        return measured(rotate, rope)

    keys = " ".join(KEYS["yarn"][1])  # it is given all, and takes some
    return named(made, default="", linear="", llama3="", yarn=keys)


def litgpt():
    (model,) = only("litgpt lightning lightning_utilities", "model")

    def made(kind, rope, given):
        if kind == "yarn":
            given = {"mscale": 1.0} | given  # how its configurations ask for a factor
        config = {"rope_n_elem": rope["rotary_dims"], "rope_base": rope["rope_theta"]}
        config |= {"rope_condense_ratio": 1, "rope_local_base_freq": None}
        config = SimpleNamespace(rope_adjustments=given, **config)
        tables = model.GPT.rope_cache(SimpleNamespace(config=config, max_seq_length=2))
        return turned(np.concatenate([each[1].chunk(2)[0] for each in tables]))

    llama3 = f"low_freq_factor high_freq_factor original_max_seq_len={ORIGINAL}"
    yarn = f"beta_fast beta_slow mscale mscale_all_dim truncate original_max_seq_len={ORIGINAL}"
    return named(made, "factor", default="", linear="", llama3=llama3, yarn=yarn)


def keras_hub():
    os.environ["KERAS_BACKEND"] = "jax"
    (plain,) = only(
        "keras_hub",
        "src.layers.modeling.rotary_embedding",
        keras_hub__src__api_export={"keras_hub_export": same},
    )

    def made(kind, rope, given):
        if kind == "dynamic":
            longer = max(rope["length"] or 0, rope[LONGEST]) / rope[LONGEST]
            given["scaling_factor"] = rope["factor"] * longer - (rope["factor"] - 1)
        layer = plain.RotaryEmbedding(**given)
        return measured(lambda x: layer(x[None])[0], rope)

    common = "max_wavelength=rope_theta scaling_factor=factor rope_type"
    yarn = f"beta_fast beta_slow truncate {ORIGINAL}"
    return named(made, common, default="", linear="", dynamic="", yarn=yarn)


def olmo_core():
    import torch

    (ropes,) = only(
        "olmo_core",
        "nn.rope",
        olmo_core__config={"Config": object, "StrEnum": StrEnum},
        olmo_core__nn__config={"ModuleConfig": object},
    )

    def made(kind, rope, given):
        if kind == "llama3":
            given["low_freq_proportion"] = 1 - 1 / rope["low_freq_factor"]
            given["high_freq_proportion"] = 1 / rope["high_freq_factor"]
        name = {"linear": "PI", "llama3": "Stepwise", "yarn": "YaRN"}[kind]
        config = vars(ropes)[f"{name}RoPEScalingConfig"](**given)
        sizes = rope["rope_theta"], rope["rotary_dims"], torch.device("cpu")
        inv_freq, factor = config.compute_scaled_inv_freq(*sizes)
        return {"inv_freq": inv_freq, "attention_factor": factor}

    trained = f"old_context_len={ORIGINAL}"
    yarn = f"beta_fast beta_slow {trained}"
    return named(made, "factor", linear="", llama3=trained, yarn=yarn)


def megatron_core():
    import torch

    torch.cuda.current_device = lambda: "cpu"
    yarn, plain = only(
        "megatron",
        "core.models.common.embeddings: yarn_rotary_pos_embedding rotary_pos_embedding",
        megatron__core__utils={"internal_api": same},
    )
    yarn.YarnRotaryEmbedding._set_cos_sin_cache = nothing

    def made(kind, rope, given):
        given |= {"rotary_percent": 1.0, "use_cpu_initialization": True}
        if kind == "yarn":
            table, factor = yarn.YarnRotaryEmbedding(**given).get_emb(2)
            row = table[1, 0, 0].chunk(2)[0]
            return {"inv_freq": row, "attention_factor": factor}
        return {"inv_freq": plain.RotaryEmbedding(**given).get_freqs_non_repeated(2)[1]}

    names = "scaling_factor=factor beta_fast beta_slow mscale mscale_all_dim "
    names += f"correction_range_round_to_int=truncate {ORIGINAL}"
    linear = "seq_len_interpolation_factor=factor"
    common = "rotary_base=rope_theta kv_channels=rotary_dims"
    return named(made, common, default="", linear=linear, yarn=names)


def torchtune():
    (ropes,) = only("torchtune", "models.llama3_1._position_embeddings")
    names = "dim=rotary_dims base=rope_theta scale_factor=factor low_freq_factor high_freq_factor "
    return named(
        lambda kind, rope, given: {"inv_freq": ropes.Llama3ScaledRoPE(**given).theta},
        llama3=names + f"old_context_len={ORIGINAL}",
    )


def torchtitan():
    ropes, _ = only("torchtitan spmd_types", "models.common.rope protocols.module")

    def made(kind, rope, given):  # its models have the factor
        kind = {} if kind == "default" else {"scaling": {"llama3": "llama"}.get(kind, kind)}
        config = ropes.ComplexRoPE.Config(max_seq_len=2, **given, **kind)
        return {"inv_freq": ropes.ComplexRoPE(config).cache[1].angle()}

    yarn = f"rope_factor=factor beta_fast beta_slow truncate original_seq_len={ORIGINAL}"
    common, llama3 = "dim=rotary_dims theta=rope_theta", f"scaling_factor=factor {LLAMA3}"
    return named(made, common, default="", llama3=llama3, yarn=yarn)


def maxtext():
    (embeddings,) = only("maxtext", "layers.embeddings")

    def made(kind, rope, given):
        given |= {"mesh": None, "cast_as_fprop_dtype": False}
        if kind != "yarn":
            return {"inv_freq": 1 / embeddings.RotaryEmbedding(1, **given).timescale}
        given |= {"max_position_embeddings": 2, "interleave": False, "attention_scaling": True}
        rotary = embeddings.YarnRotaryEmbedding(**given)
        return measured(lambda x: rotary(x[None, :, None])[0, :, 0], rope)

    yarn = f"rope_theta rope_factor=factor beta_fast beta_slow truncate {ORIGINAL}"
    linear = "max_timescale=rope_theta rope_linear_scaling_factor=factor"
    common = "embedding_dims=rotary_dims"
    return named(made, common, default=linear, linear=linear, yarn=yarn)


def xllamacpp():
    """llama.cpp's ggml_rope_ext, called in the wheel's shared library."""
    folder = Path(importlib.util.find_spec("xllamacpp").origin).parent
    ggml = ctypes.CDLL(str(next(folder.glob("*.so"))), mode=os.RTLD_LAZY)
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float

    class Memory(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("buffer", pointer), ("no_alloc", ctypes.c_bool)]

    def function(name, *takes, returns=pointer):
        found = getattr(ggml, f"ggml_{name}")
        found.restype, found.argtypes = returns, takes
        return found

    init, free = function("init", Memory), function("free", pointer, returns=None)
    new, data = (
        function("new_tensor", pointer, whole, whole, pointer),
        function("get_data", pointer),
    )
    ext = function("rope_ext", *4 * [pointer], *3 * [whole], *6 * [real])
    graph, expand = function("new_graph", pointer), function("build_forward_expand", *2 * [pointer])
    compute = function("graph_compute_with_ctx", pointer, pointer, whole, returns=whole)

    def rotate(x, options):
        context = init(Memory(16 << 20, None, False))

        def tensor(array, kind):
            sizes = (ctypes.c_int64 * array.ndim)(*array.shape[::-1])
            made = new(context, kind, array.ndim, sizes)
            ctypes.memmove(data(made), array.ctypes.data, array.nbytes)
            return made

        rows, places = tensor(x[:, None].copy(), 0), tensor(np.arange(len(x), dtype=np.int32), 26)
        out, plan = ext(context, rows, places, None, x.shape[1], 2, *options), graph(context)
        expand(plan, out)
        assert compute(context, plan, 1) == 0
        result = np.empty_like(x)
        ctypes.memmove(result.ctypes.data, data(out), result.nbytes)
        free(context)
        return result

    def made(kind, rope, given):
        options = rope[ORIGINAL], rope["rope_theta"], 1 / rope["factor"], float(kind == "yarn"), 1.0
        return measured(lambda x: rotate(x, (*options, rope["beta_fast"], rope["beta_slow"])), rope)

    return named(made, default="", linear="", yarn="beta_fast beta_slow")


def x_transformers():
    import torch
    from x_transformers import x_transformers as theirs

    def rows(*arrays):  # [T, H, K] to [1, H, T, K]
        return (torch.from_numpy(each).transpose(0, 1)[None] for each in arrays)

    def xpos(q, k, positions, base):
        size = q.shape[-1]
        order = np.arange(size).reshape(2, -1).T.reshape(-1)  # its pairs are neighbours
        rotary = theirs.RotaryEmbedding(size, use_xpos=True, base=base)
        freqs, scale = rotary(torch.from_numpy(positions))
        q, k = rows(q[..., order], k[..., order])
        q = theirs.apply_rotary_pos_emb(q, freqs, scale)
        k = theirs.apply_rotary_pos_emb(k, freqs, scale**-1)
        return (q @ k.transpose(-1, -2))[0] / size**0.5

    def t5_bucket(distance, num_buckets, max_distance):
        bucket = theirs.RelativePositionBias._relative_position_bucket
        return bucket(-torch.from_numpy(distance), True, num_buckets, max_distance)

    def cope(scores, q_dot_e):
        length, positions = q_dot_e.shape
        cope = theirs.CoPE(dim=positions, heads=1, max_pos=positions)
        cope.pos_emb.data = torch.eye(positions)
        hidden = torch.ones(length, length).triu(1).bool()
        logits = torch.from_numpy(scores).masked_fill(hidden, -1e9)
        return cope(torch.from_numpy(q_dot_e)[None, None], logits[None, None])[0, 0]

    def fox(gate_logits):
        gates = theirs.DataDependentAlibi(dim=1, heads=1, bias_init=0.0)
        gates.to_forget_gates[0].weight.data.fill_(1.0)
        return gates(torch.from_numpy(gate_logits)[None, :, None])[0, 0]

    def relative(r, profiles):
        rank, extent = profiles.shape
        bias = theirs.RelativeProjPositionalBias(rank, 1, num_distance_basis=rank, max_dist=extent)
        bias.to_distance_weights[0].weight.data = torch.eye(rank)
        bias.to_distance_weights[0].bias.data.zero_()
        bias.distance_bank.data = torch.from_numpy(profiles)
        return bias(torch.from_numpy(r)[None])[0, 0]

    def pope(q, k, v, bias, base):
        length, heads, size = q.shape
        polar = theirs.PolarEmbedding(size, heads, base=base)
        polar.learned_bias.data = torch.from_numpy(bias)[:, None]
        freqs, learned = polar(torch.arange(length))
        q, k, v = rows(q, k, v)
        q, k = theirs.apply_polar_pos_emb(q, freqs), theirs.apply_polar_pos_emb(k, freqs + learned)
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=True, scale=size**-0.5)[0].transpose(0, 1)

    functions = {"xpos": xpos, "t5_bucket": t5_bucket, "cope": cope, "fox": fox}
    functions |= {"alibi_slopes": theirs.AlibiPositionalBias._get_slopes}
    return functions | {"relative": relative, "pope": pope}
