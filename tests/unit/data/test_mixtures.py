"""Mixtures: exact shares, determined by seed and step, with one split per text."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from configured import problems_of
from solving import solve

from configs import rope
from posenc_jax.config import load
from posenc_jax.data import batches
from posenc_jax.data.prepare import prepare_corpora
from posenc_jax.data.sources import EvaluationData
from posenc_jax.data.texts import OwnText, text_of
from posenc_jax.runtime.errors import ConfigError

L = 32


def config(tmp_path, mixture="text:0.7:path={}/*.txt,variables:0.3:documents=40", **fields):
    made = rope.get_config()
    made.update(train_length=L, batch_size=10)
    made.data.update(mixture=mixture.format(tmp_path), cache=str(tmp_path))
    made.data.update(fields)
    return made


@pytest.fixture
def texts(tmp_path):
    for i in range(12):
        letters = np.random.default_rng(i).choice(list("abc\n"), 500)
        (tmp_path / f"{i}.txt").write_text("".join(letters))
    return tmp_path


def prepared(texts, seed=0, **fields):
    chosen = config(texts, **fields)
    chosen.seed = seed
    assert problems_of(chosen) == []
    chosen = load(chosen)
    corpus = prepare_corpora(chosen.data.source, seed)
    return corpus, batches.batches_of(corpus, chosen)


def is_task(rows):
    """Return per row whether it belongs to the task, which uses other bytes than the text."""
    return np.isin(rows.inputs, np.frombuffer(b"abc\n", np.uint8)).mean(axis=1) < 0.5


def test_shares_are_exact_over_a_thousand_rows(texts):
    _, rows = prepared(texts)
    task_rows = np.concatenate([is_task(rows.batch(step)) for step in range(100)])
    assert task_rows.sum() == 300
    assert 0 < task_rows[:100].sum() < 60  # spread over all steps


def test_tokens_in_longer_documents_count_by_the_shares(texts):
    corpus, _ = prepared(texts)
    assert set(corpus.parts["variables"].train.lengths) == {L + 1}
    for length, share in ((L, 1.0), (L + 1, 0.7), (499, 0.7), (500, 0.0)):
        assert corpus.in_longer(length) == pytest.approx(share)
    text = corpus.parts["text"].whole()
    assert replace(text, starts=np.array([0, 700, 1000, 6000])).in_longer(300) == 5_700 / 6_000


def test_batches_depend_on_seed_and_step_only(texts):
    corpus, rows = prepared(texts)
    again, same = prepared(texts)
    assert corpus.fingerprint == again.fingerprint
    for step in (0, 7, 101):
        jax.tree.map(np.testing.assert_array_equal, rows.batch(step), same.batch(step))
    assert (rows.batch(3).inputs != prepared(texts, seed=1)[1].batch(3).inputs).any()


def test_processes_read_their_rows_of_the_same_batch(texts):
    _, rows = prepared(texts)
    whole = rows.batch(5)
    for half in (slice(0, 5), slice(5, 10)):
        np.testing.assert_array_equal(rows.batch(5, half).inputs, whole.inputs[half])


def test_a_mixture_keeps_the_row_order_of_each_text(texts):
    """A mixture neither skips nor repeats a row within an epoch."""
    corpus, rows = prepared(texts)
    expected = rows.parts[1].at(range(30)).inputs
    read = np.concatenate([batch.inputs[is_task(batch)] for batch in map(rows.batch, range(10))])
    np.testing.assert_array_equal(read[:30], expected[: len(read)])


def test_text_without_answers_trains_on_all_its_tokens(texts):
    _, rows = prepared(texts, answers_only=True)
    batch = rows.batch(0)
    task = is_task(batch)
    assert np.all(batch.weights[~task] == 1)
    assert 0 < batch.weights[task].mean() < 0.5


def test_held_out_answers_are_solvable_within_their_row(texts):
    """Test documents and their gaps are longer than a training row."""
    corpus, _ = prepared(texts)
    test = corpus.parts["variables"].valid
    chosen = dict(length=L, batch_size=1, seed=0, within_documents=True)
    answered = batches.Batches(test, **chosen, answers_only=True).held_out(2_000)
    all_targets = batches.Batches(test, **chosen).held_out(2_000)
    for inputs, targets, weights in zip(*answered[:3], strict=True):
        known = solve(np.append(inputs, targets[-1]))[1:]
        np.testing.assert_array_equal(known[weights > 0], targets[weights > 0])
        np.testing.assert_array_equal(weights > 0, known >= 0)  # no answer is left out without need
    assert 0 < answered.weights.sum() < all_targets.weights.sum()


@pytest.mark.parametrize(
    ("shares", "rows"),
    [((1, 1, 1), (334, 333, 333)), ((999, 1), (999, 1)), ((0.4988, 0.4998, 0.0014), (499, 500, 1))],
)
def test_shares_are_rounded_to_rows_of_a_thousand(shares, rows):
    mixed = batches.MixedBatches([(None, share) for share in shares], batch_size=1, seed=0)
    assert tuple(mixed.counts) == rows


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        ("stdlib:1,variabels:1", "unknown source or task 'variabels'; did you mean 'variables'?"),
        ("stdlib:0.5,variables:0", "the share of variables must be a finite number above 0"),
        ("stdlib:1_0,variables:1", "must be a number, such as 0.003 or 3e-3; got '1_0'"),
        ("stdlib:1e308,variables:1", "the share of stdlib must be a number from 1e-30 to 1e+30"),
        ("stdlib:1e400,variables:1", "must be a finite number above 0; got inf"),
        ("stdlib:0.5,variables", "'variables' must give one share, such as variables:0.2"),
        ("stdlib:1,variables:1:fra=2", "unknown option of variables: 'fra'; did you mean 'far'?"),
        ("stdlib:0.5,variables:0.2:far=two", "far of variables must be a number"),
        ("stdlib:0.5,stdlib:0.5", "stdlib is in it twice with the same options"),
        ("stdlib:1", "two texts or more"),
        ("stdlib:1000,variables:1", "each share must be at least 1/1000 of their sum"),
    ],
)
def test_invalid_mixtures_are_refused(texts, mixture, message):
    problems = problems_of(config(texts, mixture))
    assert len(problems) == 1 and message in problems[0], problems


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "a"}, "data.path = 'a' has no effect with data.mixture; an option is written in"),
        ({"mixture": "", "source": "mixture"}, "a mixture has two texts or more; got ''"),
        ({"task": "mqar"}, "data.task = 'mqar' has no effect with data.mixture"),
        ({"mixture": "stdlib:1,nope:1", "answers_only": True}, "unknown source or task 'nope'"),
        (
            {"mixture": "stdlib:0.5,text:0.5:path=/work", "answers_only": True},
            "data.answers_only has no effect",
        ),
    ],
)
def test_fields_that_no_part_reads_are_refused(texts, fields, message):
    assert message in "\n".join(problems_of(config(texts, **fields)))


def test_an_evaluation_reads_the_text_that_it_names(texts):
    corpus, _ = prepared(texts, choose_fraction=0.3)
    origin = load(config(texts, choose_fraction=0.3)).data.source
    own = OwnText(origin, 0, corpus.fingerprint)

    def read(**asked):
        return text_of(EvaluationData(**asked), own, corpus.encoder)

    assert read(source="text", path=f"{texts}/*.txt").fingerprint == read().fingerprint
    assert read(source="variables", part="choose").name == "variables-choose"
    (texts / "held-out").write_text("another text")
    other = {"source": "text", "path": f"{texts}/held-out"}
    assert read(**other).words == f"text:{texts}/held-out" and read(**other).name != read().name
    with pytest.raises(ConfigError, match="is a part of the run's own text, and .* is another"):
        read(part="choose", **other)
    with pytest.raises(ConfigError, match="'copy' names a task of a mixture"):
        read(source="copy")


def test_an_option_of_a_part_is_that_of_its_source_alone(tmp_path):
    parts = load(config(tmp_path, "stdlib:1:hold_out=package,variables:1:far=2")).data.source.parts
    assert parts["stdlib"].hold_out == "package" and parts["variables"].drawn.farthest == 2 * L


def test_no_text_is_trained_on_what_another_one_holds_out(tmp_path):
    """Tasks that are hidden in source code hold out its files, not its packages."""
    chosen = config(tmp_path, "stdlib:0.7:hold_out=package,needle:0.3")
    chosen.train_length = 64
    (problem,) = problems_of(chosen)
    assert "needle holds out single files of the code that stdlib holds out by package" in problem


def test_a_long_and_a_short_part_are_cut_from_one_text(texts):
    """Long documents alone fill rows of L; rows of 8 of all documents stand four in one."""
    for i in range(8):
        (texts / f"short{i}.txt").write_text(f"{i}short")
    mixture = f"text:0.6:path={texts}/*.txt:min_tokens=400,text:0.4:path={texts}/*.txt:length=8"
    corpus, mixed = prepared(texts, mixture=mixture, mask_documents=True)
    long, short = corpus.parts["text"], corpus.parts["text2"]
    assert min(long.train.lengths) >= 400 > min(short.train.lengths)
    assert long.card["counts"]["short"] == 8 and len(short.whole().lengths) == 20
    shares = [mixed._find(place)[0] for place in range(1000)]
    assert shares.count(1) == 400
    batch = mixed.parts[1].at(np.arange(5))
    alone = batches.Batches(short.train, length=8, batch_size=1, seed=0, within_documents=True)
    for name in ("inputs", "targets", "weights", "bytes"):
        expected = getattr(alone.at(np.arange(20)), name).reshape(5, L)
        np.testing.assert_array_equal(getattr(batch, name), expected)
    segments = batch.segments.reshape(5, 4, 8)
    assert (np.diff(batch.segments) >= 0).all()
    assert (segments[:, 1:].min(-1) > segments[:, :-1].max(-1)).all()  # none sees another
    held = batches.rows_of(short.valid, load(config(texts)), 8).held_out(2)
    assert held.inputs.shape[1] == L


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("length=8", "data.mixture: rows of another length need data.mask_documents=True"),
        ("length=5", "length of text must divide train_length = 32"),
    ],
)
def test_lengths_of_parts_that_do_not_fit_are_refused(texts, options, message):
    mixture = f"stdlib:1,text:1:path={texts}/*.txt:{options}"
    assert message in "\n".join(problems_of(config(texts, mixture)))
