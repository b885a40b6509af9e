"""Assign documents to splits by a hash of their text or of the name of their group."""

import hashlib
import math
from collections.abc import Collection


def hash_of(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def split_of(own_hash: bytes, valid_fraction: float, choose_fraction: float = 0.0) -> str:
    """Split of a hash: `valid` and `choose` take opposite ends of the range, so that neither
    depends on the size of the other."""
    place = int.from_bytes(own_hash[:8], "big")
    if place < valid_fraction * 2.0**64:
        return "valid"
    return "train" if place < (1 - choose_fraction) * 2.0**64 else "choose"


def moved(
    hashes: Collection[bytes], valid_fraction: float, choose_fraction: float
) -> dict[bytes, str]:
    """Documents moved from training to splits that the hashes leave empty.

    A split gets its fraction of all documents, rounded up, from its end of the range; training
    keeps at least one.
    """
    by_hash = {own: split_of(own, valid_fraction, choose_fraction) for own in hashes}
    trained = sorted((h for h, split in by_hash.items() if split == "train"), key=lambda h: h[:8])
    found: dict[bytes, str] = {}
    for split, fraction, ends in (("valid", valid_fraction, 1), ("choose", choose_fraction, -1)):
        if fraction and split not in by_hash.values():
            count = min(math.ceil(fraction * len(by_hash)), max(0, len(trained) - 1))
            found |= dict.fromkeys(trained[::ends][:count], split)
            trained = [own for own in trained if own not in found]
    return found
