"""n-gram baselines on a run's targets, in files, pictures and reports."""

import shutil
from collections import Counter

import numpy as np
import pytest
from curves import rows_of

from posenc_jax.data.batches import batches_of
from posenc_jax.data.prepare import prepare_corpora
from posenc_jax.evaluation import ngrams, records
from posenc_jax.report import page, table
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs
from posenc_jax.runs.subject import run_config
from scripts import yardstick

EVALUATION = ["--config.multiples=0.5,1,2", "--config.protocols=same_token,nonoverlap"]


@pytest.fixture
def evaluated(run, call):
    """A finished run of one's own, evaluated in its only text."""
    call("eval_extrapolation.py", run, *EVALUATION)
    return run


def bits_of_a_trigram(run):
    """By dictionaries, from the rows of an epoch and the bytes of the held-out documents."""
    config = run_config(run)
    corpus = prepare_corpora(config.data.source, config.seed, quiet=True)
    batches = batches_of(corpus, config)
    seen = Counter()
    rows = batches.at(range(batches.rows))
    for inputs, targets in zip(rows.inputs.tolist(), rows.targets.tolist(), strict=True):
        line = [inputs[0], *targets]
        for end in range(1, len(line)):
            for count in range(1, min(3, end + 1) + 1):
                words = tuple(line[end + 1 - count : end + 1])
                seen["target", words] += 1
                seen["context", words[:-1]] += 1
    (places,) = records.earlier_record(run / "eval").places
    bits = []
    for document, start in zip(places.document, places.start, strict=True):
        begin = corpus.valid.starts[document] + start
        window = corpus.valid.tokens[begin : begin + 2 * 32 + 1].tolist()
        for end in range(len(window) - 4, len(window)):
            p = 1 / 256
            for count in range(1, 4):
                words = tuple(window[end + 1 - count : end + 1])
                p = (seen["target", words] + 5 * p) / (seen["context", words[:-1]] + 5)
            bits.append(-np.log2(p))
    return float(np.mean(bits)), batches.rows * config.train_length


def test_n_grams_are_counted_in_an_epoch_and_scored_on_the_targets(evaluated, tmp_path):
    assert yardstick.main(["yardstick.py", str(tmp_path)]) == 0
    rows = ngrams.read_yardsticks(evaluated / "eval")
    bits, counted = bits_of_a_trigram(evaluated)
    assert [row["order"] for row in rows] == [2, 3, 4, 5, 6]
    assert rows[1]["bpb"] == pytest.approx(bits, rel=1e-9) and rows[1]["counted"] == counted
    (row,) = [
        row
        for row in rows_of(evaluated)
        if (row["protocol"], row["length"], row["method"]) == ("same_token", "64", "none")
    ]
    assert rows[0]["token_hash"] == row["token_hash"] and rows[0]["tokens"] == int(row["tokens"])

    data = read_runs([tmp_path])
    assert "\n3-gram" in table.table(data)
    text = page.write_page(data, rankings(data.runs), tmp_path / "page").read_text()
    assert '<td class="left">3-gram</td>' in text and f"{rows[1]['bpb']:.2f}" in text


def test_a_run_that_read_another_text_or_nothing_yet_has_none(evaluated, call, tmp_path, capfd):
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text(f"{i} another text " * 20)
    other = ["--config.data.source=text", f"--config.data.path={tmp_path}/*.txt"]
    call("eval_extrapolation.py", evaluated, *EVALUATION, *other, "--config.name=other")
    assert yardstick.main(["yardstick.py", str(evaluated), "--evaluation=other"]) == 65
    assert "read another text than the run's own" in capfd.readouterr().err
    shutil.rmtree(evaluated / "eval")
    assert yardstick.main(["yardstick.py", str(evaluated)]) == 65
    assert "none of these runs is evaluated yet" in capfd.readouterr().err
