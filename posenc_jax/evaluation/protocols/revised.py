"""Ordinary text with sentences that give a name a value and later another, and ask for the last.

A row holds five such pairs and ends with the sentence of one of them once more, up to its value.
Scored there are the last value, the older one and one that the name never had, and all again with
the two values exchanged, so that no value is preferred by itself. No training is needed, but a
tokenizer of English.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.config.schema import Evaluation
from posenc_jax.data import tasks
from posenc_jax.display import Table, decimal
from posenc_jax.evaluation.cells import Cell, label
from posenc_jax.evaluation.columns import Column
from posenc_jax.evaluation.protocols import Protocol
from posenc_jax.evaluation.protocols._questions import OF_SETTINGS, SEPARATION
from posenc_jax.evaluation.statistics import paired
from posenc_jax.evaluation.windows import Reading, Text, gathered
from posenc_jax.runtime.errors import ConfigError

NAMES = (
    "Alice Tom Mary Peter Anna Jack Rose Henry Emma Paul Lucy David Jane Robert Ruth Simon George "
    "Helen James Laura"
).split()
FORMS = {
    " {}'s favourite colour is {}.": "red blue green black white yellow brown pink orange purple",
    " {} is in the {}.": "kitchen garden bathroom library church park street hall forest school",
    " {} lives in {}.": "London Paris Rome Berlin Boston Chicago Madrid Dublin Vienna Moscow",
    " {} works as a {}.": "doctor teacher farmer lawyer baker driver nurse soldier writer cook",
    " {}'s favourite animal is the {}.": "dog cat horse bird cow pig sheep lion tiger bear",
}
PAIRS = ((0, 1), (6, 8), (2, 5), (3, 7), (4, 9))  # slots of both settings, 1 to 5 apart
SLOTS = 10
SHORTEST = 256  # tokens: sentences do not meet
LAST, OLDER, ABSENT = TARGETS = ("", "older-", "absent-")  # the values that are scored
ALL = "all"  # pairs
WINDOWS = 16  # of ten questions each, at least
MARGIN = {"margin": "  margin", "margin_low": "    from", "margin_high": "    to"}  # in tables


class Form(NamedTuple):
    """A sentence in tokens, with the names and values that are one token each."""

    sentence: np.ndarray  # [S]
    name_at: int  # in the sentence
    value_at: int
    names: Mapping[str, int]
    values: np.ndarray  # [values]
    bytes: np.ndarray  # [values], of text


class Revised(Protocol):
    title = "the last value of a name that sentences in the text set twice"
    columns = OF_SETTINGS | {
        "separation": SEPARATION,
        "margin": Column("nats per token by which the last value beats the older one (revised)"),
        "margin_low": Column("95% interval of margin over documents, lower end"),
        "margin_high": Column("upper end"),
    }
    order = 9
    value = "accuracy"
    by_part = True

    def check(self, lengths: Sequence[int], span: int | None, trained: int) -> None:
        if min(lengths) < SHORTEST:
            raise ConfigError(
                f"{self.name} needs lengths of {SHORTEST} tokens or more, where its sentences do "
                f"not meet; got {list(lengths)}"
            )

    def text(self, text: Text, subject: Any, lengths: Sequence[int], config: Evaluation) -> Text:
        """The text, with the sentences to write into it."""
        forms = forms_of(subject.tokenizer)
        if forms is None:
            raise ConfigError(
                f"{self.name} needs names and values that are one token each, and the tokenizer "
                f"{subject.tokenizer.name} has too few: evaluate a run with one of English words"
            )
        return dataclasses.replace(text, of_protocol=forms)

    def readings(self, text: Text, length: int, span: int | None, trained: int) -> list[Reading]:
        """Readings by pair, `413-49` with the last setting 413 tokens back and the older one 49
        before it, and of `all`; each of the last value, the older and the absent one. An answer of
        the first is right if the last value has more probability than the older one, of the
        third if both have more than the absent one."""
        inner = revised(text, length)
        rows = np.arange(len(inner.starts)).reshape(-1, 2, len(PAIRS), len(TARGETS))
        place = places(length)
        readings = []
        for number, (older, last) in enumerate(PAIRS):
            apart = int(place[last] - place[older])
            part, own = f"{length - place[last]}-{apart}", rows[:, :, number]
            readings += [_scored(inner, length, own, part, target, apart) for target in TARGETS]
        readings += [_scored(inner, length, rows, ALL, target, None) for target in TARGETS]
        return readings

    def beside(self, cell: Cell, parts: Mapping[str, Cell]) -> dict[str, float | None]:
        older = parts.get(OLDER + cell.facts["part"])
        if older is None:
            return {}
        margin = paired(older.nats, cell.nats, cell.tokens)
        return dict(zip(MARGIN, (margin.mean, margin.low, margin.high), strict=True))

    def wanted(self, span: int | None) -> int:
        return WINDOWS

    def warning(self, windows: int, span: int | None) -> str | None:
        if windows >= WINDOWS:
            return None
        return (
            f"{self.name} asks {2 * windows} questions of each pair, too few for an accuracy below "
            f"{2 * WINDOWS}: raise windows or documents, or give more text"
        )

    def table(self, rows: Sequence[dict]) -> Table:
        parts = [part for row in rows if not (part := row["part"]).startswith(TARGETS[1:])]
        parts, body = list(dict.fromkeys(parts)), []
        for name in dict.fromkeys(map(label, rows)):
            own = {row["part"]: row for row in rows if label(row) == name}
            columns = {name: (LAST, "accuracy"), **{w: (LAST, n) for n, w in MARGIN.items()}}
            columns["  found"] = ABSENT, "accuracy"
            for first, (prefix, column) in columns.items():
                found = (own.get(f"{prefix}{part}", {}).get(column) for part in parts)
                body.append([first, *(decimal(value, 2) for value in found)])
        caption = (
            "share answered with the last value rather than the older one (without order 0.5), by "
            "tokens back to the last setting and from there to the older one; margin: nats of the "
            "older value less those of the last, 95% intervals over documents; found: both values "
            "before one that was never given (guessing 0.33)"
        )
        return Table(caption, ["", *parts], body)


def places(length: int) -> np.ndarray:  # [SLOTS], of the values in a row of length + 1 tokens
    return np.arange(1, SLOTS + 1) * (length - SHORTEST // SLOTS // 2) // SLOTS


def revised(text: Text, length: int) -> Text:
    """The rows of each window: as it is and with the values of all pairs exchanged, for each pair
    that is asked for and each value that is scored."""
    forms: Sequence[Form] = text.of_protocol
    each = 2 * len(PAIRS) * len(TARGETS)
    rows = (text.starts + text.longest - length)[:, None] + np.arange(length + 1)
    document = np.searchsorted(text.documents, text.document)
    inner = gathered(text, np.repeat(rows, each, axis=0), np.repeat(document, each))
    place, shape = places(length), (len(text.starts), 2, len(PAIRS), len(TARGETS), length + 1)
    tokens, widths = inner.split.tokens.reshape(shape), np.zeros(shape[:4], np.int64)
    for window, of_window in enumerate(tokens):
        rng = tasks.generator(0, window)
        names = rng.choice([*forms[0].names], len(PAIRS), replace=False)
        own = [forms[(window + pair) % len(forms)] for pair in range(len(PAIRS))]
        drawn = [rng.permutation(len(form.values))[:3] for form in own]
        for exchanged in (0, 1):
            values = [(b, a, c) if exchanged else (a, b, c) for a, b, c in drawn]
            given = list(zip(own, names, values, strict=True))  # values: last, older, absent
            for (form, name, value), slots in zip(given, PAIRS, strict=True):
                for slot, one in zip(slots, (value[1], value[0]), strict=True):
                    begin = place[slot] - form.value_at
                    write(of_window[exchanged, ..., begin:], form, name, one)
            for asked, (form, name, value) in enumerate(given):
                for target, one in enumerate(value):
                    row = of_window[exchanged, asked, target]
                    write(row[length - form.value_at :], form, name, one)
                    widths[window, exchanged, asked, target] = form.bytes[one]
    answers = np.zeros((tokens.size // (length + 1), length + 1), bool)
    answers[:, -1] = True
    bytes_of = inner.split.bytes_of
    if bytes_of is not None:
        by_row = bytes_of.reshape(answers.shape)
        bytes_of = np.where(answers, widths.reshape(-1, 1), by_row).ravel()
    found = {"tokens": tokens.ravel(), "answers": answers.ravel(), "bytes_of": bytes_of}
    return dataclasses.replace(inner, split=dataclasses.replace(inner.split, **found))


def write(rows: np.ndarray, form: Form, name: str, value: int) -> None:
    """Write a sentence at the beginning of rows [..., T], as far as it fits."""
    sentence = form.sentence.copy()
    sentence[[form.name_at, form.value_at]] = form.names[name], form.values[value]
    rows[..., : len(sentence)] = sentence[: rows.shape[-1]]


def _scored(
    inner: Text, length: int, rows: np.ndarray, part: str, target: str, apart: int | None
) -> Reading:
    """A reading of some rows [..., TARGETS] that scores one of the three values."""
    at = TARGETS.index(target)
    kept = np.zeros((rows.size, length), bool)
    kept[at :: len(TARGETS), -1] = True

    def right(nats: np.ndarray) -> np.ndarray:  # [N, last] -> bool
        last, older, absent = nats[:, -1].reshape(-1, len(TARGETS)).T
        found = np.zeros(nats.shape, bool)
        answered = {LAST: last < older, OLDER: older < last}
        answered[ABSENT] = np.maximum(last, older) < absent
        found[at :: len(TARGETS), -1] = answered[target]
        return found

    chance = 1 / 3 if target == ABSENT else 0.5
    facts = {"chance": chance, "ceiling": 1.0, "orderless": chance, "older": 1}
    facts["separation"] = None if apart is None else str(apart)
    return Reading(
        inner,
        length,
        inner.starts[rows.ravel()],
        inner.document[rows.ravel()],
        first=np.full(rows.size, length - 1),
        kept=kept,
        part=target + part,
        facts=facts,
        right=right,
    )


def forms_of(encoder: Any) -> list[Form] | None:
    """The sentences in a tokenizer; None where too few names or values are one token each."""
    forms = [_form(encoder, form, values.split()) for form, values in FORMS.items()]
    names = set.intersection(*(set(form.names) if form else set() for form in forms))
    fewest = min(len(form.values) if form else 0 for form in forms)
    if len(names) < len(PAIRS) or fewest < len(TARGETS):
        return None
    kept = [name for name in NAMES if name in names]
    return [form._replace(names={n: form.names[n] for n in kept}) for form in forms if form]


def _form(encoder: Any, form: str, values: Sequence[str]) -> Form | None:
    def encoded(name: str, value: str) -> np.ndarray:  # [2, S]
        return np.stack(encoder.measure(form.format(name, value).encode(), "a sentence"))

    named = _alike({name: encoded(name, values[0]) for name in NAMES})
    valued = _alike({value: encoded(NAMES[0], value) for value in values})
    if named is None or valued is None or len(named.sentence) != len(valued.sentence):
        return None
    tokens, widths = (np.array([pair[n] for pair in valued.found.values()]) for n in (0, 1))
    names = {name: token for name, (token, _) in named.found.items()}
    return Form(valued.sentence, named.place, valued.place, names, tokens, widths)


class _Alike(NamedTuple):
    """Sentences that differ in one token."""

    sentence: np.ndarray  # [S], one of them
    place: int  # of that token
    found: dict[str, tuple[int, int]]  # by word that token, and its bytes


def _alike(sentences: Mapping[str, np.ndarray]) -> _Alike | None:
    """The sentences [2, S] of the most frequent length; None if they differ in more than one
    token."""
    (shape, _), *_ = Counter(np.shape(each) for each in sentences.values()).most_common(1)
    words = [word for word, each in sentences.items() if each.shape == shape]
    rows = np.stack([sentences[word] for word in words]).astype(np.int64)
    tokens, widths = rows[:, 0], rows[:, 1]
    places = np.flatnonzero((tokens != tokens[0]).any(axis=0))
    if len(places) != 1:
        return None
    place = int(places[0])
    pairs = zip(tokens[:, place].tolist(), widths[:, place].tolist(), strict=True)
    return _Alike(tokens[0], place, dict(zip(words, pairs, strict=True)))


protocol = Revised()
