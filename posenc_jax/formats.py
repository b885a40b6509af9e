"""The format of `config.json` and of a checkpoint's card; another one is refused."""

from typing import Any

FORMAT = 3


def check(written: Any) -> None:
    if written != FORMAT:
        raise ValueError(
            f"it has format {written!r}, and this version reads {FORMAT}: use the version of "
            "posenc-jax that wrote it"
        )
