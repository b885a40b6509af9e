"""The cells of a sweep: their names, their commands, and how far each one is, read from its folder.

What a sweep knows is in the folders of its runs alone, so one that was killed goes on from there.
"""

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc_jax.exits import ConfigError, Stop
from posenc_jax.training.run import Workdir, read_metrics, write_atomically

ROOT = Path(__file__).parent.parent.parent
SHORT = {"seed": "s", "train_length": "L"}  # s0, L128; others by name=value


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of the sweep: an ordinary workdir."""

    name: str
    folder: Path
    recipe: str
    fields: tuple[tuple[str, Any], ...]  # over the recipe
    evaluation: tuple[tuple[str, Any], ...]  # over configs/eval.py

    @property
    def train(self) -> list[str]:
        words = [f"--config={self.recipe}", f"--workdir={self.folder}"]
        return [sys.executable, str(ROOT / "train.py"), *words, *_flags(self.fields)]

    @property
    def evaluate(self) -> list[str]:
        program = str(ROOT / "eval_extrapolation.py")
        return [sys.executable, program, f"--workdir={self.folder}", *_flags(self.evaluation)]

    @property
    def log(self) -> Path:
        """What its programs print."""
        return self.folder / "sweep.log"

    def status(self) -> dict:
        try:
            return Workdir(self.folder).read_status()
        except Stop:
            return {}

    def next(self) -> str | None:
        """train, evaluate, or None where both are done."""
        status = self.status()
        steps = dict(self.fields).get("steps", status.get("step"))  # text, if from a command line
        if status.get("state") != "done" or str(status.get("step")) != str(steps):
            return "train"
        return None if self._evaluated() == self._evaluation_of(status) else "evaluate"

    def mark_evaluated(self) -> None:
        write_atomically(self._mark, self._evaluation_of(self.status()))

    def last_metrics(self) -> dict:
        """The newest line that has a speed."""
        try:
            lines = read_metrics(self.folder / "metrics.jsonl")
        except Stop:
            return {}
        return next((line for line in reversed(lines) if "tokens_per_second" in line), {})

    @property
    def _mark(self) -> Path:
        return self.folder / "eval" / "sweep.json"

    def _evaluated(self) -> str | None:
        rows = self.folder / "eval" / "curves.csv"
        return self._mark.read_text() if self._mark.exists() and rows.exists() else None

    def _evaluation_of(self, status: dict) -> str:
        """Of which weights, and how."""
        return json.dumps({"digest": status.get("digest"), "fields": self.evaluation}) + "\n"


def cells_of(
    sweep: Mapping[str, Any], workdir: Path, extra: Sequence[tuple[str, Any]] = ()
) -> list[Cell]:
    """One for each of the grid of a sweep file; `extra` fields are set in all of them."""
    cells: dict[str, Cell] = {}
    evaluation = tuple(sweep.get("evaluation", {}).items())
    for chosen in sweep.get("grid", []):
        fields = dict(chosen)
        recipe = fields.pop("recipe", sweep.get("recipe"))
        if not recipe:
            raise ConfigError("a cell of the grid has no recipe, and the sweep names none")
        name = name_of(chosen)
        if name in cells:
            raise ConfigError(f"two cells of the grid are called {name!r}")
        every = {"wandb.group": workdir.resolve().name} | dict(sweep.get("fields", {}))
        merged = tuple((every | fields | dict(extra)).items())
        cells[name] = Cell(name, workdir / name, _found(str(recipe)), merged, evaluation)
    if not cells:
        raise ConfigError("the grid has no cell")
    return list(cells.values())


def name_of(fields: dict[str, Any]) -> str:
    """`rope-s0`; of what the cell itself sets, so that a grid that grows renames nothing."""
    words = []
    for field, value in fields.items():
        if field == "recipe":
            file, _, size = str(value).partition(":")
            words.insert(0, Path(file).stem + (f"-{size}" if size else ""))
        elif field in SHORT:
            words.append(f"{SHORT[field]}{value}")
        else:
            words.append(f"{field.rpartition('.')[2]}={value}")
    name = re.sub(r"[^\w.=+-]+", "_", "-".join(words)).strip("._") or "run"
    if len(name) > 100:  # a file name has an end
        name = f"{name[:90]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _found(recipe: str) -> str:
    """As it is written, or from the project's own folder."""
    file, colon, size = recipe.partition(":")
    for path in (Path(file), ROOT / file):
        if path.is_file():
            return f"{path}{colon}{size}"
    raise ConfigError(f"a cell of the grid has the recipe {recipe!r}, and there is no such file")


def _flags(fields: Sequence[tuple[str, Any]]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in fields]
