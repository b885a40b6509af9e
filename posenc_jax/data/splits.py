"""Which split a document belongs to, by a hash of its text or of the name of its group."""

import hashlib


def hash_of(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def split_of(own_hash: bytes, valid_fraction: float, choose_fraction: float = 0.0) -> str:
    """Choose a split by hash: `valid` takes one end of the range and `choose` the other, so that
    neither depends on the other's size."""
    place = int.from_bytes(own_hash[:8], "big")
    if place < valid_fraction * 2.0**64:
        return "valid"
    return "train" if place < (1 - choose_fraction) * 2.0**64 else "choose"
