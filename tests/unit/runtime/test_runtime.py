"""Settings of `configure`, files that are replaced, and signals that stop a program."""

import csv
import os
import signal
import socket
import stat
from importlib.metadata import version
from pathlib import Path

import pytest

from posenc_jax.runs import export
from posenc_jax.runtime import backend
from posenc_jax.runtime.errors import Stop
from posenc_jax.runtime.files import expanded, locked, read_csv, write_atomically, write_csv
from posenc_jax.runtime.terminal import reported, stop_requests
from scripts import prepare_data


def test_the_compilation_cache_is_the_users_choice_or_off(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    backend.configure()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # XDG: relative paths are ignored
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no home folder
    backend.configure()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_old_programs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    backend.configure()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    for name in ("new", "old"):
        (folder / name).touch()
    os.utime(folder / "old", (0, 1_000))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    backend.configure()
    assert os.listdir(folder) == ["new"]


def test_machine_reports_processor_jaxlib_and_cores(monkeypatch):
    machine = backend.machine()
    assert machine["processor"] and machine["jaxlib"] == version("jaxlib")
    monkeypatch.setenv("NPROC", "3")
    assert backend.cores() == 3
    monkeypatch.delenv("NPROC")
    assert backend.cores() == len(os.sched_getaffinity(0))


@pytest.fixture(params=["folder", "pipe", "socket", "device"])
def not_a_file(request, tmp_path, monkeypatch):
    """A path that is not a regular file."""
    path = tmp_path / "out"
    if request.param == "folder":
        path.mkdir()
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with monkeypatch.context() as patch, socket.socket(socket.AF_UNIX) as bound:
            patch.chdir(tmp_path)  # a socket's name must be short
            bound.bind("out")
    else:
        path.symlink_to("/dev/full")
    return path


def test_writing_leaves_folders_pipes_and_devices(not_a_file):
    before = stat.S_IFMT(not_a_file.stat().st_mode)
    with pytest.raises(Stop, match="out: it is a folder, device or pipe; only regular"):
        write_atomically(not_a_file, "text")
    assert stat.S_IFMT(not_a_file.stat().st_mode) == before
    assert os.listdir(not_a_file.parent) == ["out"]


def test_export_checks_its_output_before_reading_the_run(not_a_file, tmp_path):
    with pytest.raises(Stop, match="only regular files are replaced") as caught:
        export.export(tmp_path / "none", not_a_file, overwrite=True)
    assert caught.value.code == 2


def test_tokenizer_training_checks_its_output_first(not_a_file, tmp_path, capsys):
    words = ["prepare_data.py", "--config=configs/rope.py", "--vocab=300", f"--out={not_a_file}"]
    assert prepare_data.main([*words, f"--config.data.cache={tmp_path / 'cache'}"]) == 2
    assert f"--out={not_a_file}: it is a folder, device or pipe" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_files_and_dangling_links_are_replaced(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link", "new"):
        write_atomically(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new" and not (tmp_path / name).is_symlink()


def test_a_text_in_a_csv_file_is_read_as_it_was(tmp_path):
    cells = ["'a", "a", "", "1-=2", "a\nb,c"]
    write_csv(tmp_path / "a.csv", ["text", "number"], [{"text": c, "number": -2} for c in cells])
    assert read_csv(tmp_path / "a.csv") == [{"text": cell, "number": "-2"} for cell in cells]


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@a", "\t=1", "'=1"])
def test_no_text_in_a_csv_file_is_a_formula(tmp_path, text):
    write_csv(tmp_path / "a.csv", ["run", "nll"], [{"run": text, "nll": -2.5}])
    with (tmp_path / "a.csv").open(newline="") as stream:
        assert list(csv.reader(stream)) == [["run", "nll"], [f"'{text}", "-2.5"]]
    assert read_csv(tmp_path / "a.csv") == [{"run": text, "nll": "-2.5"}]


def test_the_folder_of_an_unknown_user_is_a_name_like_any_other():
    assert expanded("~nobody-here/run") == Path("~nobody-here/run")
    assert expanded("~/run") == Path.home() / "run"


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_hang_up_stops_a_program_unless_nohup_ignores_it(before):
    usual = signal.signal(signal.SIGHUP, before)
    try:
        with stop_requests() as received:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert received == (["SIGTERM"] if before == signal.SIG_IGN else ["SIGHUP", "SIGTERM"])
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, usual)


def test_a_second_interrupt_leaves_at_once_and_other_signals_may_be_sent_twice():
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
    try:
        with stop_requests() as received:
            for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(sent)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert received == ["SIGTERM", "SIGTERM", "SIGINT"]
    assert reported(KeyboardInterrupt()) == 75


def test_a_folder_that_cannot_be_locked_is_named_with_the_remedy(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(Stop, match=f"cannot lock {tmp_path}: .*; free space or restore write"):
        with locked(tmp_path, "another program"):
            pass
