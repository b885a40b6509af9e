"""Fields of training and evaluation: each default once, with its description and its rule.

Nothing here imports jax. `configs/base.py` adds sizes; a recipe sets the fields it is about.
"""

import dataclasses
import difflib
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from posenc_jax import composition, fields, neighbours, registry
from posenc_jax.checks import FARTHEST, LARGEST_SCALE, MOST, choice, known, positive
from posenc_jax.fields import above_zero, between, default, one_of, true_or_false, whole, within
from posenc_jax.registry import FILES, SOURCES, TEXTS, WANDB_MODES

INDENTED: Any = {"initial_indent": " " * 6, "subsequent_indent": " " * 6}
LEAST_SHARE = 1 / 2000  # of a mixture, which is half a row of a thousand
Config = Any  # a ConfigDict, whose fields have no static types


@dataclasses.dataclass
class Encoding:
    """The encoding of a run; other fields are options of the scheme, which a recipe names."""

    name: str = default("nope", "a file in posenc_jax/schemes; its options are fields beside it")
    per_layer: bool = default(
        False, "True: each layer has trained arrays of its own", true_or_false
    )
    sink: bool = default(
        False,
        "True: a trained logit per layer and head, without a value, in every softmax",
        true_or_false,
    )


OF_ANY_ENCODING = ("per_layer", "sink")  # a recipe that replaces the group need not name them


@dataclasses.dataclass
class Extension:
    """The extension of a run; its options are other fields or part of the name: `yarn:8:low=2`."""

    name: str = default("none", "used while training, such as yarn or yarn:beta_fast=16+logn")
    scale: float = default(1.0, "how many times L it reaches", above_zero(0, LARGEST_SCALE))


def _pattern(name: str, value: Any):
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        raise ValueError(f"{name} must be a regular expression; got {value!r}: {error}") from error


def _task(name: str, value: Any):
    choice(name, value, registry.tasks())


