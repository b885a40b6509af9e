"""Tasks of lm-evaluation-harness, offline, against numbers of full passes without padding."""

import json
import math

import jax
import numpy as np
import pytest
import yaml
from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager
from sizes import DIMS, L

import posenc_jax
from posenc_jax.data.tokenizer import Bytes
from posenc_jax.evaluation import harness
from posenc_jax.runtime.errors import ConfigError

LONGEST = 5 * L  # no power of two times 32, so that the last padded length is of another kind
NEW_LINE = ord("\n")


@pytest.fixture(scope="module")
def encoding():
    return posenc_jax.build("alibi", DIMS)


@pytest.fixture(scope="module")
def make_lm(make_model, encoding):
    def make(max_length=LONGEST, *, read_with=encoding, bos=False, layers=1, **options):
        model = make_model(layers=layers, vocab=256, bos=bos)
        return harness.RunLM(model, read_with, Bytes(), max_length, **options)

    return make


@pytest.fixture(scope="module")
def log_probabilities(forward):
    """A row's log-probabilities from one pass over it alone, in float64.

    All rows have one shape, so that one program reads them; no token sees those after it."""

    def compute(lm, tokens):  # [T] -> [T, V], of the token after each
        row = np.pad(np.array([tokens], np.int32), ((0, 0), (0, LONGEST - len(tokens))))
        logits = forward(lm.model, row, lm.encoding)[0, : len(tokens)]
        logits = np.asarray(logits, np.float64)
        shifted = logits - logits.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    return compute


@pytest.fixture(scope="module")
def score(log_probabilities):
    """Log-likelihood of a continuation, and whether every token of it ranks first."""

    def compute(lm, context, continuation):  # texts
        row = list(context.encode() + continuation.encode())
        start = len(context.encode())
        table = log_probabilities(lm, row[:-1])[start - 1 :]
        targets = np.array(row[start:])
        total = table[np.arange(len(targets)), targets].sum()
        return total, bool((table.argmax(-1) == targets).all())

    return compute


@pytest.fixture(scope="module")
def continue_greedily(log_probabilities):
    def compute(lm, context, tokens):  # one full pass per token
        row = list(context.encode())
        for _ in range(tokens):
            row.append(int(log_probabilities(lm, row)[-1].argmax()))
        return row[-tokens:]

    return compute


@pytest.fixture
def evaluate(tmp_path):
    """Write a task and its documents, and return its metrics and samples."""

    def run(lm, documents, **fields):
        data = tmp_path / "documents.jsonl"
        data.write_text("".join(json.dumps(document) + "\n" for document in documents))
        task = {
            "task": "mine",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path)},
            "test_split": "test",
            "metadata": {"version": 1},
        }
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(task | fields))
        results = evaluator.simple_evaluate(
            model=lm,
            tasks=["mine"],
            task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
            bootstrap_iters=0,
        )
        samples = sorted(results["samples"]["mine"], key=lambda sample: sample["doc_id"])
        return results["results"]["mine"], [sample["filtered_resps"] for sample in samples]

    return run


def requests(kind, *arguments):
    return [Instance(kind, {}, pair, i) for i, pair in enumerate(arguments)]


def letters(count, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("abcdefgh "), count))


QUESTIONS = [
    {"question": letters(5 + 17 * i, i) + "x", "choices": ["a", "bcd", letters(9, i)], "answer": 1}
    for i in range(4)  # rows of 7 to 66 tokens
]


def test_a_multiple_choice_task_has_the_numbers_of_full_passes(make_lm, evaluate, score):
    lm = make_lm(tokens_per_call=2 * LONGEST)  # several calls, the last of each length filled up
    metrics, samples = evaluate(
        lm,
        QUESTIONS,
        output_type="multiple_choice",
        doc_to_text="{{question}}",
        doc_to_choice="{{choices}}",
        doc_to_target="{{answer}}",
        metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}],
    )
    right = []
    for question, sample in zip(QUESTIONS, samples, strict=True):
        expected = [score(lm, question["question"], f" {c}") for c in question["choices"]]
        assert [greedy for _, greedy in sample] == [greedy for _, greedy in expected]
        np.testing.assert_allclose([s[0] for s in sample], [e[0] for e in expected], rtol=1e-5)
        right.append(int(np.argmax([total for total, _ in expected])) == question["answer"])
    assert metrics["acc,none"] == np.mean(right) and lm.cut == 0


