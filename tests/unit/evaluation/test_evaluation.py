"""Protocols against naive loops, what is shared and what is not, methods."""

import functools
import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from measuring import LAST, LENGTHS, STRIDE, find, text
from sizes import DIMS, VOCAB, L

import posenc_jax
from configs import eval as defaults
from posenc_jax.evaluation import check, evaluate, losses, methods, planning, records, table
from posenc_jax.evaluation.cells import DOCUMENTS, Store, tree_key
from posenc_jax.evaluation.losses import losses_of
from posenc_jax.runs.parameters import Parts
from posenc_jax.runtime.errors import ConfigError

pytestmark = pytest.mark.sampled

# Every protocol, naively


def naive_nats(model, encoding, tokens, window=None):
    """Nats of one window in float64."""
    logits = np.asarray(model(jnp.asarray(tokens[None, :-1]), encoding, window=window)[0], float)
    top = logits.max(axis=-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return -log_p[np.arange(len(logits)), tokens[1:]]


def naive(protocol, model, encoding, chosen, length, window):
    """Sums and counts of each document, and sums of each place, target by target."""
    fast = functools.cache(
        lambda start, size: naive_nats(
            model, encoding, chosen.split.tokens[start : start + size + 1], window
        )
    )
    sums, counts = np.zeros(len(chosen.documents)), np.zeros(len(chosen.documents))
    places = np.zeros(chosen.longest if protocol == "position" else 0)
    for number, begin in zip(chosen.document, chosen.starts, strict=True):
        document = list(chosen.documents).index(number)
        before = begin - chosen.split.starts[number]  # tokens of the document
        for target in range(1, chosen.longest + 1):
            size = chosen.longest if protocol == "position" else length
            if protocol == "same_token":
                if target <= chosen.longest - LAST:
                    continue
                first = chosen.longest - length
            elif protocol == "sliding":
                end = -(-target // STRIDE) * STRIDE
                while end - length < -before:
                    end += STRIDE
                first = end - length
            else:
                first = (target - 1) // size * size
            nats = fast(begin + first, size)[target - first - 1]
            sums[document] += nats
            counts[document] += 1
            places[target - 1 : target] += nats
    return sums, counts, places


@pytest.mark.parametrize(
    ("name", "spread"),
    [
        ("rope", True),
        ("alibi", False),
        pytest.param("sinusoidal", True, marks=pytest.mark.slow),
        pytest.param("fire", False, marks=pytest.mark.slow),
        pytest.param("rope", False, marks=pytest.mark.slow),
    ],
)
def test_every_protocol_is_its_naive_loop_in_float64(name, spread, subject, measure, forward):
    who = subject(name)
    chosen = text(32, documents=2, per_document=2, spread=spread)
    found = measure(
        who,
        chosen,
        multiples="0.5,1,2",
        extensions="none,yarn",
        protocols="same_token,nonoverlap,sliding,position",
    )
    methods = {(c.facts["extension"], c.facts["scale"], c.facts["window"]) for c in found}
    assert ("none", None, L) in methods and (len(methods) == 3) == (name == "rope")
    for cell in found:
        facts = cell.facts
        encoding = who.plain
        if facts["extension"] == "yarn":
            encoding = posenc_jax.extend("yarn", encoding, 2.0)
        model = functools.partial(forward, who.parts.model)
        sums, counts, places = naive(
            facts["protocol"], model, encoding, chosen, facts["length"], facts["window"]
        )
        np.testing.assert_array_equal(cell.tokens, counts)
        np.testing.assert_allclose(cell.nats, sums, rtol=1e-6)
        np.testing.assert_allclose(cell.by_place, places, rtol=1e-6)


def test_logits_of_targets_that_are_not_scored_are_not_computed(make_model):
    model, encoding = make_model(), posenc_jax.build("rope", DIMS)
    rows = np.zeros((2, 33), np.int32)
    for last in (32, 5):
        lowered = losses.losses_of.lower(model, encoding, rows, last).as_text()
        assert f"tensor<{2 * last}x{VOCAB}xf32>" in lowered
        assert (f"tensor<64x{VOCAB}xf32>" in lowered) == (last == 32)


# What is shared


def test_a_pass_is_shared_exactly_when_tokens_and_numbers_are_the_same(subject, settings, measure):
    who, config = subject(), settings(extensions="none,dynamic_ntk,ntk:1,pi:2")
    cells = planning.plan(config, who, text(), check.lengths_of(config, who.trained))

    def passing(extension, length, window=None):
        return {
            c.pass_key
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
    other_text = planning.plan(
        config, who, text(documents=2), check.lengths_of(config, who.trained)
    )
    assert not {c.key for c in cells} & {c.key for c in other_text}


def test_other_windows_or_spans_are_other_cells(subject, settings):
    who = subject()

    def keys(source, **fields):
        protocols = "same_token,nonoverlap,sliding"
        fields |= dict(extensions="none", window=False, multiples="0.5,1,4", protocols=protocols)
        config = settings(**fields)
        return {
            c.key for c in planning.plan(config, who, source, check.lengths_of(config, who.trained))
        }

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
    losses_of.clear_cache()
    cells = measure(extensions="none,pi,ntk,yarn,dynamic_ntk,llama3", window=False)
    assert len({(c.facts["extension"], c.facts["length"]) for c in cells}) == 6 * 4
    assert losses_of._cache_size() == 4


def test_a_stop_in_the_last_call_of_a_pass_keeps_it_and_starts_no_other(
    subject, settings, tmp_path, monkeypatch
):
    config = settings(extensions="none", window=False, tokens_per_call=10**6)  # a call per pass
    who, read = subject(), text()
    cells = planning.plan(config, who, read, check.lengths_of(config, who.trained))
    signals, read_windows = [], losses.losses_of

    def interrupted(*words):
        signals.append("SIGTERM")
        return read_windows(*words)

    monkeypatch.setattr(losses, "losses_of", interrupted)
    part = evaluate.measure(config, who, cells, Store(tmp_path / "cells"), lambda: bool(signals))
    assert len(signals) == 1
    assert {cell.facts["length"] for cell in part} == {cells[0].facts["length"]}


def test_a_log_has_a_line_on_what_was_read_and_the_time_left(measure, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "LOG_SECONDS", 0)
    measure(extensions="none,pi", window=False)
    *_, line = capsys.readouterr().out.splitlines()
    read, total = re.fullmatch(
        r"pi:\S+ at \d+: ([\d,]+) of ([\d,]+) tokens read, 0:00 left", line
    ).groups()
    assert read == total


# Methods


def test_a_method_that_cannot_be_is_left_out_and_nothing_at_all_is_refused(
    subject, settings, capsys
):
    who = subject("learned")
    config = settings(extensions="none", multiples="2,4", window=False)
    with pytest.raises(ConfigError, match="nothing is left .* that fit: none, interpolate, clamp"):
        planning.plan(config, who, text(), check.lengths_of(config, who.trained))
    longer = posenc_jax.extend("clamp", who.plain, 2.0)
    who = subject("learned", extensible=False, plain=longer, parts=Parts(who.parts.model, longer))
    cells = planning.plan(settings(), who, text(), LENGTHS)
    assert {c.facts["length"] for c in cells} == {L // 4, L, 2 * L}
    assert f"length {4 * L} is skipped: learned reaches {2 * L}" in capsys.readouterr().out
    for extension, reached in (("none", [L // 4, L]), ("interpolate", LENGTHS)):
        asked = settings(extensions=extension, window=False)
        cells = planning.plan(asked, subject("learned"), text(), LENGTHS)
        assert list(dict.fromkeys(c.facts["length"] for c in cells)) == reached
    assert (
        f"length {2 * L} is skipped: learned reaches {L} positions; extend it with 'interpolate'"
        in capsys.readouterr().out
    )


def test_methods_take_the_largest_scale_unless_they_say_one():
    rope = posenc_jax.build("rope", DIMS)
    chosen = methods.methods("none, pi,yarn:4,dynamic_ntk,interpolate", rope, largest=8.0)
    assert [(m.name, m.scale) for m in chosen] == [
        ("none", None),
        ("pi", 8.0),
        ("yarn", 4.0),
        ("dynamic_ntk", None),
    ]
    with pytest.raises(ValueError, match="did you mean 'yarn'?"):
        methods.methods("yran", rope, 8.0)
    dynamic = chosen[-1]
    for ratio in (4.0, 0.5, 2.0):
        applied = dynamic.applied(rope, rope, ratio)
        expected = posenc_jax.extend("ntk", rope, max(1.0, ratio))
        np.testing.assert_array_equal(applied.inv_freq, expected.inv_freq)


def test_all_is_every_fitting_extension_that_needs_no_options():
    names = [m.name for m in methods.methods("all", posenc_jax.build("rope", DIMS), 8.0)]
    assert set(names) == set(posenc_jax.extensions.records()) - {
        "window",
        "abf",
        "longrope",
        "temperature",
        "topk",
        "interpolate",
        "clamp",
    }
    assert [m.name for m in methods.methods("all,none", posenc_jax.build("alibi", DIMS), 8.0)] == [
        "none",
        "lm_infinite",
        "streaming",
        "logn",
    ]


def test_a_fine_tuned_run_is_itself_under_none_and_others_start_without_its_extension():
    plain = posenc_jax.build("rope", DIMS)
    own = posenc_jax.extend("yarn", plain, 4.0)
    none, pi = methods.methods("none,pi:2", plain, 8.0)
    assert none.applied(plain, own, 4.0) is own
    expected = posenc_jax.extend("pi", plain, 2.0)
    np.testing.assert_array_equal(pi.applied(plain, own, 4.0).inv_freq, expected.inv_freq)


def test_a_fine_tuned_run_is_measured_by_its_longest_length_and_extended_by_its_first(subject):
    who = subject()
    who = subject(trained=4 * L)
    assert (who.trained, who.original) == (4 * L, L)
    config = defaults.get_config()
    config.multiples, config.extensions = "1,2", "pi"
    lengths = check.lengths_of(config, who.trained)
    assert lengths == [4 * L, 8 * L]
    cells = planning.plan(config, who, text(8 * L, lengths=(300, 200)), lengths)
    assert {c.facts["scale"] for c in cells if c.facts["extension"] == "pi"} == {8.0}
    assert {c.facts["window"] for c in cells} == {None, 4 * L}


def test_a_scale_below_the_tested_ratio_is_said(subject, settings, capsys):
    who = subject("rope")
    config = settings(extensions="none,pi:2,yarn:4,dynamic_yarn", multiples="1,4")
    planning.plan(config, who, text(), check.lengths_of(config, who.trained))
    said = capsys.readouterr().out
    assert "pi:2: the scale is below 4, the longest window over L" in said
    assert "yarn:4" not in said and "dynamic_yarn" not in said


@pytest.mark.slow
def test_compositions_have_their_options_and_windows_in_the_columns(measure, subject, settings):
    asked = "none,yarn:2:beta_slow=0.5+logn,logn+dynamic_ntk,yarn:2+window,window:size=8"
    few = dict(protocols="nonoverlap", multiples="1,4")
    cells = measure(extensions=asked, **few)
    named = {(c.facts["extension"], c.facts["scale"], c.facts["window"]) for c in cells}
    assert named == {
        ("none", None, None),
        ("none", None, L),
        ("yarn:beta_slow=0.5+logn", 2.0, None),
        ("dynamic_ntk+logn", None, None),
        ("yarn+window", 2.0, L),
        ("window", None, 8),
    }
    labels = {table.label(c.facts) for c in cells}
    assert {"yarn:2:beta_slow=0.5+logn", "yarn:2+window:size=16", "window:size=8"} <= labels
    again = measure(extensions=",".join(labels - {"window"}), folder="again", **few)
    assert {table.label(c.facts) for c in again} == labels
    for cell in again:
        same = find(cells, **{k: cell.facts[k] for k in ("extension", "window", "length")})
        np.testing.assert_array_equal(same.nats, cell.nats)
    here = find(cells, extension="yarn+window", window=L, length=4 * L).nats
    assert (here != find(cells, window=L, length=4 * L).nats).any()
    for wrong in ("yarn:2:ramp=steep", "yarn+pi"):
        with pytest.raises((ConfigError, ValueError)):
            planning.plan(settings(extensions=wrong), subject(), text(64), [L, 2 * L])


@pytest.mark.parametrize(("farthest", "largest"), [(2 * L, 2.0), (8 * L, 1.0)])
def test_randomized_positions_are_extended_from_the_farthest(
    farthest, largest, make_model, subject, settings
):
    """Scales are lengths over max_position; windows and multiples stay those of the rows."""
    encoding = posenc_jax.build("randomized", DIMS, inner="rope", max_position=farthest)
    who = subject(plain=encoding, parts=Parts(make_model(), encoding))
    config = settings(extensions="none,pi,dynamic_ntk,logn", protocols="nonoverlap")
    lengths = check.lengths_of(config, who.trained)
    assert lengths == LENGTHS
    cells = planning.plan(config, who, text(lengths[-1]), lengths)
    assert {c.facts["train_length"] for c in cells} == {L}
    assert {c.facts["window"] for c in cells} == {None, L}
    assert {c.facts["scale"] for c in cells if c.facts["extension"] == "pi"} == {largest}
    for length in lengths:
        at = {c.facts["extension"]: c.encoding for c in cells if c.facts["length"] == length}
        expected = posenc_jax.extend("ntk", encoding.inner, max(1.0, length / farthest))
        np.testing.assert_array_equal(at["dynamic_ntk"].inner.inv_freq, expected.inv_freq)
        grown = at["logn"].query_scale(np.arange(length))
        assert (np.max(grown) > 1) == (length > farthest)


def test_documents_held_out_together_are_one_in_errors(measure, subject):
    """Nothing is read anew: sums are kept by document, and added up by group."""
    who = subject()
    apart = text()
    groups = np.array([4, 0, 7, 4, 2])  # of all documents of the split; three are long enough
    grouped = replace(apart, split=replace(apart.split, groups=groups))
    assert apart.units is None and grouped.units.tolist() == [0, 1, 0]
    alone, joined = measure(who, apart), measure(who, grouped)
    for one, other in zip(alone, joined, strict=True):
        assert other.facts == one.facts | {"unit": "package"} and len(other.tokens) == 2
        assert table.counts(records.row(other)).endswith(" of 2 packages")
        for name in DOCUMENTS:
            a, b, c = getattr(one, name)
            assert getattr(other, name).tolist() == [a + c, b]
        assert np.array_equal(one.by_place, other.by_place)
