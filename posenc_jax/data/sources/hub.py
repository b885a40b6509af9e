"""A data set of the Hugging Face Hub, or of a folder written by `save_to_disk`."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.data.sources import Document, _files
from posenc_jax.fields import default, whole
from posenc_jax.runtime.errors import ConfigError, DataError
from posenc_jax.runtime.files import expanded
from posenc_jax.runtime.hub import connected

ROWS = 256  # read at once


class _Rows(NamedTuple):
    split: str
    rows: Any  # a Dataset, or an IterableDataset that is streamed
    fingerprint: str | None  # by `datasets`; of a commit or of files where it is streamed
    size: float  # bytes to read


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
    limit: int | None = default(
        None,
        "stream each split and stop after so many bytes of its text, such as 25e9; None: download "
        "all of it",
        whole(1, 2**53),
    )

    held_out_by = "valid_split"

    @cached_property
    def _train(self) -> _Rows:
        return _rows(self, self.split)

    @cached_property
    def _valid(self) -> _Rows | None:
        return _rows(self, self.valid_split) if self.valid_split else None

    @property
    def size(self) -> float:
        return self._train.size + (self._valid.size if self._valid else 0)

    def identity(self, seed: int) -> dict[str, Any]:
        """Fingerprints by `datasets` stand for the text."""
        revision = self._train.fingerprint
        if self._valid is not None:
            revision = [revision, self._valid.fingerprint]
        options = {name: getattr(self, name) for name in ("name", "valid_split", "limit")}
        own = {"field": self.field, "path": self.path, "split": self.split, "revision": revision}
        given = {name: value for name, value in options.items() if value}
        return super().identity(seed) | own | given

    def documents(self, seed: int) -> Iterator[Document]:
        if self._valid is not None:
            for document in self._documents(self._valid):
                yield document._replace(split="valid")
        yield from self._documents(self._train)

    def _documents(self, read: _Rows) -> Iterator[Document]:
        rows = read.rows

        def texts() -> Iterator[Any]:
            with _reading(self, read.split):
                for batch in rows.select_columns(self.field).iter(ROWS):
                    yield from batch[self.field]

        each = 0.0 if self.limit else read.size / max(len(rows), 1)
        found = _files.of_column(self.path, self.field, rows.column_names, texts(), each)
        documents = _files.joined(found, self.begins)
        return _first(documents, self.limit) if self.limit else documents

    def mistakes(self) -> list[str]:
        problems = super().mistakes()
        if self.valid_split == self.split:
            problems.append(
                f"data.valid_split must be another split than data.split; both are {self.split!r}"
            )
        return problems


def _first(documents: Iterator[Document], limit: int) -> Iterator[Document]:
    """Documents up to the one that reaches a number of bytes."""
    for document in documents:
        yield document._replace(size=len(document.text))
        limit -= len(document.text)
        if limit <= 0:
            return


@contextmanager
def _reading(source: Hub, split: str) -> Iterator[None]:
    """Explain what goes wrong in reading a split: a DataError."""
    name = "" if source.name is None else f", data.name={source.name}"
    what = f"cannot load {source.path!r}{name}, split {split!r}"
    if not expanded(source.path).exists():
        with connected(what):
            yield
        return
    try:
        yield
    except Exception as error:  # many types, from a damaged file to a missing split
        raise DataError(f"{what}: {' '.join(str(error).split())}") from error


def _rows(source: Hub, split: str) -> _Rows:
    import datasets

    folder = expanded(source.path)
    if folder.exists() and source.revision:
        raise ConfigError(
            f"data.revision has no effect: {source.path} is a folder, not a data set of the Hub"
        )
    saved = any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    if saved and source.name:
        raise ConfigError(f"data.name has no effect: {source.path} was saved as one configuration")
    place = str(folder) if folder.exists() else source.path
    revision = source.revision
    with _reading(source, split):
        if source.limit and not saved:
            builder = datasets.load_dataset_builder(place, source.name, revision=revision)
            rows = builder.as_streaming_dataset(split)
            return _Rows(split, rows, builder.hash, source.limit)
        if saved:
            rows = _saved(folder, split)
        else:
            rows = datasets.load_dataset(place, source.name, split=split, revision=revision)
        return _Rows(split, rows, rows._fingerprint, rows.data.nbytes)


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
