"""The report: what it gathers, what it ranks, and the page in a real browser where there is one."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from measuring import sums_by_document
from posenc_jax.reporting import figure, gather, page
from running import ROOT, wandb_records

from posenc_jax.errors import DataError
from posenc_jax.evaluation import protocols, records, statistics
from posenc_jax.evaluation.records import Measured

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
LENGTHS = (16, 32, 64)
DOCUMENTS = 12


def make_run(
    folder,
    encoding,
    seed,
    better=0.0,
    targets="t",
    evaluated=True,
    scales=(2.0,),
    documents=DOCUMENTS,
    **fields,
):
    """A run's folder with an evaluation whose losses are what this says."""
    folder.mkdir(parents=True)
    config = {
        "seed": seed,
        "train_length": 32,
        "batch_size": 4,
        "steps": 10,
        "model": {"width": 8},
        "encoding": {"name": encoding},
        "extension": {"name": "none"},
        "data": {"source": "stdlib"},
    } | fields
    (folder / "config.json").write_text(json.dumps(config))
    status = {"state": "done", "step": 10, "digest": "d", "command": "train.py --config=x.py"}
    data = {"fingerprint": "abc", "documents": 3, "tokens": 1200, "bytes_per_token": 1.0}
    (folder / "status.json").write_text(json.dumps(status | {"data": data}))
    lines = [
        {"step": step, "loss": 2.0, "tokens_per_second": 1000.0 * step, "memory_mib": 100.0 + step}
        for step in (1, 5, 10)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if not evaluated:
        return folder
    rng = np.random.default_rng(0)  # the documents are hard or easy to all alike
    tokens = np.full(documents, 50.0)
    hard = tokens * (2 + rng.random(documents))
    own = np.random.default_rng([seed, len(encoding)]).normal(0, 0.5, documents)
    cells = []
    for one in protocols.shown():
        protocol, by_place = one.name, one.by_place
        for length in LENGTHS[-1:] if by_place else LENGTHS:
            for extension, scale in (("none", None), *(("pi", scale) for scale in scales)):
                worse = (0.3 * length / 16 if scale else 0.0) - better
                facts = {name: None for name in records.FACTS} | {
                    "run": folder.name,
                    "encoding": encoding,
                    "extension": extension,
                    "scale": scale,
                    "protocol": protocol,
                    "train_length": 32,
                    "length": length,
                    "token_hash": targets,
                    "seed": seed,
                    "step": 10,
                }
                places = np.full(length, 2.5) if by_place else np.zeros(0)
                nats = hard + own + worse * tokens
                read = dict(within_nats=nats, within_tokens=tokens, early=tokens / 2)
                read |= dict(tail_nats=nats, tail_tokens=tokens)
                sums = sums_by_document(nats, tokens, places, **read)
                cells.append(Measured(facts, sums))
    records.write(folder / "eval", cells)
    return folder


@pytest.fixture
def sweep(tmp_path):
    folder = tmp_path / "sweep"
    for seed in range(3):
        make_run(folder / f"rope-s{seed}", "rope", seed, better=0.5)
        make_run(folder / f"alibi-s{seed}", "alibi", seed, better=0.5)
        make_run(folder / f"nope-s{seed}", "nope", seed)
    make_run(folder / "t5-s0", "t5", 0, evaluated=False)
    return folder


def test_seeds_are_one_group_and_ties_are_said(sweep):
    data = gather.gather([sweep])
    assert len(data["runs"]) == 10 and {r["group"] for r in data["runs"]} == {
        "rope",
        "alibi",
        "nope",
        "t5",
    }
    assert data["notes"] == ["t5-s0: not evaluated yet"]
    rows = data["ranking"]["same_token"][32]
    first = {(row["group"], row["method"]): row for row in rows}
    assert len(rows) == 6 and all(len(row["seeds"]) == 3 for row in rows)
    assert rows[0]["behind"] == [0.0, 0.0, 0.0] and rows[0]["verdict"] == "best"
    second, last = rows[1], first["nope", "none"]
    assert {rows[0]["group"], second["group"]} == {"rope", "alibi"} and second["verdict"] == "tie"
    assert last["verdict"] == "behind" and last["behind"][1] > 0 and last["across"][0] > 0
    low, high = second["across"]
    assert low < second["behind"][0] < high
    plain = data["plain_ranking"]["same_token"][32]
    assert [row["group"] for row in plain][2] == "nope" and len(plain) == 3
    per_byte = 1 / np.log(2)
    assert last["behind"][0] == pytest.approx(0.5 * per_byte, abs=0.05)
    assert last["bpb"] == pytest.approx(np.mean(last["seeds"]))
    low, high = last["interval"]
    assert low < last["bpb"] < high


def test_what_other_seeds_might_turn_round_is_a_tie(tmp_path):
    """Better in every document, since one seed of three is much better and the others no worse."""
    for seed, better in enumerate((3.0, 0.05, 0.05)):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, better=better)
        make_run(tmp_path / f"nope-s{seed}", "nope", seed)
    best, second = gather.gather([tmp_path])["plain_ranking"]["same_token"][32]
    assert (best["group"], second["group"]) == ("rope", "nope")
    assert second["behind"][1] > 0 and second["across"][0] < 0 and second["verdict"] == "tie"
    shutil.rmtree(tmp_path / "nope-s2")
    _, second = gather.gather([tmp_path])["plain_ranking"]["same_token"][32]
    assert second["across"] is None and (second["verdict"], second["shared"]) == ("open", 2)


