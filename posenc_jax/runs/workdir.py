"""The folder of a run: its configuration, status, log, facts and training documents."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from posenc_jax.config import Evaluation, Training, resolve, schema
from posenc_jax.config.compare import FREE, PLACES, differences, other_fields
from posenc_jax.data.corpora import Corpus, Mixture
from posenc_jax.runtime.errors import (
    AGAIN,
    CONFIG,
    FAULT,
    MEANING,
    OTHER_CONFIG,
    DataError,
    OtherConfig,
    Stop,
    code_of,
)
from posenc_jax.runtime.files import locked, read_json, write_atomically
from posenc_jax.runtime.terminal import counted, printable, say, warn

KEPT_FACTS = ("command", "data", "machine", "parameters", "speed", "evaluated")


class Workdir:
    def __init__(self, path: str | Path, *, writes: bool = True):
        self.path = Path(path)
        self.writes = writes  # False in processes other than the lead
        self.step_on_disk = 0  # the last step with a checkpoint on disk, for status.json
        self.facts: dict[str, Any] = {}  # about the whole run, for status.json

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Stop(
                f"cannot make the folder {self.path}: {error}; use a writable one"
            ) from error

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make and lock the folder of a training run, and record the error that ends it."""
        if not self.writes:
            yield
            return
        self.create()
        with locked(self.path, "another training run"):
            last = self._last_status()
            self.step_on_disk = last.get("saved", 0)
            self.facts = {name: last[name] for name in KEPT_FACTS if name in last}
            try:
                yield
            except (Exception, KeyboardInterrupt) as error:
                self._ended(error)
                raise

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def config(self) -> Training | None:
        """The configuration of the run in this folder; None where there is none."""
        return resolve.existing_config(self.path)

    def refuse_another(self, config: Training) -> None:
        """Refuse a configuration that is not that of the run in this folder."""
        if (saved := self.config()) is not None:
            _refuse_another(saved, config, str(self.path))

    def claim(self, config: Training) -> None:
        """Write the configuration unless the folder belongs to a run with another one."""
        if not self.writes:
            return
        self.refuse_another(config)
        fields = schema.as_fields(config) | {"format": resolve.FORMAT}
        write_atomically(self / "config.json", _json(fields))

    def accept(self, card: Mapping[str, Any], config: Training, fingerprint: str) -> None:
        """Refuse a checkpoint of another configuration or of other data."""
        _refuse_another(sealed(card), config, f"checkpoint {card['step']} of {self.path}")
        if fingerprint != card["data"]:
            raise DataError(
                f"the data changed since the checkpoint: its fingerprint is {fingerprint[:16]}, "
                f"but the checkpoint has {card['data'][:16]}; restore the text, or use another "
                "workdir"
            )

    def status(self, state: str, code: int, **facts: Any) -> None:
        if not self.writes:
            return
        record = {"state": state, "code": code, "meaning": MEANING[code], "time": now()}
        record |= self.facts | facts
        if self.step_on_disk:
            record["saved"] = self.step_on_disk
        write_atomically(self / "status.json", _json(record))

    def resume_from(self, step: int) -> None:
        """Reject a fresh start if a checkpoint existed before."""
        if self.step_on_disk and not step:
            raise Stop(
                f"step {self.step_on_disk} was saved in {self.path}, but its checkpoints/ is now "
                "empty. Training did not restart: restore the checkpoints, or use another --workdir"
            )
        self.step_on_disk = step

    def set_evaluated(self, evaluation: Evaluation) -> None:
        """Record the evaluation that the command of the run ended with."""
        status = self.read_status()
        record = status | {"evaluated": self._evaluated(status, evaluation)}
        write_atomically(self / "status.json", _json(record))

    def is_evaluated(self, evaluation: Evaluation) -> bool:
        status = self.read_status()
        return status.get("evaluated") == self._evaluated(status, evaluation)

    def _evaluated(self, status: Mapping, evaluation: Evaluation) -> dict[str, Any]:
        """Weights, fields and rows, which another evaluation of the run may replace."""
        rows = self / "eval" / "curves.csv"
        return {
            "digest": status.get("digest"),
            "fields": schema.as_fields(evaluation),
            "rows": hashlib.sha256(rows.read_bytes()).hexdigest() if rows.exists() else None,
        }

    def say(self, text: str) -> None:
        """Print a line and append it to log.txt."""
        say(text)
        if self.writes:
            self._log(text)

    def _log(self, text: str) -> None:
        """Append to log.txt; write errors are ignored."""
        with suppress(OSError), (self / "log.txt").open("a", encoding="utf-8") as stream:
            stream.write(printable(text, keep="\n\t") + "\n")

    def _ended(self, error: BaseException) -> None:
        """Record an error that ends a run in status.json, unless the run was already done."""
        code = code_of(error)
        if code in (CONFIG, OTHER_CONFIG):  # a mistake in the command does not end the run
            return
        state = {AGAIN: "stopped", FAULT: "crashed"}.get(code, "failed")
        reason = repr(error) if code == FAULT else str(error)
        if isinstance(error, KeyboardInterrupt):
            reason = "a second ^C: stopped immediately, nothing saved"
        try:
            if self._last_status().get("state") != "done":
                self._log(f"{state}: {reason}")
                self.status(state, code, reason=reason)
        except Stop as stop:  # the original error must be raised
            warn(str(stop))

    def _last_status(self) -> dict:
        try:
            return self.read_status()
        except Stop:  # a damaged one is overwritten
            return {}

    def read_status(self) -> dict:
        path = self / "status.json"
        try:
            status = read_json(path) if path.exists() else {}
        except ValueError as error:
            raise Stop(f"{path} is damaged: {error}") from error
        if not isinstance(status, dict):
            raise Stop(f"{path} is damaged: not an object")
        return status


