"""The ranking: what a difference is over, and when it is a tie."""

import json
import shutil

import numpy as np
import pytest
from evaluated import make_run

from posenc_jax.evaluation import records
from posenc_jax.evaluation.cells import BASELINES
from posenc_jax.evaluation.statistics import Units
from posenc_jax.report import ranking, sections
from posenc_jax.report import tables as tables_of
from posenc_jax.report.runs import read_runs
from posenc_jax.runtime import errors


def ranks(folder):
    """The ranking of the runs in a folder at 32 tokens, without extensions."""
    return ranking.ranked(read_runs([folder]).runs, plain=True)[0]["same_token"][32]


def test_seeds_are_one_group_and_ties_are_ties(swept):
    assert len(swept.runs) == 10
    assert {run.group for run in swept.runs} == {"rope", "alibi", "nope", "t5"}
    assert swept.notes == ["t5-s0: not evaluated yet"]
    ranks = ranking.rankings(swept.runs)
    rows = ranks.extended["same_token"][32]
    first = {(row.group, row.method): row for row in rows}
    assert len(rows) == 5 and all(len(row.seeds) == 3 for row in rows)
    assert rows[0].behind == 0.0 and rows[0].verdict == "best"
    second, last = rows[1], first["nope", "none"]
    assert {rows[0].group, second.group} == {"rope", "alibi"} and second.verdict == "tie"
    assert last.verdict == "behind" and last.by_documents[0] > 0 and last.by_seeds[0] > 0
    low, high = second.by_seeds
    assert low < second.behind < high
    plain = ranks.plain["same_token"][32]
    assert [row.group for row in plain][2] == "nope" and len(plain) == 3
    per_byte = 1 / np.log(2)
    assert last.behind == pytest.approx(0.5 * per_byte, abs=0.05)
    assert last.loss == pytest.approx(np.mean(last.seeds))
    low, high = last.interval
    assert low < last.loss < high


def test_a_difference_that_other_seeds_might_reverse_is_a_tie(tmp_path):
    """Better in every document, since one seed of three is much better and the others no worse."""
    for seed, better in enumerate((3.0, 0.05, 0.05)):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, better=better)
        make_run(tmp_path / f"nope-s{seed}", "nope", seed)
    best, second = ranks(tmp_path)
    assert (best.group, second.group) == ("rope", "nope")
    assert second.by_documents[0] > 0 and second.by_seeds[0] < 0 and second.verdict == "tie"
    shutil.rmtree(tmp_path / "nope-s2")
    _, second = ranks(tmp_path)
    assert second.by_seeds is None and (second.verdict, second.shared) == ("open", 2)


def test_answers_are_ranked_by_accuracy_without_oracles(tmp_path):
    share = {"rope": 0.5, "nope": 0.8, "fire": 0.9}
    for seed in range(3):
        for name, right in share.items():
            longest = {"train_length": 64} if name == "fire" else {}
            folder = make_run(tmp_path / f"{name}-s{seed}", name, seed, documents=18, **longest)
            cells = records.read_cells(folder / "eval")
            asked = np.where(np.arange(len(cells[0].tokens)) % 3, 10.0, 0.0)  # not of all
            answers = [
                cell._replace(
                    facts=cell.facts | {"protocol": "answers", "token_hash": "a"},
                    answers=asked,
                    right=asked * (right + 0.01 * seed),
                )
                for cell in cells
                if (cell.facts["protocol"], cell.facts["extension"]) == ("same_token", "none")
            ]
            records.write(folder / "eval", answers)
    data = read_runs([tmp_path])
    ranks = ranking.rankings(data.runs)
    best, second = ranks.plain["answers"][64]
    assert (best.group, second.group) == ("nope", "rope")
    assert best.loss == pytest.approx(0.19) and second.behind == pytest.approx(0.3)
    assert second.verdict == "behind" and second.units == (np.count_nonzero(asked), None)
    page = str(sections.ranking(data, ranks))
    assert "'accuracy'" in page and "0.81" in page and "0.51" in page


def test_a_difference_that_is_clear_alone_and_not_among_many_is_open():
    row = ranking.Rank(
        group="a",
        method="none",
        seeds=[1.0] * 3,
        loss=1.0,
        interval=None,
        behind=0.4,
        by_documents=(0.3, 0.5),
        by_seeds=(0.2, 0.6),
        units=Units(99, None),
        shared=3,
        alone=0.02,
        p=0.06,
        comparisons=3,
        verdict="",
    )
    assert ranking.verdict(row) == "open"
    assert ranking.verdict(row._replace(alone=0.06)) == "tie"
    assert ranking.verdict(row._replace(p=0.04, by_seeds=None)) == "open"
    for few in (Units(9, None), Units(99, "stretch")):
        assert ranking.verdict(row._replace(p=0.04, units=few)) == "open"
    assert ranking.verdict(row._replace(p=0.04)) == "behind"


@pytest.mark.parametrize(("documents", "verdict"), [(1, "tie"), (9, "open"), (10, "behind")])
def test_few_documents_leave_a_difference_open_and_one_has_no_interval(
    tmp_path, documents, verdict
):
    for seed in range(3):
        for name, better in (("rope", 0.5), ("nope", 0.0)):
            make_run(tmp_path / f"{name}-s{seed}", name, seed, better, documents=documents)
    _, second = ranks(tmp_path)
    assert second.behind > 0 and second.by_seeds[0] > 0
    assert (second.verdict, second.units) == (verdict, (documents, None))
    low, high = second.by_documents
    assert low > 0 if documents > 1 else (low, high) == (-np.inf, np.inf)


