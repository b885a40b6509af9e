"""The benchmark of decoding: what its times and its bytes are of."""

import numpy as np
import pytest

from benchmarks import decode
from configs import mla


def test_time_per_token_excludes_the_prompt():
    assert decode.of_stamps(10.0, [15.0, 16.0, 17.0]) == (5.0, 1.0)


@pytest.mark.parametrize("name", ["rope + window", "rope + streaming"])
def test_cache_of_a_window_stops_growing(name):
    sizes = [decode.cache_bytes(name, n) for n in decode.CONTEXTS[:2]]
    assert sizes[0] == sizes[1]


def test_full_cache_holds_keys_and_values_of_every_token():
    config, size = decode.SMALL, 2 * decode.TRAIN_LENGTH
    found = decode.cache_bytes("rope", size)
    assert found == size * config.layers * 2 * config.width * 4


def test_cache_of_a_latent_holds_it_and_the_rotated_entries_of_the_recipe():
    config, size = decode.LATENT, 2 * decode.TRAIN_LENGTH
    recipe = mla.get_config().model
    names = ("layers", "width", "heads", "head_dim", "value_dim", "latent_dim", "rotary_dim")
    assert all(getattr(config, name) == recipe[name] for name in names)
    found = decode.cache_bytes("mla", size)
    assert found == size * config.layers * (config.latent_dim + config.rotary_dim) * 4


def test_ratios_are_our_times_over_the_peers():
    times = {"ours": np.array([[9.0, 1.0], [1.0, 1.0]]), "peer": np.array([[8.0, 4.0], [2.0, 4.0]])}
    found = {one.measure: one.range.middle for one in decode.against("case", times)}
    assert found["time per token over peer"] == 0.25
    assert found["first token over peer"] == 0.5  # the first round compiles
