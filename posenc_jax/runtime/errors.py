"""Exit codes, and the errors that carry them."""

from importlib.util import find_spec

DONE = 0
FAULT = 1
CONFIG = 2
DATA = 65
NOT_FINITE = 70
BUSY = 73
IO = 74
AGAIN = 75
OTHER_CONFIG = 76

MEANING = {
    DONE: "done, or already done",
    FAULT: "a fault in the program, with its traceback",
    CONFIG: "configuration",
    DATA: "data",
    NOT_FINITE: "loss not finite",
    BUSY: "workdir busy",
    IO: "input or output",
    AGAIN: "saved: run the same command again",
    OTHER_CONFIG: "the workdir belongs to another configuration",
}


class Stop(Exception):
    """An error that ends a program with one explanatory line and no traceback."""

    code = IO


class ConfigError(Stop):
    """Mistakes in a configuration, an argument for each."""

    code = CONFIG

    def __str__(self) -> str:
        return "\n".join(self.args)


class DataError(Stop):
    code = DATA


class NotFinite(Stop):
    code = NOT_FINITE


class Damaged(Stop):
    """The data read differs from the data written."""


class Busy(Stop):
    code = BUSY


class Interrupted(Stop):
    code = AGAIN


class Stopped(Interrupted):
    """Every process stops at the same place."""


class OtherConfig(Stop):
    code = OTHER_CONFIG


def code_of(error: BaseException | None) -> int:
    """Return the exit code for an error; None: success."""
    if isinstance(error, Stop):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return AGAIN
    if isinstance(error, OSError):
        return IO
    return DONE if error is None else FAULT


def missing(error: ModuleNotFoundError) -> str | None:
    """Advice for a package that is not installed; None for a module of posenc_jax."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "posenc_jax"):
        return None
    if package in ("models", "configs") or find_spec("models") is None:  # not in the wheel
        return "training and evaluation run from a checkout of the repository"
    extra = package if package in ("gguf", "lm_eval") else "lab"
    return f"training and evaluation need {package}: .venv/bin/pip install -e '.[{extra}]'"
