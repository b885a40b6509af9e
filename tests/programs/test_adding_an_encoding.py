"""Adding an encoding is one file in schemes and one in configs, shown on a copy of the project."""

import pytest
from additions import RECIPE, SCHEME
from running import copy_of

TESTS = "schemes/test_schemes test_configs test_build".split()


@pytest.mark.slow
def test_a_new_encoding_is_tested_and_configured_with_no_other_edit(tmp_path):
    run, written = copy_of(tmp_path), tmp_path / "posenc_jax" / "schemes" / "root_bias.py"
    written.write_text(SCHEME)
    (tmp_path / "configs" / "root_bias.py").write_text(RECIPE)
    test = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    out = run(*test, "-k=root_bias", *(f"tests/unit/{name}.py" for name in TESTS))
    assert int(out.rsplit(" passed", 1)[0].split()[-1]) >= 17, out

    # The same tests find a mistake in it: the slope of a root is infinite at distance 0.
    wrong = SCHEME.replace("distance.astype(jnp.float32)", "distance * jnp.exp(self.log_slope[0])")
    assert wrong != SCHEME
    written.write_text(wrong)
    selection = ["-k=gradients_reach and root_bias", "tests/unit/schemes/test_schemes.py"]
    assert "1 failed" in run(*test, *selection, code=1)
