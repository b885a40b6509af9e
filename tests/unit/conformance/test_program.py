"""The program: a function or a config.json is checked, and what cannot be is told in a line."""

import sys

import jax.numpy as jnp
import pytest

from conformance import __main__ as program
from conformance import reference
from conformance.checking import check, load

MINE = """
import math
import numpy as np

def without_options(head_dim, base, train_length, scale):
    from conformance.reference import yarn
    return yarn(head_dim, base, train_length, scale)

def frequencies(head_dim, base, train_length, scale, **options):
    return without_options(head_dim, base, train_length, scale)["inv_freq"].tolist()

def of_two(head_dim, base, train_length, scale):
    return np.ones(head_dim), 1.0

def of_none(head_dim, base, train_length, scale):
    raise RuntimeError("no")

def of_nothing(head_dim, base, train_length, scale):
    pass

def of_letters(head_dim, base, train_length, scale):
    return "abc"

def of_names(head_dim, base, train_length, scale):
    return {"freqs": 1, 3: 2}

def of_a_gpu(head_dim, base, train_length, scale):
    raise NotImplementedError("a GPU alone")

def of_another_factor(head_dim, base, train_length, scale):
    return without_options(head_dim, base, train_length, scale)["inv_freq"], 0.07 * scale

def of_a_list(head_dim, base, train_length, scale):
    return [np.ones(head_dim), 1.0]

def of_phases(head_dim, base, train_length, scale):
    return np.exp(1j * without_options(head_dim, base, train_length, scale)["inv_freq"])

def by_other_names(dim, base, train_length, scale):
    return 1
"""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("yarn mine:without_options", 0, "9 of 9 cases pass ... skip  truncate=False, as gpt-oss"),
        ("yarn mine:frequencies", 1, "not returned, so not checked: attention_factor"),
        (
            "yarn mine:of_two",
            2,
            "compared: inv_freq has shape (128,), expected (64,) in case 'Llama",
        ),
        ("yarn mine:of_none", 2, "no case could be compared: raised RuntimeError: no in case 'Ll"),
        ("yarn mine:of_nothing", 2, "returns inv_freq as NoneType; an output is a number, a list"),
        ("yarn mine:of_letters", 2, "returns inv_freq as str; an output is a number, a list"),
        ("yarn mine:of_names", 2, "the function returns freqs, 3; outputs are inv_freq, attention"),
        ("yarn mine:of_a_gpu", 2, "no case could be called: a GPU alone"),
        ("yarn mine:of_another_factor", 1, "attention_factor should be 1.27725887, got 1.12"),
        (
            "yarn mine:of_a_list",
            2,
            "inv_freq as list; an output is a number, a list or an array of numb",
        ),
        (
            "yarn mine:of_phases",
            2,
            "inv_freq as complex numbers; outputs are real: cosines, sines, fre",
        ),
        ("yarn broken:one", 2, "cannot import broken:one: SyntaxError"),
        ("yarn mine:by_other_names", 2, "the function takes dim; it is called by names, as yarn(h"),
        ("yarn mine:absent", 2, "cannot import mine:absent"),
        ("yarn mine", 2, "must be given as MODULE:FUNCTION"),
        ("yran mine:frequencies", 2, "unknown subject 'yran'; did you mean 'yarn'?"),
        ("yarn", 0, "returns: inv_freq, float64 [64] in the first ... case: s = 1 changes nothing"),
        ("--list", 0, "19 cases  yarn(head_dim, base, train_length, scale"),
    ],
)
def test_the_program_reports_and_ends_with_its_code(
    arguments, code, words, tmp_path, monkeypatch, capsys
):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def one(:")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert program.main(arguments.split()) == code
    shown = "".join(capsys.readouterr())
    assert all(word in shown for word in words.split(" ... "))


def test_results_may_be_lists_or_tensors():
    class Tensor:
        def __init__(self, values):
            self.values = values

        def detach(self):
            return self

        cpu = double = detach

        def is_complex(self):
            return False

        def numpy(self):
            return self.values

    for kind in (Tensor, jnp.asarray, list):
        results = check(load("alibi_slopes"), lambda heads: kind(reference.alibi_slopes(heads)))  # noqa: B023
        assert all(result.passes for result in results)
