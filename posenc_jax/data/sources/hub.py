"""A data set of the Hugging Face Hub, or of a folder written by `save_to_disk`."""

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from posenc_jax.data.sources import Document, _files
from posenc_jax.fields import default
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.files import expanded
from posenc_jax.runtime.hub import connected


@dataclasses.dataclass(frozen=True)
class Hub(_files.Cut):
    path: str = default(
        "", "the name of a data set of the Hugging Face Hub, or a folder of one", _files.given
    )
    name: str | None = default(
        None, "the configuration of the data set, such as wikitext-103-raw-v1"
    )
    revision: str | None = default(None, "a branch, tag or commit")
    field: str = _files.FIELD
    split: str = default("train", "the split that is trained on")
    valid_split: str | None = default(
        None, "the split that is held out, such as validation; None: valid_fraction of split"
    )

    held_out_by = "valid_split"

    @cached_property
    def _train(self) -> Any:
        return _rows(self, self.split)

    @cached_property
    def _valid(self) -> Any:
        return _rows(self, self.valid_split) if self.valid_split else None

    @property
    def size(self) -> float:
        sets = [self._train] if self._valid is None else [self._train, self._valid]
        return sum(rows.data.nbytes for rows in sets)

    def identity(self, seed: int) -> dict[str, Any]:
        """Fingerprints by `datasets` stand for the text."""
        revision = self._train._fingerprint
        if self._valid is not None:
            revision = [revision, self._valid._fingerprint]
        options = {name: getattr(self, name) for name in ("name", "valid_split")}
        own = {"field": self.field, "path": self.path, "split": self.split, "revision": revision}
        given = {name: value for name, value in options.items() if value}
        return super().identity(seed) | own | given

    def documents(self, seed: int) -> Iterator[Document]:
        if self._valid is not None:
            for document in self._documents(self._valid):
                yield document._replace(split="valid")
        yield from self._documents(self._train)

    def _documents(self, rows: Any) -> Iterator[Document]:
        def texts() -> Iterator[Any]:
            for batch in rows.select_columns(self.field).iter(_files.ROWS):
                yield from batch[self.field]

        each = rows.data.nbytes / max(len(rows), 1)
        found = _files.of_column(self.path, self.field, rows.column_names, texts(), each)
        return _files.joined(found, self.begins)

    def mistakes(self) -> list[str]:
        problems = super().mistakes()
        if self.valid_split == self.split:
            problems.append(
                f"data.valid_split must be another split than data.split; both are {self.split!r}"
            )
        return problems


def _rows(source: Hub, split: str) -> Any:
    import datasets

    folder = expanded(source.path)
    name = "" if source.name is None else f", data.name={source.name}"
    if folder.exists() and source.revision:
        raise ConfigError(
            f"data.revision has no effect: {source.path} is a folder, not a data set of the Hub"
        )
    saved = any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    if saved and source.name:
        raise ConfigError(f"data.name has no effect: {source.path} was saved as one configuration")
    what = f"cannot load {source.path!r}{name}, split {split!r}"

    def load(place: str) -> Any:
        return datasets.load_dataset(place, source.name, split=split, revision=source.revision)

    if not folder.exists():
        with connected(what):
            return load(source.path)
    try:
        return _saved(folder, split) if saved else load(str(folder))
    except Exception as error:  # many types, from a damaged file to a missing split
        raise DataError(f"{what}: {' '.join(str(error).split())}") from error


def _saved(folder: Path, split: str) -> Any:
    """A split of what `save_to_disk` wrote: one set, or one for each split."""
    import datasets

    found = datasets.load_from_disk(str(folder))
    if isinstance(found, datasets.DatasetDict):
        sets = {str(name): rows for name, rows in found.items()}
    else:
        sets = {str(found.split or "train"): found}
    if split not in sets:
        raise ValueError(f"have: {', '.join(sets)}")
    return sets[split]


Source = Hub
