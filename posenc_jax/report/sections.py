"""The sections of the page; each is a function from the data of a report to a `Section`."""

from collections.abc import Sequence
from math import inf, isinf

from posenc_jax.display import NONE, Table, decimal, ends, rounded
from posenc_jax.evaluation import protocols
from posenc_jax.plots import curves
from posenc_jax.plots.answers import by_gap
from posenc_jax.report import answers as report_answers
from posenc_jax.report import figures, overview, tables
from posenc_jax.report.figures import Block, Section, Select
from posenc_jax.report.learning import (
    FASTER,
    groups_by_loss,
    learning_curves,
    losses_by_step,
)
from posenc_jax.report.overview import why_open
from posenc_jax.report.ranking import Rank, Rankings, loss_of, right, wrong_answers
from posenc_jax.report.runs import Frame, ReportData


def every(data: ReportData, ranks: Rankings) -> list[Section]:
    """All sections, in the order in which readers ask; the page adds definitions and the runs."""
    sections = [found_and_order(data), context(data, ranks), answers(data), ranking(data, ranks)]
    sections += [learning(data), rates(data)]
    return [section for section in sections if section is not None]


def shown(data: ReportData) -> list[str]:
    """Protocols against length that were measured."""
    measured = set(data.points.protocol)
    return [protocol for protocol in protocols.against_length() if protocol in measured]


def answers(data: ReportData) -> Section | None:
    """Retrieval accuracy by distance to the answer."""
    results = report_answers.collect(data)
    if results is None or results.gaps.empty:
        return None
    values, names, parts = report_answers.grid(results)
    figure = by_gap(values, names, parts, results.trained)
    rows = [
        [name, *(decimal(value, 2) for value in row)]
        for name, row in zip(names, values, strict=True)
    ]
    title = f"gap: {protocols.find('gap').title}"
    table = Table("", ["accuracy by tokens back", *parts], rows)
    return Section(
        "At which distance are answers found?",
        f"Accuracy in rows of {results.longest:,} tokens by distance to the answer, means over "
        "seeds.",
        [Block(charts=[figures.chart(figure, "answers-gap", title)], table=table)],
    )


def found_and_order(data: ReportData) -> Section | None:
    """What methods find beyond L and how they order it, as a picture and a table."""
    results = report_answers.ordered(data)
    if results is None:
        return None
    ordered, longest = results
    title = f"Are values beyond L found, and is their order kept? At {longest:,} tokens"
    charts = [
        figures.chart(report_answers.picture_of_order(ordered, longest), "found-and-order", title)
    ]
    return Section(
        title,
        "Found is the share of names set once, more than L tokens back, whose value is answered, "
        "freed of guesses: 0 for a window of L. Order is the share of names set twice, both more "
        "than L tokens back, that are answered with the last value: 0.5 without order. It is over "
        "the pairs held: the model answers with each value when the other setting is filler. The "
        "hard cell has the last setting 17 to 64 tokens back and 1 to 8 tokens between the two. "
        "Means over seeds.",
        [Block(charts=charts, table=report_answers.table_of_order(ordered))],
    )


FIRST = (protocols.HEADLINE, "answers")  # drawn on the first screen


def context(data: ReportData, ranks: Rankings) -> Section:
    """Every protocol against length: what context beyond L saves, and all values with baselines."""
    blocks = []
    for protocol in shown(data):
        when, title = {"protocol": protocol}, protocols.find(protocol).title
        points = data.points[data.points.protocol == protocol]
        beyond = points[points.length > points.trained]
        gains = tables.by_length(beyond, "gain_bpb", "saved, bits per byte")
        if gains is not None:
            blocks.append(Block(when, "What context beyond L saves", table=gains))
        value = figures.value_of(protocol)
        panels = overview.panels([(protocol, data, ranks)] if protocol not in FIRST else [])
        charts = [next(iter(overview.charts(panel, panels).values())) for panel in panels]
        words = f"{protocol}: {title}. {figures.counts_in_words(points)}."
        every_value = tables.by_length(points, value, curves.VALUES[value])
        blocks.append(Block(when, "Every value", words, charts, every_value))
    return Section(
        "Is the context beyond L used? Every protocol, baseline and extension",
        "Means over seeds. Saved is the loss of a model that uses nothing beyond L, its null, less "
        "the loss of the method: above zero the context is used.",
        blocks,
        [Select("protocol", "protocol", {name: name for name in shown(data)})],
    )


def ranking(data: ReportData, ranks: Rankings) -> Section:
    blocks = []
    lengths = sorted({length for tables in ranks.extended.values() for length in tables})
    for protocol in shown(data):
        for length in lengths:
            for name, ranked in (("yes", ranks.extended), ("no", ranks.plain)):
                entries = ranked.get(protocol, {}).get(length, [])
                when = {"protocol": protocol, "length": str(length), "extended": name}
                text = "" if entries else "nothing to rank"
                table = _ranks(protocol, entries) if entries else None
                blocks.append(Block(when, f"{protocol}, {length:,} tokens", text, table=table))
    options = {str(length): f"{length:,}" for length in lengths}
    return Section(
        "Ranking at every length, with intervals and seeds",
        "Means over seeds in bits per byte, or in accuracy for answers, without oracles. Methods "
        "that change nothing at a length are not listed. Intervals are over what their column "
        "names and are not corrected.",
        blocks,
        [
            Select("length", "length", options, str(lengths[-1]) if lengths else ""),
            Select("extended", "extensions", {"yes": "with extensions", "no": "without"}),
        ],
    )


