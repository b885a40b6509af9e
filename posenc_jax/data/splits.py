"""Assign documents to splits by a hash of their text or of the name of their group."""

import hashlib
import math
from collections.abc import Collection

FEWEST = 100  # documents for which a hash alone decides


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
    """Documents whose split is not that of their hash.

    Of fewer than 100 documents each split gets its fraction, rounded up, from its end of the range,
    since so few hashes are far from even; of more, a split that the hashes leave empty. Training
    keeps at least one.
    """
    by_hash = {own: split_of(own, valid_fraction, choose_fraction) for own in hashes}
    ordered = sorted(by_hash, key=lambda own: own[:8])
    splits = dict.fromkeys(ordered, "train") if len(ordered) < FEWEST else dict(by_hash)
    for split, fraction, ends in (("valid", valid_fraction, 1), ("choose", choose_fraction, -1)):
        if fraction and split not in splits.values():
            trained = [own for own in ordered[::ends] if splits[own] == "train"]
            share = math.ceil(round(fraction * len(ordered), 12))  # 7 of 70, not 7.0000001
            splits |= dict.fromkeys(trained[: min(share, max(0, len(trained) - 1))], split)
    return {own: split for own, split in splits.items() if split != by_hash[own]}
