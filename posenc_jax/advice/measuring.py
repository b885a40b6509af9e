"""Measure a method on texts of a run: what far copies keep, and what it costs in short rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models import Config
from posenc_jax.config import schema
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import check, evaluate, planning, protocols
from posenc_jax.evaluation.cells import Cell, Store
from posenc_jax.evaluation.losses import placing
from posenc_jax.evaluation.planning import Planned
from posenc_jax.evaluation.protocols import copies
from posenc_jax.evaluation.statistics import Difference, Units, combined
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.errors import Stopped

SCREENED = 2  # texts of the screening
COPIES, TEXT = "copies", protocols.HEADLINE
READ = 0.25  # of what a near copy saves at its best: where one saves less, it is not read
FAR, NEAR = "rows of N", "rows of prompts"  # the windows of the texts that are read
Sums = Mapping[tuple[str, str, int, str], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Finding:
    """A method on some texts; all methods score the same targets."""

    method: str
    target: int  # N, tokens of the longest rows
    sums: Sums  # nats and tokens [D], by windows, protocol, length and part
    kind: str | None = None  # of D, as in `Units`

    def _of_copies(self, back: int) -> list[np.ndarray]:
        """Tokens [D], and nats with the far copy, with the near one and without."""
        parts = (f"{prefix}{back}" for prefix in ("", copies.NEAR, copies.UNREAD))
        found = [self.sums[FAR, COPIES, self.target, part] for part in parts]
        return [found[0][1], *(nats for nats, _ in found)]

    @cached_property
    def distances(self) -> list[int]:
        return sorted(int(part) for _, _, _, part in self.sums if part.isdigit())

    @cached_property
    def kept(self) -> dict[int, float]:
        """Of what a near copy saves, the share that one so many tokens back does; 0 where not even
        the near one is read."""
        saved = {}  # nats per token by the far copy and by the near one
        for back in self.distances:
            tokens, far, near, none = self._of_copies(back)
            saved[back] = [float((none - one).sum() / tokens.sum()) for one in (far, near)]
        least = READ * max(near for _, near in saved.values())
        shares = {
            back: far / near if near > max(0, least) else 0.0 for back, (far, near) in saved.items()
        }
        return {back: share if np.isfinite(share) else 0.0 for back, share in shares.items()}

    @cached_property
    def intervals(self) -> dict[int, Difference | None]:
        return {back: copies.share_kept(*self._of_copies(back)) for back in self.distances}

    @property
    def worst(self) -> int:
        """The distance at which least is kept."""
        return min(self.kept, key=self.kept.__getitem__)

    @property
    def least(self) -> float:
        return self.kept[self.worst]

    @cached_property
    def reach(self) -> int:
        """The farthest distance at which half is kept, on the line between two; N: to the end."""
        kept = [*self.kept.values()]
        above = [place for place, share in enumerate(kept) if share >= copies.USABLE]
        if not above:
            return 0
        if above[-1] == len(kept) - 1:
            return self.target
        two = slice(above[-1], above[-1] + 2)
        return round(float(np.interp(-copies.USABLE, np.negative(kept[two]), self.distances[two])))

    @property
    def usable(self) -> int:
        """The distance up to which clearly more than one half is kept; N: in the whole row."""
        low = {back: one and one.low for back, one in self.intervals.items()}
        rows = [{"part": str(back), "share_low": end} for back, end in low.items()]
        up_to = copies.usable_length(rows)
        return self.target if up_to == self.distances[-1] else up_to

    @property
    def reads(self) -> bool:
        return self.least >= copies.USABLE

    @property
    def clear(self) -> bool:
        return self.usable == self.target

    @property
    def units(self) -> Units:
        return Units(len(self.sums[FAR, TEXT, self.target, ""][0]), self.kind)

    @cached_property
    def whole(self) -> int:
        """Tokens of the shorter rows in which no extension reads the text of N: L, or N."""
        lengths = [n for name, kind, n, _ in self.sums if (name, kind) == (FAR, TEXT)]
        return min(lengths)

    def price(self, other: "Finding", prompts: Sequence[int]) -> Difference:
        """Nats per token over another method in rows of these lengths, of the same targets."""
        terms = []
        for length in prompts:
            own, (theirs, tokens) = (one.sums[NEAR, TEXT, length, ""] for one in (self, other))
            terms.append((1 / len(prompts), own[0] - theirs, tokens))
        return combined(terms, self.kind)

    def gain(self, other: "Finding", length: int) -> Difference:
        """Nats per token saved in rows of N, over another method in shorter rows."""
        (nats, tokens), (theirs, _) = (
            one.sums[FAR, TEXT, n, ""] for one, n in ((self, self.target), (other, length))
        )
        return combined([(1.0, theirs - nats, tokens)], self.kind)


class Measuring:
    """Measures methods on a run's first texts; a cell that is finished is not computed again."""

    def __init__(
        self,
        workdir: Path,
        folder: Path,  # of cells
        target: int,
        prompts: Sequence[int],
        data: Mapping[str, Any],
        texts: int,
        rate: float,  # operations per second
        stopping: Callable[[], bool],
    ):
        self.target, self.prompts, self.data, self.rate = target, prompts, data, rate
        self.stopping, self.store = stopping, Store(folder)
        self.computed = False  # anything for the last finding
        self.config = self._asked(TEXT, "none", prompts, documents=texts)
        self._load(workdir)

    def _load(self, workdir: Path) -> None:
        self.subject = load_subject(workdir, place=placing(self.config))
        # Windows of prompts do not depend on N, so that another N finds their cells.
        self.texts = {
            name: replace(evaluate.choose(self.config, self.subject, lengths), name=name)
            for name, lengths in ((NEAR, list(self.prompts)), (FAR, [self.target]))
        }

    def of(self, workdir: Path) -> "Measuring":
        """The same for another run, on texts that it was not trained on."""
        other = copy(self)
        other._load(workdir)
        return other

    @property
    def most(self) -> int:
        return min(len(text.starts) for text in self.texts.values())

    def _asked(self, protocol: str, method: str, lengths: Sequence[int], **fields: Any):
        fields |= {"protocols": protocol, "extensions": method, "window": False, "windows": 1}
        fields |= {"last": min(self.prompts) // 4} if protocol == TEXT else {}
        usual = schema.evaluation().to_dict()
        values = usual | fields | {"lengths": ",".join(map(str, lengths))}
        values["data"] = usual["data"] | dict(self.data)
        return check.load(values)

    def planned(self, method: str, texts: slice) -> list[Planned]:
        """The cells of a method on some texts, one text after another."""
        whole = [min(self.target, self.subject.trained)] if method == "none" else []
        asked = [
            (NEAR, TEXT, list(self.prompts)),
            (FAR, TEXT, sorted({*whole, self.target})),
            (FAR, COPIES, [self.target]),
        ]
        cells = []
        for name, protocol, lengths in asked:
            config, every = self._asked(protocol, method, lengths), self.texts[name]
            document, starts = every.document[texts], every.starts[texts]
            for one in _together(len(starts)):
                text = replace(every, document=document[one], starts=starts[one])
                cells += planning.plan(config, self.subject, text, lengths)
        return cells

    def seconds(self, cells: Sequence[Planned]) -> float:
        """Time that the missing ones of these cells take."""
        return self._operations(cells) / self.rate

    def _operations(self, cells: Sequence[Planned]) -> float:
        model, missing = self.subject.parts.model, {}
        for cell in cells:
            if self.store.get(cell.key) is None:
                reading = cell.reading
                missing[reading.text.hash, cell.pass_key] = len(reading.starts), reading.length
        shape = size_of(model), model.config, self.subject.plain
        return sum(rows * operations(*shape, length) for rows, length in missing.values())

    def finding(self, method: str, texts: slice) -> Finding:
        cells = self.planned(method, texts)
        operations, began = self._operations(cells), time.monotonic()
        found = evaluate.measure(self.config, self.subject, cells, self.store, self.stopping)
        if self.stopping():
            raise Stopped("stopped; the same command resumes")
        self.computed = operations > 0
        if operations and method != "none":  # which compiles
            self.rate = operations / (time.monotonic() - began)
        return Finding(method, self.target, _sums(found), self.texts[FAR].kind)


def _together(texts: int) -> list[slice]:
    """The texts that all devices read at once; those of the screening are read apart."""
    each = jax.device_count()
    starts = sorted({*range(0, min(SCREENED, texts), each), *range(SCREENED, texts, each)})
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], texts], strict=True)]


