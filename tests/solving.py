"""A program that solves the task `variables`."""

import numpy as np

from posenc_jax.data.tasks.variables import ASK, NAMES, SET, VALUE, VALUES


def solve(tokens: np.ndarray) -> np.ndarray:
    """Return the answer after each question given these tokens; -1 if its variable is unset."""
    answers, last = np.full(len(tokens), -1), np.full(NAMES, -1)
    for place, token in enumerate(tokens.tolist()):
        if token >= SET:
            name, value = divmod(token - SET, VALUES)
            last[name] = value
        elif ASK <= token < ASK + NAMES and place + 1 < len(tokens):
            value = last[token - ASK]
            answers[place + 1] = VALUE + value if value >= 0 else -1
    return answers