def test_a_rolling_task_scores_every_token_once(make_lm, evaluate, log_probabilities):
    """Windows of at most `max_length` targets; the last one also sees tokens before it."""
    lm = make_lm()
    texts = [letters(length, length) for length in (1, LONGEST, LONGEST + 1, 2 * LONGEST + 30)]
    metrics, samples = evaluate(
        lm,
        [{"text": text} for text in texts],
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=[{"metric": "byte_perplexity"}],
    )
    expected = []
    for text in texts:
        row, total = [NEW_LINE, *text.encode()], 0.0
        for start in range(0, len(text), LONGEST):
            end = min(start + LONGEST, len(text))
            first = max(0, end - LONGEST)
            table = log_probabilities(lm, row[first:end])[start - first :]
            total += table[np.arange(end - start), row[start + 1 : end + 1]].sum()
        expected.append(total)
    np.testing.assert_allclose([sample[0] for sample in samples], expected, rtol=1e-5)
    perplexity = math.exp(-sum(expected) / sum(map(len, texts)))
    assert metrics["byte_perplexity,none"] == pytest.approx(perplexity, rel=1e-5)
    assert lm.cut == 0  # windows are not contexts that were cut


def test_a_generating_task_is_greedy_decoding_up_to_a_stop_sequence(
    make_lm, evaluate, continue_greedily
):
    lm, tokens = make_lm(layers=2), 8
    prompts = [letters(length, length) for length in (3, 20, 40, 50)]
    rows = [continue_greedily(lm, prompt, tokens) for prompt in prompts]
    until = bytes(rows[0][4:5]).decode("latin-1")
    whole = [bytes(row).decode(errors="replace") for row in rows]
    expected = [text.split(until)[0] for text in whole]
    assert expected[0] != whole[0]
    metrics, samples = evaluate(
        lm,
        [
            {"prompt": prompt, "answer": answer}
            for prompt, answer in zip(prompts, expected, strict=True)
        ],
        output_type="generate_until",
        doc_to_text="{{prompt}}",
        doc_to_target="{{answer}}",
        generation_kwargs={"until": [until], "max_gen_toks": tokens, "do_sample": False},
        metric_list=[{"metric": "exact_match"}],
    )
    assert [sample[0] for sample in samples] == expected
    assert metrics["exact_match,none"] == 1


def test_rows_of_many_lengths_compile_one_program_per_padded_length(make_lm):
    lm = make_lm(tokens_per_call=LONGEST)  # two rows of 32, one of 64 or 80
    pairs = [(letters(length), "a") for length in range(1, LONGEST)]
    harness.losses.losses_of.clear_cache()
    lm.loglikelihood(requests("loglikelihood", *pairs))
    assert harness.losses.losses_of._cache_size() == 3  # 32, 64 and 80


def test_cut_contexts_are_counted_and_lose_their_first_tokens(make_lm, score, continue_greedily):
    lm = make_lm(L)
    long, short = letters(3 * L), letters(L)
    results = lm.loglikelihood(requests("loglikelihood", (long, "ab"), (short, "a")))
    assert lm.cut == 1  # 16 tokens and one target fit
    assert results[0][0] == pytest.approx(score(lm, long[-(L - 1) :], "ab")[0], rel=1e-5)
    assert results[1][0] == pytest.approx(score(lm, short, "a")[0], rel=1e-5)
    options = {"until": [], "max_gen_toks": 4}
    texts = lm.generate_until(requests("generate_until", (long, options), ("ab", options)))
    assert lm.cut == 2 and lm.get_model_info()["contexts_cut"] == 2
    expected = continue_greedily(lm, long[-(L - 4) :], 4)
    assert texts[0] == bytes(expected).decode(errors="replace")


