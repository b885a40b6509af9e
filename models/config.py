"""Configuration of the decoder: sizes, defaults and their checks, without jax."""

import dataclasses
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from posenc_jax import fields
from posenc_jax.checks import IMPLEMENTATIONS, LARGEST, LEAST, known
from posenc_jax.fields import above_zero, default, one_of, true_or_false, whole
from posenc_jax.registry import models

# Layers up to which an unrolled program is worth its compile time; on a GPU it also spares copies.
WRITTEN_OUT = {"cpu": 8, "gpu": 24, "tpu": 8}
FACTOR = above_zero(LEAST, LARGEST)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and options of the decoder; each field's description gives the meaning of None.

    The upper limits exceed any trainable size: jax would report such sizes later, less clearly.
    """

    layers: int = default(4, "number of layers", whole(1, 10_000))
    width: int = default(128, "D, size of the residual stream", whole(1, 2**20))
    heads: int = default(4, "H, number of attention heads", whole(1, 2**16))
    kv_heads: int | None = default(
        None, "G, number of key/value heads; None: one per head", whole(1, 2**16)
    )
    head_dim: int | None = default(
        None, "K, with latent_dim including rotary_dim; None: width / heads", whole(1, 2**16)
    )
    value_dim: int | None = default(None, "head size of values; None: K", whole(1, 2**16))
    latent_dim: int | None = default(
        None,
        "compute keys and values of all heads from one latent of this size, which the cache holds "
        "(MLA, DeepSeek-AI 2024, arXiv:2405.04434); None: compute them from the input",
        whole(1, 2**20),
    )
    rotary_dim: int | None = default(
        None,
        "with latent_dim: entries of each key that all heads share; only they are rotated, and the "
        "cache holds them beside the latent",
        whole(1, 2**16),
    )
    mlp_width: int | None = default(
        None,
        "hidden width of the MLP; None: 4 width, or 8/3 width if gated",
        whole(1, 2**24),
    )
    vocab: int | None = default(
        None, "V; None: that of the tokenizer, 256 for bytes", whole(1, 2**24)
    )
    bos: bool = default(
        False,
        "True: a trained vector (BOS) replaces the first token of each row, and of each document "
        "if attention is masked at document boundaries",
        true_or_false,
    )
    norm: str = default(
        "rms",
        "normalisation: rms, layer, layer_without_bias",
        one_of("rms", "layer", "layer_without_bias"),
    )
    norm_eps: float = default(
        1e-6, "added to the variance in every normalisation", above_zero(1e-30, 1)
    )
    qk_norm: bool = default(
        False,
        "True: queries and keys of each head are normalised (rms) before they are rotated",
        true_or_false,
    )
    qk_norm_of: str = default(
        "head",
        "what qk_norm normalises: each head, or all heads of a token together: head, all",
        one_of("head", "all"),
    )
    embed_scale: bool = default(
        False, "True: multiply the token embeddings by the root of D", true_or_false
    )
    embed_factor: float = default(1.0, "factor on the token embeddings", FACTOR)
    embed_norm: bool = default(False, "True: normalise the token embeddings", true_or_false)
    norm_place: str = default(
        "pre",
        "what is normalised: the input of each sublayer (pre), the sum after it (post), its output "
        "before the sum (output), or input and output (both)",
        one_of("pre", "post", "output", "both"),
    )
    parallel: bool = default(False, "True: attention and MLP read the same input", true_or_false)
    shared_norm: bool = default(False, "True: with parallel, they share a norm", true_or_false)
    residual_factor: float = default(1.0, "factor on the output of each sublayer", FACTOR)
    score_size: float | None = default(
        None, "scores of attention are q . k over the root of this; None: K", FACTOR
    )
    score_cap: float | None = default(
        None, "scores s become cap tanh(s / cap) before a bias is added; None: no cap", FACTOR
    )
    logit_factor: float = default(1.0, "factor on the logits of tokens", FACTOR)
    logit_cap: float | None = default(
        None, "logits l become cap tanh(l / cap) after their factor; None: no cap", FACTOR
    )
    activation: str = default(
        "gelu",
        "activation of the MLP: gelu (its tanh form), gelu_erf, swiglu, geglu (tanh form)",
        one_of("gelu", "gelu_erf", "swiglu", "geglu"),
    )
    biases: str = default(
        "none",
        "which linear maps of a layer have a bias: none, qkv, all",
        one_of("none", "qkv", "all"),
    )
    tied: bool = default(True, "use the token embedding as output projection", true_or_false)
    lora: int | None = default(
        None,
        "rank of a low-rank part of every linear map of a layer (LoRA, Hu et al. 2021, "
        "arXiv:2106.09685), times 2; None: no such part",
        whole(1, 2**16),
    )
    scan: bool | None = default(
        None,
        f"compile the layers as a loop; None: if more than {WRITTEN_OUT['cpu']}, on a GPU "
        f"{WRITTEN_OUT['gpu']}",
        true_or_false,
    )
    remat: bool = default(
        False, "recompute each layer in the backward pass, to save memory", true_or_false
    )
    dtype: str = default(
        "float32",
        "float32, bfloat16; new parameters are float32 either way",
        one_of("float32", "bfloat16"),
    )
    family: str = default(
        "transformer",
        f"a file of models/ with a line Model = ...: {', '.join(models())}",
        one_of(*models()),
    )
    attention: str = default(
        "auto",
        f"implementation of attention: {', '.join(IMPLEMENTATIONS)}",
        one_of(*IMPLEMENTATIONS),
    )

    def __post_init__(self):
        values = vars(self)
        for mistake in (*fields.mistakes(Config, values).values(), *mistakes(values)):
            raise ValueError(mistake)

    @classmethod
    def of(cls, fields: Mapping) -> "Config":
        for name in fields:
            known("model option", name, cls.__dataclass_fields__)
        return cls(**fields)

    @property
    def vocab_size(self) -> int:
        return self.vocab or 256

    @property
    def head_size(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def value_size(self) -> int:
        return self.value_dim or self.head_size

    @property
    def held_sizes(self) -> tuple[int, int, int]:
        """Heads of a cache, and the sizes of their keys and values."""
        if self.latent_dim is None or self.rotary_dim is None:
            return self.groups, self.head_size, self.value_size
        return 1, self.rotary_dim, self.latent_dim

    def scanned(self, platform: str) -> bool:
        return self.layers > WRITTEN_OUT[platform] if self.scan is None else self.scan

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "geglu")

    @property
    def hidden_size(self) -> int:
        wide = max(8, round(self.width / 3) * 8) if self.gated else 4 * self.width
        return self.mlp_width or wide


def mistakes(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Mistakes in fields of a decoder that depend on each other, with `prefix` before each name."""
    problems = []
    place = values["norm_place"]
    if values.get("parallel") is True and place != "pre":
        problems.append(f"{prefix}parallel needs {prefix}norm_place = 'pre'; got {place!r}")
    if values["shared_norm"] and not values["parallel"]:
        problems.append(f"{prefix}shared_norm has no effect without {prefix}parallel")
    if values["qk_norm_of"] == "all" and not values["qk_norm"]:
        problems.append(f"{prefix}qk_norm_of = 'all' has no effect without {prefix}qk_norm")
    width, heads = values["width"], values["heads"]
    if _is_size(width) and _is_size(heads):
        if values["head_dim"] is None and width % heads:
            problems.append(
                f"{prefix}width must be a multiple of {prefix}heads = {heads} unless "
                f"{prefix}head_dim is set; got {width}"
            )
        groups = values["kv_heads"]
        if _is_size(groups) and heads % groups:
            problems.append(
                f"{prefix}heads must be a multiple of {prefix}kv_heads = {groups}; got {heads}"
            )
    return problems + _of_latent(values, prefix)


def _of_latent(values: Mapping[str, Any], prefix: str) -> list[str]:
    latent, rotary, size = values["latent_dim"], values["rotary_dim"], values["head_dim"]
    if (latent is None) != (rotary is None):
        return [
            f"{prefix}latent_dim and {prefix}rotary_dim need each other; got {latent} and {rotary}"
        ]
    if latent is None:
        return []
    problems = [
        f"{prefix}{name} and {prefix}latent_dim are mutually exclusive"
        for name in ("kv_heads", "qk_norm")
        if values[name]
    ]
    width, heads = values["width"], values["heads"]
    if size is None and _is_size(width) and _is_size(heads):
        size = width // heads
    if _is_size(size) and _is_size(rotary) and rotary > size:
        problems.append(f"{prefix}rotary_dim must be at most K = {size}; got {rotary}")
    return problems


def _is_size(value: Any) -> bool:
    return isinstance(value, Integral) and int(value) >= 1
