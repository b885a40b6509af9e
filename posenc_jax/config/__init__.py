"""The configuration: what a recipe and a command line say, checked once, typed from there on.

`load` is the one door. Below it nothing asks whether a value is valid.
"""

from posenc_jax.config.check import load
from posenc_jax.config.schema import Evaluation, Training

__all__ = ["Evaluation", "Training", "load"]
