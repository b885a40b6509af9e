"""Only a regular file is ever replaced."""

import os
import socket
import stat

import pytest

from posenc_jax.errors import Stop
from posenc_jax.files import write_atomically
from posenc_jax.runs import export
from scripts import prepare_data


@pytest.fixture(params=["folder", "pipe", "socket", "device"])
def taken(request, tmp_path, monkeypatch):
    """A path where something else than a file is."""
    path = tmp_path / "out"
    if request.param == "folder":
        path.mkdir()
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with monkeypatch.context() as there, socket.socket(socket.AF_UNIX) as one:
            there.chdir(tmp_path)  # a socket's name must be short
            one.bind("out")
    else:
        path.symlink_to("/dev/full")
    return path


def test_a_pipe_a_device_and_a_folder_stay(taken):
    before = stat.S_IFMT(taken.stat().st_mode)
    with pytest.raises(Stop, match="out: it is a folder, device or pipe; only regular"):
        write_atomically(taken, "text")
    assert stat.S_IFMT(taken.stat().st_mode) == before
    assert os.listdir(taken.parent) == ["out"]


def test_an_export_refuses_them_before_it_reads_the_run(taken, tmp_path):
    with pytest.raises(Stop, match="only regular files are replaced") as caught:
        export.export(tmp_path / "none", taken, overwrite=True)
    assert caught.value.code == 2


def test_a_tokenizer_refuses_them_before_it_is_trained(taken, tmp_path, capsys):
    words = ["prepare_data.py", "--config=configs/rope.py", "--vocab=300", f"--out={taken}"]
    with pytest.raises(SystemExit) as ended:
        prepare_data.main([*words, f"--config.data.cache={tmp_path / 'cache'}"])
    assert ended.value.code == 2
    assert f"--out={taken}: it is a folder, device or pipe" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_file_and_a_link_to_nothing_are_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link", "new"):
        write_atomically(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new" and not (tmp_path / name).is_symlink()
