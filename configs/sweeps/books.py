"""Five encodings, two seeds, on books through a BPE of about 4,000 tokens.

BOOKS='books/*.jsonl.gz'    # JSON lines with a field "text"
python scripts/prepare_data.py --config=configs/rope.py --config.data.source=jsonl \\
    --config.data.path="$BOOKS" --vocab=4096 --out=runs/books-4096.json
python scripts/sweep.py --config=configs/sweeps/books.py --workdir=runs/books --workers=2 \\
    --config.data.path="$BOOKS"

The BPE takes 2 minutes and the 10 runs 29, on two CPU cores. Expected bits per byte, same_token, at
L = 128 | 8 L (docs/results.md): rope 1.996 | 2.261, alibi 1.975 | 1.974, kerple_log 1.963 | 1.963,
fire 1.995 | 2.041, nope 2.105 | 2.136.
"""

from posenc_jax.sweeping.grid import axis, product

NAMES = ("rope", "alibi", "kerple_log", "fire", "nope")


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in NAMES])
    return {
        "grid": product(axis("seed", range(2)), recipes),
        "fields": {"data.source": "jsonl", "data.tokenizer": "runs/books-4096.json"},
        "evaluation": {},
    }
