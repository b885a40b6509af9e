"""Pack runs with their evaluations in an archive, to be read elsewhere."""

import hashlib
import io
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posenc_jax.config import schema, trained
from posenc_jax.config.resolve import TOKENIZER
from posenc_jax.evaluation import records
from posenc_jax.evaluation.sums import Record, exists, read_record
from posenc_jax.runs.checkpoints import PARAMETERS, Checkpoints
from posenc_jax.runs.export import check_writable
from posenc_jax.runs.subject import Loaded, load
from posenc_jax.runs.workdir import TRAINED_ON, Workdir
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.files import write_atomically

# Fields and columns with places, alone (`data.path`) or in a text (`text:/books,/more`).
READ = "path valid_path tokens tokenizer mixture init_from anneal text".split()
WRITTEN = ("cache", "dir")
FOLDERS = re.compile(r"(^|[,:=]\s*)(?:/|~[^/,:]*/)(?:(?:[^,:]|:(?!\w+=))*/)?(?=[^,/])")


def pack(workdirs: Sequence[Path], path: Path, *, overwrite: bool = False) -> tuple[list[str], str]:
    """Write runs to an archive to be read elsewhere, and its sha256 to a file beside it; return the
    names of the runs there and the sha256.

    A run is named by its encoding, or by its folder where two have the same.
    """
    check_writable(path, overwrite)
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
            _write_run(workdir, one, Path(scratch) / name)
            archive.add(Path(scratch) / name, arcname=name, filter=_anonymous)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    write_atomically(path.with_name(f"{path.name}.sha256"), f"{digest}  {path.name}\n")
    return names, digest


def _write_run(workdir: Path, loaded: Loaded, folder: Path) -> None:
    """Write what programs read of a run, without the optimizer's state, the single cells of
    evaluations and the folders of this machine."""
    belongs = {n: value for n, value in loaded.card.items() if n not in ("step", "digests")}
    belongs["config"] = _named(belongs["config"])
    with closing(Checkpoints(folder)) as checkpoints:
        own, _ = trained.split(loaded.parts.params(), loaded.config)
        checkpoints.save(loaded.step, {PARAMETERS: own}, belongs)
    Workdir(folder).claim(schema.from_fields(_named(schema.as_fields(loaded.config))))
    for name in (TOKENIZER, TRAINED_ON):
        if (workdir / name).exists():
            shutil.copyfile(workdir / name, folder / name)
    if exists(workdir / "eval"):
        record = read_record(workdir / "eval")
        cells, unknown = (
            [one._replace(facts=_named(one.facts)) for one in cells]
            for cells in (record.cells, record.unknown)
        )
        records.write(folder / "eval", [], Record(cells, record.left_out, unknown))


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, with what was read by its name alone and no place to write to."""
    named = dict(fields)
    for name, value in fields.items():
        if isinstance(value, Mapping):
            named[name] = _named(value)
        elif name in WRITTEN:
            named[name] = ""
        elif name in READ and value:
            named[name] = FOLDERS.sub(r"\1", value)
    return named


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith("commit_success.txt"):  # names the folder; only buckets need it
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
