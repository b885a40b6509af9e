"""The sections of the page; each is a function from the data of a report to a `Section`."""

from collections.abc import Sequence
from math import inf, isinf

from posenc_jax.display import NONE, Table, decimal
from posenc_jax.evaluation import protocols
from posenc_jax.evaluation.cells import FRESH
from posenc_jax.evaluation.statistics import FEWEST_DOCUMENTS, FEWEST_TARGETS
from posenc_jax.plots import curves
from posenc_jax.plots.answers import by_gap
from posenc_jax.report import answers as report_answers
from posenc_jax.report import figures
from posenc_jax.report.figures import Block, Section, Select, chart_with_table
from posenc_jax.report.learning import FASTER, groups_by_loss, learning_curves
from posenc_jax.report.ranking import Rank, Rankings, loss_of, wrong_answers
from posenc_jax.report.runs import Frame, ReportData
from posenc_jax.runtime.terminal import counted


def every(data: ReportData, ranks: Rankings) -> list[Section]:
    """All sections, in order; the page adds one on the runs."""
    sections = [found_and_order(data), answers(data), loss(data), ranking(data, ranks)]
    sections += [rates(data), learning(data), extensions(data), places(data)]
    return [section for section in sections if section is not None]


def shown(data: ReportData) -> list[str]:
    """Protocols against length that were measured."""
    measured = set(data.points.protocol)
    return [protocol for protocol in protocols.against_length() if protocol in measured]


def answers(data: ReportData) -> Section | None:
    """Retrieval accuracy against context and by distance to the answer."""
    results = report_answers.collect(data)
    if results is None:
        return None
    blocks = [
        chart_with_table(
            report_answers.lines(data, results),
            "answers-accuracy",
            f"answers: {protocols.find('answers').title}",
            curves.VALUES["relative"],
            **figures.tokens_axis(results.points),
        )
    ]
    if not results.gaps.empty:
        values, names, parts = report_answers.grid(results)
        figure = by_gap(values, names, parts, results.trained)
        rows = [
            [name, *(decimal(value, 2) for value in row)]
            for name, row in zip(names, values, strict=True)
        ]
        title = f"gap: {protocols.find('gap').title}"
        table = Table("", ["accuracy by tokens back", *parts], rows)
        charts = [figures.chart(figure, "answers-gap", title)]
        blocks.append(Block(charts=charts, table=table))
    return Section(
        f"Retrieval accuracy, trained at {results.trained}, evaluated to {results.longest} tokens",
        "Means over seeds. The lines show accuracy relative to the ceiling, which finds every "
        "answer within its window and guesses the rest. The reader without order takes one of the "
        "settings in its window at random; the window is limited to the last L tokens. "
        + report_answers.admitted(results),
        [*blocks, Block(files={"answers": results.points, "gap": results.gaps})],
    )


def found_and_order(data: ReportData) -> Section | None:
    """What methods find beyond L and how they order it, as a picture and a table."""
    results = report_answers.ordered(data)
    if results is None:
        return None
    ordered, longest = results
    title = f"Found and order beyond L, at {longest:,} tokens"
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


def loss(data: ReportData) -> Section:
    """Loss of every group without extensions, with its baselines."""
    blocks = []
    for protocol in shown(data):
        points = data.points[data.points.protocol == protocol]
        words = f"{protocol}: {protocols.find(protocol).title}. {figures.counts_in_words(points)}."
        blocks.append(Block({"protocol": protocol}, text=words))
        for value in ("bpb", "ppl"):
            content = chart_with_table(
                figures.against_length(data, protocol, value),
                f"{protocol}-{value}",
                f"{protocol}, {curves.VALUES[value]}",
                curves.VALUES[value],
                {"protocol": protocol, "value": value},
                log=value == "ppl",
                closer=value == "bpb",
                **figures.tokens_axis(points),
            )
            blocks.append(content)
    return Section(
        "Loss against length",
        "Means over seeds, without extensions. Dots are seeds; bands, or bars, and ± in the "
        "table, are 95% t-intervals over three seeds or more. Null is the loss of a model that "
        "uses nothing beyond the training length L; for same_token it is fresh, a row of the last "
        "L tokens. Window is the run limited to the last L tokens; streaming sees the first tokens "
        "too. The grey line (from scripts/yardstick.py) is the best interpolated n-gram of the "
        "training text, scored on the same targets; the table has all n-grams.",
        [*blocks, Block(files={"curves": data.points})],
        [
            Select("protocol", "protocol", {name: name for name in shown(data)}),
            Select("value", "value", {name: curves.VALUES[name] for name in ("bpb", "ppl")}),
        ],
        {group: data.looks[group]["color"] for group in data.groups},
    )


