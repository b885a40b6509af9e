"""The runs that come with a release: every encoding on `ordered`, one seed, found and order at 8 L.

python scripts/sweep.py --config=configs/sweeps/release.py --workdir=runs/release --workers=2
python scripts/export.py runs/release/ordered-* --out=runs.tar.xz
"""

from posenc_jax.registry import encodings
from posenc_jax.sweeping.grid import axis


def get_config():
    return {
        "grid": axis("recipe", [f"configs/ordered.py:{name}" for name in encodings()]),
        "fields": {},
        "evaluation": {
            "lengths": "64,512",
            "protocols": "found,last_of_two",
            "extensions": "none,pi,yarn,self_extend,logn",
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