def _ranks(protocol: str, ranks: Sequence[Rank]) -> Table:
    accuracy = loss_of(protocol) is wrong_answers
    unit = "accuracy" if accuracy else "bits per byte"
    head = ["group", "extension", unit, "behind", "verdict", f"95%, {ranks[0].units}"]
    head += ["95%, common seeds", "95%, seeds", "seeds"]
    rows = []
    for row in map(right, ranks) if accuracy else ranks:
        difference = [NONE, "best", NONE, NONE]
        if row.verdict != "best":
            verdict = f"open: {why_open(row)}" if row.verdict == "open" else row.verdict
            behind = rounded(row.behind, row.by_seeds or row.by_documents)
            difference = [behind, verdict, ends(row.by_documents), ends(row.by_seeds)]
        seeds = "  ".join(map(rounded, row.seeds))
        loss = rounded(row.loss, row.interval)
        rows.append([row.group, row.method, loss, *difference, ends(row.interval), seeds])
    return Table("", head, rows, ("left", "left"), [row.verdict for row in ranks])


def rates(data: ReportData) -> Section | None:
    """Rates tried and chosen for every scheme of a tuned sweep."""
    choices = data.choices
    if choices.empty:
        return None
    head = ["scheme", "learning rate", "encoding rate", "tuned at L", "as shipped", "tried"]
    by_scheme = choices.groupby(["sweep", "scheme"], sort=False)
    rows = [[scheme, *_rates(tried)] for (_, scheme), tried in by_scheme]
    times = ", ".join(f"{value:g}" for value in sorted(choices.times.unique()))
    several = [tried for _, tried in by_scheme if tried.encoding_rate.nunique() > 1]
    shared = set(choices.encoding_rate).intersection(*(tried.encoding_rate for tried in several))
    encoding_rates = ", ".join(f"{value:g}" for value in sorted(shared))
    return Section(
        "Rates, tuned at L",
        "Every scheme was tried with one seed at the same multiples of its recipe's learning rate "
        f"({times}; one further where the best was at the edge)"
        + (
            "; schemes with trained arrays then at encoding rates "
            f"{encoding_rates} with the best learning rate"
            if several
            else ""
        )
        + "; and at its recipe's rates, as shipped. Values are the loss at L on a third split, "
        "which is neither trained on nor held out, in bits per byte, or else in nats. Lengths "
        "beyond L were not used. The chosen run is also the first of the scheme's seeds.",
        [Block(table=Table("", head, rows, ("left", "", "", "", "", "prose")))],
    )


def _rates(rows: Frame) -> list[str]:
    """Cells of a scheme: chosen rates, their loss, the loss as shipped, and all rates tried."""
    values = rows.choose_bpb if rows.choose_bpb.notna().any() else rows.choose_loss
    values = values.where(rows.choose_loss != inf, inf)
    chosen, shipped = rows[rows.chosen == "yes"], rows[rows.shipped == "yes"]
    cells = [NONE, NONE]
    for row in chosen.itertuples():
        edge = " (at the edge)" if row.edge else ""
        cells = [f"{row.learning_rate:g}{edge}", f"{row.encoding_rate:g}"]
    has_encoding_rates = rows.encoding_rate.nunique() > 1
    tried = []
    for row in rows.itertuples():
        rate = f", encoding {row.encoding_rate:g}" if has_encoding_rates else ""
        tried.append(f"{row.learning_rate:g}{rate}: {_value(values[row.Index])}")
    losses = [_value(values[part.index].min()) for part in (chosen, shipped)]
    return [*cells, *losses, "; ".join(tried)]


def _value(value: float) -> str:
    return "not finite" if isinf(value) else decimal(value)


SIZE = (overview.ON_PAGE, 3.2)  # inches, without the legend


def learning(data: ReportData) -> Section | None:
    """Loss against steps, and a verdict on which groups are not done."""
    titles = {"loss": "training loss", "valid_loss": "loss on held-out text"}
    blocks, drawn = [], []
    for name, title in titles.items():
        losses = losses_by_step(data, name)
        if not (lines := learning_curves(data, losses, name)):
            continue
        label = f"{title}, {curves.VALUES['nll']}"
        drawing = curves.chart(lines, x="training step", y=label, size=SIZE)
        steps = sorted({step for line in lines for step in line.x})
        few = sorted({*steps[:: max(1, len(steps) // 8)], steps[-1]})
        rows = {line.name: {"group": line.name} for line in lines}
        table = tables.table(
            losses[losses.step.isin(few)], rows, "step", name, cell=lambda one: rounded(one.mean)
        )
        table = table._replace(head=[label, *table.head[1:]])
        charts = [figures.chart(drawing, f"learning-{name}", label)]
        blocks.append(Block({"learning": name}, charts=charts, table=table))
        drawn.append(name)
    if not drawn:
        return None
    return Section(
        "Was training long enough? Loss against steps",
        "Means over seeds. A group is not done if its held-out loss at the end falls more than "
        f"{FASTER:g} times as fast as that of the best group trained on the same text for "
        "as long; with three common seeds the difference must be significant. Its rank depends on "
        "the budget. The fall, in nats per token, is from the last held-out loss in the first "
        "three quarters of the steps to the final one, scaled to a quarter of the steps. Decaying "
        "the learning rate makes every loss fall, a high rate more.",
        [*blocks, _falls(data)],
        [Select("learning", "loss", {name: titles[name] for name in drawn})],
    )


def _falls(data: ReportData) -> Block:
    groups = groups_by_loss(data)
    if not groups:
        return Block(
            text="No verdict: it needs a held-out loss in the first three quarters of the steps "
            "and at the last step (valid_every)."
        )
    head = ["group", "held-out loss", "its fall", "95%, seeds", "verdict"]
    rows = [
        [
            row.group,
            rounded(row.loss),
            rounded(row.fall, row.interval),
            ends(row.interval),
            "" if row.done else "not done",
        ]
        for row in groups
    ]
    return Block(table=Table("", head, rows))
