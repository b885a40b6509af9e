"""Which cells an evaluation has: extensions, protocols and lengths, and what each reads."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

import posenc_jax
from posenc_jax import extensions
from posenc_jax.checks import known
from posenc_jax.configuration import Config, original_length, words
from posenc_jax.encoding import Encoding
from posenc_jax.errors import ConfigError
from posenc_jax.evaluation import windows
from posenc_jax.evaluation.store import key, model_key, tree_key
from posenc_jax.evaluation.windows import Plan, Text
from posenc_jax.runs import parameters

TARGETS = 2_000  # of `same_token`, below which its mean is a matter of which targets were asked


class Method(NamedTuple):
    """An extension at one scale, or at that of the length read; with or without a window limit."""

    name: str
    scale: float | None
    limit: int | None = None  # tokens that a query sees, itself included

    def applied(self, encoding: Encoding, own: Encoding, ratio: float) -> Encoding:
        """`own` is the run as it is; other extensions start from the encoding without its own."""
        if self.name == "none":
            return own
        if self.name.startswith("dynamic_"):
            return posenc_jax.extend(self.name, encoding, max(1.0, ratio))
        if self.name == "logn":
            return posenc_jax.extend(self.name, encoding, 1.0)
        assert self.scale is not None
        return posenc_jax.extend(self.name, encoding, self.scale)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A checkpoint, and what an evaluation has to know of its run."""

    name: str
    config: Config
    step: int
    parts: parameters.Parts
    plain: Encoding  # without the run's own extension
    workdir: Path = Path()
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the checkpoint

    @property
    def original(self) -> int:
        """L of the formulas, which the encoding says; randomized's is beyond the trained length."""
        return self.plain.train_length

    @property
    def trained(self) -> int:
        """The longest length it was trained at."""
        return max(self.config.train_length, original_length(self.config))

    @property
    def extensible(self) -> bool:
        """A table that was resampled and then trained has no plain form to start others from."""
        return self.config.extension.name not in ("interpolate", "clamp")


class Cell(NamedTuple):
    facts: dict  # columns of its row
    encoding: Encoding
    plan: Plan
    limit: int | None  # of attention, where it makes a difference
    passing: str  # cells of one pass read windows of one length with the same numbers
    key: str


def lengths_of(config: Config, subject: Subject) -> list[int]:
    multiples = {float(word) for word in words(config.multiples)}
    lengths = sorted({round(multiple * subject.trained) for multiple in multiples})
    stride, last = spans(config, subject, lengths)
    windows.check(words(config.protocols), lengths, stride, last)
    return lengths


