"""Protocols against naive loops, what is shared and what is not, rows, baselines, statistics."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import DIMS, VOCAB, L

import posenc_jax
from configs import eval as defaults
from posenc_jax.evaluation import diagnostics, picture, records, show, statistics, sweep, windows
from posenc_jax.evaluation.losses import Reader, read
from posenc_jax.evaluation.store import Store, tree_key
from posenc_jax.exits import ConfigError, DataError
from posenc_jax.training.parts import Parts

LENGTHS = [L // 4, L, 2 * L, 4 * L]
STRIDE, LAST = L // 2, 1


def split(lengths=(70, 20, 200, 65, 64), answers=None, widths=None):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(0, VOCAB, starts[-1])
    return SimpleNamespace(
        tokens=tokens, starts=starts, bytes_of=widths, lengths=np.array(lengths), answers=answers
    )


def text(longest=64, documents=10, per_document=10, **options):
    source = split(**options)
    return windows.choose(source, longest, documents=documents, per_document=per_document)


@pytest.fixture
def subject(make_model):
    def make(name="rope", **fields):
        encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
        config = SimpleNamespace(
            train_length=L, original_length=None, seed=0, extension=SimpleNamespace(name="none")
        )
        facts = dict(name="run", config=config, step=7, plain=encoding)
        return sweep.Subject(**(facts | {"parts": Parts(make_model(), encoding)} | fields))

    return make


@pytest.fixture
def settings():
    def make(**fields):
        config = defaults.get_config()
        config.update(multiples="0.25,1,2,4", stride=STRIDE, last=LAST, tokens_per_call=128)
        config.update(fields)
        return config

    return make


@pytest.fixture
def measure(subject, settings, tmp_path):
    def run(who=None, read=None, folder="cells", **fields):
        who, config = who or subject(), settings(**fields)
        lengths = sweep.lengths_of(config, who)
        read = read or text(lengths[-1])
        cells = sweep.plan(config, who, read, lengths)
        return sweep.measure(config, who, read, cells, Store(tmp_path / folder))

    return run


def find(cells, **facts):
    facts = {"extension": "none", "window": None} | facts
    (found,) = [c for c in cells if all(c.facts[k] == v for k, v in facts.items())]
    return found


# Which tokens


def test_a_stretch_is_of_whole_windows_within_a_document_long_enough():
    source = split()
    chosen = windows.choose(source, 64, documents=10, per_document=10)
    assert list(chosen.windows) == [1, 3, 1]  # 70, 200 and 65; 64 is one too short
    assert list(chosen.starts) == [0, 90, 290]
    few = windows.choose(source, 64, documents=2, per_document=2)
    assert list(few.windows) == [1, 2]


def test_too_few_documents_say_how_far_one_may_go():
    with pytest.raises(DataError, match="1 of 5 documents have the 101 .* Up to length 69"):
        text(100, per_document=1)


def everything(chosen, last):
    """Where the scored targets have to be, by loops."""
    return [
        start + window * chosen.longest + place + 1
        for start, count in zip(chosen.starts, chosen.windows, strict=True)
        for window in range(count)
        for place in range(chosen.longest - last, chosen.longest)
    ]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_protocol_scores_the_same_targets_each_once_at_every_length(length):
    chosen = text()
    for plan, last in [
        (windows.nonoverlap(chosen, length), 64),
        (windows.same_token(chosen, length, 3), 3),
        *([(windows.sliding(chosen, length, STRIDE), 64)] if length >= STRIDE else []),
    ]:
        scored = plan.targets()[plan.scored()]
        assert sorted(scored) == everything(chosen, last)
        assert np.all(plan.starts >= chosen.starts[plan.document])  # no window crosses a document
        ends = (chosen.starts + chosen.windows * 64)[plan.document]
        assert np.all(plan.starts + length <= ends)


def test_context_is_what_each_protocol_says():
    chosen = text()
    plan = windows.sliding(chosen, 32, 8)
    for first, start, document in zip(plan.first, plan.starts, plan.document, strict=True):
        assert first == (0 if start == chosen.starts[document] else 32 - 8)
    plan = windows.same_token(chosen, 16, 4)
    np.testing.assert_array_equal(plan.first, 12)
    ends = [
        s + 64 * (i + 1)
        for s, n in zip(chosen.starts, chosen.windows, strict=True)
        for i in range(n)
    ]
    np.testing.assert_array_equal(plan.starts + 16, ends)


def test_the_hash_is_of_the_scored_targets():
    assert text().token_hash(3) == text().token_hash(3)
    assert len({text().token_hash(3), text().token_hash(4), text(32).token_hash(3)}) == 3
    other = text()
    other.split.tokens[64] += 1  # the last target of the first window
    assert other.token_hash(1) != text().token_hash(1)
    other = text()
    other.split.tokens[0] += 1  # context, no target
    assert other.token_hash(64) == text().token_hash(64) and other.hash != text().hash


@pytest.mark.parametrize(
    ("protocol", "lengths", "stride", "last", "message"),
    [
        ("nonoverlap", [24, 64], 8, 1, "length 24 does not divide the longest one, 64"),
        ("same_token", [16, 64], 8, 5, r"last must be at most .* 16 / 4 = 4, .* got 5"),
        ("sliding", [16, 64], 7, 1, "stride must divide every length"),
        ("sliding", [32, 64], 48, 1, "stride must divide every length"),
        ("nonoverlap", [0, 64], 8, 1, "every length must be at least 2"),
        ("sliding", [16, 64], 65, 1, "stride must divide every length"),
    ],
)
def test_targets_that_would_differ_between_lengths_are_refused(
    protocol, lengths, stride, last, message
):
    with pytest.raises(ConfigError, match=message):
        windows.check([protocol], lengths, stride, last)
    windows.check(["position"], [16, 64], stride, last)  # each rule is of its protocol


# Every protocol, naively


def naive_nats(model, encoding, tokens, window=None):
    """Of one window of inputs and targets, in float64."""
    logits = np.asarray(model(jnp.asarray(tokens[None, :-1]), encoding, window=window)[0], float)
    top = logits.max(axis=-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return -log_p[np.arange(len(logits)), tokens[1:]]


def naive(protocol, model, encoding, chosen, length, window):
    """Sums and counts of each document, target by target."""
    read = jax.jit(lambda tokens: model(tokens, encoding, window=window))
    fast = functools.cache(
        lambda start, size: naive_nats(
            lambda tokens, *_, **options: read(tokens),
            encoding,
            chosen.split.tokens[start : start + size + 1],
        )
    )
    sums, counts = np.zeros(len(chosen.starts)), np.zeros(len(chosen.starts))
    for document, (start, count) in enumerate(zip(chosen.starts, chosen.windows, strict=True)):
        total = count * chosen.longest
        for target in range(1, total + 1):
            end = -(-target // chosen.longest) * chosen.longest  # of its longest window
            if protocol == "same_token":
                if target <= end - LAST:
                    continue
                first = end - length
            elif protocol == "sliding":
                first = max(0, -(-(target - length) // STRIDE) * STRIDE)
            else:
                size = chosen.longest if protocol == "position" else length
                first = (target - 1) // size * size
            size = chosen.longest if protocol == "position" else length
            sums[document] += fast(start + first, size)[target - first - 1]
            counts[document] += 1
    return sums, counts


@pytest.mark.parametrize("name", ["rope", "alibi", "sinusoidal", "fire"])
def test_every_protocol_is_its_naive_loop_in_float64(name, subject, measure):
    who = subject(name)
    chosen = text(32, documents=2, per_document=2)
    found = measure(who, chosen, multiples="0.5,1,2", extensions="none,yarn", stride=STRIDE)
    methods = {(c.facts["extension"], c.facts["scale"], c.facts["window"]) for c in found}
    assert ("none", None, L) in methods and (len(methods) == 3) == (name == "rope")
    for cell in found:
        facts = cell.facts
        encoding = who.plain
        if facts["extension"] == "yarn":
            encoding = posenc_jax.extend("yarn", encoding, 2.0)
        sums, counts = naive(
            facts["protocol"], who.parts.model, encoding, chosen, facts["length"], facts["window"]
        )
        np.testing.assert_array_equal(cell.sums.tokens, counts)
        np.testing.assert_allclose(cell.sums.nats, sums, rtol=1e-6)


def test_losses_do_not_depend_on_batch_or_order(make_model):
    model, encoding = make_model(), posenc_jax.build("rope", DIMS)
    tokens = split().tokens
    starts = np.array([3, 90, 17, 250, 41])
    expected = np.stack([naive_nats(model, encoding, tokens[s : s + 33]) for s in starts])
    for budget in (1, 3 * 32, 10_000):
        reader = Reader(model, tokens, budget)
        for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
            nats, right = reader(encoding, starts[order], 32)
            np.testing.assert_allclose(nats, expected[order], rtol=1e-6, atol=1e-6)
            assert right.shape == nats.shape


@pytest.mark.parametrize("name", ["rope", "alibi", "t5"])
def test_a_prefix_of_a_window_is_the_shorter_window(name, measure, subject):
    """Causality through the whole path: the first places of the longest window are those of a
    window of L from the same start."""
    who = subject(name)
    cells = measure(who, text(64), multiples="1,4", protocols="position", extensions="none")
    short = measure(who, text(64), multiples="1,4", protocols="nonoverlap", extensions="none")
    long = find(cells, protocol="position").sums
    chosen = text(64)
    reader = Reader(who.parts.model, chosen.split.tokens, 128)
    plan = windows.position(chosen)
    first, _ = reader(who.plain, plan.starts, L)
    np.testing.assert_allclose(long.by_place[:L], first.sum(axis=0, dtype=float), rtol=1e-6)
    assert find(short, length=64).sums.nats.sum() == pytest.approx(long.nats.sum(), rel=1e-12)


# What is shared


def test_cells_alone_are_cells_together(measure):
    """Fails if a pass is shared that should not be: every cell again, in a store of its own."""
    together = measure(extensions="none,yarn:2,yarn:4,dynamic_ntk")
    for index, cell in enumerate(together):
        facts = cell.facts
        extension = facts["extension"] + (f":{facts['scale']}" if facts["scale"] else "")
        alone = measure(
            folder=f"alone{index}",
            extensions=extension,
            protocols=facts["protocol"],
            multiples="0.25,1,2,4",
        )
        same = find(alone, **{k: facts[k] for k in ("extension", "window", "length")})
        np.testing.assert_allclose(same.sums.nats, cell.sums.nats, rtol=1e-7)


def test_a_pass_is_shared_exactly_when_tokens_and_numbers_are_the_same(subject, settings, measure):
    who, config = subject(), settings(extensions="none,dynamic_ntk,ntk:1,pi:2")
    cells = sweep.plan(config, who, text(), sweep.lengths_of(config, who))

    def passing(extension, length, window=None):
        return {
            c.passing
            for c in cells
            if (c.facts["extension"], c.facts["length"], c.facts["window"])
            == (extension, length, window)
        }.pop()

    assert passing("none", L) == passing("dynamic_ntk", L) == passing("ntk", L)
    assert passing("none", 2 * L) == passing("ntk", 2 * L) != passing("dynamic_ntk", 2 * L)
    assert passing("none", L) == passing("none", L, L)  # a limit of L within L is none
    assert passing("none", 2 * L) != passing("none", 2 * L, L)
    assert passing("none", L) != passing("pi", L)
    one_bit = np.asarray(who.plain.inv_freq).copy()
    one_bit.view(np.uint32)[3] ^= 1
    assert tree_key(who.plain.replace(inv_freq=jnp.asarray(one_bit))) != tree_key(who.plain)
    other_text = sweep.plan(config, who, text(documents=2), sweep.lengths_of(config, who))
    assert not {c.key for c in cells} & {c.key for c in other_text}


def test_other_windows_or_spans_are_other_cells(subject, settings):
    who = subject()

    def keys(source, **fields):
        config = settings(extensions="none", window=False, multiples="0.5,1,4", **fields)
        return {c.key for c in sweep.plan(config, who, source, sweep.lengths_of(config, who))}

    first = keys(text(), last=2)
    for source, fields in [
        (text(), dict(last=1)),
        (text(), dict(last=2, stride=L // 4)),
        (text(per_document=1), dict(last=2)),
        (text(widths=np.full(419, 2)), dict(last=2)),
        (text(answers=np.ones(419, bool)), dict(last=2)),
    ]:
        other = keys(source, **fields)
        changed = "last" if fields == dict(last=1) else "stride" if "stride" in fields else "all"
        assert first != other
        if changed == "all":
            assert not first & other


def test_one_program_per_shape_for_all_rotary_extensions(measure):
    read.clear_cache()
    cells = measure(extensions="none,pi,ntk,yarn,dynamic_ntk,llama3", window=False)
    assert len({(c.facts["extension"], c.facts["length"]) for c in cells}) == 6 * 4
    assert read._cache_size() == 4


def test_what_is_there_is_not_read_again(measure, monkeypatch):
    first = measure()
    monkeypatch.setattr(Reader, "__call__", lambda *words, **options: pytest.fail("read again"))
    for cell, again in zip(first, measure(), strict=True):
        assert cell.facts == again.facts
        for a, b in zip(cell.sums, again.sums, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_cell_that_was_cut_off_is_read_again(measure, tmp_path):
    first = measure(protocols="nonoverlap", extensions="none", window=False)
    (path, *_) = sorted((tmp_path / "cells").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:50])
    again = measure(protocols="nonoverlap", extensions="none", window=False)
    for cell, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(cell.sums.nats, other.sums.nats)


def test_a_stop_keeps_whole_passes_and_the_rest_is_read_later(subject, settings, tmp_path):
    who, config, read = subject(), settings(tokens_per_call=64), text()
    lengths = sweep.lengths_of(config, who)
    cells = sweep.plan(config, who, read, lengths)

    class After(list):
        """Truthy from the given look on."""

        looks = 25

        def __bool__(self):
            self.looks -= 1
            return self.looks < 0

    store = Store(tmp_path / "cells")
    part = sweep.measure(config, who, read, cells, store, After())
    assert 0 < len(part) < len(cells)
    rest = sweep.measure(config, who, read, cells, store)
    whole = sweep.measure(config, who, read, cells, Store(tmp_path / "other"))
    assert len(rest) == len(cells)
    for a, b in zip(rest, whole, strict=True):
        np.testing.assert_array_equal(a.sums.nats, b.sums.nats)


# Rows


def test_rows_are_made_again_from_the_arrays_alone(measure, tmp_path):
    cells = measure(extensions="none,yarn")
    made = records.write(tmp_path / "eval", cells)
    assert records.rows(records.read(tmp_path / "eval")) == made
    assert list(made[0]) == records.COLUMNS
    assert records.COLUMNS[:19] == (
        "run,encoding,extension,scale,protocol,window,stride,train_length,length,tokens,token_hash,"
        "nll,nll_se,ppl,bpb,null_nll,gain_bpb,seed,step"
    ).split(",")


def test_a_row_is_of_tokens_and_its_error_over_documents():
    rng = np.random.default_rng(0)
    nats = rng.gamma(2.0, size=(6, 10))
    document = np.array([0, 0, 0, 1, 2, 2])
    plan = windows.Plan(10, np.arange(6) * 10, document, np.array([0, 0, 5, 0, 0, 0]))
    widths = rng.integers(1, 5, 100)
    marked = rng.random(100) < 0.2
    right = rng.random((6, 10)) < 0.5
    sums = sweep.sums_of(plan, nats, right, split((100,), marked, widths), places=False)
    row = records.row(records.Measured({"protocol": "nonoverlap"}, sums))
    kept = np.ones((6, 10), bool)
    kept[2, :5] = False
    targets = np.arange(6)[:, None] * 10 + 1 + np.arange(10)
    assert row["tokens"] == 55 and row["documents"] == 3
    np.testing.assert_allclose(row["nll"], nats[kept].mean(), rtol=1e-12)
    np.testing.assert_allclose(row["ppl"], np.exp(nats[kept].mean()), rtol=1e-12)
    bits = nats[kept].sum() / widths[targets][kept].sum() / np.log(2)
    np.testing.assert_allclose(row["bpb"], bits, rtol=1e-12)
    answered = marked[targets] & kept
    assert row["answers"] == answered.sum()
    np.testing.assert_allclose(row["accuracy"], right[answered].mean(), rtol=1e-12)
    totals = np.array([(nats * kept)[document == d].sum() for d in range(3)])
    counts = np.array([25, 10, 20])
    residual = totals - nats[kept].mean() * counts
    expected = np.sqrt(3 / 2 * np.sum(residual**2)) / 55
    np.testing.assert_allclose(row["nll_se"], expected, rtol=1e-12)


def test_a_cell_that_is_not_finite_is_null_and_flagged_and_the_others_stay(
    subject, measure, tmp_path
):
    who = subject()
    broken = who.plain.replace(gain=jnp.float32(np.nan))
    both = measure(
        subject(parts=Parts(who.parts.model, broken), plain=who.plain), extensions="pi,none"
    )
    made = records.rows(both)
    for row in made:
        if row["extension"] == "none":
            assert row["flag"] == "not finite"
            assert all(row[n] is None for n in ("nll", "ppl", "bpb", "nll_se", "null_nll"))
        else:
            assert row["flag"] is None and row["nll"] > 0 and row["null_nll"] > 0
    assert "not finite" in show.table(both)
    assert picture.draw(both, tmp_path / "plots")


def test_the_null_of_two_published_numbers_is_the_famous_curve():
    """ALiBi, WikiText-103, L = 1024: 18.66 non-overlapping and 17.46 sliding at L; measured at
    2048 was 18.05, with no use of the second half at all."""
    nats = records.null_nonoverlap(np.log(18.66), np.log(17.46), 1024, 2048)
    assert abs(np.exp(nats) - 18.05) < 0.005


def test_null_and_gain_are_of_the_curve_itself(measure):
    cells = measure(extensions="none,yarn", multiples="0.25,1,2,4")
    made = records.rows(cells)
    for row in made:
        curve = {
            (r["protocol"], r["length"]): r["nll"]
            for r in made
            if (r["extension"], r["window"]) == (row["extension"], row["window"])
        }
        protocol, length = row["protocol"], row["length"]
        if protocol == "position":
            cell = find(
                cells, extension=row["extension"], window=row["window"], protocol="position"
            )
            places = cell.sums.by_place / cell.sums.windows
            flat = np.full(length - L, places[L - L // 4 : L].mean())
            expected = np.concatenate([places[:L], flat]).mean()
        elif length <= L:
            expected = row["nll"]
        elif protocol == "nonoverlap":
            beyond = (length - L) * curve["same_token", L]
            expected = (L * curve["nonoverlap", L] + beyond) / length
        else:
            expected = curve[protocol, L]
        np.testing.assert_allclose(row["null_nll"], expected, rtol=1e-12)
        gain = (row["null_nll"] - row["nll"]) / np.log(2)  # a token is a byte here
        np.testing.assert_allclose(row["gain_bpb"], gain, atol=1e-12)


def test_no_null_without_the_length_it_stands_on(measure):
    made = records.rows(measure(multiples="0.5,2", extensions="none", window=False, last=2))
    assert all(
        r["null_nll"] is None for r in made if r["length"] > L and r["protocol"] != "position"
    )


# Methods


def test_a_method_that_cannot_be_is_left_out_and_nothing_at_all_is_refused(
    subject, settings, capsys
):
    who = subject("learned")
    config = settings(extensions="none", multiples="2,4", window=False)
    with pytest.raises(ConfigError, match="nothing is left .* that fit: none, interpolate, clamp"):
        sweep.plan(config, who, text(), sweep.lengths_of(config, who))
    tuned = SimpleNamespace(**vars(who.config) | {"extension": SimpleNamespace(name="clamp")})
    longer = posenc_jax.extend("clamp", who.plain, 2.0)
    who = subject("learned", config=tuned, plain=longer, parts=Parts(who.parts.model, longer))
    cells = sweep.plan(settings(), who, text(), sweep.lengths_of(settings(), who))
    assert {c.facts["length"] for c in cells} == {L // 4, L, 2 * L}
    assert f"length {4 * L} is left out: learned reaches {2 * L}" in capsys.readouterr().out


def test_methods_take_the_largest_scale_unless_they_say_one():
    rope = posenc_jax.build("rope", DIMS)
    chosen = sweep.methods("none, pi,yarn:4,dynamic_ntk,interpolate", rope, largest=8.0)
    assert [(m.name, m.scale) for m in chosen] == [
        ("none", None),
        ("pi", 8.0),
        ("yarn", 4.0),
        ("dynamic_ntk", None),
    ]
    with pytest.raises(ValueError, match="did you mean 'yarn'?"):
        sweep.methods("yran", rope, 8.0)
    dynamic = chosen[-1]
    for ratio in (4.0, 0.5, 2.0):
        applied = dynamic.applied(rope, rope, ratio)
        expected = posenc_jax.extend("ntk", rope, max(1.0, ratio))
        np.testing.assert_array_equal(applied.inv_freq, expected.inv_freq)


def test_all_is_every_fitting_extension_that_needs_no_options():
    names = [m.name for m in sweep.methods("all", posenc_jax.build("rope", DIMS), 8.0)]
    assert set(names) == set(posenc_jax.extensions.EXTENSIONS) - {
        "abf",
        "longrope",
        "interpolate",
        "clamp",
    }
    assert [m.name for m in sweep.methods("all,none", posenc_jax.build("alibi", DIMS), 8.0)] == [
        "none",
        "logn",
    ]


def test_a_fine_tuned_run_is_itself_under_none_and_others_start_without_its_extension():
    plain = posenc_jax.build("rope", DIMS)
    own = posenc_jax.extend("yarn", plain, 4.0)
    none, pi = sweep.methods("none,pi:2", plain, 8.0)
    assert none.applied(plain, own, 4.0) is own
    expected = posenc_jax.extend("pi", plain, 2.0)
    np.testing.assert_array_equal(pi.applied(plain, own, 4.0).inv_freq, expected.inv_freq)


def test_a_fine_tuned_run_is_measured_by_its_longest_length_and_extended_by_its_first(subject):
    who = subject()
    tuned = SimpleNamespace(**(vars(who.config) | {"train_length": 4 * L, "original_length": L}))
    who = subject(config=tuned)
    assert (who.trained, who.original) == (4 * L, L)
    config = defaults.get_config()
    config.multiples, config.extensions = "1,2", "pi"
    lengths = sweep.lengths_of(config, who)
    assert lengths == [4 * L, 8 * L]
    cells = sweep.plan(config, who, text(8 * L, lengths=(300, 200)), lengths)
    assert {c.facts["scale"] for c in cells if c.facts["extension"] == "pi"} == {8.0}
    assert {c.facts["window"] for c in cells} == {None, 4 * L}


def test_what_is_beyond_reach_is_left_out_with_the_extension_that_would_do(
    subject, measure, capsys
):
    cells = measure(subject("learned"), extensions="none", window=False)
    assert {c.facts["length"] for c in cells} == {L // 4, L}
    said = capsys.readouterr().out
    assert f"length {2 * L} is left out: learned reaches {L} positions; would be allowed by" in said
    assert "extension interpolate or clamp" in said
    cells = measure(subject("learned"), extensions="interpolate", window=False)
    assert {c.facts["length"] for c in cells} == set(LENGTHS)


# Statistics


def test_a_difference_is_paired_by_document():
    rng = np.random.default_rng(0)
    counts = rng.integers(50, 500, 40).astype(float)
    level = counts * rng.normal(2.0, 0.5, 40)  # documents differ far more than methods do
    better = level - counts * rng.normal(0.02, 0.02, 40)
    found = statistics.paired(better, level, counts)
    assert found.mean == pytest.approx((better - level).sum() / counts.sum())
    assert found.low < found.mean < found.high < 0 and found.clear
    assert statistics.paired(level, level, counts) == (0.0, 0.0, 0.0)
    error = np.hypot(*(statistics.mean_and_error(x, counts)[1] for x in (better, level)))
    assert found.high - found.low < error  # unpaired, nothing could be said


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    counts = np.full(30, 100.0)
    inside = 0
    for trial in range(200):
        difference = counts * rng.normal(0.3, 1.0, 30)
        found = statistics.paired(difference, np.zeros(30), counts, draws=400, seed=trial)
        inside += found.low <= 0.3 <= found.high
    assert 180 <= inside <= 198


def test_three_seeds_have_an_interval_and_two_have_none():
    assert statistics.over_seeds([1.0, 2.0]) is None
    mean, low, high = statistics.over_seeds([1.0, 2.0, 3.0])
    np.testing.assert_allclose([mean, low, high], [2.0, 2 - 2.484, 2 + 2.484], atol=1e-3)


def test_the_best_is_marked_only_where_its_interval_is_clear():
    counts = np.full(20, 100.0)
    level = counts * np.random.default_rng(0).normal(2.0, 0.3, 20)

    def cell(extension, nats):
        facts = {name: None for name in records.FACTS} | {
            "run": "r",
            "extension": extension,
            "protocol": "same_token",
            "length": L,
            "step": 1,
        }
        facts["train_length"] = L
        zeros = np.zeros(20)
        return records.Measured(
            facts, records.Sums(nats, counts, counts, zeros, zeros, np.zeros(0), np.ones(1))
        )

    clear = show.table([cell("none", level), cell("yarn", level - 5)])
    assert clear.count("*") == 2 and "*" in clear.splitlines()[-1]  # one is in the legend
    twice = [cell("none", level), cell("yarn", level - 5), cell("dynamic_yarn", level - 5)]
    assert show.table(twice).count("*") == 3  # one cell by two names
    noise = np.random.default_rng(1).normal(0, 20, 20)
    assert show.table([cell("none", level), cell("yarn", level + noise)]).count("*") == 1


# Pictures and diagnostics


def test_pictures_are_drawn_of_one_run_and_of_several(measure, subject, tmp_path):
    rope = measure(extensions="none,yarn:2,yarn:4")
    made = picture.draw(rope, tmp_path / "one")
    names = {path.stem for path in made}
    assert names == {"same_token", "nonoverlap", "sliding", "position", "scale"}
    alibi = [
        cell._replace(facts=cell.facts | {"run": "alibi"})
        for cell in measure(subject("alibi"), folder="alibi")
    ]
    made += picture.draw(rope + alibi, tmp_path / "two")
    assert all(path.stat().st_size > 10_000 for path in made)
    later = [cell._replace(facts=cell.facts | {"step": 9}) for cell in rope]
    assert "budget" in {p.stem for p in picture.draw(rope + later, tmp_path / "three")}


def test_every_encoding_has_a_look_of_its_own():
    looks = list(picture.ENCODINGS.values())
    assert set(picture.ENCODINGS) == set(posenc_jax.schemes.names())
    assert len({colour for colour, _ in looks}) == len({mark for _, mark in looks}) == len(looks)


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "sinusoidal"])
def test_attention_shown_is_the_attention_of_the_model(name, make_model, make_tokens):
    """Weights that are put back to work give the very logits."""
    model = make_model()
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(1))
    tokens = make_tokens(2 * L)
    x = encoding.embed(model.embed(tokens), encoding.positions(2 * L)).reshape(2 * L, -1)
    every = list(diagnostics.attention_weights(model, encoding, tokens))
    for index, weights in enumerate(every):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
        block = jax.tree.map(lambda leaf, i=index: leaf[i], model.blocks)
        values = block.attention.v(block.attention_norm(x)).reshape(2 * L, DIMS.heads, -1)
        out = jnp.einsum("hqs,shk->qhk", weights[0], values).reshape(2 * L, -1)
        x = x + block.attention.out(out)
        x = x + block.mlp(block.mlp_norm(x))
    logits = model.norm(x) @ model.embed.embedding[...].T
    np.testing.assert_allclose(logits, model(tokens, encoding)[0], atol=1e-4)
    far = np.tril(np.ones((2 * L, 2 * L)), -L)
    found = diagnostics.attention(model, encoding, np.asarray(tokens), L)
    for index, weights in enumerate(every):
        expected = (np.asarray(weights[0]) * far).sum(-1)
        np.testing.assert_allclose(found.beyond[index], expected, atol=1e-5)
    assert np.all(found.entropy <= diagnostics.uniform_entropy(2 * L) + 1e-5)


def test_the_spectrum_shows_what_an_extension_did():
    rope = posenc_jax.build("rope", DIMS)
    waves, turns = diagnostics.spectrum(rope)
    longer, _ = diagnostics.spectrum(posenc_jax.extend("pi", rope, 4.0))
    np.testing.assert_allclose(longer, 4 * waves, rtol=1e-6)
    np.testing.assert_allclose(turns, posenc_jax.extensions.turns(rope).reshape(1, -1), rtol=1e-6)