def test_few_documents_leave_a_difference_open(tmp_path):
    for documents, verdict in ((9, "open"), (10, "behind")):
        for seed in range(3):
            folder = tmp_path / str(documents)
            make_run(folder / f"rope-s{seed}", "rope", seed, better=0.5, documents=documents)
            make_run(folder / f"nope-s{seed}", "nope", seed, documents=documents)
        _, second = gather.gather([folder])["plain_ranking"]["same_token"][32]
        assert second["behind"][1] > 0 and second["across"][0] > 0
        assert (second["verdict"], second["documents"]) == (verdict, documents)


def test_a_single_document_has_no_interval_on_the_page(tmp_path):
    for name, better in (("rope", 0.5), ("nope", 0.0)):
        make_run(tmp_path / f"{name}-s0", name, 0, better=better, documents=1)
    data = gather.gather([tmp_path])
    _, second = data["plain_ranking"]["same_token"][32]
    assert second["behind"][0] > 0 and second["behind"][1:] == [None, None]
    assert second["verdict"] == "tie"
    assert page.write(data, tmp_path / "report").exists()


def test_a_difference_is_over_the_seeds_that_both_have(tmp_path):
    """The second seed is easier for all, and only one of two has it."""
    for seed, better in enumerate((0.5, 2.0)):
        make_run(tmp_path / f"rope-s{seed}", "rope", seed, better=better)
    make_run(tmp_path / "nope-s0", "nope", 0, better=0.7)
    best, second = gather.gather([tmp_path])["plain_ranking"]["same_token"][32]
    assert (best["group"], second["group"]) == ("rope", "nope") and second["shared"] == 1
    assert second["behind"][0] == pytest.approx(-0.2 / np.log(2), abs=0.05)
    assert second["verdict"] == "tie"  # it is ahead over the seed that both have


def test_a_seed_that_is_not_finite_leaves_no_mean(sweep):
    broken = sweep / "nope-s1" / "eval"
    cells = records.read(broken)
    for cell in cells:
        if cell.facts["length"] == 64 and cell.facts["extension"] == "none":
            cell.sums.nats[0] = np.nan
    records.write(broken, cells)
    data = gather.gather([sweep])
    named = {(row["group"], row["method"]) for row in data["ranking"]["same_token"][64]}
    assert ("nope", "none") not in named and ("nope", "pi:2") in named
    assert any("nope + none: a seed is not finite" in note for note in data["notes"])
    lengths, _ = statistics.series(figure.grouped(data, "same_token", "none")["nope"], "bpb")
    assert lengths == [16, 32]


