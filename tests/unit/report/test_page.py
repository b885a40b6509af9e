"""The page: one file with everything it shows, looked at by a browser where there is one."""

import csv
import io
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pandas as pd
import pytest
from evaluated import LENGTHS, make_run

from posenc_jax.evaluation import protocols
from posenc_jax.report import page, sections
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
            assert f"{row.loss:.3f}" in cells
    points = swept.points[(swept.points.protocol == "same_token") & (swept.points.method == "pi:4")]
    for mean in points.groupby("length").bpb.mean():
        assert any(cell.startswith(f"{mean:.3f} ±") for cell in cells)
    tables = [t for every in (ranks.extended, ranks.plain) for t in every.values()]
    ties = [row for t in tables for rows in t.values() for row in rows if row.verdict == "tie"]
    assert ties and text.count('class="tie"') == cells.count("tie") == len(ties)
    assert "t5-s0: not evaluated yet" in text and NAME not in text
    assert "same_token, bits per byte, closer" in text and "perplexity, closer" not in text


def test_the_page_opens_with_findings_and_data(path, swept):
    ranks = rankings(swept.runs)
    found, on_what = page.sentences(swept, ranks)
    best = ranks.extended["same_token"][LENGTHS[-1]][0]
    assert f"At 64 tokens {best.group}" in found and f"{best.loss:.3f} bits per byte" in found
    for word in ("9 runs", "L = 32", "2 layers of width 8", "10 steps", "3 seeds", "12 documents"):
        assert word in on_what
    first = path.read_text().index("<p class=")
    assert "At 64 tokens" in path.read_text()[first : first + 200]


def of_seeds(folder, seeds, documents=12, **better):
    for encoding, value in better.items():
        for seed in seeds:
            options = dict(better=value, scales=(), documents=documents)
            make_run(folder / f"{encoding}-s{seed}", encoding, seed, **options)
    data = read_runs([folder])
    ranks = rankings(data.runs)
    by_group = {row.group: row for row in ranks.extended["same_token"][LENGTHS[-1]]}
    return page.sentences(data, ranks)[0], by_group


def test_one_seed_is_behind_over_documents_and_ranks_no_training(tmp_path):
    found, ranks = of_seeds(tmp_path, [0], alibi=2.0, rope=0.0)
    rope = ranks["rope"]
    low, high = rope.by_documents
    ends = f"{low:.3f} to {high:.3f} over 12 documents"
    assert f"rope is {rope.behind:.3f} behind (95%: {ends})" in found
    assert "one seed does not rank training" in found


@pytest.mark.parametrize("documents", [1, 9])
@pytest.mark.parametrize("seeds", [1, 3])
def test_below_ten_documents_the_headline_claims_no_interval(tmp_path, seeds, documents):
    found, ranks = of_seeds(tmp_path, range(seeds), documents, alibi=2.0, rope=0.0)
    counted = f"{documents} document" + "s" * (documents > 1)
    assert f"{ranks['rope'].behind:.3f} behind on {counted}" in found
    assert "95%" not in found and "over documents" not in found


def test_three_seeds_are_behind_over_seeds_and_a_tie_keeps_its_interval(tmp_path):
    found, ranks = of_seeds(tmp_path, range(3), alibi=2.0, rope=2.0, nope=0.0)
    low, high = ranks["nope"].by_seeds
    behind = f"nope is {ranks['nope'].behind:.3f} behind (95%: {low:.3f} to {high:.3f} over seeds)"
    (tie,) = [row for row in ranks.values() if row.verdict == "tie"]
    assert behind in found and "does not rank" not in found
    assert f"{tie.group} ties with it, {tie.behind:.3f} behind (95%: " in found


