"""Six encodings, three seeds, on books with a BPE of 4,096 tokens, without tuning.

BOOKS='books/*.jsonl.gz'    # JSON lines with a field "text"
python scripts/prepare_data.py --config=configs/rope.py --config.data.source=jsonl \\
    --config.data.path="$BOOKS" --vocab=4096 --out=runs/books-4096.json
python scripts/sweep.py --config=study/books/sweep.py --workdir=runs/books --workers=2 \\
    --config.data.path="$BOOKS"

Rates are those of the recipes, not those tuned on source code by study/text/sweep.py. The BPE
takes 2 minutes on two CPU cores, the 18 runs 90. Lengths begin at L, so that the last K = 32
targets of about 250 windows are scored.
"""

from posenc_jax.sweeping.grid import axis, product

NAMES = ("rope", "alibi", "t5", "kerple_log", "fire", "nope")


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in NAMES])
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(axis("seed", range(3)), recipes),
        "fields": {"data.source": "jsonl", "data.tokenizer": "runs/books-4096.json"},
        "evaluation": {
            "multiples": "1,2,4,8",
            "last": 32,
            "windows": 18,  # of each of 14 books
            "protocols": "same_token,nonoverlap",
            "extensions": "none,pi,ntk,yarn,dynamic_ntk,dynamic_yarn",
        },
    }