def ranking(data: ReportData, ranks: Rankings) -> Section:
    blocks = []
    lengths = sorted({length for tables in ranks.extended.values() for length in tables})
    for protocol in shown(data):
        for length in lengths:
            for name, tables in (("yes", ranks.extended), ("no", ranks.plain)):
                entries = tables.get(protocol, {}).get(length, [])
                when = {"protocol": protocol, "length": str(length), "extended": name}
                text = "" if entries else "nothing to rank"
                table = _ranks(data, protocol, entries) if entries else None
                blocks.append(Block(when, f"{protocol}, {length:,} tokens", text, table=table))
    options = {str(length): f"{length:,}" for length in lengths}
    return Section(
        "Ranking",
        "Means over seeds in bits per byte, or in accuracy for answers, without oracles. Methods "
        'that change nothing at a length are not listed. "Behind" is the difference to the best '
        "entry, with 95% t-intervals over what the column names and, for three common seeds or "
        "more, over seeds. A tie (shaded) is a difference that is not significant given both "
        "variances. Verdicts are corrected for all pairs of entries (Holm), as the "
        "best is chosen on the same data, so a table has a false claim in at most 5% of cases; "
        "intervals are not corrected. A difference is open if the comparison alone is significant, "
        f"but there are fewer than {FEWEST_DOCUMENTS} documents, fewer than three common seeds, or "
        "too many comparisons for these seeds.",
        blocks,
        [
            Select("length", "length", options, str(lengths[-1]) if lengths else ""),
            Select("extended", "extensions", {"yes": "with extensions", "no": "without"}),
        ],
    )


def _ranks(data: ReportData, protocol: str, ranks: Sequence[Rank]) -> Table:
    """A row per entry; controls never hide the best, the reference of all others."""
    accuracy = loss_of(protocol) is wrong_answers
    unit = "accuracy" if accuracy else "bits per byte"
    head = ["group", "extension", unit, "behind", "verdict", f"95%, {ranks[0].units}"]
    head += ["95%, common seeds", "95%, seeds", "seeds"]
    rows, gids = [], []
    for row in map(_right, ranks) if accuracy else ranks:
        difference, gid = [NONE, "best", NONE, NONE], ""
        if row.verdict != "best":
            verdict = f"open: {_why_open(row)}" if row.verdict == "open" else row.verdict
            intervals = figures.ends(row.by_documents), figures.ends(row.by_seeds)
            difference = [f"{row.behind:+.3f}", verdict, *intervals]
            gid = data.gid(row.group)
        seeds = "  ".join(map(decimal, row.seeds))
        ends = figures.ends(row.interval)
        rows.append([row.group, row.method, decimal(row.loss), *difference, ends, seeds])
        gids.append(gid)
    return Table("", head, rows, ("left", "left"), gids, [row.verdict for row in ranks])


def _why_open(row: Rank) -> str:
    if not row.units.enough:
        return str(row.units)
    if row.by_seeds is None:
        return counted(row.shared, "seed")
    return f"{counted(row.shared, 'seed')}, {counted(row.comparisons, 'comparison')}"


def _right(row: Rank) -> Rank:
    """The row in shares of right instead of wrong answers."""
    low, high = row.interval or (0.0, 0.0)
    interval = None if row.interval is None else (1 - high, 1 - low)
    seeds = [1 - value for value in row.seeds]
    return row._replace(loss=1 - row.loss, seeds=seeds, interval=interval)


