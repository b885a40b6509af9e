"""eval_extrapolation.py and the scripts around it, from outside."""

import csv
import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from curves import rows_of
from running import finish, python, script, wandb_records

from posenc_jax import display
from posenc_jax.evaluation import compare, records
from posenc_jax.evaluation.cells import read_record
from posenc_jax.plots import curves
from posenc_jax.report.gathered import gather
from posenc_jax.runs.checkpoints import Checkpoints
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime.files import locked

SMALL = [
    "--config.multiples=0.5,1,2",
    "--config.extensions=none,yarn,pi:3,dynamic_ntk",
    "--config.protocols=same_token,nonoverlap,sliding,position",
]


def copied(run, folder, *left_out):
    return Path(shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*left_out)))


@pytest.fixture(scope="module")
def evaluated_once(whole, program, tmp_path_factory):
    folder = copied(whole[0], tmp_path_factory.mktemp("evaluated") / "run", "eval", "plots")
    return folder, finish(program("eval_extrapolation.py", folder, *SMALL))


@pytest.fixture
def evaluated(evaluated_once, tmp_path):
    """An evaluated run of one's own."""
    return copied(evaluated_once[0], tmp_path / "run")


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_evaluation_writes_its_curves_and_nothing_else_in_the_run(whole, evaluated_once):
    run, out = evaluated_once
    before, after = files(whole[0]), files(run)
    assert {path: after[path] for path in before} == before
    assert {path.parts[0] for path in set(after) - set(before)} == {"eval", "plots"}
    rows = rows_of(run)
    assert list(rows[0]) == records.COLUMNS
    lengths = {"same_token": 3, "nonoverlap": 3, "sliding": 2, "position": 1}
    for protocol, count in lengths.items():
        chosen = [r for r in rows if r["protocol"] == protocol]
        assert (
            len(chosen) == (6 if protocol == "same_token" else 5) * count
            and len({r["token_hash"] for r in chosen}) == 1
        )
    methods = {(r["extension"], r["scale"], r["window"]) for r in rows}
    assert methods == {
        ("none", "", ""),
        ("none", "", "32"),
        ("yarn", "2.0", ""),
        ("pi", "3.0", ""),
        ("dynamic_ntk", "", ""),
        ("fresh", "", ""),
    }
    at = {
        (r["extension"], r["length"]): float(r["nll"])
        for r in rows
        if r["protocol"] == "nonoverlap" and not r["window"]
    }
    assert at["dynamic_ntk", "32"] == at["none", "32"] != at["yarn", "32"]
    for word in ("yarn:2", "same_token", "gain over null", "curves.csv"):
        assert word in out
    lines = [json.loads(s) for s in (run / "eval" / "curves.jsonl").read_text().splitlines()]
    assert [r["nll"] for r in lines] == [float(r["nll"]) for r in rows]
    assert records.rows(records.read_cells(run / "eval")) == lines
    pictures = {p.name for p in (run / "plots").iterdir()}
    drawn = {"same_token.png", "nonoverlap.png", "sliding.png", "position.png"}
    assert pictures == drawn | {"captions.md"}


def test_again_it_reads_nothing_and_says_the_same(evaluated, call):
    before = (evaluated / "eval" / "curves.csv").read_text()
    out = call("eval_extrapolation.py", evaluated, *SMALL)
    assert "45 of 45 cells cached" in out
    assert (evaluated / "eval" / "curves.csv").read_text() == before
    out = call("eval_extrapolation.py", evaluated, *SMALL, "--config.multiples=0.5,1,2,4")
    assert "are cached" not in out  # other longest windows: all is new


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of Linux")
def test_reading_sums_starts_no_thread(evaluated):
    """One that is still starting aborts a program that ends at once: 1 of 40 on two busy cores."""
    python(
        "-c",
        f"""
import os
from pathlib import Path
from posenc_jax.evaluation import cells
before = os.listdir("/proc/self/task")
assert cells.read_record(Path({str(evaluated / "eval")!r})).cells
assert os.listdir("/proc/self/task") == before
""",
    )