def test_a_seed_that_is_not_finite_leaves_no_mean(sweep):
    broken = sweep / "nope-s1" / "eval"
    cells = records.read_cells(broken)
    for cell in cells:
        if cell.facts["length"] == 64 and cell.facts["extension"] == "none":
            cell.nats[0] = np.nan
    records.write(broken, cells)
    data = read_runs([sweep])
    tables, notes = ranking.ranked(data.runs)
    named = {(row.group, row.method) for row in tables["same_token"][64]}
    assert ("nope", "none") not in named and ("nope", "pi:2") in named
    assert any("nope + none: the loss of a seed is not finite" in note for note in notes)
    points = data.points[data.points.protocol == "same_token"]
    made = tables_of.by_length(points, "bpb", "")
    (row,) = [row for row in made.rows if row[0] == "NoPE"]
    assert made.head == ["", "16", "32", "64"] and row[3] == "–" not in row[:3]


def test_a_seed_whose_training_was_not_finite_leaves_no_rank(sweep):
    """Or its group would be ranked by those that survived."""
    path = sweep / "nope-s1" / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": errors.NOT_FINITE}))
    shutil.rmtree(sweep / "nope-s1" / "eval")
    data = read_runs([sweep])
    tables, _ = ranking.ranked(data.runs)
    assert {row.group for row in tables["same_token"][32]} == {"rope", "alibi"}
    assert any(note.startswith("nope-s1: its training was not finite") for note in data.notes)


def test_baselines_are_in_both_tables_and_have_no_rank(sweep):
    baselines = {
        "window": {"window": 32},
        "fresh": {"extension": "fresh"},
        "streaming": {"extension": "streaming"},
    }
    for folder in sweep.glob("rope-s*"):
        cells = records.read_cells(folder / "eval")
        cut = [
            cell._replace(facts=cell.facts | facts, nats=cell.nats - 9)
            for facts in baselines.values()
            for cell in cells
            if cell.facts["extension"] == "none"
        ]
        records.write(folder / "eval", cells + cut)
    data = read_runs([sweep])
    tables, _ = ranking.ranked(data.runs)
    assert not baselines.keys() & {row.method for row in tables["same_token"][64]}
    points = data.points[data.points.protocol == "same_token"]
    drawn = [row[0] for row in tables_of.by_length(points, "bpb", "").rows]
    for name in baselines:
        assert f"\n  {BASELINES[name]}" in tables_of.summary(data)
        assert f"RoPE, {BASELINES[name]}" in drawn


def test_one_run_with_many_methods_does_not_outvote_the_others(tmp_path):
    for name in ("alibi", "t5"):
        make_run(tmp_path / name, name, 0, scales=())
    make_run(tmp_path / "rope", "rope", 0, targets="other", scales=(2.0, 4.0, 8.0))
    tables, notes = ranking.ranked(read_runs([tmp_path]).runs)
    assert {row.group for row in tables["same_token"][32]} == {"alibi", "t5"}
    assert any(note.startswith("rope: its targets differ from most runs") for note in notes)


def test_one_of_many_comparisons_is_held_to_more(tmp_path):
    """The same difference is a claim beside one other entry and open beside eleven."""
    for seed in range(3):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, better=0.5 + 0.1 * seed)
        make_run(tmp_path / f"nope-s{seed}", "nope", seed)
    (_, alone) = ranks(tmp_path)
    assert alone.verdict == "behind" and alone.by_seeds[0] > 0
    for i in range(10):
        for seed in range(3):
            folder = tmp_path / f"alibi-base={i}-s{seed}"
            make_run(folder, "alibi", seed, better=0.5 - 0.01 * i, batch_size=5 + i)
    rows = ranks(tmp_path)
    (beside,) = [row for row in rows if row.group == "nope"]
    assert beside.by_seeds == alone.by_seeds and beside.by_documents == alone.by_documents
    assert alone.comparisons == 1 and beside.p == pytest.approx(beside.comparisons * alone.p)
    assert 11 <= beside.comparisons <= 66 and beside.verdict == "open"  # 12 entries, 66 pairs


@pytest.mark.parametrize("of_documents", [0.05, 0.5])
def test_equal_groups_are_rarely_ranked(of_documents):
    """Six entries of which none is better: in at most 5% of tables one is called behind, whether
    documents are the same to all or every entry has its own."""
    rng, claims = np.random.default_rng(0), 0
    size = np.ones(24)
    for _ in range(200):
        entries = []
        for _ in range(6):
            own = rng.normal(0, of_documents, 24)
            seeds = [own + rng.normal(0, 0.3, 24) + rng.normal(0, 0.1) for _ in range(10)]
            entries.append(dict(enumerate(seeds)))
        order = sorted(entries, key=lambda own: np.mean(list(own.values())))
        tests = ranking._against_best(order, size)
        claims += any(one.p <= ranking.LEVEL for _, one in tests)
    assert claims <= 0.05 * 200


def test_a_difference_is_over_the_seeds_that_both_have(tmp_path):
    """Over the three of them the best mean is behind, so they tie."""
    for seed in range(3):
        make_run(tmp_path / f"nope-s{seed}", "nope", seed, better=0.7 + 0.01 * seed)
    for seed, better in enumerate((0.5, 0.5, 0.5, 9.0)):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, better=better)
    best, second = ranks(tmp_path)
    assert (best.group, second.group) == ("rope", "nope") and second.shared == 3
    assert second.behind == pytest.approx(-0.21 / np.log(2), abs=0.05)
    assert second.verdict == "tie"
