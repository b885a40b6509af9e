"""The table of docs/decoding.md, which encodings and extensions work with a cache, is computed."""

import re
from pathlib import Path

import jax
import pytest
from running import committed
from sizes import DIMS, with_options

import models
import posenc_jax
from posenc_jax import extensions, schemes
from posenc_jax.layers import holds_state

PAGE = Path(__file__).parents[3] / "docs" / "decoding.md"
CONFIG = models.Config(width=DIMS.width, heads=DIMS.heads, layers=4)


def row(name, encoding, needs_length=False):
    size = min(40, encoding.reach or 40)
    try:
        models.init_cache(CONFIG, encoding, 1, size)
        cache = "needs the final length" if needs_length else "exact"
    except ValueError:
        return f"| {name} | no: its positions need the final length |  |  |"
    layers = [encoding.layer(index) for index in range(CONFIG.layers)]
    seen = [layer.visible_keys() for layer in layers if not holds_state(layer)]
    kinds = {"all" if last is None else "W + n" if first else "W" for first, last in seen}
    kinds |= {"a state" for layer in layers if holds_state(layer)}
    once = "yes" if models.rotates_once(CONFIG, encoding) else ""
    return f"| {name} | {cache} | {once} | {' or '.join(sorted(kinds))} |"


def rows():
    key = jax.random.key(0)
    for name in schemes.names():
        yield row(f"`{name}`", posenc_jax.build(name, DIMS, key=key))
    yield row("`randomized` with `evenly`", posenc_jax.build("randomized", DIMS, evenly=True))
    for name, record in extensions.records().items():
        scheme = "rope" if record.fits(posenc_jax.build("rope", DIMS)) else "learned"
        encoding = posenc_jax.build(scheme, DIMS, key=key)
        extended = posenc_jax.extend(with_options(name), encoding, 2.0)
        yield row(f"`{name}`", extended, record.scale == "read")


@pytest.mark.filterwarnings("ignore:YaRN's ramp collapses")
def test_the_page_has_a_true_row_for_every_exception():
    head = "| encoding or extension | cache | accepts `rotated=True` | held per layer |\n"
    _, *table = PAGE.read_text().partition(head)[2].splitlines()
    names = committed(schemes.names(), "posenc_jax", "schemes")
    names += committed(extensions.records(), "posenc_jax", "extensions")
    static = re.compile("`(dynamic_|stepped_)?([^`]+)`")
    checked = [line for line in rows() if static.search(line)[2] in names]
    assert table == [line for line in checked if not line.endswith(" | exact | yes | all |")]
