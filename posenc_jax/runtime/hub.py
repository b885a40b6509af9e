"""The Hugging Face Hub, which may be out of reach."""

from collections.abc import Iterator
from contextlib import contextmanager

from posenc_jax.runtime.errors import DataError

SECONDS = 5  # without an answer, after which the Hub is out of reach


@contextmanager
def connected(what: str, wrong: type[Exception] = Exception) -> Iterator[None]:
    """Read from the Hub, or from its cache alone and without retries if it does not answer; what
    goes `wrong` becomes a DataError that begins with `what`."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import LocalEntryNotFoundError

    usual, reason = constants.HF_HUB_OFFLINE, ""
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:  # many types; one of them is HF_HUB_OFFLINE=1
        constants.HF_HUB_OFFLINE = True
        reason = (
            f"{constants.ENDPOINT} is out of reach ({error}), and the cache here, "
            f"{constants.HF_HOME}, does not hold it; copy it there from another machine, or name a "
            "folder that holds it"
        )
    try:
        yield
    except wrong as error:  # many types, from the network to an invalid name
        absent = reason and isinstance(error, ConnectionError | LocalEntryNotFoundError)
        why = " ".join((reason if absent else str(error)).split())
        raise DataError(f"{what}: {why}") from error
    finally:
        constants.HF_HUB_OFFLINE = usual
