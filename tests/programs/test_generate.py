"""scripts/generate.py continues a text with a run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from running import script

import models
import posenc_jax
from posenc_jax.encoding import Dims
from posenc_jax.evaluation import generate
from posenc_jax.evaluation.generate import continued
from posenc_jax.runs import parameters
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.errors import ConfigError

PROMPT = "import os\n"


def test_a_text_is_continued_as_by_generate(whole):
    said = script("generate.py", whole[0], f"--prompt={PROMPT}", "--tokens=21")
    subject = load_subject(whole[0])
    tokens = np.frombuffer(PROMPT.encode(), np.uint8)[None]
    out = models.generate(subject.parts.model, subject.parts.encoding, tokens, tokens=21)
    expected = PROMPT + subject.tokenizer.decode(np.asarray(out)[0])
    assert said.rstrip("\n") == expected.rstrip("\n")


def test_a_model_on_the_host_is_held_once_on_the_device(whole):
    before = jax.live_arrays()  # held, so that what another test left cannot go meanwhile
    subject = load_subject(whole[0], place=parameters.on_host)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(subject.parts.model))
    pieces = continued(subject, PROMPT, 60)
    next(pieces)
    known = set(map(id, before))
    held = sum(array.nbytes for array in jax.live_arrays() if id(array) not in known)
    assert weights <= held < 1.6 * weights  # and the cache


def test_semantics_of_a_dynamic_extension_differ_beyond_the_trained_length(whole):
    subject = load_subject(whole[0])

    def text(semantics, tokens):
        options = dict(extension="dynamic_pi", temperature=1.0, semantics=semantics)
        return "".join(continued(subject, PROMPT, tokens, **options))

    within = subject.original - len(PROMPT)
    assert text("window", within) == text("prefix", within) == text("stale", within)
    long = {text(semantics, 3 * subject.original) for semantics in ("window", "prefix", "stale")}
    assert len(long) == 3


def test_prefix_is_refused_where_a_state_sums_rotated_keys():
    def encodings(name, **options):
        plain = posenc_jax.build(name, Dims(2, 4, 8, 16), **options)
        parts = SimpleNamespace(encoding=plain)
        subject = SimpleNamespace(plain=plain, parts=parts, original=16, extensible=True)
        return generate._encodings(subject, "dynamic_yarn", "prefix", 20, 3)

    decay = {"pattern": "decay,global", "global_rope": True}  # decay layers do not rotate
    assert len(encodings("rope")) == len(encodings("hybrid", **decay)) == 3
    for name, options in (("retention", {}), ("randomized", {"inner": "retention"})):
        with pytest.raises(ConfigError, match="use 'window' or 'stale'"):
            encodings(name, **options)


def test_seeds_from_2_to_32_on_draw_other_tokens(whole):
    """jax.random.key keeps the low 32 bits."""
    words = whole[0], f"--prompt={PROMPT}", "--tokens=21", "--temperature=1"
    said = {script("generate.py", *words, f"--seed={seed}") for seed in (1, 2**32 + 1, 2**33 + 1)}
    assert len(said) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt="], "give at least one token"),
        (["--prompt=a", "--extension=yarm:2"], "did you mean 'yarn'"),
        (["--prompt=a", "--semantics=stall"], "semantics"),
        (["--prompt=a", "--top_k=3"], "no effect at temperature 0"),
        (["--prompt=a", f"--seed={10**20}"], "seed must be at most 9,223,372,036,854,775,807; got"),
        (["--prompt=a", "--tokens=0"], "tokens must be a whole number of at least 1"),
        (["--prompt=a", "--tokens=99999999", "--semantics=prefix"], "tokens must be at most 16,7"),
    ],
)
def test_mistakes_are_explained(whole, words, message):
    assert message in script("generate.py", whole[0], *words, code=2)
