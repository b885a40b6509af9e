"""Eight encodings, two seeds, in short sessions on a GPU: 27M parameters (8 layers of width 512), a
BPE of 4,096, L = 512, six epochs of 16M tokens, evaluated to 32 L = 16,384 tokens.

First, on the machine with the text; the longest windows need documents of more than 16,384 tokens,
such as books:

  BOOKS='books/*.jsonl.gz'    # JSON lines with a field "text"
  python scripts/prepare_data.py --config=configs/rope.py --config.data.source=jsonl \\
      --config.data.path="$BOOKS" --vocab=4096 --out=runs/books-4096.json \\
      --tokens_out=prepared/books --limit=16e6    # 16M tokens: 61 MiB, and the held-out text

Then, on the GPU machine, in the repository with the folder `prepared`; repeat until all runs are
trained and evaluated (exit code 0):

  python scripts/sweep.py --config=study/gpu/zoo.py --workdir=runs/gpu/zoo --minutes=9

For another folder of tokens: --config.data.tokens=FOLDER.
"""

from posenc_jax.sweeping.grid import axis, product

NAMES = ("rope", "alibi", "t5", "fire", "kerple_log", "xpos", "sinusoidal", "nope")
SIZES = {
    "model.layers": 8,
    "model.width": 512,
    "model.heads": 8,
    "model.dtype": "bfloat16",
    "train_length": 512,
    "batch_size": 64,
    "steps": 2_930,  # of 32,768 tokens: six epochs of 16M
}


def get_config():
    recipes = axis("recipe", [f"configs/{name}.py" for name in NAMES])
    return {
        # Seeds vary slowest, so that an interrupted sweep has every encoding.
        "grid": product(axis("seed", range(2)), recipes),
        "fields": SIZES
        | {
            "data.tokens": "prepared/books",
            "learning_rate": 1e-3,
            "warmup_steps": 200,
            "log_every": 50,
            "valid_every": 500,
            "save_every": 500,
            "keep": 1,
            "wandb.mode": "disabled",
        },
        "evaluation": {"multiples": "0.25,0.5,1,2,4,8,16,32", "tokens_per_call": 131_072},
    }
