"""Sinusoidal encoding: sines and cosines added to the embeddings.

python train.py --config=configs/sinusoidal.py --workdir=runs/sinusoidal

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "sinusoidal"
    return config
