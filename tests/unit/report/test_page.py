"""The page: one file with everything it shows, looked at by a browser where there is one."""

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from evaluated import LENGTHS, make_run

from posenc_jax.display import rounded
from posenc_jax.evaluation import protocols
from posenc_jax.report import page, pictures
from posenc_jax.report.ranking import rankings
from posenc_jax.report.runs import read_runs

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
RANKED = [name for name in protocols.against_length() if name != "answers"]
NAME = "</script><b>&amp;"


class Page(HTMLParser):
    """Parsed page: names, texts of cells, and unclosed tags."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.ids, self.cells, self.open = [], Counter(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.addresses += [named[name] for name in ("src", "href") if name in named]
        self.addresses += [named["xlink:href"]] if "xlink:href" in named else []
        self.ids.update([named["id"]] if "id" in named else [])
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "link", "input"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


@pytest.fixture(scope="module")
def path(swept, tmp_path_factory):
    runs = [replace(swept.runs[0], command=NAME), *swept.runs[1:]]
    folder = tmp_path_factory.mktemp("page")
    return page.write_page(replace(swept, runs=runs), rankings(swept.runs), folder)


def test_the_page_loads_nothing_and_its_ids_are_unique(path):
    text = path.read_text()
    found = Page(text)
    assert found.open == [] and found.addresses
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert [name for name, count in found.ids.items() if count > 1] == []
    used = {address[1:] for address in found.addresses if address.startswith("#")}
    used |= set(re.findall(r"url\(#([^)]*)\)", text))
    assert used and used <= set(found.ids)


def test_every_colour_of_the_page_is_one_of_both_schemes(path):
    text = path.read_text()
    sheet = text[text.index("<style>") : text.index("</style>")]
    schemes = re.findall(r":root {(.*?)}", sheet)
    light, dark = (set(re.findall(r"(--\w+): #", scheme)) for scheme in schemes)
    assert light == dark and "color-scheme: light dark" in schemes[0]
    rest = re.sub(r":root {.*?}", "", sheet)
    assert set(re.findall(r"var\((--\w+)\)", rest)) == light
    assert not re.search(r"#[0-9a-f]{3}|: (white|black)", rest)


def test_drawn_values_are_in_tables_and_ties_are_marked(path, swept):
    text = path.read_text()
    cells, ranks = Page(text).cells, rankings(swept.runs)
    for protocol in RANKED:
        assert f"{protocol}: {protocols.find(protocol).title}" in text
        for row in (row for n in LENGTHS for row in ranks.extended[protocol][n]):
            assert rounded(row.loss, row.interval) in cells
    points = swept.points[(swept.points.protocol == "same_token") & (swept.points.method == "pi:4")]
    for mean in points.groupby("length").bpb.mean():
        assert any(cell.startswith((f"{mean:.2f} ±", f"{mean:.3f} ±")) for cell in cells)
    tables = [t for every in (ranks.extended, ranks.plain) for t in every.values()]
    ties = [row for t in tables for rows in t.values() for row in rows if row.verdict == "tie"]
    assert ties and text.count('class="tie"') == cells.count("tie") == len(ties)
    first = [row for row in ranks.extended["same_token"][64] if row.verdict == "tie"]
    assert sum(cell.startswith("ties with the best") for cell in cells) == len(first)
    assert "t5-s0: not evaluated yet" in text and NAME not in text


def test_the_page_opens_with_a_sentence_and_folds_the_rest(path, swept):
    text = path.read_text()
    best = rankings(swept.runs).extended["same_token"][LENGTHS[-1]][0]
    opening = text[text.index("<h1>") : text.index("<details>")]
    assert (
        f" has the lowest loss at 64 tokens, 2 times the trained length: {best.loss:.2f}" in opening
    )
    assert "Means of 3 seeds." in opening
    folded = text[text.index("<details>") : text.index("</details>")]
    for word in ("9 runs", "L = 32", "2 layers of width 8", "10 steps", "3 seeds", "12 documents"):
        assert word in folded
    assert "what was left out (" in folded
    sections = text.partition('<div class="figures">')[2]
    assert sections.count("<h2>") == sections.count("<summary><h2>") >= 5


def test_nothing_evaluated_is_a_page_too(tmp_path):
    make_run(tmp_path / "rope-s0", "rope", 0, evaluated=False)
    data = read_runs([tmp_path])
    text = page.write_page(data, rankings(data.runs), tmp_path / "page").read_text()
    assert "1 run, 0 of them evaluated" in text and "train.py --config=x.py" in text


def test_an_adopted_model_has_no_steps(tmp_path):
    """Its training is one step of an unknown text in its configuration."""
    folder = make_run(tmp_path / "rope-s0", "rope", 0, steps=1, data={"source": "unknown"})
    (folder / "status.json").write_text(json.dumps({"state": "done", "step": 1}))
    data = read_runs([tmp_path])
    assert "; 1 seed a group; trained on unknown; scored: " in pictures.on_what(data, "same_token")
    assert "step" not in pictures.on_what(data)


def test_without_loss_and_retrieval_the_page_opens_with_the_number_of_runs(swept, tmp_path):
    data = replace(swept, points=swept.points[swept.points.protocol == "sliding"])
    text = page.write_page(data, rankings(swept.runs), tmp_path).read_text()
    assert "<h1>Length extrapolation</h1>" in text and "10 runs, 9 of them evaluated" in text
    assert "sliding: " in text


CHECK = """
<script>
addEventListener("load", () => {
  const seen = { wide: document.documentElement.scrollWidth };
  const isShown = e => e.getClientRects().length && e.checkVisibility();
  const visible = (selector, within) =>
    all(selector, within).filter(isShown).length;
  const choose = (name, value) => {
    const control = document.querySelector(`select[name=${name}]`);
    control.value = value;
    control.dispatchEvent(new Event("change"));
  };
  seen.folded = visible("details figure");
  const first = document.querySelector("section");
  seen.first = visible("figure", first);
  const names = () => visible("svg [data-value]", first);
  seen.more = names();
  choose("methods", "plain");
  seen.less = names();
  const point = all("svg [data-value]", first).find(isShown);
  point.dispatchEvent(new Event("pointerover", { bubbles: true }));
  seen.shown = getComputedStyle(value).visibility === "visible";
  document.body.dataset.value = value.textContent;
  for (const fold of all("details")) fold.open = true;
  const loss = document.querySelector("[name=protocol]").closest("details");
  for (const { value } of [...loss.querySelector("[name=protocol]").options]) {
    choose("protocol", value);
    seen[value] = visible("table", loss);
  }
  seen.open = document.documentElement.scrollWidth;
  const { backgroundColor, color } = getComputedStyle(document.body);
  [seen.paper, seen.ink] = [backgroundColor, color].map(rgb => +rgb.match(/\\d+/)[0]);
  seen.controls = all("select").every(e => e.labels.length && e.tabIndex >= 0);
  document.body.dataset.seen = JSON.stringify(seen);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (500, True)])
