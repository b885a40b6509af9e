"""Signals that stop a program."""

import signal

import pytest

from posenc_jax.runtime.terminal import reported, stop_requests


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
