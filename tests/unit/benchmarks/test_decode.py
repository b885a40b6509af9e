"""The benchmark of decoding: what its times and its bytes are of."""

import numpy as np

from benchmarks import decode


def test_time_per_token_excludes_the_prompt():
    assert decode.of_stamps(10.0, [15.0, 16.0, 17.0]) == (5.0, 1.0)


def test_ratios_are_our_times_over_the_peers():
    times = {"ours": np.array([[9.0, 1.0], [1.0, 1.0]]), "peer": np.array([[8.0, 4.0], [2.0, 4.0]])}
    found = {one.measure: one.range.middle for one in decode.against("case", times)}
    assert found["time per token over peer"] == 0.25
    assert found["first token over peer"] == 0.5  # the first round compiles