def test_an_interrupted_evaluation_leaves_the_curves_of_what_is_done_and_resumes(
    evaluated, program, call, tmp_path
):
    other = copied(evaluated, tmp_path / "other", "eval", "plots")
    process = program("eval_extrapolation.py", other, *SMALL, "--config.tokens_per_call=32")
    while not list(other.glob("eval/cells/[!.]*.npz")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out = finish(process, 75)
    assert "stopped by SIGTERM" in out and "the same command resumes" in out
    assert 0 < len(rows_of(other)) < 45
    out = call("eval_extrapolation.py", other, *SMALL)
    assert int(re.search(r"(\d+) of 45 cells cached", out)[1]) > 0
    for a, b in zip(rows_of(other), rows_of(evaluated), strict=True):
        assert a["token_hash"] == b["token_hash"]
        assert float(a["nll"]) == pytest.approx(float(b["nll"]), rel=1e-5)


def test_one_evaluation_at_a_time(run, call):
    (run / "eval").mkdir()
    with locked(run / "eval", "another evaluation of this run"):
        out = call("eval_extrapolation.py", run, *SMALL, code=73)
    assert "is in use by another evaluation" in out and "process" in out
    call("eval_extrapolation.py", run, "--config.multiples=1", "--config.extensions=none")


def test_a_run_in_training_is_read_at_a_checkpoint_that_stays(run, monkeypatch):
    """The last one is taken away between being seen and being read; the next one is there."""
    real, gone = Checkpoints.restore, []

    def vanishing(self, step, *words):
        if not gone:
            gone.append(step)
            shutil.rmtree(self.folder / str(step))
        return real(self, step, *words)

    monkeypatch.setattr(Checkpoints, "restore", vanishing)
    assert load_subject(run).step == 8 and gone == [12]


def test_a_checkpoint_that_is_gone_is_named(run, call):
    out = call("eval_extrapolation.py", run, *SMALL, "--step=4", code=74)
    assert "has no checkpoint of step 4; have: [8, 12]" in out
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint yet" in call("eval_extrapolation.py", run, *SMALL, code=74)


def test_every_checkpoint_has_a_curve(run, call):
    words = ["--config.multiples=1,2", "--config.extensions=none", "--every-checkpoint"]
    call("eval_extrapolation.py", run, *words)
    rows = [r for r in rows_of(run) if r["protocol"] == "same_token" and r["method"] == "none"]
    assert [(r["step"], r["length"]) for r in rows] == [
        (step, length) for step in ("8", "12") for length in ("32", "64")
    ]
    assert rows[0]["nll"] != rows[2]["nll"]
    assert (run / "plots" / "budget.png").exists()
    call("eval_extrapolation.py", run, *words[:2], "--step=8")
    again = [r for r in rows_of(run) if r["protocol"] == "same_token" and r["method"] == "none"]
    assert [r["nll"] for r in again] == [r["nll"] for r in rows]  # nothing of the others is lost
    assert (run / "plots" / "budget.png").exists()


def by_evaluation(run):
    """The one token_hash of each evaluation's same_token rows."""
    found = {}
    for row in rows_of(run):
        if row["protocol"] == "same_token":
            found.setdefault(row["evaluation"], set()).add((row["token_hash"], row["data"]))
    assert all(len(hashes) == 1 for hashes in found.values())
    return {name: hashes.pop() for name, hashes in found.items()}


@pytest.mark.slow
def test_evaluations_of_several_texts_stay_beside_each_other(run, call, text, tmp_path):
    words = {}
    for name, count in (("words", 20), ("more", 30)):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.txt").write_text(f"other {name} and so on " * (count + i))
        words[name] = ["--config.data.source=text", f"--config.data.path={tmp_path}/{name}/*.txt"]
    call("eval_extrapolation.py", run, *SMALL, *words["words"])
    assert {r["documents"] for r in rows_of(run)} == {"3"}
    out = call("eval_extrapolation.py", run, *SMALL)
    assert "curves.csv holds the evaluations held-out, words; this one is held-out" in out
    found = by_evaluation(run)
    assert list(found) == ["held-out", "words"] and len(set(found.values())) == 2
    rows = {row["evaluation"]: row for row in rows_of(run)}
    assert rows["words"]["text"] == f"text:{tmp_path}/words/*.txt"
    assert rows["held-out"]["text"].startswith("held out of text:")
    pictures = {p.name for p in (run / "plots").glob("*.png")}
    assert {"same_token.png", "same_token-words.png", "position-words.png"} <= pictures
    before = rows_of(run)
    own = ["--config.data.source=text", f"--config.data.path={text}/*.txt"]
    call("eval_extrapolation.py", run, *SMALL, *own)  # its own text by name: what was held out
    assert by_evaluation(run) == found and rows_of(run) == before
    taken = ["--config.name=words", *words["more"]]
    out = call("eval_extrapolation.py", run, *SMALL, *taken, code=2)
    assert "name = 'words' is used by an evaluation of another text" in out
    (tmp_path / "words" / "3.txt").write_text("what came later " * 40)
    call("eval_extrapolation.py", run, *SMALL, *words["words"])  # the same name, another text
    names = list(by_evaluation(run))
    assert len(names) == 3 and re.fullmatch("words-[0-9a-f]{6}", names[0])
    assert records.rows(records.read_cells(run / "eval")) == [
        json.loads(s) for s in (run / "eval" / "curves.jsonl").read_text().splitlines()
    ]
    one, other = f"{run}@yarn", f"{run}@none"
    said = [script("compare.py", one, other, f"--evaluation={n}") for n in ("words", "held-out")]
    assert said[0] != said[1] == script("compare.py", one, other)
    assert "have: words-" in script("compare.py", one, other, "--evaluation=no", code=65)


def test_places_of_the_longest_windows_are_recorded_and_few_targets_warned_of(run, call):
    out = call("eval_extrapolation.py", run, *SMALL, "--config.windows=2", "--config.last=1")
    assert re.search(r"warning: same_token scores \d+ targets, and below about 2,000", out)
    assert re.search(r"3 documents, 6 windows of 64 tokens, 384 targets, 6 of them for same", out)
    (stored,) = read_record(run / "eval").places
    assert stored.evaluation == "held-out"
    (row,) = {(r["windows"], r["documents"]) for r in rows_of(run) if r["protocol"] == "position"}
    assert len(stored.start) == int(row[0]) == 2 * int(row[1])
    assert len(set(stored.document)) == int(row[1])
    assert 0 < stored.start.min() < stored.start.max() <= 240 - 65


def test_a_text_that_changed_since_training_is_not_read(call, text, tmp_path):
    """The split is drawn from the documents' own bytes: what was trained on could be held out."""
    copy = tmp_path / "text"
    shutil.copytree(text, copy, ignore=shutil.ignore_patterns("cache"))
    call("train.py", tmp_path / "run", **{"data.path": f"{copy}/*.txt", "steps": 3})
    for path in copy.glob("*.txt"):
        path.write_text(path.read_text() + "\n")
    out = call("eval_extrapolation.py", tmp_path / "run", *SMALL, code=65)
    assert "the run's text changed since it was trained" in out


def test_scales_parts_and_windows_are_keys_in_wandb_of_their_own(evaluated):
    from posenc_jax.evaluation.cells import label
    from posenc_jax.tracking.wandb import summary_of

    rows = records.rows(records.read_cells(evaluated / "eval"))
    row = next(row for row in rows if row["length"] == row["train_length"])
    row |= {"extension": "none", "scale": None, "protocol": "gap"}
    several = [
        *(row | {"part": part, "window": size} for part in ("1-2", "3-4") for size in (None, 8)),
        *(row | {"extension": "yarn", "scale": scale, "part": ""} for scale in (2.0, 1.5)),
        row | {"extension": "window", "protocol": "same_token", "part": "", "window": 4},
    ]
    keys = set(summary_of([row | {"method": label(row)} for row in several]))
    assert keys == {
        *(f"extrap/gap/{part}/{name}@1x" for part in ("1-2", "3-4") for name in ("none", "window")),
        *(f"extrap/gap/{name}@1x" for name in ("yarn", "yarn:1.5")),
        "extrap/same_token/window:size=4@1x",
    }


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--config.multiples=1,64"], 65, "documents have the 2049 tokens .* Up to length 239"),
        (["--config.multiples=1,1.5"], 2, "length 32 does not divide the longest one, 48"),
        (["--config.last=9"], 2, "last must be at most 8: the shortest length"),
        (["--step=8", "--every_checkpoint"], 2, "mutually exclusive"),
    ],
)
def test_runs_that_cannot_be_evaluated_are_refused(words, code, message, run, call):
    assert re.search(message, call("eval_extrapolation.py", run, *words, code=code))


