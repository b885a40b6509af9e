"""scripts/plot_encodings.py draws every picture of a trained run."""

import pytest
from running import script


@pytest.mark.slow
def test_the_program_draws_what_it_says(call, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    call("train.py", run, config="sinusoidal")
    said = script("plot_encodings.py", run, f"--out={out}", "--length=16")
    assert "position in the keys" in said
    assert sorted(path.name for path in out.glob("*.png")) == sorted(
        ["rope_reach.png", "rope_distances.png", "rope_wavelengths.png", "biases.png"]
        + ["similarity.png", "terms_sinusoidal.png", "remapped.png", "windows.png"]
        + ["gates.png"]
    )
