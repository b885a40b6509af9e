"""Read a pretrained model from a folder of safetensors, a GGUF file or an id of the Hub."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from posenc_jax.checks import LARGEST, LARGEST_SCALE, may_be_of_hub
from posenc_jax.data import tokenizer
from posenc_jax.fields import above_zero, between, true_or_false, whole
from posenc_jax.pretrained import families
from posenc_jax.pretrained.reading import REQUIRED, Key, an_object, each, only, read, text
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.files import expanded, read_json, reading
from posenc_jax.runtime.hub import connected


class Source(NamedTuple):
    """A model whose arrays are read when they are called for."""

    config: dict[str, Any]  # as in config.json
    arrays: Mapping[str, Callable[[], np.ndarray]]
    tokenizer: tokenizer.Learned
    prefix: int | None  # a token that is put before a text, which the model was trained with
    digest: str  # sha256 of the files
    quantised: tuple[str, ...] = ()  # types of arrays that are dequantised, the most frequent first


def digest_of(files: list[Path]) -> str:
    """sha256 of the contents of files, one after another."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PATTERNS = ["*.json", "*.safetensors", "tokenizer*", "vocab*", "merges*"]


def read_source(source: str | Path) -> Source:
    place = _place(source, PATTERNS)
    return read_gguf(place) if place.is_file() else _folder(place)


def config_of(source: str | Path) -> dict[str, Any]:
    """config.json, or what stands for it in a .gguf file, without weights."""
    place = _place(source, ["config.json"])
    return read_gguf(place).config if place.is_file() else _config(place)


def _place(source: str | Path, patterns: list[str]) -> Path:
    """The folder or the .gguf file of a source; files of these patterns come from the Hub."""
    place = expanded(source)
    if place.is_dir() or place.is_file() and place.suffix == ".gguf":
        return place
    if place.exists() or not may_be_of_hub(str(source)):
        raise ConfigError(
            "SOURCE must be a folder with config.json and *.safetensors, a .gguf file, or an id of "
            f"the Hugging Face Hub; got {str(source)!r}"
        )
    from huggingface_hub import snapshot_download

    what = (
        f"there is no folder {str(source)!r}, and no model of that name from the Hugging Face Hub"
    )
    with connected(what):
        return Path(snapshot_download(str(source), allow_patterns=patterns))


def _config(folder: Path) -> dict[str, Any]:
    with reading(folder / "config.json"):
        return read_json(folder / "config.json")


def _folder(folder: Path) -> Source:
    config = _config(folder)
    files = _shards(folder)
    encoder = tokenizer.Learned(folder)
    hashed = [folder / "config.json", *files, *sorted(folder.glob("tokenizer*.json"))]
    return Source(config, _arrays(files), encoder, _prefix(folder, encoder), digest_of(hashed))