def series(records_of):
    """The history of an offline run, without wandb's own fields, and its definitions."""
    history, metrics, summary = [], {}, {}
    for record in records_of:
        if record.HasField("metric"):
            name = record.metric.name or record.metric.glob_name
            metrics[name] = record.metric.step_metric
        items = record.history.item if record.HasField("history") else []
        row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
        history.append({k: v for k, v in row.items() if not k.startswith("_")})
        for item in record.summary.update if record.HasField("summary") else []:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return [row for row in history if row], metrics, summary


def check_curves(path, rows):
    history, metrics, summary = series(wandb_records(path))
    assert metrics["extrap/*"] == "eval/length"
    points = {row["eval/length"]: row for row in history if "eval/length" in row}
    for row in rows:
        name = "window" if row["window"] else row["extension"]
        label = f"{name}:{float(row['scale']):g}" if row["scale"] else name
        key = f"extrap/{row['protocol']}/{label}"
        assert points[int(row["length"])][key] == pytest.approx(float(row["bpb"]))
        assert points[int(row["length"])][f"{key}/ppl"] == pytest.approx(float(row["ppl"]))
        at = f"extrap/{row['protocol']}/{name}@{int(row['length']) / 32:g}x"
        assert summary[at] == pytest.approx(float(row["bpb"]))
    media = history[-1]
    assert media["eval/curves/nrows"] == len(rows) and media["plots/same_token/format"] == "png"


