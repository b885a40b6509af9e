"""captions.md beside the pictures: the content and the intervals of each."""

from collections.abc import Mapping
from pathlib import Path

from posenc_jax.files import write_atomically

FILE = "captions.md"


def unpaired(over: str) -> str:
    """Explain bands and bars over documents or seeds."""
    return (
        f"Bands and bars are 95% intervals over {over} of each line alone, unpaired: where two "
        "overlap, their difference may still be significant; scripts/compare.py pairs them."
    )


def write(path: Path, captions: Mapping[Path, str]) -> None:
    """Write a paragraph per picture; without pictures, remove the file."""
    path.unlink(missing_ok=True)
    if captions:
        paragraphs = (f"**{picture.name}** {words}\n" for picture, words in captions.items())
        write_atomically(path, "\n".join(paragraphs))
