"""Synthetic texts whose answers depend on a short context.

Tasks with answers at any distance are in `data/tasks`.
"""

from collections.abc import Iterator

import numpy as np

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
_DIGITS = np.frombuffer(b"0123456789", np.uint8)


def documents(task: str, count: int, length: int, seed: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield `count` texts of `length` bytes, each with a mask of the bytes that are answers."""
    make = {"copy": _copy, "induction": _induction}[task]
    for i in range(count):
        # NumPy splits numbers into 32-bit words, so a high word before i could collide with it.
        rng = np.random.default_rng([seed % 2**32, i, seed >> 32])
        text, answers = [], []
        size = 0
        while size < length:
            piece, marks = make(rng, length)
            text.append(piece)
            answers.append(marks)
            size += len(piece)
        yield np.concatenate(text)[:length].tobytes(), np.concatenate(answers)[:length]


def _join(*pieces):
    text = np.concatenate(
        [np.frombuffer(p, np.uint8) if isinstance(p, bytes) else p for p, _ in pieces]
    )
    return text, np.concatenate([np.full(len(p), marked) for p, marked in pieces])


def _copy(rng, length):
    """Letters, a bar, the same letters."""
    word = rng.choice(_LETTERS, 32)
    return _join((word, False), (b"|", False), (word, True), (b"\n", False))


def _induction(rng, length):
    """Letters and their digits in random order; the digit of a letter seen before is an answer."""
    digit_of = dict(zip(_LETTERS.tolist(), rng.choice(_DIGITS, 26).tolist(), strict=True))
    letters = rng.choice(_LETTERS, 128)
    first = np.zeros(len(letters), bool)
    first[np.unique(letters, return_index=True)[1]] = True
    text = np.stack([letters, [digit_of[letter] for letter in letters.tolist()]], axis=1)
    answers = np.stack([np.zeros(len(letters), bool), ~first], axis=1)
    return _join((text.astype(np.uint8).reshape(-1), False), (b"\n", False))[0], np.append(
        answers.reshape(-1), False
    )
