"""A learned table added to the embeddings.

python train.py --config=configs/learned.py --workdir=runs/learned

3.5 to 9 minutes on one CPU core, evaluation included (the range over the zoo).
Expected bits per byte, as configs/base.py reads them: 2.553 at L; none beyond L, where its
table has no rows (extensions interpolate and clamp add them).
"""

from configs import base


def get_config(size="tiny"):
    config = base.get_config(size)
    config.encoding.name = "learned"
    return config
