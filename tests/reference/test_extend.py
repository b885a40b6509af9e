"""What scripts/extend.py tells people to paste, read by transformers."""

import json

import numpy as np
import pytest
from theirs import GEMMA, LLAMA, TOKENS, L, edited, error, logits_of, make, saved

from posenc_jax.advice import paste
from posenc_jax.evaluation import methods
from posenc_jax.pretrained import saving
from posenc_jax.pretrained.adopt import adopt
from posenc_jax.runs.subject import load_subject

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

OWN = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": L}
OWN |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
METHODS = ["yarn:5", "yarn:5.3:attention_factor=1", "ntk:4.1", "pi:5", "none"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "fields", "owns", "limit"),
    [("Llama", LLAMA, None, 1e-5), ("Llama", LLAMA, OWN, 1e-5), ("Gemma3", GEMMA, None, 2e-4)],
)
def test_transformers_computes_what_was_measured(name, fields, owns, limit, method, tmp_path):
    import jax
    import transformers

    folder = saved(make(name, fields, 0.1), tmp_path / "model")
    if owns is not None:  # in the older spelling, as most files have it
        edited(folder, rope_parameters=None, rope_theta=5000.0, rope_scaling=owns)
        edited(folder, max_position_embeddings=8 * L)
    adopt(folder, tmp_path / "run")
    subject = load_subject(tmp_path / "run")
    target = TOKENS.shape[1]
    encoding, _ = methods.extended_encoding(subject, method, target)
    layouts = saving.layouts_of(saving.lineage_of(tmp_path / "run"))
    own = "none" if owns is None else "llama3:8"
    blocks = paste.blocks(subject, layouts, own, method, target, "model")
    text = blocks["transformers"].text
    pasted, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(edited(folder, **pasted)).eval()
    with jax.numpy_rank_promotion("allow"):
        ours = np.asarray(subject.parts.model(np.asarray(TOKENS), encoding))
        plain = np.asarray(subject.parts.model(np.asarray(TOKENS), subject.plain))
    assert error(ours, logits_of(theirs)) < limit
    assert method == "none" or error(plain, logits_of(theirs)) > 10 * limit and target > 4 * L
