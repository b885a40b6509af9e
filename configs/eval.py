"""The default evaluation of a run; all other facts come from the folder of the run.

python eval_extrapolation.py --workdir=runs/rope

The fields with their defaults and meanings are in posenc_jax/configuration.py;
`python eval_extrapolation.py --help` lists them.
"""

from posenc_jax import configuration


def get_config():
    return configuration.evaluation()