def _refuse_another(saved: Training, config: Training, place: str) -> None:
    lines = other_fields(saved, config)
    if any(not line.startswith(PLACES) for line in lines):
        raise OtherConfig(
            f"{place} belongs to another configuration:\n  "
            + "\n  ".join(lines)
            + "\nto resume this run, leave out --config and these fields; for another run, use "
            "another --workdir; --config.init_from starts from this run's weights"
        )


def sealed(card: Mapping[str, Any]) -> Training:
    """The configuration on a checkpoint's card."""
    resolve.check_format(card.get("format"))
    return schema.from_fields(card["config"])


def refuse_edited(card: Mapping[str, Any], config: Training, workdir: Path) -> None:
    """Refuse a config.json that was edited after the checkpoint was sealed."""
    words = ("sealed", "in config.json")
    lines = differences(sealed(card), config, (*FREE, *PLACES), words)
    if lines:
        raise OtherConfig(
            f"{workdir / 'config.json'} differs from the checkpoint of step {card['step']}:\n  "
            + "\n  ".join(lines)
            + "\nrestore the sealed values; to evaluate something else, set the evaluation's own "
            "fields (extensions, multiples)"
        )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# Facts about the whole run, independent of its state.


def data_facts(corpus: Corpus | Mixture, length: int) -> dict[str, Any]:
    splits = corpus.card["splits"]
    train = splits["train"]
    return {
        "fingerprint": corpus.fingerprint,
        "documents": train["documents"],
        "tokens": train["tokens"],
        "bytes_per_token": train["bytes_per_token"],
        "held_out": splits["valid"]["documents"],
        "in_longer": corpus.in_longer(length),
    }


def data_in_words(data: Mapping[str, Any]) -> str:
    """Describe a run's training data in one line; empty if its status has none."""
    if not data:
        return ""
    return (
        f"{data['fingerprint'][:16]}: {counted(data['documents'], 'document')}, "
        f"{counted(data['tokens'], 'token')} to train on, "
        f"{round(data['bytes_per_token'], 3)} bytes each, {data['in_longer']:.1%} of them in "
        "documents longer than L"
    )


TRAINED_ON = "trained_on.txt"  # one digest per line; the card has the hash of all


def keep_trained_on(workdir: Path, digests: np.ndarray) -> str:
    """Write the digests of a run's training documents and return their hash, for the card."""
    lines = "".join(f"{digest:016x}\n" for digest in digests.tolist())
    write_atomically(workdir / TRAINED_ON, lines)
    return _hash_of(digests)


def _hash_of(digests: np.ndarray) -> str:
    return hashlib.sha256(digests.astype("<u8").tobytes()).hexdigest()


def read_trained_on(workdir: Path, card: Mapping[str, Any]) -> np.ndarray:  # uint64, ascending
    """Digests of a run's training documents, which must match the card of its checkpoint."""
    path = workdir / TRAINED_ON
    try:
        lines = path.read_text(encoding="utf-8").split()
        digests = np.array([int(line, 16) for line in lines], np.uint64)
        if _hash_of(digests) == card["trained_on"]:
            return digests
    except (OSError, ValueError, OverflowError):
        pass
    raise DataError(
        f"{path}, the list of training documents, is missing or was changed; the command that "
        "trained the run writes it again"
    )
