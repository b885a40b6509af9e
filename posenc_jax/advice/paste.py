"""What to paste into an engine for a method, checked by the engine's own reading of it."""

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conformance.linter import ENGINES, RUN, lint
from posenc_jax.evaluation import methods
from posenc_jax.pretrained import saving
from posenc_jax.pretrained.rope import FULL, LOCAL_BASE, ORIGINAL
from posenc_jax.runs.subject import Subject
from posenc_jax.runtime.errors import ConfigError

LLAMA_CPP = "llama.cpp"
NAMES = (*ENGINES, LLAMA_CPP)
NEWER, OLDER = "rope_parameters", ("rope_scaling", "rope_theta", "rotary_emb_base", LOCAL_BASE)
ROPE = {NEWER, *OLDER, *saving.LENGTHS, ORIGINAL}


class Block(NamedTuple):
    """What an engine is given, and the reason if it computes something else."""

    text: str
    fault: str = ""


def blocks(
    subject: Subject, layouts: Sequence[str], own: str, method: str, target: int, model: str
) -> dict[str, Block]:
    """The block of each engine for a method on a model, which has an `own` extension or none."""
    encoding, _ = methods.extended_encoding(subject, method, target)
    stated, longest = own if method == "none" else method, max(target, subject.trained)
    try:
        sizes = subject.parts.model.config
        config = saving.config_with(layouts, sizes, encoding, longest, stated)
    except ConfigError:
        return dict.fromkeys(NAMES, Block("", "neither config.json nor flags state it"))
    found = {name: _of_config(name, config, target, model) for name in ENGINES}
    return found | {LLAMA_CPP: _of_llama_cpp(config, own, method, target, model)}


def _of_config(engine: str, config: Mapping[str, Any], target: int, model: str) -> Block:
    """Rope settings in the spelling that an engine reads, and what it makes of them."""
    newer = {n: config[n] for n in config if n in ROPE and n not in OLDER}
    older = {n: config[n] for n in config if n in ROPE and n != NEWER}
    if FULL in (config.get(NEWER) or {}):  # by kind of layer, which the older spelling lacks
        older = {n: config[n] for n in config if n in ROPE}
    given = older if engine in ("mlx-lm", "exllamav3") else newer
    words, plain = shlex.quote(json.dumps(given)), json.dumps(older, indent=2)
    model = model if not model.endswith(".gguf") else "MODEL"  # what the file was made of
    # A file's own rope_scaling would win over rope_parameters.
    both = json.dumps({"rope_scaling": None} | newer, indent=2)
    forms = {
        "transformers": f"In config.json, transformers 5:\n{both}\n\ntransformers 4:\n{plain}\n",
        "vllm": f"vllm serve {shlex.quote(model)} --max-model-len {target} "
        f"--hf-overrides {words}\n",
        "sglang": f"python -m sglang.launch_server --model-path {shlex.quote(model)} "
        f"--context-length {target} --json-model-override-args {words}\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        written = {n: config[n] for n in config if n not in ROPE} | given
        path.write_text(json.dumps(written), encoding="utf-8")
        lines, _ = lint(str(path), engine)
    faults = [line.partition("WRONG: ")[2] for line in lines if "  WRONG: " in line]
    rope = _wide(config)
    reached = rope.get("factor", 1) * rope.get(ORIGINAL, target)
    if engine == "vllm" and rope.get("rope_type") == "yarn" and reached < target:
        faults.append(f"it refuses rows beyond the factor times L, {reached:,.0f}")
    return Block(forms.get(engine, f"In config.json:\n{plain}\n"), "; ".join(faults))


def _wide(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rope settings of the layers that see everything."""
    parameters = config.get(NEWER) or {}
    return config.get("rope_scaling") or parameters.get(FULL, parameters)


def _of_llama_cpp(
    config: Mapping[str, Any], own: str, method: str, target: int, model: str
) -> Block:
    rope, flags = _wide(config), ""
    kind, factor = rope.get("rope_type", "default"), float(rope.get("factor", 1))
    if method != "none" and own != "none":
        return Block("", "the rope scaling in its file stays on")
    if kind == "default" and method != "none":
        flags = f" --rope-freq-base {rope.get('rope_theta', config.get('rope_theta')):.9g}"
    elif kind == "linear" and method != "none":
        flags = f" --rope-scaling linear --rope-scale {factor:g}"
    elif kind == "yarn" and rope.get("truncate", True) and "attention_factor" not in rope:
        flags = _yarn(rope, factor)
    elif method != "none":
        return Block("", f"it has no flags for rope type {kind!r} with such settings")
    file = model if model.endswith(".gguf") else "MODEL.gguf"
    return Block(f"llama-server -m {shlex.quote(file)} -c {target}{flags}\n")


def _yarn(rope: Mapping[str, Any], factor: float) -> str:
    words = f" --rope-scaling yarn --rope-scale {factor:g} --yarn-orig-ctx {rope[ORIGINAL]}"
    betas = [(n, rope[n]) for n in ("beta_fast", "beta_slow") if n in rope]
    return words + "".join(f" --yarn-{name.replace('_', '-')} {value:g}" for name, value in betas)


def found_of(engine: str, model_type: str) -> str:
    """What is known of the engine's reading, in words."""
    if engine == LLAMA_CPP:
        return "its rope function was tested, these flags were not"
    version = ENGINES[engine].version
    was_run = model_type in RUN.split() and model_type not in ENGINES[engine].not_run.split()
    return f"as {engine} {version} reads it{'' if was_run else f', untried for {model_type}'}"
