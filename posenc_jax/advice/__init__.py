"""Which extension a pretrained model needs for N tokens, what it costs, and what to paste."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax import extensions
from posenc_jax.advice import choosing, page, paste, tuning
from posenc_jax.advice.choosing import Choice, Family
from posenc_jax.advice.measuring import (
    COPIES,
    SCREENED,
    Finding,
    Measuring,
    operations,
    rate_here,
    size_of,
)
from posenc_jax.checks import known
from posenc_jax.config import Training
from posenc_jax.config.resolve import trained_length
from posenc_jax.display import text as in_lines
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS
from posenc_jax.pretrained import adopt, saving
from posenc_jax.runs import parameters
from posenc_jax.runs.subject import run_config
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import locked, read_json
from posenc_jax.runtime.terminal import clock, say, stop_requests, warn

TEXTS = FEWEST_DOCUMENTS  # of the decision
SHARE = 0.5  # of the minutes, for screening once a method reads N
SHORTEST = 16  # tokens of a prompt
ROWS = 4  # a text is read in rows of N: as it is, with far copies, with near ones; and shorter ones
METHODS = 10  # of the screening, about


class Advice(NamedTuple):
    rows: list[dict[str, Any]]  # of rows.csv
    choice: Choice | None  # None: nothing was computed


def advise(
    source: str | Path,
    to: int,
    *,
    workdir: str | Path,
    text: str = "",
    prompts: Sequence[int] = (),
    minutes: float | None = None,
    engine: str = "",
    tune: str = "",
    dry_run: bool = False,
) -> Advice:
    """Measure which extension lets a model read rows of `to` tokens, and choose one."""
    backend.configure()
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if engine:
        try:
            known("engine", engine, paste.NAMES)
        except ValueError as error:
            raise ConfigError(str(error)) from error
    if tune:
        tuning.recipe_of(tune)
    folder, is_run = Path(workdir), (Path(source) / "checkpoints").is_dir()
    run = Path(source) if is_run else folder / "run"
    config = run_config(run) if is_run else adopt.planned(source)
    encoding, trained = parameters.first_encoding(config), trained_length(config)
    families = choosing.families(extensions.fitting(encoding), config.extension.name)
    if not families:
        tried = ", ".join(family.word.partition(":")[0] for family in choosing.FAMILIES[::2])
        raise ConfigError(f"{source} has encoding {encoding.name!r}, which {tried} do not extend")
    protocols.find(COPIES).check([to], None, trained)
    longest = min(trained, to)
    prompts = sorted(set(prompts or (max(SHORTEST, longest // 8), longest)))
    if not SHORTEST <= prompts[0] <= prompts[-1] <= to:
        raise ConfigError(
            f"--prompts must be lengths from {SHORTEST} to --to={to}; got {list(prompts)}"
        )
    rate, each = _tell_plan(config, to, prompts, minutes)
    if dry_run:
        return Advice([], None)
    data = {"source": "jsonl" if text.endswith((".jsonl", ".jsonl.gz")) else "text", "path": text}
    if not text:
        data = {"source": "stdlib"}
        warn("without --text it reads the source of Python's library: code, and short files")
    with ExitStack() as stack:
        signals = stack.enter_context(stop_requests())
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(folder, "another extend.py in this folder"))
        if not is_run and Workdir(run).config() is None:
            adopt.adopt(source, run, dtype="bfloat16")
        origin = read_json(run / "status.json").get("adopted", {}).get("source")
        if not is_run and origin != str(source):
            raise ConfigError(f"{run} is of {origin}; give another --workdir")
        measuring = Measuring(
            run, folder / "cells", to, prompts, data, TEXTS, rate, lambda: bool(signals)
        )
        advising = _Advising(measuring, run, config, folder, engine, str(source), each)
        screened = advising.screened(families, until)
        decided = advising.decided(screened, until)
        if screened[0].reads and not decided[0].clear:  # which two texts did not show
            screened = advising.screened(families, until, even_so=True)
            decided = advising.decided(screened, until)
        answer = advising.written(screened, decided)
        if tune:
            assert answer.choice is not None
            said = tuning.tuned(measuring, run, folder, answer.choice.finding.method, tune, data)
            answer = advising.written(screened, decided, said)
        return answer


def _tell_plan(
    config: Training, to: int, prompts: Sequence[int], minutes: float | None
) -> tuple[float, float]:
    """Say what will be tried, how long it takes and what it holds; the speed of this machine, and
    the operations of a method on a text."""
    parts, width = parameters.blank(config), config.model.width
    rate, size = rate_here(width), size_of(parts.params())
    each = ROWS * operations(size, config.model, parts.encoding, to)
    minutes_here = _texts_after(0) * each / rate / 60
    # The program, weights in float32 and in bfloat16, and activations.
    held = 2**29 + 6 * size + 4 * to * (12 * width + 4 * config.model.hidden_size)
    bound = "" if minutes is None else f", of which at most {minutes:g} are used"
    say(
        f"{size:,} parameters, L = {trained_length(config):,}; rows of {to:,} tokens, prompts of "
        f"{' and '.join(f'{n:,}' for n in prompts)}\n"
        f"screening: about {METHODS} methods on {SCREENED} texts; decision: at most "
        f"{choosing.FINALISTS} and none on {TEXTS}; about {minutes_here:.0f} minutes here{bound}\n"
        f"memory: about {held / 2**30:.1f} GiB\n{choosing.RULE}"
    )
    return rate, each


def _texts_after(screened: int) -> int:
    """Texts that are left to read, about, after so many methods of the screening."""
    left = SCREENED * max(0, METHODS - screened)
    return left + (TEXTS - SCREENED) * (choosing.FINALISTS + 1)


class _Advising:
    def __init__(
        self,
        measuring: Measuring,
        run: Path,
        config: Training,
        folder: Path,
        engine: str,
        source: str,
        each: float,  # operations of a method on a text
    ):
        self.measuring, self.prompts, self.folder = measuring, measuring.prompts, folder
        self.layouts, self.extension = saving.layouts_of(saving.lineage_of(run)), config.extension
        self.own, self.engine, self.source = saving.own_extension(config), engine, source
        self.blocks: dict[str, Mapping[str, paste.Block]] = {}
        self.each, self.left_out = each, []

    def screened(
        self, families: Sequence[Family], until: float, even_so: bool = False
    ) -> list[Finding]:
        """No extension, then methods near the smallest factor that reads N; none if no extension
        reads it, unless `even_so`."""
        texts, began, self.left_out = slice(SCREENED), time.monotonic(), []
        plain = self.measuring.finding("none", texts)
        found, tried = [plain], {}
        self._tell(found, until)
        own = 1.0 if self.extension.name == "none" else self.extension.scale
        need = choosing.needed(plain, self.measuring.subject.original, own)
        while even_so or not plain.reads:
            asked = choosing.following(tried, need, families)
            if asked is None:
                break
            family, factor = asked
            method = family.method(factor)
            seconds = self.measuring.seconds(self.measuring.planned(method, texts))
            share = SHARE if any(one.reads for one in found) else 1.0
            if time.monotonic() + seconds > began + share * (until - began):
                self.left_out.append(f"screening from {method} on")
                break
            found.append(self.measuring.finding(method, texts))
            tried.setdefault(family, {})[factor] = found[-1]
            self._tell(found, until)
        return found

    def _left(self, screened: int) -> float:
        return _texts_after(screened) * self.each / self.measuring.rate

    def _tell(self, found: Sequence[Finding], until: float) -> None:
        one, left = found[-1], min(self._left(len(found)), max(0.0, until - time.monotonic()))
        price = one.price(found[0], self.prompts).mean
        kept = f"keeps {one.least:.2f} of a near copy or more, least at {one.worst:,} tokens back"
        rest = f"; about {clock(left)} left in all" if self.measuring.computed else ""
        say(f"{one.method}: {kept}; costs {price:.3f} nats per token{rest}")

    def decided(self, screened: Sequence[Finding], until: float) -> list[Finding]:
        """No extension and the best methods on more texts."""
        plain, *others = screened
        finals = []
        if others:
            ranked = choosing.ordered(others, plain, self.prompts)
            names = [one.method for one in others]
            everywhere = [n for n in names if not any(b.fault for b in self._of(n).values())]
            finals = choosing.finalists(ranked, self._right(names, self.engine), everywhere)
        names = ["none", *(one.method for one in finals)]
        most = self.measuring.most if others or plain.reads else SCREENED
        one = slice(SCREENED, SCREENED + 1)
        each = sum(self.measuring.seconds(self.measuring.planned(name, one)) for name in names)
        left = until - time.monotonic()
        if each * (most - SCREENED) > left:
            most = SCREENED + max(0, int(left / each))
            self.left_out.append(f"{self.measuring.most - most} of {self.measuring.most} texts")
        between, longest = ", ".join(names), clock(each * (most - SCREENED))
        say(f"decision between {between} on {most} texts; at most {longest}")
        return [self.measuring.finding(name, slice(most)) for name in names]

    def _of(self, method: str) -> Mapping[str, paste.Block]:
        if method not in self.blocks:
            subject, target = self.measuring.subject, self.measuring.target
            self.blocks[method] = paste.blocks(
                subject, self.layouts, self.own, method, target, self.source
            )
        return self.blocks[method]

    def _right(self, names: Sequence[str], engine: str) -> list[str]:
        """The methods that an engine computes and reads right; all without an engine."""
        return [n for n in names if not engine or not self._of(n)[engine].fault]

    def _choice(self, findings: Sequence[Finding], engine: str) -> Choice | None:
        names = [one.method for one in findings]
        return choosing.choose(findings, self.prompts, self._right(names, engine))

    def written(
        self, screened: Sequence[Finding], decided: Sequence[Finding], more: str = ""
    ) -> Advice:
        """Write the answer, what each engine is given, and what was found on the way."""
        shutil.rmtree(self.folder / page.PASTE, ignore_errors=True)
        plain, first = decided[0], screened[0]
        best = self._choice(decided, "") or Choice(None, plain)
        choice = self._choice(decided, self.engine) or best
        right = self._right([one.method for one in screened[1:]], self.engine)
        beside = [first, *(one for one in screened if one.method in right)]
        sentences = [page.claim(choice, plain, self.prompts, beside)]
        if choice.finding is not best.finding:
            sentences.append(f"Best of all: {page.claim(best, plain, self.prompts, [first])}")
        given: dict[str, list[str]] = {}
        engines = [self.engine] if self.engine else paste.NAMES
        for engine in engines if len(decided) > 1 or plain.clear else ():
            words, place = self._pasted(engine, choice.finding.method, screened, decided)
            given.setdefault(words, []).append(place)
        sentences += [f"- {words}: {', '.join(places)}" for words, places in given.items()]
        if self.left_out:
            left = clock(self._left(len(screened)))
            on = f"without --minutes the same command goes on, about {left}"
            sentences.append(f"Left out, for --minutes: {', and '.join(self.left_out)}; {on}.")
        sentences += [more] * bool(more)
        names = [one.method for one in decided]
        before = screened if first.units != plain.units else []
        made = page.rows([*decided, *before], plain, first, self.prompts)
        only = [row for row in made[len(names) :] if row["method"] not in names]
        shown = page.table([*made[: len(names)], *only], self.prompts)
        figure, path = page.picture(decided, plain, self.prompts), self.folder / "extend.md"
        title = f"{Path(self.source).name} to {plain.target:,} tokens"
        page.write(path, title, sentences, made, shown, figure)
        say("\n".join([in_lines(shown), *sentences, str(path)]))
        return Advice(made, choice)

    def _pasted(
        self, engine: str, method: str, screened: Sequence[Finding], decided: Sequence[Finding]
    ) -> tuple[str, str]:
        """Write what an engine is given: the method chosen, or the best that it reads right.
        In words, and where it is."""
        fault = self._of(method)[engine].fault
        own = self._choice(decided, engine) or self._choice(screened, engine)
        misread = f"{method}: {fault}; " if fault else ""
        if own is None:
            return f"{misread}no other is read right", engine
        one = own.finding
        beside = decided[0] if one in decided else screened[0]
        price = one.price(beside, self.prompts).mean
        known = paste.found_of(engine, self.layouts[0])
        numbers = f"keeps at least {one.least:.2f} and costs {price:.3f} ({one.units})"
        about = f"{one.method} in rows of {one.target:,} tokens {numbers}; {known}"
        path = page.write_block(self.folder, engine, self._of(one.method)[engine], about)
        return f"{misread}{one.method} {numbers}", f"{path} ({known})"