def test_wandb_shows_the_curves_by_length(run, call):
    call("eval_extrapolation.py", run, *SMALL, "--config.wandb.mode=offline")
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    check_curves(path, rows_of(run))
    call("eval_extrapolation.py", run, *SMALL, "--config.wandb.mode=offline")
    assert len(list(run.glob("wandb/offline-run-*"))) == 1  # the same curves, once


def test_curves_are_compared_over_the_same_targets_alone(evaluated, call, tmp_path):
    out = script("compare.py", f"{evaluated}@yarn", evaluated)
    compared = [line for line in out.splitlines() if re.match(r"\w+ \d+ ", line)]
    assert len(compared) == 3 + 3 + 2 + 1
    assert max(map(len, compared)) <= 80
    rows = {
        (r["extension"], r["length"]): float(r["nll"])
        for r in rows_of(evaluated)
        if r["protocol"] == "same_token" and not r["window"]
    }
    said = float(re.search(r"same_token 64 +([+-][\d.]+)", out)[1])
    assert said == pytest.approx(rows["yarn", "64"] - rows["none", "64"], abs=1e-4)
    out = script("compare.py", f"{evaluated}@yarn:2@64", f"{evaluated}@none@32")
    said = float(re.search(r"same_token 64 against 32 +([+-][\d.]+)", out)[1])
    assert said == pytest.approx(rows["yarn", "64"] - rows["none", "32"], abs=1e-4)
    curves = (f"{evaluated}@yarn:2@64", f"{evaluated}@none@32")
    made = {form: script("compare.py", *curves, f"--format={form}") for form in display.FORMS}
    assert re.search(rf"^\| same_token 64 against 32 \| \{said:+.4f}\*? \|", made["markdown"], re.M)
    assert re.search(rf"^same\\_token 64 against 32 & \{said:+.4f}\*? &", made["latex"], re.M)
    out = script("compare.py", f"{evaluated}@yran", evaluated, code=65)
    assert f"@yran matches no evaluated cell; {evaluated} has " in out and "yarn:2" in out
    assert "at lengths 16, 32, 64" in script("compare.py", f"{evaluated}@8", evaluated, code=65)
    other = tmp_path / "other"
    shutil.copytree(evaluated, other)
    call("eval_extrapolation.py", other, *SMALL, "--config.windows=1")
    assert "different targets" in script("compare.py", evaluated, other, code=65)
    assert "different targets" in script("plot_curves.py", evaluated, other, code=65)