def _sums(cells: Sequence[Cell]) -> Sums:
    parts: dict[tuple, list[Cell]] = {}
    for cell in cells:
        place = tuple(cell.facts[n] for n in ("evaluation", "protocol", "length", "part"))
        parts.setdefault(place, []).append(cell)
    return {
        place: (np.concatenate([c.nats for c in own]), np.concatenate([c.tokens for c in own]))
        for place, own in parts.items()
    }


def operations(size: int, model: Config, encoding: Encoding, length: int) -> float:
    """Multiplications and additions of a row."""
    windows = (encoding.layer(index).window for index in range(model.layers))
    pairs = sum(length * window if window else length**2 / 2 for window in windows)
    return 2.0 * size * length + 4.0 * model.width * pairs


def size_of(arrays: Any) -> int:
    """Number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(arrays))


def rate_here(width: int) -> float:
    """Operations per second of a product of matrices on all devices."""
    shape = 4_096, width, 4 * width
    a, b = jnp.ones(shape[:2], jnp.bfloat16), jnp.ones(shape[1:], jnp.bfloat16)
    product = jax.jit(jnp.matmul)
    product(a, b).block_until_ready()
    began = time.monotonic()
    for _ in range(3):
        product(a, b).block_until_ready()
    return 3 * 2 * float(np.prod(shape)) / (time.monotonic() - began) * jax.device_count()