@dataclasses.dataclass
class Data:
    """`of` are the sources that read a field, `tasks` those of synthetic text; `unset` is what None
    stands for there."""

    source: str = default("stdlib", ", ".join(SOURCES), one_of(*SOURCES))
    tokens: str | None = default(
        None,
        "a folder of prepared tokens (scripts/prepare_data.py --tokens_out), instead of a source "
        "and a tokenizer; None: tokens are made from the text",
    )
    path: str = default(
        "",
        "files, folders or globs, separated by commas, also packed (.gz, .zst); of hub: the "
        "name of a data set of the Hugging Face Hub, or a folder of one",
        of=(*FILES, "hub"),
        unset="",
    )
    name: str | None = default(
        None, "of hub: the configuration of the data set, such as wikitext-103-raw-v1", of=("hub",)
    )
    revision: str | None = default(None, "of hub: a branch, tag or commit", of=("hub",))
    tokenizer: str = default(
        "bytes",
        "bytes, a tokenizer.json, a folder with one or with vocab.json and merges.txt, or a name "
        "of the Hugging Face Hub: gpt2",
    )
    field: str | None = default(
        None,
        "for jsonl, parquet and hub: the field with the text; None: text",
        of=("jsonl", "parquet", "hub"),
        unset="text",
    )
    split: str | None = default(
        None, "of hub: the split that is trained on; None: train", of=("hub",), unset="train"
    )
    valid_split: str | None = default(
        None,
        "of hub: the split that is held out, such as validation; None: valid_fraction of split",
        of=("hub",),
    )
    valid_path: str | None = default(
        None,
        "files that are held out, named as in path; None: valid_fraction of path",
        of=FILES,
    )
    begins: str | None = default(
        None,
        "a regular expression of the line or row that begins a document, ' = [^=]' for WikiText; "
        "None: each file or row is one",
        _pattern,
        of=(*FILES, "hub"),
    )
    cut_one: bool | None = default(
        None,
        "True: of a text of four documents or fewer the end of each is held out, valid_fraction of "
        "it; None: True",
        true_or_false,
        of=(*FILES, "hub"),
        unset=True,
    )
    mixture: str | None = default(
        None,
        "sources or tasks with shares of the tokens, instead of a source: stdlib:0.8,variables:0.2",
    )
    task: str | None = default(
        None,
        "of synthetic: a file in posenc_jax/data/tasks, or copy or induction; None: copy",
        _task,
        of=("synthetic",),
        unset="copy",
    )
    documents: int | None = default(
        None,
        "of synthetic; None: 2,000 of copy and induction, of others 20,000 rows of L",
        whole(1),
        of=("synthetic",),
        unset={name: 2_000 for name in TEXTS} | {"": 20_000},
    )
    document_length: int | None = default(
        None,
        "of copy and induction, in tokens; None: 2,048",
        whole(2),
        of=("synthetic",),
        tasks=TEXTS,
        unset=2_048,
    )
    far: float | None = default(
        None,
        "of tasks: how many times L back the test asks; None: 8",
        between(1, 4096),
        of=("synthetic",),
        tasks=registry.probes,
        unset=8.0,
    )
    variant: str | None = default(
        None,
        "of variables: latest (a name is set again and again), once, ordered (each name is asked "
        "for once, after a known number of settings); None: latest",
        one_of("latest", "once", "ordered"),
        of=("synthetic",),
        tasks=("variables",),
        unset="latest",
    )
    gaps: str | None = default(
        None,
        "of variables, from a setting to its question: within (uniform, to L in training and to "
        "far L in the test), octaves (log-uniform, to the same), log (log-uniform to far L in "
        "both), fixed; None: within",
        one_of("within", "octaves", "log", "fixed"),
        of=("synthetic",),
        tasks=("variables",),
        unset="within",
    )
    older: str | None = default(
        None,
        "of variables ordered: shares of questions whose name was set 0, 1, ... times before its "
        "last setting; None: 0.4,0.4,0.1,0.1",
        of=("synthetic",),
        tasks=("variables",),
    )
    separation: float | None = default(
        None,
        "of variables ordered: the longest distance between two settings of a name, log-uniform, "
        "in multiples of L in training and of far L in the test; None: 1",
        between(1e-3, 1),
        of=("synthetic",),
        tasks=("variables",),
    )
    needles: int | None = default(
        None,
        "of needle: how many lie in the text; None: 2",
        whole(1, 16),
        of=("synthetic",),
        tasks=("needle",),
        unset=2,
    )
    answers_only: bool = default(
        False,
        "True: where a text marks its answers, the loss is theirs alone",
        true_or_false,
        beside_tokens=True,
    )
    valid_fraction: float = default(
        0.1, "share of documents held out, chosen by a hash of their text", between(0, 1)
    )
    choose_fraction: float = default(
        0.0,
        "share of a third split, to choose rates on: of a text taken from training, of a task that "
        "asks beyond L documents of its own",
        between(0, 1),
    )
    hold_out: str | None = default(
        None,
        "of stdlib, what goes to one split as a whole: document (a file), package (all files of a "
        "top-level package, which count as one in errors); None: document",
        one_of("document", "package"),
        of=("stdlib",),
        unset="document",
    )
    mask_documents: bool = default(
        False, "attention stays within a document", true_or_false, beside_tokens=True
    )
    cache: str = default("", "folder for tokens; empty: posenc-jax in XDG_CACHE_HOME or ~/.cache")


@dataclasses.dataclass
class Wandb:
    mode: str = default(
        "auto",
        "auto: online with a key, off without; online, offline, disabled",
        one_of(*WANDB_MODES),
    )
    project: str = default("posenc-jax", "project that runs are logged in")
    name: str = default("", "empty: the name of the workdir")
    group: str = default("", "empty: data, tokenizer, length and size")
    dir: str = default("", "where wandb keeps its files; empty: the workdir")
    required: bool = default(False, "True: fail where wandb fails", true_or_false)


