"""Sources of documents, one per file; the file name is the registry. Nothing here imports jax.

A file holds a frozen dataclass derived from `Documents` and assigned to `Source`: its fields are
the options that a person sets as `data.FIELD`, and what its tokens depend on is its `identity`.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax import fields, registry
from posenc_jax.checks import choice, may_be_of_hub
from posenc_jax.fields import Field, between, default, one_of
from posenc_jax.registry import sources as names
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import expanded

registry.keep_names(__name__)

SHORTER = (
    "; to keep fewer documents: scripts/prepare_data.py --tokens_out=FOLDER --limit=TOKENS, then "
    "--config.data.tokens=FOLDER"
)


class Document(NamedTuple):
    name: str
    text: bytes
    answers: np.ndarray | None = None  # mask of the bytes that are answers; None: no answers
    gaps: np.ndarray | None = None  # distance of each answer from question to setting, in tokens
    group: str | None = None  # documents of a group share a split; None: no group
    split: str | None = None  # set by the source; None: chosen by a hash
    size: float = 0.0  # bytes read for it from its file


def digest(text: bytes) -> int:
    """64-bit hash of a document's text that ignores line-end style and surrounding white space."""
    plain = text.replace(b"\r\n", b"\n").strip()
    return int.from_bytes(hashlib.sha256(plain).digest()[:8], "big")


@dataclasses.dataclass(frozen=True)
class Origin:
    """The source of a run's tokens: documents, a mixture of them, or prepared tokens."""

    @classmethod
    def kind(cls) -> str:
        """Its file, which is its name in `data.source`."""
        return cls.__module__.removeprefix(f"{__name__}.")

    @classmethod
    def options(cls, given: Mapping[str, Any]) -> list[Field]:
        """The fields of `data` that it reads, beside these."""
        return list(fields.fields(cls))

    @classmethod
    def of(cls, given: Mapping[str, Any], length: int) -> "Origin":
        """Built from valid values of its options, at L; a ConfigError names what does not fit."""
        return cls(**given)

    def as_fields(self) -> dict[str, Any]:
        """The fields of `data` as a person sets them."""
        values = {field.name: getattr(self, field.name) for field in fields.fields(type(self))}
        return {"source": self.kind(), **values}

    @property
    def has_answers(self) -> bool:
        """True if the text marks its answers."""
        return False

    @property
    def description(self) -> str:
        """A few words for tables and messages."""
        path = getattr(self, "path", "")
        return f"{self.kind()}:{path}" if path else self.kind()

    @property
    def short_name(self) -> str:
        """A word for an evaluation of it: `books` of `books/*.txt`, `NAME` of `OWNER/NAME`."""
        parts = Path(getattr(self, "path", "").split(",")[0].strip()).parts
        plain = [part for part in parts if not set(part) & set("*?[")]
        return plain_word(plain[-1].partition(".")[0] if plain else "") or self.kind()

    def mistakes(self) -> list[str]:
        """Options that contradict each other, or name what is not there."""
        return []


