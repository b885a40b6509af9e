"""The program: a function or a config.json is checked, and what cannot be is told in a line."""

import json
import sys

import jax.numpy as jnp
import pytest

import conformance
from conformance import __main__ as program
from conformance import linter, reference
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
        ("yarn mine:of_another_factor", 1, "attention_factor should be 1.27726, got 1.12"),
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
        ("yran mine:frequencies", 2, "unknown subject 'yran'; did you mean 'yarn'; see --list"),
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


def test_cases_are_tests_of_ones_own():
    tests = conformance.cases("yarn", lambda head_dim, base, train_length, scale: scale)
    assert [str(test) for test in tests][0].startswith("Llama 2 to 64k")
    with pytest.raises(AssertionError, match="inv_freq has shape"):
        tests[0]()
    for test in conformance.cases("alibi_slopes", reference.alibi_slopes):
        test()


# A model's config.json


def shipped():
    """The configurations of the cases, by the beginning of their names."""
    return {case.name: case.inputs["config"] for case in load("configuration").cases}


def linted(config, tmp_path, *arguments):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return program.main([str(path), *arguments])


YARN = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}
SMALL = {"head_dim": 64, "max_position_embeddings": 32768, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("rope", "code", "words"),
    [
        (YARN, 0, "a model: L = 8,192; longest row 32,768, 4 L ... yarn by 4, theta 10,000"),
        (
            {**YARN, "beta_fats": 16},
            1,
            "`beta_fats` is no key of rope type 'yarn' ... `beta_fast`?",
        ),
        (
            {**YARN, "type": "linear"},
            1,
            "`type` is 'linear'; transformers reads `rope_type`, 'yarn'",
        ),
        ({**YARN, "rope_theta": 5e5}, 1, "`rope_theta` is 10,000.0, and 500,000.0 in the rope"),
        ({**YARN, "factor": 8}, 1, "`max_position_embeddings` is 32,768; L x factor is 65,536"),
        ({**YARN, "attention_factor": 1.0, "mscale": 1}, 1, "is given, so `mscale` is ignored"),
        ({**YARN, "mscale": 0.7}, 1, "`mscale` and `mscale_all_dim` are read only together"),
        ({**YARN, "beta_fast": 1, "beta_slow": 32}, 1, "is below `beta_slow`: are they swapped?"),
        ({"type": "yarn", "factor": 4}, 1, "is not stated, so L is `max_position_embeddings`, 32"),
        ({"factor": 4}, 1, "`rope_type` is not stated, so nothing is extended"),
        ({"type": "dynamic", "factor": 1, "alpha": 1000}, 1, "`alpha` fixes the base"),
        ({"type": "yan", "factor": 4}, 1, "rope type 'yan' is unknown ... did you mean 'yarn'?"),
        ({"type": "llama3", "factor": 4}, 1, "WRONG: rope type 'llama3' needs `high_freq_factor`"),
        ({**YARN, "factor": "4"}, 2, "`factor` must be a number above 0 and below 1e+12; got '4'"),
        ({**YARN, "rope_theta": float("nan")}, 2, "`rope_theta` must be a number above 0"),
        ({**YARN, "truncate": "false"}, 2, "`truncate` must be true or false; got 'false'"),
        ({**YARN, "rope_type": ["yarn"]}, 2, "config.json cannot be read: TypeError"),
        ({"type": "yarn", "facter": 4}, 1, "WRONG: rope type 'yarn' needs `factor`"),
        ({"type": "longrope", "short_factor": [1], "long_factor": [1]}, 1, "a list of 32 numbers"),
        ("yarn", 2, "rotary settings must be an object of settings; got 'yarn'"),
        ({"full_attention": 3}, 2, "rotary settings must be an object of settings"),
    ],
    ids=str,
)
def test_a_file_is_told_what_is_ignored_or_contradicts(rope, code, words, tmp_path, capsys):
    assert linted(SMALL | {"rope_scaling": rope}, tmp_path) == code
    shown = "".join(capsys.readouterr())
    assert all(word in shown for word in words.split(" ... ")), shown


def test_a_file_that_leaves_the_rest_to_its_class_is_read(tmp_path, capsys):
    """Gemma-3-4b's states its factor alone, in the part of the language model."""
    rope = {"rope_type": "linear", "factor": 8.0}
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "rope_scaling": rope}
    assert linted({"model_type": "gemma3", "text_config": text}, tmp_path) == 0
    shown = capsys.readouterr().out
    assert "linear by 8, theta 1,000,000" in shown and "default, theta 10,000" in shown
    assert "SGLang 0.5.23         WRONG: the factor 8 of Gemma 3's full layers is dropped" in shown


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ("{", "is no JSON: Expecting property name"),
        ("[1]", "is no configuration: a config.json holds an object"),
        ('{"head_dim": 100000000, "max_position_embeddings": 8}', "`head_dim` must be a number"),
        ('{"text_config": null}', "is no configuration: a config.json holds an object"),
        (
            '{"n_positions": 8}',
            "no hidden_size, no num_attention_heads: is it of a model with RoPE?",
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_told_in_a_line(contents, words, tmp_path, capsys):
    assert linted(contents, tmp_path) == 2
    shown = capsys.readouterr().err
    assert words in shown and shown.count("\n") == 1


@pytest.mark.parametrize("name", shipped(), ids=str)
def test_shipped_files_are_read(name, tmp_path, capsys):
    """Whatever they contain, with a verdict for each engine."""
    assert linted(shipped()[name], tmp_path) in (0, 1)
    shown = capsys.readouterr().out
    assert all(f"{engine.name} {engine.version}" in shown for engine in linter.ENGINES.values())
