"""Which split a document belongs to, by a hash of its text or of the name of its group."""

import hashlib
import math
from collections.abc import Collection


def hash_of(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def split_of(own_hash: bytes, valid_fraction: float, choose_fraction: float = 0.0) -> str:
    """Choose a split by hash: `valid` takes one end of the range and `choose` the other, so that
    neither depends on the other's size."""
    place = int.from_bytes(own_hash[:8], "big")
    if place < valid_fraction * 2.0**64:
        return "valid"
    return "train" if place < (1 - choose_fraction) * 2.0**64 else "choose"


def moved(
    hashes: Collection[bytes], valid_fraction: float, choose_fraction: float
) -> dict[bytes, str]:
    """The documents that go to a split which their hashes leave empty: of those that are trained
    on as many as its fraction asks for, rounded up, from its end of the range, but not the last."""
    by_hash = {own: split_of(own, valid_fraction, choose_fraction) for own in hashes}
    trained = sorted((h for h, split in by_hash.items() if split == "train"), key=lambda h: h[:8])
    found: dict[bytes, str] = {}
    for split, fraction, ends in (("valid", valid_fraction, 1), ("choose", choose_fraction, -1)):
        if fraction and split not in by_hash.values():
            count = min(math.ceil(fraction * len(by_hash)), max(0, len(trained) - 1))
            found |= dict.fromkeys(trained[::ends][:count], split)
            trained = [own for own in trained if own not in found]
    return found
