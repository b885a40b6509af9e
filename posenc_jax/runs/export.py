"""Write the weights of a run as safetensors, with the names of its Orbax checkpoints, or those of
several runs as an archive."""

import dataclasses
import hashlib
import io
import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save

from posenc_jax.config import schema
from posenc_jax.config.resolve import FORMAT, TOKENIZER
from posenc_jax.runs.checkpoints import PARAMETERS, Checkpoints, saved_digest, total_digest
from posenc_jax.runs.parameters import by_path
from posenc_jax.runs.subject import Loaded, load
from posenc_jax.runs.workdir import TRAINED_ON
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import NO_FILE, is_replaceable, write_atomically


@dataclasses.dataclass(frozen=True)
class Weights:
    """The trained arrays of a checkpoint by name, and facts for the file's metadata."""

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, str]


def export(
    workdir: Path, path: Path, *, step: int | None = None, overwrite: bool = False
) -> Weights:
    """Write the weights of a run's checkpoint, the last or a given one, and return them."""
    _check_writable(path, overwrite)
    loaded = load(workdir, step)
    state = {PARAMETERS: loaded.parts.params()}
    config = schema.as_fields(loaded.config) | {"format": FORMAT}
    facts = {
        "config": json.dumps(config, sort_keys=True),
        "step": str(loaded.step),
        "digest": saved_digest(loaded.card),  # as in status.json
        "weights_digest": total_digest(state),  # of the file's arrays
    }
    exported = Weights({n: np.asarray(leaf) for n, leaf in by_path(state).items()}, facts)
    write(path, exported)
    return exported


def write(path: Path, exported: Weights) -> None:
    # safetensors copies the memory of an array and ignores its strides.
    arrays = {name: np.asarray(array, order="C") for name, array in exported.arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(arrays, dict(exported.facts)))


def pack(workdirs: Sequence[Path], path: Path, *, overwrite: bool = False) -> tuple[list[str], str]:
    """Write runs to an archive to be read elsewhere, and its sha256 to a file beside it; return the
    names of the runs there and the sha256.

    A run is named by its encoding, or by its folder where two have the same.
    """
    _check_writable(path, overwrite)
    loaded = [load(workdir) for workdir in workdirs]
    names = [one.config.encoding.name for one in loaded]
    if len(set(names)) < len(names):
        names = [workdir.resolve().name for workdir in workdirs]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"two runs are named {twice[0]}; rename the folder of one")
    content = io.BytesIO()
    opened = tarfile.open(fileobj=content, mode="w:xz", preset=9)  # finds what runs share
    with TemporaryDirectory() as scratch, opened as archive:
        for name, workdir, one in zip(names, workdirs, loaded, strict=True):
            _write_weights(workdir, one, Path(scratch) / name)
            archive.add(Path(scratch) / name, arcname=name, filter=_anonymous)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    write_atomically(path.with_name(f"{path.name}.sha256"), f"{digest}  {path.name}\n")
    return names, digest


def _write_weights(workdir: Path, loaded: Loaded, folder: Path) -> None:
    """Write what programs read of a run, without the optimizer's state and the single cells of
    evaluations."""
    belongs = {n: value for n, value in loaded.card.items() if n not in ("step", "digests")}
    with closing(Checkpoints(folder, in_place=True)) as checkpoints:
        checkpoints.save(loaded.step, {PARAMETERS: loaded.parts.params()}, belongs)
    of_run = (workdir / name for name in ("config.json", TOKENIZER, TRAINED_ON))
    for path in (*of_run, *(workdir / "eval").glob("*.*")):
        if path.exists():
            copy = folder / path.relative_to(workdir)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _check_writable(path: Path, overwrite: bool) -> None:
    if not is_replaceable(path):
        raise ConfigError(f"cannot write {path}: {NO_FILE}")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} already exists; --overwrite replaces it")
