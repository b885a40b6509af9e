"""A reader of `variables` that knows the task."""

import numpy as np

from posenc_jax.data.tasks.variables import ASK, NAMES, SET, VALUE, VALUES


def solve(tokens: np.ndarray) -> np.ndarray:
    """The value after each question, for one that has read these tokens; -1 where none was set."""
    answers, last = np.full(len(tokens), -1), np.full(NAMES, -1)
    for place, token in enumerate(tokens.tolist()):
        if token >= SET:
            name, value = divmod(token - SET, VALUES)
            last[name] = value
        elif ASK <= token < ASK + NAMES and place + 1 < len(tokens):
            value = last[token - ASK]
            answers[place + 1] = VALUE + value if value >= 0 else -1
    return answers
