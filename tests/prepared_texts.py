"""Texts, the documents of a split, and the command-line words to prepare and train on them."""

import numpy as np
from running import TINY

WORDS = "the café naïve 東京 of and to in a is that for it as was with be by on not he".split()


def words(seed, count=160):
    return " ".join(np.random.default_rng(seed).choice(WORDS, count)) + "\n"


def letters(seed, count=400):
    return "".join(np.random.default_rng(seed).choice(list("abcdefgh "), count))


def texts_of(split):
    pairs = zip(split.starts, split.starts[1:], strict=False)
    return [bytes(split.tokens[start:end]).decode() for start, end in pairs]


def text_of(folder, encoder=""):
    fields = {"source": "text", "path": f"{folder}/text/*.txt", "valid_fraction": 0.3}
    fields |= {"cache": f"{folder}/cache"} | ({"tokenizer": folder / encoder} if encoder else {})
    named = [f"--config.data.{name}={value}" for name, value in fields.items()]
    return ["--config=configs/rope.py", *named]


def recipe(**fields):
    fields = {n: v for n, v in TINY.items() if not n.startswith("data.")} | fields
    return ["--config=configs/rope.py", *(f"--config.{n}={v}" for n, v in fields.items())]