def extensions(data: ReportData) -> Section | None:
    """Loss of every group with extensions: all of them, and each at several scales."""
    options, blocks = {}, []
    for number, group in enumerate(data.groups):
        extended = data.points[(data.points.group == group) & data.points.window.isna()]
        extended = extended[extended.method != FRESH]
        if extended.method.nunique() < 2:
            continue
        scales = extended.groupby("extension").scale.nunique()
        for by in ("", *scales[scales > 1].index):
            name = f"{number}-{by}" if by else str(number)
            options[name] = f"{group}: {by} by scale" if by else f"{group}: every extension"
            for protocol in shown(data):
                points = extended[extended.protocol == protocol]
                content = chart_with_table(
                    figures.extended(data, group, points, by),
                    f"extensions-{len(options)}-{protocol}",
                    f"{protocol}, {options[name]}",
                    curves.VALUES["bpb"],
                    {"protocol": protocol, "extensions": name},
                    closer=True,
                    **figures.tokens_axis(points),
                )
                blocks.append(content)
    if not options:
        return None
    first = next((name for name, words in options.items() if words.startswith("rope:")), "")
    return Section(
        "Extensions",
        "Every extension of one group at its largest scale, or one extension at all its scales; "
        "means over seeds.",
        blocks,
        [Select("extensions", "lines", options, first)],
    )


def places(data: ReportData) -> Section | None:
    """Loss by place in the window; one chart per protocol, and per group with extensions."""
    drawn = {}  # key -> label, lines and points
    for protocol in data.places.protocol.unique():
        points = data.places[data.places.protocol == protocol]
        drawn[protocol] = f"{protocol}, all encodings", figures.by_place(data, protocol), points
        for number, group in enumerate(data.groups):
            selected = points[(points.group == group) & points.window.isna()]
            if selected.method.nunique() > 1:
                lines = figures.extended(data, group, selected, value="nll", x="place")
                words = f"{protocol}, extensions of {group}"
                drawn[f"{protocol}-{number}"] = words, lines, selected
    if not drawn:
        return None
    blocks = [
        chart_with_table(
            lines,
            f"place-{key}",
            words,
            curves.VALUES["nll"],
            {"places": key},
            x=curves.PLACE,
            every=6,
            **{**figures.tokens_axis(points), "lengths": [int(points.length.max())]},
        )
        for key, (words, lines, points) in drawn.items()
    ]
    return Section(
        "Where in the window",
        "Loss at each place of the longest window, averaged over seeds and over neighbouring "
        f"places with at least {FEWEST_TARGETS} targets; thin lines are seeds.",
        blocks,
        [Select("places", "lines", {key: words for key, (words, _, _) in drawn.items()})],
    )


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
        [
            Block(
                table=Table("", head, rows, ("left", "", "", "", "", "prose")),
                files={"choices": choices.drop(columns=["id"])},
            )
        ],
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


def learning(data: ReportData) -> Section | None:
    """Loss against steps, and a verdict on which groups are not done."""
    titles = {"loss": "training loss", "valid_loss": "loss on held-out text"}
    drawn = {name: lines for name in titles if (lines := learning_curves(data, name))}
    if not drawn:
        return None
    blocks = []
    for name, lines in drawn.items():
        label = f"{titles[name]}, {curves.VALUES['nll']}"
        content = chart_with_table(
            lines,
            f"learning-{name}",
            label,
            label,
            {"learning": name},
            x="training step",
            closer=True,
            every=max(1, len({at for line in lines for at in line.x}) // 8),
        )
        blocks.append(content)
    return Section(
        "Loss against steps",
        "Means over seeds. A group is not done if its held-out loss at the end falls more than "
        f"{FASTER:g} times as fast as that of the best group trained on the same text for "
        "as long; with three common seeds the difference must be significant. Its rank depends on "
        "the budget. The fall, in nats per token, is from the last held-out loss in the first "
        "three quarters of the steps to the final one, scaled to a quarter of the steps. Decaying "
        "the learning rate makes every loss fall, a high rate more. The n-gram reached is the "
        "longest that, like all shorter ones, is no better than the group on the targets of "
        "same_token at L.",
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
    head = ["group", "held-out loss", "its fall", "95%, seeds", "n-gram reached at L", "verdict"]
    rows = [
        [
            row.group,
            decimal(row.loss),
            decimal(row.fall),
            figures.ends(row.interval),
            row.reached or NONE,
            "" if row.done else "not done",
        ]
        for row in groups
    ]
    gids = [data.gid(row.group) for row in groups]
    return Block(table=Table("", head, rows, gids=gids))
