"""An encoding, an extension with an option and a protocol, one file each (and a recipe), in a copy
of the project: every test that starts no process takes them up unedited."""

import pytest
from additions import FILES
from running import copy_of


@pytest.mark.slow
def test_new_files_pass_every_test_that_starts_no_process(tmp_path):
    run = copy_of(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit"]
    run(*tests)
    own = run(*tests, "-n0", "-m", "", "-k", "root_bias or slowed", "-vv")  # the slow ones too
    assert "root_bias" in own and "slowed" in own