def _seed(name: str, value: Any):
    whole(0, 2**63 - 1)(name, value)


def _length(name: str, value: Any):
    whole(1, FARTHEST)(name, value)
    if value < 2:
        raise ValueError(
            f"{name} must be at least 2, so that a token has one before it; got {value}"
        )


@dataclasses.dataclass
class Training:
    label: str = default(
        "",
        "what tables and pictures call runs of this configuration; empty: the encoding, or the "
        "run's name",
    )
    seed: int = default(0, "seed of the weights, the order of the data and every draw", _seed)
    train_length: int = default(128, "L: tokens per row", _length)
    batch_size: int = default(32, "rows per step", whole(1, 2**24))
    steps: int = default(600, "of the optimizer; also the length of the schedule", whole(1, MOST))
    stop_at: int = default(
        0, "save and stop here with exit 75; the same command resumes; 0: never", _seed
    )
    init_from: str = default("", "a workdir to take the weights from")
    original_length: int | None = default(
        None, "L of the encoding; None: init_from's, or train_length", whole(2, FARTHEST)
    )
    model: Any = within(neighbours.models().Config)
    encoding: Encoding = within(Encoding)
    extension: Extension = within(Extension)
    learning_rate: float = default(
        3e-3, "largest rate of AdamW, after the warm-up", above_zero(1e-30, 1e30)
    )
    encoding_rate: float = default(
        1.0,
        "times the learning rate: the rate of the encoding's trained arrays",
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
        0.1, "of the matrices in the blocks and of nothing else", between(0, 1e6)
    )
    beta1: float = default(
        0.9, "of AdamW: share kept of the mean of gradients", between(0, 0.999999)
    )
    beta2: float = default(
        0.95, "of AdamW: share kept of the mean of their squares", between(0, 0.999999)
    )
    clip: float = default(1.0, "largest global norm of a gradient", above_zero(1e-30, 1e30))
    skip_not_finite: bool = default(
        False,
        "loss or gradient not finite: True: skip the step; False: stop",
        true_or_false,
    )
    accumulate: int = default(
        1, "pieces a batch is computed in; the gradient is that of the whole batch", whole(1, 2**24)
    )
    data: Data = within(Data)
    sharding: str = default(
        "replicated",
        "of parameters and optimizer: replicated, fsdp",
        one_of("replicated", "fsdp"),
    )
    distributed: bool = default(
        False, "several processes train together; see docs/runs.md", true_or_false
    )
    log_every: int = default(20, "steps between lines of metrics.jsonl", whole(1))
    valid_every: int = default(200, "steps between losses on held-out text", whole(1))
    save_every: int = default(200, "steps between checkpoints", whole(1))
    valid_batches: int = default(16, "batches of batch_size rows", whole(1))
    keep: int = default(2, "checkpoints kept", whole(1, 2**20))
    wandb: Wandb = within(Wandb)


@dataclasses.dataclass
class EvaluationData:
    source: str = default("", "empty: the held-out documents of the run's own text")
    path: str = default("", "files or globs of another text to evaluate on")
    tokens: str = default("", "a folder of prepared tokens to evaluate on, instead of a text")
    part: str = default(
        "held_out",
        "of the run's own text: held_out, choose (data.choose_fraction)",
        one_of("held_out", "choose"),
    )
    field: str = default(
        "", "field of a JSON line or row that holds the text; empty: that of the run"
    )
    split: str = default("", "split of a hub data set; empty: that of the run")
    name: str = default("", "configuration of a hub data set; empty: the run's, of its own data")
    revision: str = default("", "of a hub data set; empty: that of the run, of its own data")
    begins: str = default("", "line or row that begins a document; empty: the run's, of its own")
    valid_path: str = default(
        "", "where the held-out documents of a run that moved are now, beside path"
    )