def test_only_runs_of_one_experiment_at_one_step_are_seeds_of_it(sweep, tmp_path):
    other = make_run(sweep / "rope-rate-s1", "rope", 1, learning_rate=0.1)
    how = make_run(sweep / "nope-s7", "nope", 7, data={"source": "stdlib", "cache": "elsewhere"})
    copy = shutil.copytree(sweep / "alibi-s0", tmp_path / "alibi-again")
    cells = records.read(sweep / "nope-s0" / "eval")
    early = [Measured(cell.facts | {"step": 5}, cell.sums) for cell in cells]
    shutil.rmtree(sweep / "nope-s0" / "eval")
    records.write(sweep / "nope-s0" / "eval", early)
    data = gather.gather([sweep, copy])
    groups = {run["name"]: run["group"] for run in data["runs"]}
    assert groups[other.name] == "rope-rate" and groups["rope-s1"] == "rope"
    assert groups[how.name] == groups["nope-s0"] == "nope"
    seeds = {row["group"]: len(row["seeds"]) for row in data["plain_ranking"]["same_token"][32]}
    assert seeds == {"rope": 3, "rope-rate": 1, "alibi": 3, "nope": 3}
    notes = "; ".join(data["notes"])
    assert "alibi-again is left out of means: the same experiment and seed as alibi-s0" in notes
    assert "nope-s0: evaluated at step 5 of 10" in notes
    assert "nope-s0 is left out of means: others of its kind were evaluated at step 10" in notes


def test_of_a_group_someone_stays(tmp_path):
    """The older step is left out first, and has no vote on the targets."""
    older = make_run(tmp_path / "rope-s0", "rope", 0, targets="older")
    make_run(tmp_path / "rope-s1", "rope", 1)
    cells = records.read(older / "eval")
    early = [Measured(cell.facts | {"step": 5}, cell.sums) for cell in cells]
    shutil.rmtree(older / "eval")
    records.write(older / "eval", early)
    (row,) = gather.gather([tmp_path])["plain_ranking"]["same_token"][32]
    assert len(row["seeds"]) == 1


def test_names_that_clash_say_what_differs(tmp_path):
    for rate in (0.1, 0.2):
        make_run(tmp_path / str(rate) / "rope-s0", "rope", 0, learning_rate=rate)
    data = gather.gather([tmp_path / "0.1", tmp_path / "0.2"])
    assert [run["group"] for run in data["runs"]] == [
        "rope (learning_rate=0.1)",
        "rope (learning_rate=0.2)",
    ]
    for rate in (0.1, 0.2, 0.3):
        for steps in (10, 20):
            folder = tmp_path / f"{rate} {steps}"
            make_run(folder / "rope-s0", "rope", 0, learning_rate=rate, steps=steps)
    data = gather.gather(sorted(tmp_path.glob("0.? ?0")))
    assert len({run["group"] for run in data["runs"]}) == 6
    for width in range(6):
        model = {"width": 8 + width}
        make_run(tmp_path / "widths" / f"rope-s0-width={width}", "rope", 0, model=model)
    data = gather.gather([tmp_path / "widths"])
    assert {run["group"] for run in data["runs"]} == {f"rope-width={n}" for n in range(6)}
    look = figure.looks(data["runs"])
    assert len({(one["color"], one["dash"]) for one in look.values()}) == 6


def test_the_window_is_a_baseline_and_no_contender(sweep):
    for folder in sweep.glob("rope-s*"):
        cells = records.read(folder / "eval")
        cut = [
            Measured(cell.facts | {"window": 32}, cell.sums._replace(nats=cell.sums.nats - 9))
            for cell in cells
            if cell.facts["extension"] == "none"
        ]
        records.write(folder / "eval", cells + cut)
    data = gather.gather([sweep])
    assert all(row["method"] != "window" for row in data["ranking"]["same_token"][64])
    assert "\n  in a window of L" in figure.table(data)


def test_what_is_no_run_is_said_and_the_rest_is_shown(sweep):
    (sweep / "tokenizer").mkdir()
    (sweep / "tokenizer" / "config.json").write_text("{}")
    data = gather.gather([sweep])
    assert len(data["runs"]) == 10
    assert any("tokenizer is left out: cannot read" in note for note in data["notes"])


def test_one_run_with_many_methods_does_not_outvote_the_others(tmp_path):
    for name in ("alibi", "t5"):
        make_run(tmp_path / name, name, 0, scales=())
    make_run(tmp_path / "rope", "rope", 0, targets="other", scales=(2.0, 4.0, 8.0))
    data = gather.gather([tmp_path])
    assert {row["group"] for row in data["ranking"]["same_token"][32]} == {"alibi", "t5"}
    assert any(note.startswith("rope: other targets than most runs") for note in data["notes"])


