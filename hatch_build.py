"""The README as a package index shows it: its links are relative, and lead nowhere from there."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Hatchling calls it for the metadata of every wheel and source distribution."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Source")
        readme = outside(text, address)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def outside(text: str, address: str | None) -> str:
    """With an address relative links are made absolute; without one only their words stay."""
    link = r"\[([^\]]*)\]\((?!https?://|#)([^)]+)\)"
    if address is None:
        text = re.sub(rf"!{link}", r"*In the repository, a picture: \1.*", text)
        return re.sub(link, r"\1", text)
    text = re.sub(rf"!{link}", rf"![\1]({address}/raw/HEAD/\2)", text)
    return re.sub(link, rf"[\1]({address}/blob/HEAD/\2)", text)