def spans(config: Config, subject: Subject, lengths: list[int]) -> tuple[int, int]:
    """How far a sliding window advances, and how many targets `same_token` scores."""
    return config.stride or subject.trained, config.last or max(1, min(lengths) // 4)


def wanted(config: Config, subject: Subject, lengths: list[int]) -> int:
    """How many longest windows give enough targets to `same_token`."""
    return -(-TARGETS // spans(config, subject, lengths)[1])


def methods(text: str, encoding: Encoding, largest: float) -> list[Method]:
    """Of `none,pi,yarn:4` or `all`, those that fit; one without a scale gets the largest."""
    fitting = extensions.fitting(encoding)
    chosen: dict[Method, None] = {}  # in order, each once
    for word in words(text):
        name, _, scale = word.partition(":")
        if name != "all":
            known("extension", name, extensions.EXTENSIONS)
        names = [n for n in fitting if name == "all" and not extensions.needs_options(n)]
        for one in names or [name] * (name in fitting):
            own = one in ("none", "logn") or one.startswith("dynamic_")
            chosen[Method(one, None if own else float(scale or max(1.0, largest)))] = None
    return list(chosen)


def plan(config: Config, subject: Subject, text: Text, lengths: list[int]) -> list[Cell]:
    """What is asked for and can be expressed, with the encoding and windows of each cell."""
    largest = text.longest / subject.original
    asked = methods(config.extensions if subject.extensible else "none", subject.plain, largest)
    limited = [Method("none", None, subject.trained)] if config.window else []
    plans = plans_of(config, subject, text, lengths)
    model = model_key(subject.parts.model)
    cells: list[Cell] = []
    said: dict[str, None] = {}  # each line once
    for length in lengths:
        for method in asked + limited:
            ratio = length / subject.original
            try:
                encoding = method.applied(subject.plain, subject.parts.encoding, ratio)
            except ValueError as error:
                said[f"{method.name} is left out: {error}"] = None
                continue
            if encoding.reach is not None and length > encoding.reach:
                said[_beyond(method, subject, length, encoding.reach)] = None
                continue
            limit = method.limit if method.limit and method.limit < length else None
            passing = key(model=model, encoding=tree_key(encoding), limit=limit, length=length)
            for (protocol, at), (windows_read, span, token_hash) in plans.items():
                if at == length:
                    facts = _facts(subject, text, method, protocol, length, span, token_hash)
                    read = dict(text=text.hash, trained=subject.trained)
                    cell = key(passing=passing, protocol=protocol, span=span, **read)
                    cells.append(Cell(facts, encoding, windows_read, limit, passing, cell))
    for line in said:
        tqdm.write(line)
    if not cells:
        raise ConfigError(
            f"nothing is left to evaluate of extensions={config.extensions!r} and multiples="
            f"{config.multiples!r}; extensions that fit: "
            f"{', '.join(extensions.fitting(subject.plain)) if subject.extensible else 'none'}"
        )
    return cells


def plans_of(config: Config, subject: Subject, text: Text, lengths: list[int]) -> dict:
    """(protocol, length) -> windows, stride or last, hash of the scored targets."""
    stride, last = spans(config, subject, lengths)
    asked = words(config.protocols)
    made: dict[tuple[str, int], tuple[Plan, int | None]] = {}
    for length in lengths:
        if "nonoverlap" in asked:
            made["nonoverlap", length] = windows.nonoverlap(text, length), None
        if "same_token" in asked:
            made["same_token", length] = windows.same_token(text, length, last), last
        if "sliding" in asked and length >= stride:
            made["sliding", length] = windows.sliding(text, length, stride), stride
    if "position" in asked:
        made["position", text.longest] = windows.position(text), None
    everything, ends = text.token_hash(text.longest), text.token_hash(last)
    return {
        (protocol, length): (*pair, ends if protocol == "same_token" else everything)
        for (protocol, length), pair in made.items()
    }


def _facts(subject, text, method, protocol, length, span, token_hash) -> dict:
    return {
        "run": subject.name,
        "encoding": subject.plain.name,
        "extension": method.name,
        "scale": method.scale,
        "protocol": protocol,
        "window": method.limit,
        "stride": span if protocol == "sliding" else None,
        "train_length": subject.trained,
        "length": length,
        "token_hash": token_hash,
        "seed": subject.config.seed,
        "step": subject.step,
        "last": span if protocol == "same_token" else None,
        "evaluation": text.name,
        "text": text.source,
        "data": text.data,
    }


def _beyond(method: Method, subject: Subject, length: int, reach: int) -> str:
    """The line for a length that an encoding cannot express."""
    plain = subject.plain
    ratio = max(1.0, length / plain.train_length)
    reaching = []
    for name in extensions.fitting(plain) if subject.extensible else []:
        if name != "none" and not extensions.needs_options(name):
            extended = posenc_jax.extend(name, plain, ratio).reach
            if extended is None or extended >= length:
                reaching.append(name)
    remedy = f"would be allowed by extension {' or '.join(reaching)}" if reaching else plain.remedy
    who = f"{plain.name} with {method.name}" if method.name != "none" else plain.name
    return f"length {length} is left out: {who} reaches {reach} positions; {remedy}"
