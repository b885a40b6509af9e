"""Positions that depend on content on source code, each at rates tuned at L, five seeds.

python scripts/sweep.py --config=study/content/text.py --workdir=runs/texts --workers=2
python scripts/report.py runs/texts runs/fair --out=report

The data, the steps and the test are those of study/text/sweep.py, whose RoPE, FIRE and forget
gates stand beside these.
"""

from posenc_jax.sweeping.grid import axis, product
from study.content import sweep as content
from study.text import sweep as fair


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in content.BY_CONTENT])
    return fair.get_config() | {"grid": product(axis("seed", range(5)), recipes)}