def test_a_run_whose_status_tells_less_is_reported(tmp_path):
    """As runs were before status.json told of command, data and speed."""
    folder = make_run(tmp_path / "rope-s0", "rope", 0)
    (folder / "status.json").write_text(json.dumps({"state": "done", "step": 10, "digest": "d"}))
    data = gather.gather([folder])
    (run,) = data["runs"]
    assert (run["command"], run["data"], run["speed"]) == ("", "", 7500)
    page.write(data, tmp_path / "page")
    (folder / "status.json").unlink()
    (run,) = gather.gather([folder])["runs"]
    assert (run["state"], run["step"]) == ("unknown", 10)


def test_facts_and_curves_of_a_run(sweep):
    data = gather.gather([sweep / "rope-s0"])
    (run,) = data["runs"]
    assert run["speed"] == 7500 and run["memory"] == 110
    assert run["command"] == "train.py --config=x.py"
    assert run["data"] == "abc: 3 documents, 1,200 tokens to train on, 1.0 bytes each"
    curve = next(c for c in data["curves"] if (c["protocol"], c["method"]) == ("sliding", "pi:2"))
    assert [point["length"] for point in curve["points"]] == list(LENGTHS)
    rows = records.rows(records.read(sweep / "rope-s0" / "eval"))
    row = next(r for r in rows if (r["protocol"], r["scale"], r["length"]) == ("sliding", 2.0, 64))
    assert curve["points"][-1]["bpb"] == row["bpb"]
    assert curve["points"][-1]["null"] == pytest.approx(row["bpb"] + row["gain_bpb"])
    assert {place["method"] for place in data["places"]} == {"none", "pi:2"}


def test_other_targets_are_left_out_of_the_ranking_and_said(sweep):
    make_run(sweep / "fire-s0", "fire", 0, targets="other")
    data = gather.gather([sweep])
    assert all(row["group"] != "fire" for row in data["ranking"]["same_token"][32])
    assert any("fire: other targets" in note for note in data["notes"])


def test_runs_of_one_encoding_that_differ_are_two_groups(sweep):
    make_run(sweep / "rope-base=5-s0", "rope", 0, extension={"name": "pi", "scale": 2.0})
    groups = {run["name"]: run["group"] for run in gather.gather([sweep])["runs"]}
    assert groups["rope-s0"] == groups["rope-s2"] == "rope"
    assert groups["rope-base=5-s0"] == "rope-base=5"


