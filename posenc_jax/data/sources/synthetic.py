"""Text that a task draws."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from posenc_jax import registry
from posenc_jax.checks import choice
from posenc_jax.data import tasks
from posenc_jax.data.sources import Document, Documents, stdlib
from posenc_jax.fields import Field, default, fields
from posenc_jax.registry import tasks as names
from posenc_jax.runtime.errors import ConfigError


def _task(name: str, value: Any):
    if "." not in value:  # one's own is found already
        choice(name, value, names())


@dataclasses.dataclass(frozen=True)
class Synthetic(Documents):
    task: str = default(tasks.DEFAULT, "a file in posenc_jax/data/tasks", _task)
    drawn: tasks.Task = tasks.NONE  # the task, with its options

    @classmethod
    def options(cls, given: Mapping[str, Any]) -> list[Field]:
        """Its own options and those of the task, or of every task if none is named."""
        task = given.get("task", tasks.DEFAULT)
        described = map(tasks.find, names() if task is None else filter(registry.is_task, [task]))
        own = {field.name: field for field in fields(cls)}
        more = {field.name: field for each in described for field in fields(each)}
        return list((own | more | own).values())

    @classmethod
    def of(cls, given: Mapping[str, Any], length: int) -> "Synthetic":
        own = {field.name for field in fields(cls)}
        task = given.get("task", tasks.DEFAULT)
        options = {name: value for name, value in given.items() if name not in own}
        fraction = given.get("valid_fraction", cls.valid_fraction)
        try:
            drawn = tasks.make(task, length, valid_fraction=fraction, **options)
        except ValueError as error:
            raise ConfigError(f"data.task={task}: {error}") from error
        return cls(**{name: given[name] for name in own & set(given)}, drawn=drawn)

    @property
    def has_answers(self) -> bool:
        return True

    @property
    def size(self) -> float:
        return sum(count * self.drawn.length(split != "valid") for split, count in self.counts())

    def as_fields(self) -> dict[str, Any]:
        options = {f.name: getattr(self.drawn, f.name) for f in fields(type(self.drawn))}
        return super().as_fields() | options

    def files(self) -> list[Path]:
        return stdlib.stdlib_files() if self.drawn.reads_code else []

    def identity(self, seed: int) -> dict[str, Any]:
        return {"task": self.task, "seed": seed, **self.drawn.identity()}

    def documents(self, seed: int) -> Iterator[Document]:
        for split, count in self.counts():
            for i, drawn in enumerate(self.drawn.draw(split, count, seed)):
                name = f"{self.task}-{split}-{i}"
                own = None if split == "any" else split
                text, size = drawn.text.tobytes(), len(drawn.text)
                yield Document(name, text, drawn.answers, drawn.gaps, split=own, size=size)

    def counts(self) -> Iterable[tuple[str, int]]:
        """Splits and how many documents each has."""
        return self.drawn.counts(bool(self.valid_fraction), bool(self.choose_fraction)).items()

    def card(self) -> dict[str, Any]:
        if not isinstance(self.drawn, tasks.Probe):
            return {}
        return {"chance": self.drawn.chance, "task": self.task}

    @property
    def description(self) -> str:
        return " ".join([f"synthetic:{self.task}", *self.drawn.text_options])

    def mistakes(self) -> list[str]:
        if self.tokenizer == "bytes":
            return super().mistakes()
        return [*super().mistakes(), "data.tokenizer must be 'bytes' for synthetic data"]


Source = Synthetic
