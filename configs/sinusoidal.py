"""Sines and cosines added to the embeddings.

python train.py --config=configs/sinusoidal.py --workdir=runs/sinusoidal

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 2.450 at L and 5.732 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "sinusoidal"
    return config