def test_the_page_in_a_browser(path, tmp_path, width, dark):
    """Scripts run without an error, controls show and hide, nothing is wider than the page, and it
    is as dark as the reader's system."""
    shown = tmp_path / "index.html"
    shown.write_text(path.read_text().replace("</body>", CHECK + "</body>"))
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    flags += " --enable-logging=stderr --disable-background-networking"
    flags += " --disable-component-update --disable-sync --virtual-time-budget=3000 --dump-dom"
    flags += f" --user-data-dir={tmp_path / 'profile'} --window-size={width},1200"
    flags += " --force-dark-mode --blink-settings=preferredColorScheme=0" if dark else ""
    command = [str(CHROMIUM), *flags.split(), shown.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[:500]
    seen = dict(re.findall(r"&quot;(\w+)&quot;:(\w+)", found[1]))
    assert max(int(seen[n]) for n in ("wide", "open")) <= width, "wider than its window"
    assert (seen["folded"], seen["first"], seen["shown"]) == ("0", "1", "true")
    assert int(seen["more"]) > int(seen["less"]) > 0
    assert re.search(r'data-value="RoPE, \d+ tokens: [\d.]+ \([\d.]+ to [\d.]+\)"', done.stdout)
    assert all(1 <= int(seen[name]) <= 2 for name in RANKED)
    assert (int(seen["paper"]) < 64 < 192 < int(seen["ink"])) == dark
    assert seen["controls"] == "true"


def test_names_of_runs_command_no_program_that_shows_them(tmp_path, capsys):
    """A folder or an edited config.json may hold any text."""
    names = ["=1+1 <b>[x](y)", "@a\x1b[31m\nb", r"$\frac$ `c` *d*"]
    for seed in range(2):
        for i, name in enumerate(names):
            make_run(tmp_path / f"{name}-s{seed}", "rope", seed, label=name, steps=10 + i)
    out = tmp_path / "out"
    page.report([tmp_path], out)
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said and r"@a\x1b[31m" in said
    tables = (out / "tables.md").read_text() + (out / "captions.md").read_text()
    assert r"=1+1 \<b>[x]\(y)" in tables
    assert not re.search(r"(?<!\\)[<`]|\]\(", tables)
