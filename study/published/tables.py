"""Table of the page on published claims: extensions at equal factor and at their best."""

from posenc_jax.display import Table
from study.cells import half, of_seeds, plain, rows_of

FAR, EQUAL = 512, 8
CHOOSING = 3  # seeds that choose a factor; the others are compared
NAMES = {"yarn": "YaRN", "pi": "PI", "ntk": "NTK"}
FIXED = {  # methods without a factor to choose
    "drop": "pairs that do not turn within L dropped",
    "drop:clip=soft": "the same pairs clipped softly",
    "none": "none",
}


def factors() -> Table:
    """Accuracy beyond L by 8 and by the factor that three seeds choose, over the other seeds."""
    rows = rows_of("published/rows/factors")
    rows = rows[(rows.protocol == "answers") & (rows.length == FAR)]
    by_seed = rows.pivot_table(index="seed", columns="method", values="accuracy")
    first, others = by_seed[by_seed.index < CHOOSING], by_seed[by_seed.index >= CHOOSING]

    def shown(values, sign: str = "") -> str:
        one = of_seeds(values)
        return f"{plain(one, sign, 3)} ±{half(one):.3f}"

    best = {
        name: first[[m for m in first if m.startswith(f"{name}:") and "=" not in m]].mean().idxmax()
        for name in NAMES
    }
    leader = others[best["yarn"]]
    body = [
        [words, shown(others[f"{name}:{EQUAL}"]), str(best[name]).split(":")[1]]
        + [shown(others[best[name]])]
        + ["" if name == "yarn" else shown(others[best[name]] - leader, "+")]
        for name, words in NAMES.items()
    ]
    for method, words in FIXED.items():
        body.append([words, shown(others[method]), "", "", shown(others[method] - leader, "+")])
    head = ["", f"by {EQUAL}", "best factor", "by that", "less YaRN by its best"]
    return Table("", head, body)


TABLES = {"factors": factors}