def _shards(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        with reading(folder / INDEX):
            index = read("its index", read_json(folder / INDEX), {"weight_map": Key(an_object)})
            names = list(index["weight_map"].values())
            each(_file_name)("weight_map", names)
        paths = [folder / name for name in sorted(set(names))]
    else:
        single = folder / SINGLE
        paths = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
    missing = sorted({path.name for path in paths} - set(os.listdir(folder)))
    if missing or not paths:
        what = f"of its files {', '.join(missing)} are missing" if missing else "it has none"
        raise DataError(f"{folder}: weights are read from *.safetensors, and {what}")
    return paths


def _file_name(name: str, value: Any):
    text(name, value)
    if Path(value).name != value or not value.isprintable():
        raise ValueError(f"{name} must be the name of a file in the folder; got {value!r}")


def _arrays(files: list[Path]) -> dict[str, Callable[[], np.ndarray]]:
    arrays: dict[str, Callable[[], np.ndarray]] = {}
    for path in files:
        for name in _opened(path, lambda opened: list(opened.keys())):
            if name in arrays:
                raise DataError(f"{path}: {name} is in another file too")
            arrays[name] = partial(_opened, path, lambda opened, name=name: opened.get_tensor(name))
    return arrays


def _opened(path: Path, use: Callable[[Any], Any]) -> Any:
    """Opened anew for each array: an open file keeps every page in memory that was read of it."""
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as opened:
        return use(opened)


def _prefix(folder: Path, encoder: tokenizer.Learned) -> int | None:
    """`add_bos_token` decides, or what the tokenizer itself puts before a text."""
    path = folder / "tokenizer_config.json"
    with reading(path):
        file = read_json(path) if path.exists() else {}
        keys = {"add_bos_token": Key(true_or_false, None), "bos_token": Key(_token, None)}
        stated = read(path.name, file, keys)
    begins, token = stated["add_bos_token"], stated["bos_token"]
    with reading(folder):
        if begins is not None:
            content = token["content"] if isinstance(token, Mapping) else token
            return encoder.tokenizer.token_to_id(content) if begins and content else None
        encode = encoder.tokenizer.encode
        plain, whole = (encode("a", add_special_tokens=a).ids for a in (False, True))
        return whole[0] if whole[:1] != plain[:1] else None


def _token(name: str, value: Any):
    """Rule for a token, alone or in an object."""
    text(name, value.get("content") if isinstance(value, Mapping) else value)


ARCHITECTURE = "general.architecture"
STATED = re.compile(rb"\x14\0{7}general\.architecture\x08\0{3}(.{8})", re.DOTALL)  # then its text
# Families by architecture.
GGUF_KINDS = {kind: kind for kind in ("llama", "qwen2", "qwen3", "phi3")}
GGUF_KINDS |= {kind: f"{kind}_gguf" for kind in ("gemma2", "gemma3")}
PRE, ADD_BOS, BOS_ID = (f"tokenizer.ggml.{key}" for key in ("pre", "add_bos_token", "bos_token_id"))
TOKENS, TYPES, MERGES = (f"tokenizer.ggml.{key}" for key in ("tokens", "token_type", "merges"))
SCORES, SPACE, UNKNOWN = (
    f"tokenizer.ggml.{key}" for key in ("scores", "add_space_prefix", "unknown_token_id")
)
GGUF_TOKENIZER = {
    TOKENS: Key(each(text)),
    TYPES: Key(each(whole(0))),
    ADD_BOS: Key(true_or_false, None),
}
WORDS = {MERGES: Key(each(text))}
PIECES = {SCORES: Key(each(between(-LARGEST, LARGEST))), SPACE: Key(true_or_false, True)}
SPACES = "\u2581"  # a space in pieces
LLAMA3 = "llama-bpe"  # its words that are tokens are not merged, and BOS is usual
GGUF_FACTORS = "rope_freqs.weight"  # of Llama 3: what the frequency of each pair is divided by
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types; the latter are found before the text is split

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_gguf(path: Path) -> Source:
    import gguf

    with reading(path), path.open("rb") as stream:
        head = stream.read(2**26)  # the keys, of which the reader takes seconds
        if stated := STATED.search(head):
            length = int.from_bytes(stated[1], "little")
            _check_architecture(path, head[stated.end() : stated.end() + length].decode())
        reader = gguf.GGUFReader(path)
        facts = {name: _shortest(field.contents()) for name, field in reader.fields.items()}
        tensors: dict[str, Any] = {tensor.name: tensor for tensor in reader.tensors}
    kind = _check_architecture(path, facts.get(ARCHITECTURE))
    try:
        encoder, prefix = _gguf_tokenizer(facts, path)
        config = _gguf_config(facts, kind, tensors)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    names = _gguf_names(gguf, kind, config["num_hidden_layers"])
    paired = {}  # heads of the modules whose rotary layout is interleaved in the file
    if kind == "llama":
        paired = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    arrays: dict[str, Callable[[], np.ndarray]] = {}
    for name, tensor in tensors.items():
        theirs = names.get(name, name)
        heads = paired.get(theirs.removesuffix(".weight").rpartition(".")[2])
        arrays[theirs] = partial(_gguf_array, path, gguf, tensor, heads)
    numbers: Counter[str] = Counter()
    for tensor in tensors.values():
        if _is_quantised(gguf, tensor):
            numbers[tensor.tensor_type.name] += int(tensor.n_elements)
    quantised = tuple(kind for kind, _ in numbers.most_common())
    return Source(config, arrays, encoder, prefix, digest_of([path]), quantised)


def _check_architecture(path: Path, kind: Any) -> str:
    if kind not in list(GGUF_KINDS):
        have = ", ".join(GGUF_KINDS)
        raise ConfigError(f"{path}: architecture {kind!r:.80} is not supported; have: {have}")
    return kind


# Keys of config.json, and what stands for those that a file may lack.
GGUF_KEYS: Mapping[str, tuple[str, Any]] = {
    "block_count": ("num_hidden_layers", REQUIRED),
    "embedding_length": ("hidden_size", REQUIRED),
    "attention.head_count": ("num_attention_heads", REQUIRED),
    "attention.head_count_kv": ("num_key_value_heads", None),
    "attention.key_length": ("head_dim", None),
    "feed_forward_length": ("intermediate_size", REQUIRED),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", REQUIRED),
    "context_length": ("max_position_embeddings", None),
    "rope.freq_base": ("rope_theta", 1e4),
    "attention.sliding_window": ("sliding_window", None),
}
OWN_KEYS: Mapping[str, Mapping[str, tuple[str, Any]]] = {  # of architectures
    "gemma2": {
        "attention.sliding_window": ("sliding_window", 4096),
        "attn_logit_softcapping": ("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": ("final_logit_softcapping", 30.0),
    },
    "gemma3": {
        "rope.freq_base": ("rope_theta", REQUIRED),  # some files have two of other names
        "attention.sliding_window_pattern": ("sliding_window_pattern", 6),  # which most files lack
        "rope.freq_base_swa": ("rope_local_base_freq", 1e4),
    },
}
LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}  # layers of those with scores over another root


def _gguf_config(facts: dict[str, Any], kind: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """The settings in the spelling of config.json."""
    rules = families.rules_of(families.FAMILIES[GGUF_KINDS[kind]])
    own = {name.removeprefix(f"{kind}."): value for name, value in facts.items()}
    stated = {**GGUF_KEYS, **OWN_KEYS.get(kind, {})}
    keys = {name: Key(rules[theirs], usual) for name, (theirs, usual) in stated.items()}
    found = read(kind, own, keys)
    config = {theirs: found[name] for name, (theirs, _) in stated.items()}
    heads, window = config["num_attention_heads"], config["sliding_window"]
    size = config["head_dim"] or config["hidden_size"] // heads
    read(kind, own, {"rope.dimension_count": Key(only(size), size)})
    read(kind, own, {"attention.causal": Key(only(True), True)})
    if kind in LARGEST_GEMMA:
        largest = config["num_hidden_layers"] == LARGEST_GEMMA[kind]
        config["query_pre_attn_scalar"] = config["hidden_size"] / heads if largest else size
    rope = _gguf_rotary(own)
    if GGUF_FACTORS in tensors:
        factors = np.asarray(tensors.pop(GGUF_FACTORS).data, np.float64)
        rope |= _llama3(factors, config["rope_theta"])
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    config = {name: own.get(name) for name in caps} | config
    return config | {
        # Llama's architecture with windows is Mistral's.
        "model_type": "mistral" if kind == "llama" and window else GGUF_KINDS[kind],
        "num_key_value_heads": config["num_key_value_heads"] or heads,
        "head_dim": size,
        "vocab_size": len(facts[TOKENS]),
        "rope_scaling": rope,
        "num_local_experts": own.get("expert_count"),
        "use_sliding_window": window is not None,
        "tie_word_embeddings": "output.weight" not in tensors,
    }


def _gguf_rotary(own: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters` of a file, whose keys of YaRN have other names.

    A factor without a type is linear, and older files call it scale_linear, as llama.cpp reads it.
    """
    factor = own.get("rope.scaling.factor", own.get("rope.scale_linear"))
    scaling = own.get("rope.scaling.type", "linear" if factor else "none")
    for name in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier"):
        if f"rope.scaling.{name}" in own:  # a gain, which converters write with or
            raise ValueError(f"rope.scaling.{name} is not supported")  # without YaRN's own in it
    return {
        "rope_type": "default" if scaling == "none" else scaling,
        "factor": factor,
        "original_max_position_embeddings": own.get("rope.scaling.original_context_length"),
        "beta_fast": own.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": own.get("rope.scaling.yarn_beta_slow"),
    }


def _llama3(factors: np.ndarray, base: float) -> dict[str, Any]:
    """Llama 3's rule from the divisors of its pairs: those between 1 and the scale tell L."""
    each(above_zero(1, LARGEST_SCALE))(GGUF_FACTORS, factors.tolist())
    low, high, scale = 1.0, 4.0, float(factors.max())
    theta = base ** -(np.arange(len(factors)) / len(factors))
    between = (factors > 1) & (factors < scale)
    fastness = (1 / factors - 1 / scale) / (1 - 1 / scale) if scale > 1 else np.zeros_like(theta)
    lengths = (low + (high - low) * fastness[between]) * 2 * np.pi / theta[between]
    length = round(np.median(lengths)) if between.any() else 0
    expected = np.clip((length * theta / (2 * np.pi) - low) / (high - low), 0, 1)
    if not length or not np.allclose(fastness, expected, atol=1e-3):
        raise ValueError(
            f"{GGUF_FACTORS}: its factors are not those of Llama 3's rule (1 and 4 turns)"
        )
    return {
        "rope_type": "llama3",
        "factor": scale,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": length,
    }


def _shortest(value: Any) -> Any:
    """The decimal number that a float32 was written from: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _gguf_names(gguf: Any, kind: str, layers: int) -> dict[str, str]:
    """The names in config.json's family by those of the file."""
    chosen = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    mapped = gguf.get_tensor_name_map(chosen, layers)
    family = families.FAMILIES[GGUF_KINDS[kind]]
    return {
        found: theirs
        for theirs in map(family.name, families.places(family.names, layers))
        if (found := mapped.get_name(theirs, try_suffixes=(".weight", ".bias")))
    }


def _gguf_array(path: Path, gguf: Any, tensor: Any, heads: int | None) -> np.ndarray:
    """An array; with heads, its rows of pairs [H, K/2, 2] become halves [H, 2, K/2]."""
    with reading(path):
        rows = _dequantised(gguf, tensor)
        if heads is None:
            return rows
        pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
        return pairs.swapaxes(1, 2).reshape(rows.shape)


def _is_quantised(gguf: Any, tensor: Any) -> bool:
    is_bfloat16 = tensor.tensor_type == gguf.GGMLQuantizationType.BF16
    return tensor.data.dtype.kind != "f" and not is_bfloat16


def _dequantised(gguf: Any, tensor: Any) -> np.ndarray:
    if _is_quantised(gguf, tensor):
        return gguf.dequantize(tensor.data, tensor.tensor_type)
    array = np.asarray(tensor.data)
    return array if array.dtype.kind == "f" else array.view(ml_dtypes.bfloat16)


def _gguf_tokenizer(facts: dict[str, Any], path: Path) -> tuple[tokenizer.Learned, int | None]:
    """The tokenizer of a file, of one of two kinds, and the token that is put first."""
    import tokenizers

    kind, pre = facts.get("tokenizer.ggml.model"), facts.get(PRE)
    splitters = _pre_tokenizers(tokenizers)
    if kind != "llama" and (kind != "gpt2" or pre not in list(splitters)):
        raise ValueError(
            f"a tokenizer of kind {kind!r} with pre-tokenizer {pre!r} is not supported; "
            f"those that are: llama, and gpt2 with {', '.join(splitters)}"
        )
    pieces = kind == "llama"
    found = read("its tokenizer", facts, GGUF_TOKENIZER | (PIECES if pieces else WORDS))
    tokens, types = found[TOKENS], found[TYPES]
    begins = found[ADD_BOS] if found[ADD_BOS] is not None else pieces or pre == LLAMA3
    ids = {UNKNOWN: Key(whole(0, len(tokens) - 1), 0)} if pieces else {}
    ids |= {BOS_ID: Key(whole(0, len(tokens) - 1))} if begins else {}
    numbers = read("its tokenizer", facts, ids)
    with reading(path):
        if pieces:
            built = _of_pieces(tokenizers, found, tokens[numbers[UNKNOWN]])
        else:
            built = _of_words(tokenizers, found, pre, splitters)
        for kind, add in ((CONTROL, built.add_special_tokens), (USER_DEFINED, built.add_tokens)):
            chosen = [t for t, one in zip(tokens, types, strict=True) if one == kind]
            special = kind == CONTROL
            # Those of a text with spaces are found where its normalizer has replaced them.
            normalized = pieces and not special and not found[SPACE]
            options = {"normalized": normalized, "special": special}
            add([tokenizers.AddedToken(t, **options) for t in chosen])
    return tokenizer.Learned(path, read=built), numbers.get(BOS_ID)


def _of_words(tokenizers: Any, found: dict[str, Any], pre: Any, splitters: Any) -> Any:
    """A byte-level BPE, whose pre-tokenizer follows `tokenizer.ggml.pre`."""
    merges = [tuple(merge.split(" ")) for merge in found[MERGES]]
    vocabulary = {token: number for number, token in enumerate(found[TOKENS])}
    bpe = tokenizers.models.BPE(vocabulary, merges, ignore_merges=pre == LLAMA3)
    built = tokenizers.Tokenizer(bpe)
    if pre == "qwen2":
        built.normalizer = tokenizers.normalizers.NFC()
    built.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(splitters[pre])
    built.decoder = tokenizers.decoders.ByteLevel()
    return built


def _of_pieces(tokenizers: Any, found: dict[str, Any], unknown: str) -> Any:
    """The BPE of SentencePiece (Kudo and Richardson 2018, arXiv:1808.06226), which merges the two
    neighbours that make the piece of the highest score."""
    tokens, normalizers, decoders = found[TOKENS], tokenizers.normalizers, tokenizers.decoders
    ranked = zip(found[SCORES], tokens, found[TYPES], strict=True)
    scores = {token: score for score, token, kind in ranked if kind == NORMAL}
    merges = [
        (token[:cut], token[cut:])
        for token in sorted(scores, key=scores.__getitem__, reverse=True)
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    ]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    options = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": True}
    built = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, **options))
    before = [normalizers.Prepend(SPACES)] if found[SPACE] else []
    built.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", SPACES)])
    after = [decoders.Strip(" ", 1, 0)] if found[SPACE] else []
    plain = [decoders.Replace(SPACES, " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence([*plain, *after])
    return built


def _pre_tokenizers(tokenizers: Any) -> dict[str, list[Any]]:
    """Pre-tokenizers that split a text into words, then bytes, by `tokenizer.ggml.pre`."""
    of = tokenizers.pre_tokenizers
    words, whole = (of.ByteLevel(add_prefix_space=False, use_regex=one) for one in (True, False))

    def split(pattern: str) -> Any:
        return of.Split(tokenizers.Regex(pattern), "isolated")

    return {
        "smollm": [of.Digits(individual_digits=True), words],
        "gpt-2": [words],
        LLAMA3: [split(_LLAMA3), whole],
        "qwen2": [split(_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")), whole],
    }
