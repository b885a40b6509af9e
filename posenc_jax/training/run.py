"""The folder of a run: its configuration, status, log and metrics."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from posenc_jax.configuration import Config, differences
from posenc_jax.exits import AGAIN, FAULT, IO, MEANING, OtherConfig, Stop


class Workdir:
    def __init__(self, path: str | Path):
        self.path = Path(path)

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Stop(f"cannot make the workdir {self.path}: {error}") from error

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def config(self) -> Config | None:
        """The configuration of the run that lives here."""
        if not (self / "config.json").exists():
            return None
        try:
            fields = json.loads((self / "config.json").read_text())
            missing = {"seed", "encoding", "model", "data"} - set(fields)
            if missing:
                raise ValueError(f"no {', '.join(sorted(missing))}")
            return ConfigDict(fields)
        except (OSError, ValueError, TypeError) as error:
            raise Stop(f"cannot read {self / 'config.json'} as a run's: {error}") from error

    def claim(self, config: Config) -> None:
        """Writes the configuration, if it is that of the run which lives here or of a new one."""
        saved = self.config()
        if saved is not None:
            refuse_another(saved, config, str(self.path))
        write_atomically(self / "config.json", _json(config.to_dict()))

    def status(self, state: str, code: int, **facts: Any) -> None:
        record = {"state": state, "code": code, "meaning": MEANING[code], "time": now(), **facts}
        write_atomically(self / "status.json", _json(record))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """An end by an error is in status.json as well."""
        try:
            yield
        except Stop as stop:
            self.status("failed", stop.code, reason=str(stop))
            raise
        except KeyboardInterrupt:
            self.status("stopped", AGAIN, reason="a second ^C: left at once, nothing saved")
            raise
        except OSError as error:
            self.status("failed", IO, reason=str(error))
            raise
        except Exception as error:
            self.status("crashed", FAULT, reason=repr(error))
            raise

    def read_status(self) -> dict:
        path = self / "status.json"
        try:
            return json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise Stop(f"{path} is damaged: {error}") from error


class Follower(Workdir):
    """The folder as another process than the lead sees it, which writes nothing there."""

    def create(self) -> None: ...

    def claim(self, config: Config) -> None: ...

    def status(self, state: str, code: int, **facts: Any) -> None: ...


def refuse_another(saved: Config, config: Config, place: str) -> None:
    lines = differences(saved.to_dict(), config.to_dict())
    if lines:
        raise OtherConfig(
            f"{place} belongs to another configuration:\n  "
            + "\n  ".join(lines)
            + "\nuse another --workdir; --config.init_from takes over this run's weights"
        )


class Metrics:
    """metrics.jsonl, the record of a run: one line per logged step, every step once."""

    def __init__(self, path: Path, resume_at: int):
        """Lines from `resume_at` on are taken back: those steps are about to be made again."""
        kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= resume_at]
        text = "".join(f"{line}\n" for line in kept)
        write_atomically(path, text)
        self.path, self.size = path, len(text.encode())
        self.waiting: list[str] = []  # lines for which there was no room

    def write(self, record: Mapping) -> None:
        """Lines that cannot be written wait for the next one; what was half written is cut off."""
        self.waiting.append(json.dumps(null_for_nan(record), allow_nan=False) + "\n")
        text = "".join(self.waiting).encode()
        try:
            with self.path.open("r+b") as stream:
                stream.truncate(self.size)
                stream.seek(self.size)
                stream.write(text)
        except OSError as error:
            if len(self.waiting) == 1:
                print(f"warning: cannot write {self.path}: {error}; its lines wait", flush=True)
            return
        self.size += len(text)
        self.waiting.clear()

    def close(self) -> None:
        if self.waiting:
            raise Stop(f"{len(self.waiting)} lines of {self.path} could not be written")


def null_for_nan(record: Mapping) -> dict:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in record.items()
    }


def read_metrics(path: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in _whole_lines(path)]
    except ValueError as error:
        raise Stop(f"{path} is damaged: {error}") from error


def write_atomically(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Stop(f"cannot write {path}: {error}") from error


def _whole_lines(path: Path) -> list[str]:
    """A line that a killed process left half written has no end, and is dropped."""
    if not path.exists():
        return []
    return [line[:-1] for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
