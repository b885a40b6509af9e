"""The table of the page on books."""

from functools import partial

from study.text.tables import losses

METHODS = {
    "Kerple, logarithm": ("kerple_log", "none"),
    "T5": ("t5", "none"),
    "ALiBi": ("alibi", "none"),
    "FIRE": ("fire", "none"),
    "RoPE": ("rope", "none"),
    "RoPE + dynamic YaRN": ("rope", "dynamic_yarn"),
    "RoPE + dynamic NTK": ("rope", "dynamic_ntk"),
    "RoPE + interpolation by 8": ("rope", "pi:8"),
}
LINES = {name: ("books/rows/sweep", *method, "same_token") for name, method in METHODS.items()}
LINES["ALiBi, cut text"] = ("books/rows/sweep", "alibi", "none", "nonoverlap")
TABLES = {"books": partial(losses, LINES)}