def test_few_entries_are_named_and_one_of_anything_is_singular(tmp_path):
    better = dict(zip(("alibi", "rope", "nope", "t5", "fire", "fox"), range(6, 0, -1), strict=True))
    model = {"layers": 1, "width": 8}
    for encoding, value in better.items():
        folder = tmp_path / f"{encoding}-s0"
        make_run(folder, encoding, 0, better=value, scales=(), model=model, steps=10)
    data = read_runs([tmp_path])
    found, on_what = page.sentences(data, rankings(data.runs))
    assert [name for name in better if name in found] == ["alibi", "rope", "nope", "fox"]
    assert "1 layer of width 8; 10 steps; 1 seed a group" in on_what


def test_nothing_evaluated_is_a_page_too(tmp_path):
    make_run(tmp_path / "rope-s0", "rope", 0, evaluated=False)
    data = read_runs([tmp_path])
    text = page.write_page(data, rankings(data.runs), tmp_path / "page").read_text()
    assert "1 run, 0 of them evaluated" in text and "train.py --config=x.py" in text


CHECK = """
<script>
addEventListener("load", () => {
  const seen = { wide: document.documentElement.scrollWidth };
  const visible = selector => all(selector).filter(e => e.getClientRects().length).length;
  const choose = (name, value) => {
    const box = document.querySelector(`input[name=${name}][value="${value}"]`);
    const control = box || document.querySelector(`select[name=${name}]`);
    if (box) box.checked = !box.checked;
    else control.value = value;
    control.dispatchEvent(new Event("change"));
  };
  for (const { value } of [...document.querySelector("[name=protocol]").options]) {
    choose("protocol", value);
    seen[value] = visible("section:first-of-type figure");
  }
  const lines = () => visible('section:first-of-type tr[data-kind="group"]');
  const marks = () => visible('section:first-of-type svg [data-kind="group"]');
  seen.lines = lines();
  seen.marks = marks();
  choose("group", "0");
  seen.fewer = seen.lines - lines();
  seen.hidden = marks() < seen.marks;
  choose("baselines", "baseline");
  seen.baselines = visible('tr[data-kind="baseline"], svg [data-kind="baseline"]');
  const { backgroundColor, color } = getComputedStyle(document.body);
  [seen.paper, seen.ink] = [backgroundColor, color].map(rgb => +rgb.match(/\\d+/)[0]);
  seen.controls = all("select, input").every(e => e.labels.length && e.tabIndex >= 0);
  HTMLAnchorElement.prototype.click = function () {
    document.body.dataset.png = `${this.download} ${this.href.slice(0, 22)}`;
  };
  document.querySelector("section:first-of-type .block:not([hidden]) button.png").click();
  document.body.dataset.seen = JSON.stringify(seen);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (700, True)])
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
    assert int(seen["wide"]) <= width, "the page is wider than its window"
    assert all(int(seen[name]) >= 1 for name in RANKED)
    assert (seen["lines"], seen["fewer"]) == ("3", "1") and seen["hidden"] == "true"
    assert (int(seen["paper"]) < 64 < 192 < int(seen["ink"])) == dark
    assert (seen["baselines"], seen["controls"]) == ("0", "true")
    assert re.search(r'data-png="\w+-bpb.png data:image/png;base64,"', done.stdout)


def test_a_group_with_baselines_alone_has_no_extensions(swept):
    points = swept.points[swept.points.protocol == "same_token"]
    fresh = points[points.group == "alibi"].assign(method="fresh", extension="fresh")
    offered = sections.extensions(replace(swept, points=pd.concat([points, fresh])))
    assert "rope: every extension" in str(offered) and "alibi" not in str(offered)


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
    downloads = re.findall('href="data:text/csv[^,]*,([^"]*)"', (out / "index.html").read_text())
    files = [path.read_text() for path in tmp_path.glob("*/eval/curves.csv")]
    tables = [csv.reader(io.StringIO(text)) for text in [*files, *map(unquote, downloads)]]
    cells = {cell for table in tables for row in table for cell in row}
    assert {"'=1+1 <b>[x](y)", "'=1+1 <b>[x](y)-s0"} <= cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