@dataclasses.dataclass
class EvaluationWandb:
    mode: str = default(
        "", f"empty: that of the run; {', '.join(WANDB_MODES)}", one_of("", *WANDB_MODES)
    )


@dataclasses.dataclass
class Evaluation:
    name: str = default("", "name of this evaluation in eval/curves.csv; empty: from its text")
    data: EvaluationData = within(EvaluationData)
    multiples: str = default("0.25,0.5,1,2,4,8", "lengths, in multiples of the longest trained one")
    lengths: str = default("", "the same in tokens, instead of multiples: 64,128,256")
    extensions: str = default(
        "none,pi,ntk,yarn,dynamic_ntk,interpolate",
        "those that fit the run's encoding; name:scale sets a scale (else the largest multiple); "
        "yarn:8:beta_fast=16+logn sets an option and composes two; all: every one that needs no "
        "options",
    )
    protocols: str = default(
        "same_token,nonoverlap,position", "these and sliding, which reads the most"
    )
    window: bool = default(
        True,
        "add the baseline: the same weights, where a query sees the last L tokens alone",
        true_or_false,
    )
    documents: int | None = default(
        None,
        "at most, among those as long as the longest window; None: 50, or as many as needed",
        whole(2, MOST),
    )
    windows: int | None = default(
        None,
        "longest windows per document, at most; None: as many as give `same_token` about 2,000 "
        "targets",
        whole(1, MOST),
    )
    spread: bool = default(
        True,
        "True: windows spread over the whole document; False: from its beginning on",
        true_or_false,
    )
    stride: int = default(
        0, "S, how far `sliding` advances; 0: L. Shorter lengths are skipped", whole(0, MOST)
    )
    last: int = default(
        0,
        "K, the targets `same_token` scores in a window; 0: shortest length / 4",
        whole(0, MOST),
    )
    tokens_per_call: int = default(16_384, "tokens in a batch of windows, at most", whole(1, MOST))
    wandb: EvaluationWandb = within(EvaluationWandb)


def training() -> Config:
    """Every field of a training configuration, at its default."""
    config = _tree(Training)
    config.model.vocab = placeholder(int)  # None: the tokenizer's
    return config


def evaluation() -> Config:
    """Every field of an evaluation, at its default."""
    return _tree(Evaluation)


def _tree(described: type) -> Config:
    config = ConfigDict()
    for name, kind, value, _ in fields.fields(described):
        config[name] = placeholder(kind) if value is None else value
    for name, inner in fields.groups(described):
        config[name] = _tree(inner)
    return config


def explained(described: type, prefix: str = "") -> Iterator[str]:
    """Lines for each field: its name and default, then its type and its description."""
    for name, kind, value, facts in fields.fields(described):
        about = facts["about"]
        if name == "vocab":  # the tokenizer decides it
            value, about = None, "V; None: the tokenizer's"
        yield f"  {prefix}{name}={value}"
        yield from textwrap.wrap(f"{kind.__name__}: {about}", 80, **INDENTED)
    for name, inner in fields.groups(described):
        yield from explained(inner, f"{prefix}{name}.")


# What other projects call these fields (transformers, nanoGPT, torchtune).
ELSEWHERE = {
    "model.width,model.mlp_width": "hidden hidden_size hidden_dim dim",
    "model.width": "n_embd d_model embed_dim",
    "model.mlp_width": "mlp_dim d_ff ffn_dim intermediate_size n_inner",
    "model.layers": "n_layer n_layers num_layers num_hidden_layers depth",
    "model.heads": "n_head n_heads num_heads num_attention_heads",
    "model.kv_heads": "n_kv_heads num_kv_heads num_key_value_heads",
    "model.head_dim": "head_size",
    "model.activation": "hidden_act activation_function",
    "model.vocab": "vocab_size",
    "model.tied": "tie_word_embeddings",
    "encoding.base": "theta rope_theta rope_base",
    "train_length": "block_size n_ctx seq_len seq_length context_length max_position_embeddings",
    "batch_size": "bs batch per_device_train_batch_size",
    "steps": "max_iters max_steps num_steps train_steps iterations",
    "learning_rate": "lr max_lr",
    "warmup_steps": "warmup warmup_iters num_warmup_steps",
    "weight_decay": "wd",
    "clip": "grad_clip max_grad_norm",
    "accumulate": "gradient_accumulation_steps grad_accum",
    "valid_every": "eval_interval eval_every eval_steps",
    "log_every": "log_interval logging_steps",
    "save_every": "save_interval save_steps checkpoint_every",
    "data.source": "dataset",
    "data.path": "data_path data_dir",
}


