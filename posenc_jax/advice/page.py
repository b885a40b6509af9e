"""Write what was found: one claim, one picture, one table, and what to paste."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from posenc_jax.advice import choosing
from posenc_jax.advice.choosing import Choice
from posenc_jax.advice.measuring import Finding
from posenc_jax.advice.paste import Block
from posenc_jax.display import Line, Table, decimal, markdown
from posenc_jax.evaluation.protocols.copies import USABLE
from posenc_jax.evaluation.statistics import FEW_DOCUMENTS, Difference
from posenc_jax.plots import curves, style
from posenc_jax.runtime.files import write_atomically, write_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)


def claim(
    choice: Choice,
    plain: Finding,
    prompts: Sequence[int],
    screened: Sequence[Finding],  # no extension, and methods to name beside a dear one
) -> str:
    """What to set and what it costs, with a cheaper method beside a dear one."""
    one, words = choice.finding, []
    prices = {length: one.price(plain, [length]) for length in prompts}
    costs = " and ".join(f"{_with_ends(price)} at {n:,}" for n, price in prices.items())
    least = f"{one.least:.2f} of a near copy at {one.worst:,} tokens back, where it keeps least"
    if choice.method == "none":
        words += [f"Nothing is needed: without an extension it reads {one.target:,} tokens"]
    elif choice.method is not None:
        words += [f"Set {one.method}: it reads {one.target:,} tokens"]
    elif one.reads and not one.units.enough:
        words += [f"{one.units} are too few to tell: {one.method} keeps {least}"]
    else:
        keeps = f"it keeps {least}, and clearly reads to {one.usable:,}"
        if one is plain:
            words += [f"Without an extension it does not read all of {one.target:,} tokens"]
            words += [keeps, "no extension was measured"]
        else:
            words += [f"No method reads all of {one.target:,} tokens, so none is advised"]
            words += [f"{one.method} comes nearest: {keeps}"]
    if one is not plain:
        words += [f"it costs every prompt, in nats per token: {costs} tokens"]
    first, *others = screened
    other = choosing.cheaper(max(p.mean for p in prices.values()), others, first, prompts)
    if other is not None:
        dearest = max(other.price(first, [length]).mean for length in prompts)
        found = f"costs at most {dearest:.2f} and reaches {other.reach:,}"
        words += [f"{other.method} {found} ({other.units})"]
    sentence = "; ".join(words) + "."
    if choice.ties:
        sentence += f" Tied with it: {', '.join(choice.ties)}."
    return f"{sentence} {'Over' if one.units.enough else 'Provisional, over'} {one.units}."


def _with_ends(price: Difference) -> str:
    return f"{price.mean:.3f} [{price.low:.3f}, {price.high:.3f}]"


def rows(
    findings: Sequence[Finding], plain: Finding, screened: Finding, prompts: Sequence[int]
) -> list[dict[str, Any]]:
    """A row per method and number of texts, beside no extension on the same texts."""
    made = []
    for one in findings:
        beside = plain if one.units == plain.units else screened
        values = {f"price_{n}": one.price(beside, [n]) for n in prompts}
        values["gain"] = one.gain(beside, beside.whole)
        row = {"method": one.method, "texts": one.units.number, "least": one.least}
        row |= {"least_at": one.worst, "reach": one.reach, "usable": one.usable}
        for name, value in values.items():
            row |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
        made.append(row | {f"kept_{back}": share for back, share in one.kept.items()})
    return made


def table(made: Sequence[Mapping[str, Any]], prompts: Sequence[int]) -> Table:
    head = ["", "texts", "least", "at", "clearly to", "text"]
    head += [f"cost, {length:,}" for length in prompts]
    body = [
        [row["method"], str(row["texts"]), decimal(row["least"], 2)]
        + [f"{row['least_at']:,}", f"{row['usable']:,}"]
        + [decimal(row["gain"]), *(decimal(row[f"price_{length}"]) for length in prompts)]
        for row in made
    ]
    caption = (
        "least: of what a copy 128 tokens back saves, the share that a far one saves where that is "
        "least, so many tokens back (at); clearly to: up to there the 95% interval is above half; "
        "text: nats per token that rows of N save over rows of L without an extension, below 0 "
        "where they lose; cost: nats per token over no extension in prompts of that length, where "
        "0.01 is 1% of perplexity"
    )
    return Table(caption, head, body)


def _band(
    one: Finding, intervals: Sequence[Difference | None]
) -> tuple[list[float], list[float]] | None:
    """The ends of intervals over several texts; None where there are few, or one is not known."""
    known = [interval for interval in intervals if interval]
    if one.units.number < FEW_DOCUMENTS or len(known) < len(intervals):
        return None
    return [interval.low for interval in known], [interval.high for interval in known]


@style.styled()
def picture(findings: Sequence[Finding], plain: Finding, prompts: Sequence[int]) -> "Figure":
    """Share kept by distance, and beside it the price by the length of a prompt."""
    figure, (left, right) = style.panels(1, 2, (9.4, 4.0))
    looks = style.looks_of_methods("rope", [one.method for one in findings])
    kept, prices = [], []
    for one, look in zip(findings, looks, strict=True):
        shares = [one.kept[back] for back in one.distances]
        band = _band(one, [one.intervals[back] for back in one.distances])
        kept.append(Line(one.method, one.distances, shares, look, band))
        if one is not plain:
            found = [one.price(plain, [length]) for length in prompts]
            means, band = [price.mean for price in found], _band(one, found)
            prices.append(Line(one.method, prompts, means, look, band, listed=False))
    curves.draw_lines(left, kept, 0)
    curves.draw_lines(right, prices)
    left.axhline(USABLE, color="0.2", linestyle=":")
    left.axvline(plain.whole, color="0.6", linestyle=":", linewidth=1)
    left.set(ylim=(-0.1, 1.2), xlabel="tokens back to the copy", ylabel="share kept of a near copy")
    left.xaxis.set_major_formatter("{x:,.0f}")
    right.set(ylabel="nats per token over no extension", xlabel="tokens of a prompt")
    right.axhline(0, color="0.6", linewidth=0.8)
    right.set_xscale("log")
    right.set_xticks(prompts, [f"{length:,}" for length in prompts])
    right.minorticks_off()
    style.finish(figure)
    return figure


def write(
    path: Path,
    title: str,
    sentences: Sequence[str],
    made: Sequence[dict],
    shown: Table,
    figure: "Figure",
) -> None:
    """Write extend.md, and beside it the picture, rows.csv and a page that needs no other file."""
    style.save(figure, path.with_suffix(".png"))
    words = {"title": title, "sentences": sentences, "table": shown}
    words["pasted"] = sorted((path.parent / PASTE).glob("*"))
    words["picture"] = style.svg(figure, "picture", "share kept and price")
    write_atomically(path.with_name("index.html"), PAGES.get_template("page.html").render(words))
    text = "\n\n".join([f"# {title}", *sentences, "![share kept and price](extend.png)"])
    write_atomically(path, f"{text}\n\n{markdown(shown)}\n")
    columns = list(dict.fromkeys(name for one in made for name in one))
    write_csv(path.with_name("rows.csv"), columns, made)


PASTE = "paste"
COMMANDS = ("vllm", "sglang", "llama.cpp")


def write_block(folder: Path, engine: str, block: Block, about: str) -> str:
    """Write paste/ENGINE, what an engine is given and a line about it; return its name."""
    path = folder / PASTE / f"{engine}.{'sh' if engine in COMMANDS else 'txt'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f"# {about}\n{block.text}")
    return f"{PASTE}/{path.name}"
