"""Write a model in the layout of Llama, as transformers and others read it."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding
from posenc_jax.pretrained.families import LLAMA_FAMILY, name_in_llama, places
from posenc_jax.pretrained.sources import SINGLE
from posenc_jax.runs.parameters import by_path
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import write_atomically
from posenc_jax.schemes._rotation import frequencies
from posenc_jax.schemes.rope import RoPE

FIXED = {  # values of keys without a field of ours
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
}
# Options of the decoder that the layout lacks.
NEUTRAL: dict[str, Any] = {
    "bos": False,
    "norm_place": "pre",
    "qk_norm": False,
    "embed_scale": False,
    "embed_norm": False,
    "parallel": False,
    "biases": "none",
    "latent_dim": None,
    "value_dim": None,
}


def save(
    model: Any,
    encoding: Encoding,
    encoder: tokenizer.Bytes | tokenizer.Learned,
    folder: Path | str,
    *,
    prefix: int | None = None,
    train_length: int | None = None,
) -> None:
    """Write config.json, model.safetensors and tokenizer.json.

    The tokenizer puts `prefix` before every text. The longest length stated is L times the scale of
    the extension, or `train_length` if that is longer. A ConfigError lists what has no form in the
    layout.
    """
    from safetensors.numpy import save_file

    folder = Path(folder)
    problems = _without_form(model.config, encoding)
    if problems:
        raise ConfigError("layout llama has no form for:\n  " + "\n  ".join(problems))
    assert isinstance(encoding, RoPE)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = _arrays(model)
    save_file(arrays, folder / SINGLE, {"format": "pt"})
    written, settings = _tokenizer(encoder, prefix)
    write_atomically(folder / "tokenizer.json", written)
    shutil.copymode(folder / "tokenizer.json", folder / SINGLE)  # safetensors makes it private
    write_atomically(folder / "tokenizer_config.json", json.dumps(settings, indent=2))
    config = {ours: getattr(model.config, ours) for ours in LLAMA_FAMILY.sizes}
    config |= {
        "kv_heads": model.config.groups,
        "head_dim": model.config.head_size,
        "mlp_width": model.config.hidden_size,
        "vocab": model.config.vocab_size,
    }
    theirs = {key: config[ours] for ours, key in LLAMA_FAMILY.sizes.items()}
    kind = str(arrays[next(iter(arrays))].dtype)
    theirs |= FIXED | {"torch_dtype": kind, "dtype": kind} | _rotary(encoding, train_length or 0)
    write_atomically(folder / "config.json", json.dumps(theirs, indent=2))


PASSING = ("window", "chunk", "temperature", "stretch", "topk")


def _without_form(config: Any, encoding: Encoding) -> list[str]:
    wanted = NEUTRAL | dict(LLAMA_FAMILY.options)
    problems = [
        f"model.{name} = {getattr(config, name)!r}, only {value!r}"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]
    if type(encoding) is not RoPE:
        return [*problems, f"encoding {encoding.name!r}, only 'rope' with fixed numbers"]
    unlike = [getattr(encoding, name) for name in PASSING]
    if encoding.logn or encoding.layers or any(one is not None for one in unlike):
        problems.append("windows, temperatures, logn, top-k and numbers per layer")
    shape = encoding.inv_freq.shape
    whole = shape == (config.head_size // 2,) and encoding.gain.ndim == 0
    if not whole or encoding.layout != "half" or encoding.alpha is not None:
        problems.append("RoPE of part of a head, per head, interleaved or trained")
    elif encoding.imaginary:
        problems.append("RoPE with imaginary heads")
    elif not np.all(np.asarray(encoding.inv_freq) > 0):
        problems.append("RoPE with pairs that do not turn")
    return problems


def _rotary(rope: RoPE, trained: int) -> dict[str, Any]:
    """Rotary settings in both spellings: the base alone, or a factor per pair (LongRoPE's form).

    Every extension with fixed numbers is a factor per pair of the frequencies as built.
    """
    freq, base = np.asarray(rope.inv_freq, np.float64), float(str(rope.base))
    pairs, gain, length = len(freq), float(rope.gain), rope.train_length
    built = frequencies(base, 2 * pairs)
    grown = freq[-1] ** (-pairs / max(1, pairs - 1))
    rounded = [float(f"{grown:.{digits}g}") for digits in (4, 7)]
    theta = next((t for t in (base, *rounded, grown) if _is_series(freq, t)), None)
    if gain == 1 and theta is not None:
        settings: dict[str, Any] = {"rope_type": "default"}
        longest, scale = length, float(f"{built[-1] / freq[-1]:.4g}")
        # NTK's scale is round and the base that it makes is not; abf has no scale.
        if theta not in (base, rounded[0]) and np.isclose(built[-1], scale * freq[-1], 2e-7, 0):
            longest *= max(1.0, scale)
    else:
        factors = (built / freq).tolist()
        theta, factor = base, max(1.0, factors[-1])
        longest = factor * length
        settings = {
            "rope_type": "longrope",
            "factor": factor,
            "original_max_position_embeddings": length,
            "short_factor": factors,
            "long_factor": factors,
            "attention_factor": gain,
        }
    scaling = None if settings["rope_type"] == "default" else settings
    return {
        "max_position_embeddings": max(trained, math.ceil(longest * (1 - 1e-6))),  # of float32
        "rope_theta": theta,
        "rope_scaling": scaling,
        "rope_parameters": settings | {"rope_theta": theta},
    }


def _is_series(freq: np.ndarray, base: float) -> bool:
    """True if these float32 are the frequencies of a base."""
    return np.allclose(freq, frequencies(base, 2 * len(freq)), rtol=2e-7, atol=0)


def _arrays(model: Any) -> dict[str, np.ndarray]:
    ours = {f"model.{name}": leaf for name, leaf in by_path(model).items()}
    arrays = {}
    for name, (row, parameter, layer) in places(LLAMA_FAMILY.names, model.config.layers).items():
        path = f"{row.ours[0]}.{row.parameters[parameter]}"
        if path not in ours:
            continue
        array = np.asarray(ours[path])
        array = array[layer] if path.startswith("model.blocks.") else array
        array = array.T if row.transposed and array.ndim == 2 else array
        arrays[name_in_llama(name)] = np.ascontiguousarray(array)
    return arrays


def _tokenizer(
    encoder: tokenizer.Bytes | tokenizer.Learned, prefix: int | None
) -> tuple[str, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json."""
    import tokenizers

    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings["add_bos_token"] = prefix is not None
    own = encoder.tokenizer if isinstance(encoder, tokenizer.Learned) else tokenizer.bytes_as_bpe()
    if prefix is not None:
        own = tokenizers.Tokenizer.from_str(own.to_str())  # a copy
        settings["bos_token"] = first = own.id_to_token(prefix)
        own.post_processor = tokenizers.processors.TemplateProcessing(
            single=[first, "$A"], special_tokens=[(first, prefix)]
        )
    return own.to_str(), settings
