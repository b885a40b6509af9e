"""Tasks of RULER whose texts are made of words, without a network."""

import json
import socket

import pytest
from running import TINY, here, script

from posenc_jax.data import tokenizer

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
TASKS = ("ruler_vt", "ruler_cwe", "ruler_fwe")


def no_network(*_, **__):
    raise OSError("no network")


def test_words_and_variables_of_ruler_need_no_network(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    from lm_eval.tasks.ruler import cwe_utils, vt_utils

    english = [f" {word}" for word in cwe_utils.WORDS]
    english += [cwe_utils.TEMPLATE, vt_utils.generate_input_output(5, 1, 4)[0]] * 20
    tokenizer.train_bpe(english, 2048).save(str(tmp_path / "bpe.json"))
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number} " + " ".join(cwe_utils.WORDS))
    fields = TINY | {"data.path": f"{tmp_path}/*.txt", "data.tokenizer": tmp_path / "bpe.json"}
    words = [f"--config.{name}={value}" for name, value in fields.items()]
    here("train.py", "--config=configs/rope.py", f"--workdir={tmp_path / 'run'}", *words)
    words = [f"--tasks={','.join(TASKS)}", "--max_length=2048", "--limit=1"]
    words += ['--metadata={"max_seq_lengths": [2048]}', f"--out={tmp_path / 'results.json'}"]
    script("harness.py", tmp_path / "run", *words)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert all(0 <= results[task]["2048,none"] <= 1 for task in TASKS)