def test_every_row_begins_with_the_prefix(make_lm, score, continue_greedily):
    """A long context that is cut, and the later windows of a text, which begin anew."""
    lm, long = make_lm(L, prefix=ord("?")), letters(3 * L)
    assert lm.tok_encode("ab") == [ord("?"), *b"ab"] and lm.eot_token_id == ord("?")
    assert lm.tok_encode("ab", add_special_tokens=False) == [*b"ab"]
    (cut,) = lm.loglikelihood(requests("loglikelihood", (long, "ab")))
    assert cut[0] == pytest.approx(score(lm, "?" + long[-(L - 2) :], "ab")[0], rel=1e-5)
    (rolled,) = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (long[: 2 * L - 2],)))
    first, second = long[: L - 1], long[L - 1 : 2 * L - 2]
    expected = score(lm, "?", first)[0] + score(lm, "?" + first[-1], second)[0]
    assert rolled == pytest.approx(expected, rel=1e-5)
    options = {"until": [], "max_gen_toks": L - 1}  # no room for more than the prefix
    (text,) = lm.generate_until(requests("generate_until", (long, options)))
    assert text == bytes(continue_greedily(lm, "?", L - 1)).decode(errors="replace")


def test_what_leaves_no_room_for_a_context_is_refused(make_lm):
    lm = make_lm(L)
    with pytest.raises(ConfigError, match="continuation of 17 tokens .* length of 16"):
        lm.loglikelihood(requests("loglikelihood", ("a", letters(17))))
    with pytest.raises(ConfigError, match="generates 16 tokens, which leaves no room"):
        lm.generate_until(requests("generate_until", ("a", {"max_gen_toks": 16})))


def test_a_trained_beginning_replaces_no_token_of_the_request(make_lm, score):
    """The row begins with a token that the model does not see."""
    lm = make_lm(bos=True)
    (result,) = lm.loglikelihood(requests("loglikelihood", ("abc", "de")))
    assert result[0] == pytest.approx(score(lm, "?abc", "de")[0], rel=1e-5)
    (empty,) = lm.loglikelihood(requests("loglikelihood", ("", "de")))
    assert empty[0] == pytest.approx(score(lm, "?", "de")[0], rel=1e-5)


def test_positions_that_depend_on_the_length_are_those_of_the_longest_row(make_lm, score, forward):
    spread = posenc_jax.build("randomized", DIMS, max_position=8 * L, evenly=True)
    lm = make_lm(L, read_with=spread)
    row = np.zeros((1, L), np.int32)
    row[0, :4] = list(b"abcd")
    logits = np.asarray(forward(lm.model, row, spread)[0, 2:4])
    expected = sum(jax.nn.log_softmax(logits)[np.arange(2), list(b"de")])
    (result,) = lm.loglikelihood(requests("loglikelihood", ("abc", "de")))
    assert result[0] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    "extension, max_length, expected",
    [
        ("none", None, (L, None)),
        ("yarn:4", None, (4 * L, "yarn:4")),
        ("yarn", 2 * L, (2 * L, "yarn:2")),
        ("dynamic_ntk", 8 * L, (8 * L, "ntk:8")),
    ],
)
def test_an_extension_is_applied_for_the_longest_row(subject, extension, max_length, expected):
    run = subject("rope")
    encoding, longest = harness.extended_encoding(run, extension, max_length)
    assert longest == expected[0]
    if expected[1] is not None:
        other = posenc_jax.extend(expected[1], run.plain, 1.0)
        np.testing.assert_allclose(encoding.inv_freq, other.inv_freq, rtol=1e-6)


@pytest.mark.parametrize(
    "name, extension, max_length, message",
    [
        ("rope", "yarn", None, "'yarn' has no scale; give a maximum length"),
        ("rope", "yarn:4,pi", None, "give one extension"),
        ("rope", "all", L, "give one extension"),
        ("alibi", "yarn:4", None, "none fits encoding 'alibi'"),
        ("learned", "none", 2 * L, "reaches 16 positions; the maximum length is 32"),
    ],
)
def test_extensions_that_cannot_be_applied_are_refused(
    subject, name, extension, max_length, message
):
    with pytest.raises(ConfigError, match=message):
        harness.extended_encoding(subject(name), extension, max_length)
