"""Cut a text into pieces whose tokens, concatenated, equal those of the whole text."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

LENGTH = 1 << 15  # approximate bytes of a piece
AROUND = 128  # bytes tried on either side of a cut
TRIES = 8  # places tried near the end of a piece
SPACE = b" \t\r\n\f\v"
# Characters of every width in UTF-8, and every kind of white space.
SAMPLE = "Once  upon a\ttime,\n\n  caf\u00e9 \u6771\u4eac \U0001f600\u00a0! x1 \n "


def cut(text: bytes, tokenizer: Any) -> Iterator[tuple[int, int]]:
    """Start and end of each piece, cut before white space where the tokenizer splits words.

    Where it does not, pieces are longer, up to the whole text.
    """
    start, end = 0, LENGTH
    while tokenizer.pre_tokenizer is not None and end + AROUND < len(text):
        places = _candidates(text, max(start + AROUND, end - LENGTH), end)
        place = next((p for p in places if _apart(text, p, tokenizer)), None)
        if place is not None:
            yield start, place
            start = end = place
        end += LENGTH
    yield start, len(text)


def _candidates(text: bytes, low: int, high: int) -> Iterator[int]:
    """Places before white space, line ends first, the last first."""
    tries = 0
    for space in (b"\n", b" "):
        place = high
        while tries < TRIES and (place := text.rfind(space, low, place)) > low:
            if text[place - 1] not in SPACE:
                tries += 1
                yield place


def _apart(text: bytes, place: int, tokenizer: Any) -> bool:
    """True if a cut at this place leaves the tokens around it unchanged."""
    left, right = (
        side.decode(errors="ignore")
        for side in (text[place - AROUND : place], text[place : place + AROUND])
    )
    whole, first, second = (
        tokenizer.encode(part, add_special_tokens=False) for part in (left + right, left, right)
    )
    moved = [(a + len(left), b + len(left)) for a, b in second.offsets]
    return whole.ids == first.ids + second.ids and whole.offsets == first.offsets + moved


def widths(tokenizer: Any, vocab: int) -> np.ndarray | None:  # [V]
    """Bytes of text of each token of a byte-level tokenizer; None for others.

    A vocabulary may lack bytes that its training text did not have; `ends` shows where they occur.
    """
    import tokenizers

    written = json.loads(tokenizer.to_str())
    if '"trim_offsets": true' in json.dumps(written["post_processor"]):
        return None  # white space counts as part of the next token
    if '"ByteLevel"' not in json.dumps([written["pre_tokenizer"], written["normalizer"]]):
        return None
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = tokenizer.get_vocab()
    added = tokenizer.get_added_tokens_decoder()
    known = np.zeros(vocab, np.int64)
    for token, number in vocabulary.items():
        if number in added:
            plain = not (added[number].lstrip or added[number].rstrip)
            known[number] = len(token.encode()) if plain else 0
        elif set(token) <= alphabet:
            known[number] = len(token)
        else:
            return None
    sample = tokenizer.encode(SAMPLE, add_special_tokens=False)
    expected = byte_offsets(SAMPLE)[[end for _, end in sample.offsets]]
    computed = ends(SAMPLE.encode(), known[sample.ids])
    return known if computed is not None and np.array_equal(computed, expected) else None


def ends(text: bytes, widths: np.ndarray) -> np.ndarray | None:
    """Ends of tokens in a text by their widths, moved to the end of a character.

    None if the widths do not sum to the length of the text.
    """
    found = np.cumsum(widths, dtype=np.int64)
    if len(text) != (found[-1] if len(found) else 0):
        return None
    inside = np.frombuffer(text + b" ", np.uint8) & 0xC0 == 0x80  # continuation bytes
    if inside[found].any():
        first = np.flatnonzero(~inside)
        found = first[np.searchsorted(first, found)]
    return found


def byte_offsets(string: str) -> np.ndarray:
    """Number of bytes before each character, and in all."""
    points = np.frombuffer(string.encode("utf-32-le"), np.uint32)
    width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([[0], np.cumsum(width)])
