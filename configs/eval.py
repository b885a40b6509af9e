"""What is measured of a run. The run's own folder says everything else.

python eval_extrapolation.py --workdir=runs/rope

The fields, their defaults and what each means stand in posenc_jax/configuration.py;
`python eval_extrapolation.py --help` lists them.
"""

from posenc_jax import configuration


def get_config():
    return configuration.evaluation()
