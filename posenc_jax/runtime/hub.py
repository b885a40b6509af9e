"""The Hugging Face Hub, which may be out of reach."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from posenc_jax.runtime.errors import DataError

Fetched = TypeVar("Fetched")
SECONDS = 5  # without an answer, after which the Hub is out of reach


def fetched(what: str, fetch: Callable[[], Fetched]) -> Fetched:
    """What `fetch` takes from the Hub or its cache; a DataError that begins with `what` if there is
    none."""
    try:
        with connected(what):
            return fetch()
    except DataError:
        raise
    except Exception as error:  # many types, from the network to an invalid name
        raise DataError(f"{what}: {_line(error)}") from error


@contextmanager
def connected(what: str) -> Iterator[None]:
    """If the Hub does not answer, read its cache alone, without retries; a DataError that begins
    with `what` if that is not enough."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import LocalEntryNotFoundError

    usual, reason = constants.HF_HUB_OFFLINE, ""
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:  # many types; one of them is HF_HUB_OFFLINE=1
        constants.HF_HUB_OFFLINE, reason = True, _line(error)
    try:
        yield
    except (ConnectionError, LocalEntryNotFoundError) as error:
        if not reason:
            raise
        raise DataError(
            f"{what}: {constants.ENDPOINT} is out of reach ({reason}), and the cache here, "
            f"{constants.HF_HOME}, does not hold it; copy it there from another machine, or name a "
            "folder that holds it"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = usual


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
