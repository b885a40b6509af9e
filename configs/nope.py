"""No position encoding: word order through the causal mask alone.

python train.py --config=configs/nope.py --workdir=runs/nope

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 3.286 at L and 3.854 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "nope"
    return config
