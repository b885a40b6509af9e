"""Rows, baselines and what is said of them."""

import errno
from contextlib import suppress
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from measuring import find, made_cell, split
from sizes import L

from posenc_jax.evaluation import evaluate, protocols, records, table, windows
from posenc_jax.evaluation.cells import BASELINES, is_baseline
from posenc_jax.runs.parameters import Parts
from posenc_jax.runtime.errors import Damaged, Stop

ALL = "same_token,nonoverlap,sliding,position"


def test_rows_are_made_again_from_the_arrays_alone(measure, tmp_path):
    cells = measure(extensions="none,yarn", protocols=ALL)
    written, made = records.write(tmp_path / "eval", cells)
    assert written == cells and made == records.rows(cells)
    assert records.rows(records.read_cells(tmp_path / "eval")) == made
    assert list(made[0]) == list(protocols.columns())
    assert list(protocols.columns())[:19] == (
        "run,encoding,extension,scale,protocol,window,stride,train_length,length,tokens,token_hash,"
        "nll,nll_se,ppl,bpb,null_nll,gain_bpb,seed,step"
    ).split(",")


@pytest.fixture
def chosen():
    """Cells of none, window and streaming with random losses, by protocol, method and length; of
    `none` also losses by place."""
    rng, methods = np.random.default_rng(0), {"none": None, "window": L, "streaming": None}
    cells = {}
    for protocol in ("same_token", "nonoverlap"):
        for method, window in methods.items():
            for length in (L // 4, L, 2 * L, 4 * L):
                facts = dict.fromkeys(protocols.facts()) | {
                    "run": "rope",
                    "encoding": "rope",
                    "extension": "none" if window else method,
                    "protocol": protocol,
                    "window": window,
                    "train_length": L,
                    "length": length,
                    "token_hash": protocol,
                    "step": 7,
                    "evaluation": "held-out",
                }
                nats = rng.gamma(2.0, size=12)
                cells[protocol, method, length] = made_cell(facts, nats, np.ones(12))
    facts = cells["nonoverlap", "none", 4 * L].facts | {"protocol": "position"}
    nats, places = rng.gamma(2.0, size=12), rng.gamma(2.0, size=4 * L)
    return cells | {("position", "none", 4 * L): made_cell(facts, nats, np.ones(12), places)}


def test_fresh_is_the_value_at_the_trained_length_of_same_token_alone(chosen):
    same_token, cells = protocols.find("same_token"), list(chosen.values())
    fresh = same_token.derived(cells)
    assert [cell.facts["length"] for cell in fresh] == [L // 4, L, 2 * L, 4 * L]
    for cell in fresh:
        length = cell.facts["length"]
        assert cell.nats is chosen["same_token", "none", min(length, L)].nats
        plain = chosen["same_token", "none", length].facts
        assert cell.facts == plain | {"extension": "fresh"} and is_baseline(cell.facts)
    for name in ("answers", "order"):  # of one length they have several cells, one per part
        others = [one._replace(facts=one.facts | {"protocol": name}) for one in cells]
        assert not protocols.find(name).derived(others)
    for kept in ([L // 4, 2 * L], [L // 4, L]):  # nothing to take it from, nothing beyond it
        assert same_token.derived([c for c in cells if c.facts["length"] in kept]) == []


def test_gains_over_the_baselines_are_paired_differences_beyond_the_trained_length(chosen):
    fresh = protocols.find("same_token").derived(list(chosen.values()))
    cells = [*chosen.values(), *fresh]
    rows = {(r["protocol"], r["method"], r["length"]): r for r in records.rows(cells)}
    for (protocol, method, length), row in rows.items():
        for name in BASELINES:
            known = length > L and method != name and protocol != "position"
            known = known and (name != "fresh" or protocol == "same_token")
            assert (row[f"over_{name}"] is not None) == known
            if known:
                other = rows[protocol, name, length]
                np.testing.assert_allclose(row[f"over_{name}"], other["nll"] - row["nll"])
                assert row[f"over_{name}_low"] < row[f"over_{name}"] < row[f"over_{name}_high"]
    row = rows["same_token", "none", 4 * L]
    np.testing.assert_allclose(row["over_fresh"], row["null_nll"] - row["nll"])
    said = table.table(records.rows(cells))
    assert f"same_token, {4 * L} tokens: gain over each baseline" in said


def test_a_table_announces_the_gains_that_it_prints(chosen):
    within, beyond = (chosen["same_token", "none", length] for length in (L, 2 * L))
    lossy = [cell._replace(bytes=0 * cell.bytes) for cell in (within, beyond)]
    for cells, gains in (
        ([within], ""),
        ([beyond], ""),  # without a null
        ([within, beyond], ", and gain over null in bits per byte | nats per token"),
        (lossy, ", and gain over null in nats per token"),
    ):
        assert f"\nperplexity{gains}\n" in table.table(records.rows(cells))


def test_documents_without_targets_are_not_counted(chosen):
    """Protocols that score answers have targets in some documents only."""
    cell = chosen["same_token", "window", 4 * L]
    documents = len(cell.tokens)
    scored = np.arange(documents) < 3
    fields = {name: getattr(cell, name) * scored for name in ("nats", "tokens", "bytes")}
    some = records.row(cell._replace(**fields))
    expected = records.row(cell._replace(**{n: v[:3] for n, v in fields.items()}))
    assert documents > 3 == some["documents"]
    for name in ("nll", "nll_se", "nll_low", "nll_high"):
        assert some[name] == pytest.approx(expected[name], rel=1e-12)
    assert some["nll_high"] - some["nll"] > 4 * some["nll_se"]  # t of 2 degrees of freedom


def reading_of(text, *windows_of):
    return windows.Reading(windows.Text(text, np.zeros(1, int), np.zeros(1, int), 10), *windows_of)


READ = {"protocol": "nonoverlap", "train_length": 8}


def test_a_row_is_of_tokens_and_its_error_over_documents():
    rng = np.random.default_rng(0)
    nats = rng.gamma(2.0, size=(6, 10))
    document = np.array([0, 0, 0, 1, 2, 2])
    placed = 10, np.arange(6) * 10, document, np.array([0, 0, 5, 0, 0, 0])
    widths = rng.integers(1, 5, 100)
    marked = rng.random(100) < 0.2
    targets = np.arange(6)[:, None] * 10 + 1 + np.arange(10)
    right, text = rng.random((6, 10)) < 0.5, split((100,), marked, widths)
    chosen = np.where(right, text.tokens[targets], -1)
    sums = evaluate.summed(READ, reading_of(text, *placed), nats, chosen)
    row = records.row(sums)
    kept = np.ones((6, 10), bool)
    kept[2, :5] = False
    assert row["tokens"] == 55 and row["documents"] == 3
    np.testing.assert_allclose(row["nll"], nats[kept].mean(), rtol=1e-12)
    np.testing.assert_allclose(row["ppl"], np.exp(nats[kept].mean()), rtol=1e-12)
    bits = nats[kept].sum() / widths[targets][kept].sum() / np.log(2)
    np.testing.assert_allclose(row["bpb"], bits, rtol=1e-12)
    early = kept & (np.arange(10) < 8)
    assert sums.early.sum() == early.sum()
    assert sums.within_tokens.sum() == sums.tail_tokens.sum() == 0  # not windows of L
    answered = marked[targets] & kept
    assert row["answers"] == answered.sum()
    np.testing.assert_allclose(row["accuracy"], right[answered].mean(), rtol=1e-12)
    totals = np.array([(nats * kept)[document == d].sum() for d in range(3)])
    counts = np.array([25, 10, 20])
    residual = totals - nats[kept].mean() * counts
    expected = np.sqrt(3 / 2 * np.sum(residual**2)) / 55
    np.testing.assert_allclose(row["nll_se"], expected, rtol=1e-12)
    places = READ | {"protocol": "position"}
    by_place = evaluate.summed(places, reading_of(split((100,)), *placed), nats, chosen)
    np.testing.assert_allclose(by_place.within_nats.sum(), nats[:, :8].sum(), rtol=1e-12)
    np.testing.assert_allclose(by_place.tail_nats.sum(), nats[:, 6:8].sum(), rtol=1e-12)
    assert by_place.within_tokens.sum() == 48 and by_place.tail_tokens.sum() == 12


def test_losses_of_last_targets_alone_give_the_same_sums():
    rng = np.random.default_rng(0)
    nats, chosen = rng.gamma(2.0, size=(6, 10)), rng.integers(0, 4, (6, 10))
    first = np.array([5, 5, 7, 5, 9, 6])
    placed = 10, np.arange(6) * 10, np.arange(6), first
    reading = reading_of(split((100,), rng.random(100) < 0.2), *placed)
    whole = evaluate.summed(READ, reading, nats, chosen)
    late = evaluate.summed(READ, reading, nats[:, 5:], chosen[:, 5:])
    for one, other in zip(whole[1:], late[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_cell_that_is_not_finite_is_null_and_flagged_and_the_others_stay(subject, measure):
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
    assert "not finite" in table.table(records.rows(both))


def test_the_null_of_two_published_numbers_is_the_famous_curve():
    """ALiBi, WikiText-103, L = 1024: 18.66 non-overlapping and 17.46 sliding at L; measured at
    2048 was 18.05, with no use of the second half at all."""
    tokens = np.full(3, 2048.0)
    read = dict(within_nats=tokens * np.log(18.66), within_tokens=tokens)
    last = dict(tail_nats=tokens * np.log(17.46), tail_tokens=tokens, early=tokens / 2)
    facts = dict.fromkeys(protocols.facts()) | {"protocol": "nonoverlap", "train_length": 1024}
    whole = made_cell(facts, tokens * np.log(18.05), tokens, **read, **last)
    cells = [whole._replace(facts=facts | {"length": n}) for n in (1024, 2048)]
    assert abs(np.exp(records.rows(cells)[1]["null_nll"]) - 18.05) < 0.005


def test_null_and_gain_are_of_the_curve_itself(measure):
    cells = measure(extensions="none,yarn", multiples="0.25,1,2,4", protocols=ALL)
    made = records.rows(cells)
    for row in made:
        curve = {
            (r["protocol"], r["length"]): r["nll"]
            for r in made
            if (r["extension"], r["window"]) == (row["extension"], row["window"])
        }
        protocol, length = row["protocol"], row["length"]
        method = dict(extension=row["extension"], window=row["window"])
        at_trained = find(cells, **method, protocol="nonoverlap", length=L)
        tail = at_trained.tail_nats.sum() / at_trained.tail_tokens.sum()
        assert at_trained.tail_tokens.sum() * 4 == at_trained.tokens.sum()
        if protocol == "position":
            places = find(cells, **method, protocol="position")
            places = places.by_place / places.windows
            expected = np.concatenate([places[:L], np.full(length - L, tail)]).mean()
        elif length <= L:
            expected = row["nll"]
        elif protocol == "nonoverlap":
            expected = (L * curve["nonoverlap", L] + (length - L) * tail) / length
        elif protocol == "same_token":
            expected = curve[protocol, L]
        else:
            sums = find(cells, **method, protocol="sliding", length=L)
            early = find(cells, **method, protocol="sliding", length=length)
            early = early.early.sum() / early.tokens.sum()
            within = sums.within_nats.sum() / sums.within_tokens.sum()
            expected = early * within
            expected += (1 - early) * sums.tail_nats.sum() / sums.tail_tokens.sum()
        np.testing.assert_allclose(row["null_nll"], expected, rtol=1e-12)
        assert row["null_low"] <= row["null_nll"] <= row["null_high"]
        assert row["gain_low"] <= row["gain_bpb"] <= row["gain_high"]
        gain = (row["null_nll"] - row["nll"]) / np.log(2)  # a token is a byte here
        np.testing.assert_allclose(row["gain_bpb"], gain, atol=1e-12)


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 5, 6])
def test_a_full_disk_at_any_write_loses_no_row_of_another_evaluation(
    fails_at, chosen, tmp_path, monkeypatch
):
    """The next evaluation finds the rows of the others, or those and the new ones."""

    def of(name):
        return [cell._replace(facts=cell.facts | {"evaluation": name}) for cell in chosen.values()]

    records.write(tmp_path, of("first"))
    counted, replace = [], Path.replace

    def failing(self, target):
        counted.append(target)
        if len(counted) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with suppress(Stop):
        records.write(tmp_path, of("second"))
    monkeypatch.undo()
    records.write(tmp_path, of("third"))
    names = {cell.facts["evaluation"] for cell in records.read_cells(tmp_path)}
    assert {"first", "third"} <= names <= {"first", "second", "third"}


def test_the_file_of_sums_is_a_table_that_others_read(chosen, tmp_path):
    cells = list(chosen.values())
    records.write(tmp_path, cells)
    table = pd.read_parquet(tmp_path / "sums.parquet")
    assert len(table) == sum(len(cell.tokens) for cell in cells)
    keys = ["protocol", "extension", "window", "length"]
    by_cell = table.groupby(keys, dropna=False, sort=False)
    assert by_cell.ngroups == len(records.rows(cells))
    np.testing.assert_array_equal(table.nats, np.concatenate([cell.nats for cell in cells]))


def test_columns_that_a_file_lacks_are_empty_and_others_are_kept(chosen, tmp_path, capsys):
    """A record of another version, or of a checkout with protocols of its own."""
    cells = list(chosen.values())
    records.write(tmp_path, cells)
    path = tmp_path / "sums.parquet"
    table = pq.read_table(path)
    added = pa.array(table["length"].to_numpy() % 7)  # of a cell, as all its facts
    other = pa.array(["nonoverlap" == name.as_py() for name in table["protocol"]])
    renamed = pc.if_else(other, "of_another_checkout", table["protocol"])
    table = table.drop_columns(["processor", "older_right", "windows"]).append_column("own", added)
    table = table.set_column(table.column_names.index("protocol"), "protocol", renamed)
    pq.write_table(table, path, write_page_checksum=True)
    whole = path.read_bytes()
    read = records.read_cells(tmp_path)
    assert "cells of protocol 'of_another_checkout' are skipped" in capsys.readouterr().err
    here = [cell for cell in cells if cell.facts["protocol"] != "nonoverlap"]
    assert 0 < len(read) == len(here) < len(cells)
    for cell, expected in zip(read, here, strict=True):
        assert cell.facts["own"] in range(7) and cell.facts["processor"] is None
        np.testing.assert_array_equal(cell.nats, expected.nats)
    expected = [row | {"windows": None} for row in records.rows(here)]
    assert [{n: v for n, v in row.items() if n != "own"} for row in records.rows(read)] == expected
    newer = cells[0]._replace(facts=cells[0].facts | {"step": 8})
    records.write(tmp_path, [newer])  # neither a column nor a cell is lost
    assert not list(tmp_path.glob("*.damaged")) and path.read_bytes() != whole
    kept = pq.read_table(path).to_pandas()
    assert {"of_another_checkout", "same_token"} <= set(kept.protocol)
    own = ["protocol", "length", "own"]
    assert kept[kept.step == 7][own].value_counts().equals(table.to_pandas()[own].value_counts())
    assert pd.read_csv(tmp_path / "curves.csv").columns[-1] == "own"


def test_a_null_is_of_a_protocol_with_one_and_of_the_same_targets_at_the_trained_length(
    chosen, monkeypatch
):
    cells = [chosen["same_token", "none", length] for length in (L // 4, L, 2 * L)]

    def with_null(cells):
        return [row["length"] for row in records.rows(cells) if row["null_nll"] is not None]

    assert with_null(cells) == [L // 4, L, 2 * L]
    assert with_null([cells[0], cells[2]]) == [L // 4]
    others = cells[1]._replace(facts=cells[1].facts | {"token_hash": "others"})
    assert with_null([cells[0], others, cells[2]]) == [L // 4, L]
    assert "no null and no gain for same_token" in table.without_null(records.rows(cells[2:]))
    kind = type(protocols.find("same_token"))
    monkeypatch.setattr(kind, "null", protocols.Protocol.null)
    assert with_null(cells) == []
    assert table.without_null(records.rows(cells)) is None  # another length would bring none


def test_a_damaged_file_is_set_aside_and_one_that_cannot_be_read_ends_the_program(
    chosen, tmp_path, monkeypatch
):
    cells = list(chosen.values())
    records.write(tmp_path, cells)
    whole = (tmp_path / "sums.parquet").read_bytes()
    (tmp_path / "sums.parquet").write_bytes(whole[: len(whole) // 2])
    records.write(tmp_path, cells)
    assert (tmp_path / "sums.parquet.damaged").read_bytes() == whole[: len(whole) // 2]

    def unreadable(self):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    with pytest.raises(Stop, match="Stale"):
        records.write(tmp_path, cells)
    monkeypatch.undo()
    assert (tmp_path / "sums.parquet").read_bytes() == whole


@pytest.mark.parametrize(
    "left_out",
    ["[" * 100_000, '[{"step": 1e400}]', f'[{{"step": 1{"0" * 4_000}}}]', "[NaN]", "[1]", "5"],
    ids=["deep", "infinite", "long", "not a number", "numbers", "number"],
)
def test_damage_beside_the_sums_is_set_aside(left_out, chosen, tmp_path):
    cells = list(chosen.values())
    records.write(tmp_path, cells)
    path = tmp_path / "sums.parquet"
    beside = {b"posenc_jax": f'{{"left_out": {left_out}}}'}
    pq.write_table(pq.read_table(path).replace_schema_metadata(beside), path)
    with pytest.raises(Damaged, match="cannot read .*sums.parquet"):
        records.read_cells(tmp_path)
    records.write(tmp_path, cells)
    assert records.rows(records.read_cells(tmp_path)) == records.rows(cells)


def test_a_flipped_byte_in_the_pages_of_the_file_of_sums_changes_no_cell(chosen, tmp_path):
    cells = list(chosen.values())
    records.write(tmp_path, cells)
    path = tmp_path / "sums.parquet"
    whole, expected, noticed = path.read_bytes(), records.rows(cells), 0
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # the footer follows them
    for place in range(0, pages, 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            assert records.rows(records.read_cells(tmp_path)) == expected
        except Damaged:
            noticed += 1
    assert noticed > pages / 97 / 2
