"""RoPE whose scores grow with the logarithm of the number of keys, by a trained factor.

python train.py --config=configs/ssmax.py --workdir=runs/ssmax
python train.py --config=configs/ssmax.py --config.encoding.inner=fire:hidden=16 --workdir=runs/fire

5 to 6.5 minutes on one CPU core, evaluation included.
Expected bits per byte, as configs/sweeps/fair.py trains and reads it: 1.904 at L and 5.338 at 8 L.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "ssmax"
    return config
