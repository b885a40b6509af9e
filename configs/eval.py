"""The default evaluation of a run; all other facts come from the folder of the run.

python eval_extrapolation.py --workdir=runs/rope

The fields, their defaults and what each means are in posenc_jax/config/schema.py;
`python eval_extrapolation.py --help` lists them.
"""

from posenc_jax.config import schema


def get_config():
    return schema.evaluation()
