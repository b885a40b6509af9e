"""Fields of training and evaluation: each default once, with its description and its rule.

Nothing here imports jax. `configs/base.py` adds sizes; a recipe sets the fields it is about.
"""

import dataclasses
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference, placeholder

from models import Config as Model
from posenc_jax import composition, fields, registry
from posenc_jax.checks import (
    FARTHEST,
    LARGEST_SCALE,
    MOST,
    flag_or_token,
    positive,
    token_count,
)
from posenc_jax.data import sources
from posenc_jax.data.sources import EvaluationData, Origin
from posenc_jax.fields import above_zero, between, default, group, one_of, true_or_false, whole
from posenc_jax.registry import WANDB_MODES

INT64 = 2**63 - 1  # largest seed of jax

INDENTED: Any = {"initial_indent": " " * 6, "subsequent_indent": " " * 6}


def _each(rule: fields.Rule) -> fields.Rule:
    """Rule for every word of a comma-separated list."""

    def rule_of_list(name: str, value: str):
        problems = []
        for word in words(value) or ["nothing"]:
            try:
                rule(f"each of {name}", word)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))

    return rule_of_list


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The encoding of a run; other fields are options of the scheme, which a recipe names."""

    name: str = default(
        "nope",
        "a file in posenc_jax/schemes, or a module of your own: my_pkg.gaussian; its options are "
        "fields beside it",
        lambda _, value: registry.check("encoding", value),
    )
    per_layer: bool = default(
        False, "True: each layer has trained arrays of its own", true_or_false
    )
    sink: bool | str = default(
        False,
        "True: a trained logit per layer and head, without a value, in every softmax; token: a "
        "linear function of each token",
        flag_or_token,
    )
    options: Mapping[str, Any] = fields.options()


@dataclasses.dataclass(frozen=True)
class Extension:
    """The extension of a run; its options are fields beside it or in its name: `llama3:8:low=2`."""

    name: str = default(
        "none",
        "applied in training, such as yarn or yarn:beta_fast=16+logn; none: with init_from that of "
        "this run, if it has one",
        lambda _, value: composition.parts(value),
    )
    scale: float = default(1.0, "how many times L it reaches", above_zero(1, LARGEST_SCALE))
    options: Mapping[str, Any] = fields.options()


@dataclasses.dataclass(frozen=True)
class Data:
    """The text of a run; the fields of its source are beside these."""

    source: Origin = dataclasses.field(default_factory=lambda: sources.find("stdlib")())
    answers_only: bool = default(
        False, "True: where a text marks answers, compute the loss on them alone", true_or_false
    )
    prefix: int | None = default(
        None,
        "a token of the vocabulary that replaces the first token of each row, as a pretrained "
        "model expects; model.bos is a trained vector instead; None: no such token",
        whole(0, 2**24),
    )
    mask_documents: bool = default(False, "attention stays within a document", true_or_false)


@dataclasses.dataclass(frozen=True)
class Wandb:
    mode: str = default(
        "auto",
        "auto: online with a key, off without; online, offline, disabled",
        one_of(*WANDB_MODES),
    )
    project: str = default("posenc-jax", "project that runs are logged in")
    name: str = default("", "empty: the name of the workdir")
    group: str = default("", "empty: data, tokenizer, length and size")
    job: str = default("", "job type of the training, and a tag; empty: train, without a tag")
    dir: str = default("", "where wandb keeps its files; empty: the workdir")
    required: bool = default(False, "True: fail if wandb fails", true_or_false)


def _label(name: str, value: str):
    if len(value) > 80 or not value.isprintable():
        raise ValueError(f"{name} must be a line of printable letters, 80 at most; got {value!r}")


def _length(name: str, value: Any):
    whole(1, FARTHEST)(name, value)
    if value < 2:
        raise ValueError(
            f"{name} must be at least 2, so that a token has one before it; got {value}"
        )


def _profile(name: str, value: str):
    if value and profiled(value) is None:
        raise ValueError(f"{name} must be FIRST,LAST: two steps, such as 10,13; got {value!r}")


def profiled(value: str) -> range | None:
    """The steps that `profile` names; None if it names none."""
    edges = re.fullmatch(r"([1-9]\d{0,9}),(\d{1,10})", value, re.ASCII)
    return range(int(edges[1]), int(edges[2]) + 1) or None if edges else None


@dataclasses.dataclass(frozen=True)
class Training:
    label: str = default(
        "",
        "what tables and pictures call runs of this configuration; empty: the encoding, or the "
        "run's name",
        _label,
    )
    seed: int = default(
        0, "seed of the weights, the order of the data and every draw", whole(0, INT64)
    )
    train_length: int = default(128, "L: tokens per row", _length)
    batch_size: int = default(32, "rows per step", whole(1, 2**24))
    steps: int = default(600, "optimizer steps; also the length of the schedule", whole(1, MOST))
    stop_at: int = default(
        0, "save and stop here with exit 75; the same command resumes; 0: never", whole(0, INT64)
    )
    init_from: str = default("", "a run to take the weights from")
    anneal: str = default(
        "", "a longer run with schedule=linear to go on from, where the rate of this one falls"
    )
    original_length: int | None = default(
        None, "L of the encoding; None: init_from's, or train_length", whole(2, FARTHEST)
    )
    model: Model = group(Model)
    encoding: Encoding = group(Encoding)
    extension: Extension = group(Extension)
    trains: str = default(
        "",
        "arrays of the model that are trained, by patterns of their names, as in "
        "blocks.0-15.attention.*,norm.*; none: those of the encoding alone; empty: all, with "
        "model.lora its arrays",
    )
    optimizer: str = default(
        "adamw",
        "adamw; muon: Muon for the matrices of the blocks, with updates as large as AdamW's, and "
        "AdamW for all else",
        one_of("adamw", "muon"),
    )
    learning_rate: float = default(3e-3, "largest rate, after the warm-up", above_zero(1e-30, 1e30))
    encoding_rate: float = default(
        1.0,
        "learning rate of the encoding's trained arrays, as a multiple of learning_rate",
        above_zero(1e-30, 1e30),
    )
    schedule: str = default(
        "cosine",
        "cosine; linear: constant, then down over the last fifth",
        one_of("cosine", "linear"),
    )
    warmup_steps: int = default(
        60, "steps in which the rate rises from 0; a tenth of `steps` at most", whole(0)
    )
    final_rate: float = default(0.1, "share of the learning rate at the last step", between(0, 1))
    weight_decay: float = default(
        0.1, "applied to the matrices of the blocks and of the output only", between(0, 1e6)
    )
    beta1: float = default(0.9, "of AdamW: decay of the mean of gradients", between(0, 0.999999))
    beta2: float = default(
        0.95, "of AdamW: decay of the mean of squared gradients", between(0, 0.999999)
    )
    mu_dtype: str = default(
        "float32",
        "dtype of AdamW's mean of gradients: float32, or bfloat16, which saves 2 bytes a parameter",
        one_of("float32", "bfloat16"),
    )
    clip: float = default(1.0, "largest global norm of a gradient", above_zero(1e-30, 1e30))
    accumulate: int = default(
        1, "micro-batches per batch; the gradient is that of the whole batch", whole(1, 2**24)
    )
    data: Data = group(Data)
    sequence: int = default(
        1, "devices that share a row, each with a piece of it; see docs/sweeps.md", whole(1, 2**16)
    )
    sharding: str = default(
        "replicated",
        "of parameters and optimizer state: replicated, fsdp",
        one_of("replicated", "fsdp"),
    )
    distributed: bool = default(
        False, "several processes train together; see docs/sweeps.md", true_or_false
    )
    log_every: int = default(20, "steps between lines of metrics.jsonl", whole(1))
    valid_every: int = default(200, "steps between losses on held-out text", whole(1))
    save_every: int = default(200, "steps between checkpoints", whole(1))
    valid_batches: int = default(16, "held-out batches per loss, of batch_size rows each", whole(1))
    keep: int = default(2, "checkpoints kept", whole(1, 2**20))
    profile: str = default(
        "", "FIRST,LAST: trace these steps by jax.profiler into profile/, for xprof", _profile
    )
    wandb: Wandb = group(Wandb)


@dataclasses.dataclass(frozen=True)
class EvaluationWandb:
    mode: str = default(
        "", f"empty: that of the run; {', '.join(WANDB_MODES)}", one_of("", *WANDB_MODES)
    )


def _evaluation_name(name: str, value: str):
    if re.fullmatch(r"[\w.+-]{0,80}", value) is None:
        raise ValueError(f"{name} must be letters, digits and . + - _, 80 at most; got {value!r}")


def _multiple(name: str, word: str):
    positive(name, composition.value(word))


def _length_in_tokens(name: str, word: str):
    token_count(name, composition.value(word), at_least=2)


def _lengths(name: str, value: str):
    if value:
        _each(_length_in_tokens)(name, value)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    name: str = default(
        "", "name of this evaluation in eval/curves.csv; empty: from its text", _evaluation_name
    )
    data: EvaluationData = group(EvaluationData)
    multiples: str = default(
        "0.25,0.5,1,2,4,8", "lengths, in multiples of the longest trained one", _each(_multiple)
    )
    lengths: str = default("", "lengths in tokens, instead of multiples: 64,128,256", _lengths)
    extensions: str = default(
        "none,pi,ntk,yarn,dynamic_ntk,interpolate",
        "those that do not fit the encoding are skipped; name:scale sets a scale (default: the "
        "largest multiple); yarn:8:beta_fast=16+logn sets an option and composes two; all: every "
        "one that needs no options",
    )
    protocols: str = default(
        "same_token,nonoverlap,position",
        f"any of {', '.join(registry.protocols())}, or modules of your own",
        _each(lambda _, word: registry.check("protocol", word)),
    )
    window: bool = default(
        True,
        "add the window baseline: the same weights, but a query sees only the last L tokens",
        true_or_false,
    )
    documents: int | None = default(
        None,
        "most documents to read, each as long as the longest window; None: 50, or as many as "
        "needed",
        whole(2, MOST),
    )
    windows: int | None = default(
        None,
        "most windows of the longest length per document; None: as many as give `same_token` "
        "about 2,000 targets",
        whole(1, MOST),
    )
    spread: bool = default(
        True,
        "True: spread the windows over the document; False: take them from its beginning",
        true_or_false,
    )
    stride: int = default(
        0, "S, tokens that `sliding` advances by; 0: L; it skips shorter lengths", whole(0, MOST)
    )
    last: int = default(
        0,
        "K, targets that `same_token` scores per window, at most a quarter of L, or of the "
        "shortest length if that is longer; 0: shortest length / 4; tokens of a block of `riffle`; "
        "0: L / 4",
        whole(0, MOST),
    )
    reference: str = default(
        "", "a run trained at the longest length, whose losses choose the targets of `longppl`"
    )
    short: int = default(
        0,
        "tokens of the short context with which `longppl` compares the longest; 0: L",
        whole(0, MOST),
    )
    tokens_per_call: int = default(16_384, "most tokens in a batch of windows", whole(1, MOST))
    piece: int | None = default(
        None,
        "tokens of a window to read at once, through a cache of keys; None: all",
        whole(1, MOST),
    )
    sequence: int = default(
        1,
        "devices that share a window too long for one, or with `piece` its cache; see "
        "docs/sweeps.md",
        whole(1, 2**16),
    )
    sharding: str = default(
        "replicated", "of the weights: replicated, fsdp", one_of("replicated", "fsdp")
    )
    distributed: bool = default(
        False, "several processes evaluate together; see docs/sweeps.md", true_or_false
    )
    wandb: EvaluationWandb = group(EvaluationWandb)


def training() -> ConfigDict:
    """Every field of a training configuration, at its default."""
    recipe = _recipe(Training)
    recipe.data = ConfigDict(data_defaults())
    return recipe


def evaluation() -> ConfigDict:
    """Every field of an evaluation, at its default."""
    return _recipe(Evaluation)


def data_fields() -> list[fields.Field]:
    """Fields of `data` that every text has; a source adds its own."""
    names = [name for name in sources.names() if name not in ("tokens", "mixture", "unknown")]
    source = fields.Field("source", str, "stdlib", ", ".join(names), None)
    return [source, *fields.fields(sources.Text), *fields.fields(Data)]


def data_defaults() -> dict[str, Any]:
    return {field.name: field.default for field in data_fields()}


def _recipe(described: type) -> ConfigDict:
    recipe = ConfigDict()
    for field in fields.fields(described):
        usual = field.default
        if not isinstance(field.kind, type):  # recipes may set another type than the default's
            usual = FieldReference(usual, field_type=object)
        recipe[field.name] = placeholder(field.kind) if field.optional else usual
    for name, inner in fields.groups(described):
        recipe[name] = _recipe(inner)
    return recipe


def as_fields(config: Any) -> dict[str, Any]:
    """The fields of a typed configuration, as recipes and config.json have them."""
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if entry.name == "options":
            values |= value
        elif isinstance(value, Origin):
            values |= value.as_fields()
        else:
            values[entry.name] = as_fields(value) if "group" in entry.metadata else value
    return {n: list(value) if isinstance(value, tuple) else value for n, value in values.items()}


def from_fields(values: Mapping[str, Any], described: type = Training) -> Any:
    """The typed configuration of fields that are valid; a field that is missing has its default."""
    own = {field.name for field in fields.fields(described)}
    typed = {name: values[name] for name in own & set(values)}
    for name, inner in fields.groups(described):
        given = values.get(name, {}) if inner is Wandb else values[name]
        of_data = inner is Data
        typed[name] = _data(given, values["train_length"]) if of_data else from_fields(given, inner)
    others = {name: value for name, value in values.items() if name not in own | typed.keys()}
    if any(entry.name == "options" for entry in dataclasses.fields(described)):
        typed["options"] = others
    elif others and described is not Training:
        raise ValueError(f"unknown {', '.join(others)}")
    return described(**typed)


def _data(values: Mapping[str, Any], length: int) -> Data:
    own = {field.name for field in fields.fields(Data)}
    source, problems = sources.build({n: v for n, v in values.items() if n not in own}, length)
    if source is None:
        raise ValueError("; ".join(problems))
    return Data(source, **{name: values[name] for name in own & set(values)})


def explained(described: type, prefix: str = "") -> Iterator[str]:
    """Lines for each field: its name and default, then its type and its description."""
    of_data = described is Data
    common = data_fields() if of_data else list(fields.fields(described))
    for field in common:
        yield from _lines(field, prefix, field.about)
    for field, readers in sources.every_option().values() if of_data else ():
        if field.name not in {one.name for one in common}:
            yield from _lines(field, prefix, f"of {', '.join(readers)}: {field.about}")
    for name, inner in fields.groups(described):
        yield from explained(inner, f"{prefix}{name}.")


def _lines(field: fields.Field, prefix: str, about: str) -> Iterator[str]:
    yield f"  {prefix}{field.name}={field.default}"
    kind = field.kind if isinstance(field.kind, type) else bool
    yield from textwrap.wrap(f"{kind.__name__}: {about}", 80, **INDENTED)


# What other projects call these fields (transformers, nanoGPT, torchtune, MaxText).
ELSEWHERE = {
    "model.width,model.mlp_width": "hidden hidden_size hidden_dim dim",
    "model.width": "n_embd d_model embed_dim base_emb_dim",
    "model.mlp_width": "mlp_dim d_ff ffn_dim intermediate_size n_inner",
    "model.layers": "n_layer n_layers num_layers num_hidden_layers depth base_num_decoder_layers",
    "model.heads": "n_head n_heads num_heads num_attention_heads base_num_query_heads",
    "model.kv_heads": "n_kv_heads num_kv_heads num_key_value_heads attn_kv_heads base_num_kv_heads",
    "model.head_dim": "head_size",
    "model.value_dim": "v_head_dim",
    "model.latent_dim": "kv_lora_rank",
    "model.rotary_dim": "qk_rope_head_dim",
    "model.activation": "hidden_act activation_function ff_glu",
    "model.qk_norm": "attn_qk_rmsnorm",
    "model.remat": "remat_policy",
    "model.vocab": "vocab_size",
    "model.tied": "tie_word_embeddings",
    "encoding.fraction": "partial_rotary_factor rope_pct",
    "encoding.sink": "attn_head_learned_sink",
    "encoding.base": "theta rope_theta rope_base rope_max_timescale",
    "train_length": "block_size n_ctx seq_len seq_length context_length max_position_embeddings "
    "max_seq_len max_target_length",
    "original_length": "original_max_position_embeddings",
    "extension.name": "rope_scaling rope_parameters rope_type rope_linear_scaling_factor",
    "batch_size": "bs batch per_device_train_batch_size per_device_batch_size",
    "steps": "max_iters max_steps num_steps train_steps iterations",
    "learning_rate": "lr max_lr base_lr peak_lr rate",
    "final_rate": "min_lr",
    "warmup_steps": "warmup warmup_iters num_warmup_steps",
    "weight_decay": "wd",
    "clip": "grad_clip max_grad_norm",
    "accumulate": "gradient_accumulation_steps grad_accum",
    "valid_every": "eval_interval eval_every eval_steps",
    "log_every": "log_interval logging_steps",
    "save_every": "save_interval save_steps checkpoint_every",
    "sharding": "ici_fsdp_parallelism",
    "sequence": "ici_context_parallelism",
    "data.source": "dataset dataset_type",
    "data.path": "data_path data_dir hf_path",
    "data.valid_path": "test_path val_path eval_path dev_path validation_path",
    "data.name": "hf_name",
    "documents": "limit",  # of an evaluation
}


OF_WANDB = ("tags", "entity", "notes")  # which it reads from the environment alone
OF_ENCODINGS = ("encoding.base", "encoding.fraction")  # known once the encoding is


def unknown(field: str, names: Sequence[str]) -> str:
    """The message about a field that is none of these names."""
    last = field.rpartition(".")[2].removeprefix("wandb_")
    guess = " or ".join(map(repr, meant(field, names)))
    guess = guess and f"did you mean {guess}? "
    if "wandb.mode" in names and last in OF_WANDB:
        guess = f"set WANDB_{last.upper()} in the environment; "
    return f"unknown field {field!r}; {guess}--help lists all fields"


def meant(field: str, names: Sequence[str]) -> list[str]:
    """The names that a field which is none of them may stand for."""
    if (joined := field.replace(".", "_")) in names:
        return [joined]
    last = field.rpartition(".")[2]
    for ours, theirs in ELSEWHERE.items():
        if last in theirs.split() and ours.partition(",")[0] in (*names, *OF_ENCODINGS):
            return ours.split(",")
    ends = {name.rpartition(".")[2]: name for name in names}
    near = difflib.get_close_matches(field, names, n=1, cutoff=0.75)
    return near or [ends[n] for n in difflib.get_close_matches(last, ends, n=1, cutoff=0.75)]


def flat(tree: Mapping | ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Every field by its whole name, `model.width`."""
    found = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping | ConfigDict)
        found |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def words(text: str) -> list[str]:
    """The entries of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]
