"""FoPE and RoPE that rotates the same pairs after 2,400 steps, both at the tuned rates of both.

python scripts/sweep.py --config=study/field/mixtures.py --workdir=runs/fope --workers=2

The folder is that of fope.py, which has half of these runs.
"""

from posenc_jax.sweeping.grid import axis, chain, product
from study.field import fope
from study.order import rates

RATES = (0.001, 0.003)


def get_config():
    mixed, turned = fope.SCHEMES
    common = axis("seed", range(5)), axis("steps", (2_400,))
    rate = axis("learning_rate", RATES)
    return {
        "grid": chain(
            product(*common, [mixed], rate, axis("encoding_rate", (1,))),
            product(*common, [turned], rate),
        ),
        "fields": rates.FIELDS,
        "evaluation": fope.EVALUATION,
    }