def unknown(field: str, names: Sequence[str]) -> str:
    """What is said of a field that is none of these names."""
    last = field.rpartition(".")[2]
    meant = [ours for ours, theirs in ELSEWHERE.items() if last in theirs.split()]
    meant = [ours for ours in meant if ours.partition(",")[0] in (*names, "encoding.base")]
    if not meant:
        ends = {name.rpartition(".")[2]: name for name in names}
        near = difflib.get_close_matches(field, names, n=1, cutoff=0.75)
        meant = near or [ends[n] for n in difflib.get_close_matches(last, ends, n=1, cutoff=0.75)]
    guess = " or ".join(map(repr, meant[0].split(","))) if meant else ""
    guess = guess and f"did you mean {guess}? "
    return f"unknown field {field!r}; {guess}--help lists all fields"


def every_field(config: Config, prefix: str = "") -> list[str]:
    """`model.width` and so on, groups not included."""
    found = []
    for name, value in config.items():
        inner = isinstance(value, ConfigDict)
        found += every_field(value, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return found


def words(text: str) -> list[str]:
    """The entries of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def beside_tokens() -> list[str]:
    """Fields of `data` that are read beside prepared tokens."""
    return [name for name, _, _, facts in fields.fields(Data) if "beside_tokens" in facts]


def shares(mixture: str) -> dict[str, float]:
    """`stdlib:0.8,variables:0.2` by name; a ValueError says what is wrong."""
    found: dict[str, float] = {}
    for word in words(mixture):
        name, _, share = word.partition(":")
        known("source or task", name, [*mixed_sources(), *registry.tasks()])
        if name in found:
            raise ValueError(f"{name} stands in it twice")
        found[name] = positive(f"the share of {name}", composition.value(share))
    if len(found) < 2:
        raise ValueError(f"a mixture has two texts or more; got {mixture!r}")
    least = sum(found.values()) * LEAST_SHARE
    for name, share in found.items():
        if share < least:
            raise ValueError(
                f"the share of {name} must be at least {least:g} here, 1/2000 of all: less is not "
                f"trained on; got {share:g}"
            )
    return found


def mixed_sources() -> list[str]:
    return [name for name in SOURCES if name != "synthetic"]


class Readers(NamedTuple):
    """Who reads a field of `data`, and what None stands for there."""

    sources: tuple[str, ...]
    tasks: Sequence[str] | None  # of synthetic text; None: all
    by_task: Mapping[str, Any]  # "" is every other one

    def unset(self, task: str | None) -> Any:
        return self.by_task.get(task or "", self.by_task.get(""))


def _names(given: Sequence[str] | Callable[[], Sequence[str]] | None) -> Sequence[str] | None:
    """Names that are listed, or that a function finds."""
    return given() if callable(given) else given


def read_by() -> dict[str, Readers]:
    """Fields of `data` that some sources read, not all."""
    return {
        name: Readers(
            facts["of"],
            _names(facts.get("tasks")),
            facts["unset"] if isinstance(facts.get("unset"), dict) else {"": facts.get("unset")},
        )
        for name, _, _, facts in fields.fields(Data)
        if "of" in facts
    }
