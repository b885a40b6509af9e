"""A learned position table added to the embeddings.

python train.py --config=configs/learned.py --workdir=runs/learned

3.5 to 9 minutes on one CPU core with evaluation (range over the zoo).
The table has no rows beyond L; the extensions interpolate and clamp add them.
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "learned"
    return config
