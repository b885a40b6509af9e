"""Signals that stop a program."""

import os
import signal

import pytest

from posenc_jax.runtime.terminal import stop_requests


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_hang_up_stops_a_program_unless_nohup_ignores_it(before):
    usual = signal.signal(signal.SIGHUP, before)
    try:
        with stop_requests() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert received == (["SIGTERM"] if before == signal.SIG_IGN else ["SIGHUP", "SIGTERM"])
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, usual)
