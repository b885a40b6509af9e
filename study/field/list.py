"""The k-th word of a list in a sentence: python -m study.field.list RUN...

A run reads lists of eight words, each asked for by its place at once, and its answer is that of the
eight words with the highest logit. Writes rows/list.csv.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from posenc_jax.evaluation import methods
from posenc_jax.runs.subject import load_subject
from study.cells import STUDY

LISTS, LENGTH = 64, 64
ORDINALS = "first second third fourth fifth sixth seventh eighth".split()
WORDS = (
    "apple river window garden doctor horse table bread paper bridge winter letter engine castle "
    "market bottle finger school island mirror"
).split()
FORMS = {
    "list": "Here is a list of words: {}. In this list, the {} word is",
    "before": "{}. The {} word above is",
    "question": "Question: What is the {1} word of this list: {0}? Answer: The {1} word is",
}


@jax.jit
def logits_after(model, encoding, tokens, last):  # [B, T], [B] -> [B, V]
    hidden = model.hidden(tokens, encoding)
    return model.logits(hidden[jnp.arange(len(tokens)), last])


def main(runs: list[Path]) -> None:
    found = []
    for run in runs:
        subject = load_subject(run)
        encoding, _ = methods.extended_encoding(subject, "none", LENGTH)
        first = [] if subject.prefix is None else [subject.prefix]

        def encode(text: str, subject=subject) -> list[int]:
            return list(subject.tokenizer.encode(text))

        token = {word: encode(" " + word) for word in WORDS}
        assert all(len(own) == 1 for own in token.values()), token
        for form, sentence in FORMS.items():
            rng, right = np.random.default_rng(0), np.zeros(len(ORDINALS), int)
            for _ in range(LISTS):
                words = rng.choice(WORDS, len(ORDINALS), replace=False)
                texts = (sentence.format(", ".join(words), own) for own in ORDINALS)
                asked = [first + encode(text) for text in texts]
                rows = np.array([row + [0] * (LENGTH - len(row)) for row in asked], np.int32)
                last = np.array([len(row) - 1 for row in asked])
                logits = np.asarray(logits_after(subject.parts.model, encoding, rows, last))
                choice = logits[:, [token[word][0] for word in words]].argmax(axis=1)
                right += choice == np.arange(len(ORDINALS))
            for k, own in enumerate(right, start=1):
                found.append((run.name, form, k, own, LISTS))
            print(f"{run.name}, {form}: {right.mean() / LISTS:.3f}", flush=True)
    frame = pd.DataFrame(found, columns=["model", "form", "k", "right", "lists"])
    frame.to_csv(STUDY / "field/rows/list.csv", index=False)


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
