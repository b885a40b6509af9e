"""Five encodings, two seeds, on books through a BPE of about 4,000 tokens. Where yours are:

BOOKS='books/*.jsonl.gz'    # JSON lines with a field "text"
python scripts/prepare_data.py --config=configs/rope.py --config.data.source=jsonl \\
    --config.data.path="$BOOKS" --vocab=4096 --out=runs/books-4096.json
python scripts/sweep.py --config=configs/sweeps/books.py --workdir=runs/books --workers=2 \\
    --config.data.path="$BOOKS"
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
