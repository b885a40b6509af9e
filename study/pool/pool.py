"""Four choices of architecture, alone and together: 16 models of 0.4M parameters, three seeds.

python scripts/sweep.py --config=study/pool/pool.py --workdir=runs/pool --workers=2

The choices are after OlmPool's: OLMo's norms, one key head for four query heads, a window, training
rows of half the length. Every model reads as many tokens, and is asked in the same rows.
"""

from posenc_jax.sweeping.grid import axis, product
from study.order import rates

L, FAR = rates.L, rates.FAR * rates.L
STEPS, WINDOW = 1_800, 16
MODEL = {"recipe": "configs/ordered.py:hybrid", "encoding.global_rope": True}
# The best of three rates for a model of four layers, and of two for one with OLMo's norms.
USUAL = {"learning_rate": 0.003}
OLMO = {"learning_rate": 0.009, "model.norm_place": "output"}
OLMO |= {"model.qk_norm": True, "model.qk_norm_of": "all"}


def trained_at(length: int) -> dict:
    """Rows of a length, as many tokens to a step, and questions as far back in the test."""
    rows = L // length
    own = {"train_length": length, "batch_size": 32 * rows, "data.documents": 70_000 * rows}
    return own | {"data.far": FAR / length}


def get_config():
    return {
        "grid": product(
            axis("seed", range(3)),
            axis("encoding.window", (0, WINDOW)),  # of the first of two layers; 0: the whole row
            axis("model.kv_heads", (4, 1)),
            [trained_at(L), trained_at(L // 2)],
            [USUAL, OLMO],
            [MODEL],
        ),
        "fields": rates.FIELDS | {"steps": STEPS},
        "evaluation": {
            "lengths": f"{L // 2},{L},{FAR}",
            "protocols": "found,last_of_two",
            "extensions": f"none,yarn:{FAR // L},yarn:{2 * FAR // L}",
            "documents": 200,
            "window": False,
            "tokens_per_call": 32_768,
        },
    }