def test_runs_of_one_name_are_two_lines_in_a_picture(evaluated, tmp_path):
    other = tmp_path / "elsewhere" / "run"
    shutil.copytree(evaluated, other)
    words = [f"{evaluated}@none", f"{other}@none,yarn:2", f"--out={tmp_path}/pictures"]
    script("plot_curves.py", *words)
    assert (tmp_path / "pictures" / "same_token.png").stat().st_size > 10_000
    cells = compare.comparable(compare.readable(words[:2]))
    assert {c.facts["run"] for c in cells} == {str(evaluated), str(other)}


def test_a_run_may_be_renamed(evaluated, call, tmp_path):
    renamed = evaluated.rename(tmp_path / "renamed")
    call("eval_extrapolation.py", renamed, *SMALL, "--config.name=again")
    out = f"--out={tmp_path}/pictures"
    for words in ([], ["--evaluation=again"]):
        script("plot_curves.py", f"{renamed}@none", *words, out)
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"same_token.png", "same_token-again.png", "captions-again.md"} <= drawn
    assert {row["run"] for row in rows_of(renamed)} == {"renamed"}


def test_a_run_is_diagnosed(evaluated):
    out = script("diagnose.py", f"{evaluated}@none,yarn@64", "--documents=2")
    for name in ("spectrum.csv", "spectrum.png", "attention.csv", "attention.png", "token_0.csv"):
        assert name in out
    assert "none: no attention sink: 0 of 2 heads" in out
    with (evaluated / "eval" / "diagnose" / "attention.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 2 * 1 * 2 * 64  # extensions, layers, heads, positions
    assert all(float(line["beyond_L"]) == 0 for line in lines if int(line["position"]) <= 32)
    script("diagnose.py", f"{evaluated}@none,window:size=8@64", "--documents=2")
    with (evaluated / "eval" / "diagnose" / "attention.csv").open() as stream:
        beyond = {line["extension"]: float(line["beyond_L"]) for line in csv.DictReader(stream)}
    assert beyond["window:size=8"] == 0 < beyond["none"]  # of the last position
    assert "unknown extension 'yran'" in script("diagnose.py", f"{evaluated}@yran@64", code=2)
    out = script("diagnose.py", f"{evaluated}@interpolate@64", code=2)
    assert "none fits encoding 'rope' (interpolate: made for learned)" in out
    assert "attention.csv" in script("diagnose.py", f"{evaluated}@none@16", "--documents=2")


def test_runs_of_two_lengths_stand_on_one_axis_where_lengths_are_given(call, tmp_path):
    """The same targets at the same lengths, so a report ranks them and a picture shows both."""
    runs = [tmp_path / f"L{length}" for length in (16, 32)]
    asked = ["--config.lengths=16,32,64", "--config.extensions=none"]
    for run in runs:
        call("train.py", run, train_length=int(run.name[1:]), steps=4)
        call("eval_extrapolation.py", run, *asked)
    found = gather(runs)
    assert found.notes == []
    for table in (found.ranking, found.plain_ranking):
        for protocol in ("same_token", "nonoverlap"):
            assert list(table[protocol]) == [16, 32, 64]
            for entries in table[protocol].values():
                assert len({entry.group for entry in entries}) == 2
    cells = compare.comparable(compare.readable(list(map(str, runs))))
    pictures = curves.draw(cells, tmp_path / "pictures")
    assert "same_token.png" in {path.name for path in pictures}
    out = call("eval_extrapolation.py", runs[0], *asked, "--config.multiples=1,2", code=2)
    assert "lengths = '16,32,64' and multiples = '1,2' are mutually exclusive; give one" in out
