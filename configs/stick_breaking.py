"""Stick-breaking attention: every key takes a share of what later keys leave; no softmax.

python train.py --config=configs/stick_breaking.py --workdir=runs/stick_breaking

encoding.attend_current=True lets a query see its own key, and encoding.remainder=True adds its own
value with the weight that is left.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "stick_breaking"
    return config