def test_what_is_damaged_or_missing_is_said(sweep, tmp_path):
    (sweep / "rope-s0" / "eval" / "documents.npz").write_bytes(b"no")
    notes = gather.gather([sweep])["notes"]
    assert any("rope-s0: cannot read" in note for note in notes)
    with pytest.raises(DataError, match="is no folder"):
        gather.gather([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a run's folder has a config.json"):
        gather.gather([tmp_path / "empty"])


class Asked(HTMLParser):
    """Every address that a page names."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href")]


def write(sweep, tmp_path):
    return page.write(gather.gather([sweep]), tmp_path / "report")


def test_the_page_holds_everything_it_shows(sweep, tmp_path):
    text = write(sweep, tmp_path).read_text()
    asked = Asked()
    asked.feed(text)
    assert asked.found == ["data:,"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    inside = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert inside is not None
    assert json.loads(inside[1])["runs"][0]["encoding"] == "alibi"


def test_a_name_cannot_end_the_script(sweep, tmp_path):
    data = gather.gather([sweep])
    data["runs"][0]["name"] = "</script><script>alert(1)</script> <!-- <script>"
    text = page.write(data, tmp_path / "out").read_text()
    inside = text.split('type="application/json"')[1].split("</script>")[0]
    assert "alert(1)" in inside and "<" not in inside.split(">", 1)[1]


def test_the_program(sweep, tmp_path):
    command = [sys.executable, "scripts/report.py", str(sweep), f"--out={tmp_path / 'out'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "10 runs, 9 of them evaluated" in done.stdout, done.stderr
    assert "t5-s0: not evaluated yet" in done.stderr
    assert (tmp_path / "out" / "index.html").exists()
    done = subprocess.run([*command[:2], "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 65 and "no folder" in done.stderr and "Trace" not in done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_in_a_browser(sweep, tmp_path, width):
    """Scripts run without an error, and what they draw is there and fits."""
    path = write(sweep, tmp_path)
    check = """
<script>
addEventListener("load", () => {
  const wide = document.documentElement.scrollWidth, seen = [];
  const protocol = document.getElementById("protocol");
  for (const value of [...protocol.options].map(o => o.value)) {
    protocol.value = value; protocol.dispatchEvent(new Event("change"));
    seen.push(value + ":" + document.querySelectorAll("#curves polyline").length);
  }
  const method = document.getElementById("method");
  method.value = "pi:2"; method.dispatchEvent(new Event("change"));
  seen.push("pi:" + document.querySelectorAll("#curves polyline").length);
  const beyond = () => [...document.querySelectorAll("#curves circle")]
    .filter(e => +e.getAttribute("cy") < 0).length;  // above the picture's upper edge
  const before = beyond();
  document.getElementById("closer").click();
  seen.push("closer:" + before + "," + (beyond() > 0));
  document.getElementById("closer").click();
  document.querySelector("#encodings input").click();
  seen.push("fewer:" + document.querySelectorAll("#curves polyline").length);
  seen.push("rows:" + document.querySelectorAll("#ranking tbody tr").length);
  seen.push("controls:" + [...document.querySelectorAll("select,input,button,summary")]
    .every(e => e.tabIndex >= 0 && (e.matches("select,input") ? e.labels.length : e.textContent)));
  document.body.dataset.seen = seen.join(" ") + " wide:" + wide;
});
</script>
"""
    path.write_text(path.read_text().replace("</body>", check + "</body>"))
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    flags += " --enable-logging=stderr --disable-background-networking"
    flags += " --disable-component-update --disable-sync"
    done = subprocess.run(
        [
            str(CHROMIUM),
            *flags.split(),
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},1200",
            "--virtual-time-budget=3000",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[:500]
    seen = dict(word.split(":") for word in found[1].split())
    # Three runs with a curve and a null each; with an extension its own line and the plain one.
    assert [seen[name] for name in ("same_token", "nonoverlap", "sliding")] == ["6", "6", "6"]
    assert seen["closer"] == "0,true"
    assert (seen["pi"], seen["fewer"], seen["rows"], seen["controls"]) == ("9", "6", "4", "true")
    assert int(seen["wide"]) <= max(width, 500), "the page is wider than its window"


def test_wandb_has_the_report_as_one_run_of_the_group(tmp_path):
    wandb = {"mode": "disabled", "project": "p", "group": "zoo", "required": True}
    for seed in (0, 1):
        make_run(tmp_path / "zoo" / f"rope-s{seed}", "rope", seed, wandb=wandb)
    out = tmp_path / "out"
    command = [sys.executable, "scripts/report.py", str(tmp_path / "zoo"), f"--out={out}"]
    done = subprocess.run([*command, "--wandb=offline"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("wandb/offline-run-*/*.wandb")
    kept = list(wandb_records(file))
    (run,) = [record.run for record in kept if record.HasField("run")]
    assert (run.display_name, run.run_group, run.job_type) == ("report", "zoo", "report")
    lines = [
        {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in r.history.item
        }
        for r in kept
        if r.HasField("history")
    ]
    means = [line for line in lines if "report/length" in line]
    assert [line["report/length"] for line in means] == list(LENGTHS)
    data = gather.gather([tmp_path / "zoo"])
    rows = data["ranking"]["same_token"][16]
    expected = next(row["bpb"] for row in rows if row["method"] == "none")
    assert means[0]["report/same_token/rope none"] == pytest.approx(expected)
    names = {name.split("/_")[0] for line in lines for name in line}
    assert any(name.startswith("ranking") for name in names), names
    assert any(name.startswith("plots/same_token") for name in names), names
    subprocess.run([*command, "--wandb=offline"], cwd=ROOT, capture_output=True, check=True)
    assert [file] == list(out.glob("wandb/offline-run-*/*.wandb"))