@dataclasses.dataclass(frozen=True)
class Text(Origin):
    """Text that is cut into documents, split by their hashes and made into tokens."""

    tokenizer: str = default(
        "bytes",
        "bytes, a tokenizer.json, a folder with one or with vocab.json and merges.txt, or a name "
        "of the Hugging Face Hub: gpt2",
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
    cache: str = default("", "folder for tokens; empty: posenc-jax in XDG_CACHE_HOME or ~/.cache")

    def mistakes(self) -> list[str]:
        problems = []
        if not (exists(self.tokenizer) or may_be_of_hub(self.tokenizer)):
            problems.append(
                "data.tokenizer must be 'bytes', a tokenizer.json, a folder with one or with "
                "vocab.json and merges.txt, or a name of the Hugging Face Hub such as gpt2; there "
                f"is no {self.tokenizer!r}"
            )
        if not self.valid_fraction + self.choose_fraction < 1:
            problems.append(
                "data.valid_fraction and data.choose_fraction must leave text to train on, their "
                f"sum below 1; got {self.valid_fraction} + {self.choose_fraction}"
            )
        return problems


@dataclasses.dataclass(frozen=True)
class Documents(Text):
    """A text of one source."""

    def files(self) -> list[Path]:
        """The files it reads, in order, which identify it."""
        return []

    def held_out_files(self) -> list[Path]:
        """The files whose documents are held out, where they are named."""
        return []

    @property
    def names_held_out(self) -> bool:
        """True if the held-out documents are named, not drawn from all documents."""
        return False

    @property
    def cuts_few(self) -> bool:
        """True if few documents are each cut into splits."""
        return False

    @property
    def shortest(self) -> int:
        """Documents of fewer tokens are left out."""
        return getattr(self, "min_tokens", 0)

    @property
    def size(self) -> float | None:
        """Bytes of what is read, 0 if not known; None: those of its files."""
        return None

    def identity(self, seed: int) -> dict[str, Any]:
        """The facts that its tokens depend on, besides files, tokenizer and fractions."""
        return {}

    def card(self) -> dict[str, Any]:
        """Facts about its answers, kept beside its tokens."""
        return {}

    def documents(self, seed: int) -> Iterator[Document]:
        """Documents in order, those that are held out by name first, so that their duplicates are
        not trained on."""
        raise NotImplementedError


def find(name: str) -> type[Origin]:
    return registry.find("source", name).Source


def every_option(given: Mapping[str, Any] = {}) -> dict[str, tuple[Field, list[str]]]:
    """Each option of a source or a task, with the sources that read it; of one's own, those of the
    fields of `data` that are given."""
    readers: dict[str, tuple[Field, list[str]]] = {}
    every: list[tuple[str, dict[str, Any]]] = [(name, {"task": None}) for name in names()]
    for word in filter(None, map(given.get, ("source", "task"))):
        if registry.is_task(word):
            every.append(("synthetic", {"task": word}))
        elif "." in word and registry.exists("source", word):
            every.append((word, {}))
    for name, task in every:
        for field in find(name).options(task):
            readers.setdefault(field.name, (field, []))[1].append(name)
    return readers


def read(given: Mapping[str, Any], length: int) -> tuple[Origin | None, list[str]]:
    """The origin that fields of `data` describe, at L, or every mistake in them."""
    origin, problems = build(given, length)
    if origin is not None:
        problems = origin.mistakes()
    return (None if problems else origin), problems


def build(given: Mapping[str, Any], length: int) -> tuple[Origin | None, list[str]]:
    """The same, without asking whether what the fields name is there."""
    given = {name: value for name, value in given.items() if value not in (None, "")}
    named = given.pop("source", "stdlib")
    if "." in named and registry.is_task(named):
        named, given["task"] = "synthetic", named
    task = given.get("task", "")
    name = next((other for other in ("tokens", "mixture") if other in given), named)
    try:
        source = find(name if "." in name else choice("data.source", name, names()))
        if "." in task:
            registry.check("task", task)
    except ValueError as error:
        return None, [str(error)]
    options = {field.name: field for field in source.options(given)}
    common = {field.name: field for field in fields.fields(Text)}
    other = named not in (name, "stdlib")  # which is the default
    problems = [_unread("source", named, name, given)] if other else []
    for field in sorted(set(given) - set(options)):
        value = given.pop(field)
        if field not in common or value != common[field].default:
            shorter = field == "limit" and name != "mixture"
            problems.append(_unread(field, value, name, given) + SHORTER * shorter)
    for option in options.values():
        try:
            option.check(f"data.{option.name}", given.get(option.name, option.default))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        return None, problems
    try:
        return source.of(given, length), []
    except ConfigError as error:
        return None, str(error).splitlines()


def _unread(field: str, value: Any, source: str, given: Mapping[str, Any]) -> str:
    """An option that another source or task reads."""
    effect = f"data.{field} = {value!r} has no effect with"
    if source == "tokens":
        return f"{effect} data.tokens: its text was read and split when the tokens were made"
    if source == "mixture":
        return f"{effect} data.mixture; an option is written in its part, variables:0.2:far=8"
    readers = every_option()[field][1]
    if source not in readers:
        return f"{effect} data.source={source}; it is for data.source={' or '.join(readers)}"
    from posenc_jax.data import tasks

    return (
        f"{effect} data.task={given.get('task', tasks.DEFAULT)}; it is for "
        f"data.task={' or '.join(tasks.readers_of(field))}"
    )


def plain_word(text: str) -> str:
    return re.sub(r"[^\w]+", "-", text).strip("-_")[:60]


def exists(path: Any) -> bool:
    try:
        return path == "bytes" or expanded(path).exists()
    except (OSError, ValueError, RuntimeError, TypeError):  # too long, or no name
        return False


@dataclasses.dataclass(frozen=True)
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
    cache: str = default("", "folder for tokens; empty: posenc-jax in XDG_CACHE_HOME or ~/.cache")
