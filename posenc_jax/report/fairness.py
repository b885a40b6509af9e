"""Sections on whether groups are compared fairly: rates and learning."""

from math import inf, isfinite, isnan

from posenc_jax.plots import curves
from posenc_jax.report import elements, figures
from posenc_jax.report import learning as learned
from posenc_jax.report.elements import Row, Section, block, select, table
from posenc_jax.report.gather import Frame, Gathered


def rates(data: Gathered) -> Section | None:
    """Rates tried and chosen for every scheme of a tuned sweep."""
    choices = data.choices
    if choices.empty:
        return None
    head = ["scheme", "learning rate", "encoding rate", "tuned at L", "as shipped", "tried"]
    by_scheme = choices.groupby(["sweep", "scheme"], sort=False)
    rows = [Row([scheme, *_rates(tried)]) for (_, scheme), tried in by_scheme]
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
        table(head, rows, prose=True) + elements.csv(choices.drop(columns=["id"]), "choices"),
    )


def _rates(rows: Frame) -> list[str]:
    """Cells of a scheme: chosen rates, their loss, the loss as shipped, and all rates tried."""
    values = rows.choose_bpb if rows.choose_bpb.notna().any() else rows.choose_loss
    values = values.where(rows.choose_loss != inf, inf)
    chosen, shipped = rows[rows.chosen == "yes"], rows[rows.shipped == "yes"]
    cells = ["–", "–"]
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
    if isnan(value):
        return "–"
    return f"{value:.3f}" if isfinite(value) else "not finite"


def learning(data: Gathered) -> Section | None:
    """Loss against steps, and a verdict on which groups are not done."""
    options, blocks = {}, []
    titles = {"loss": "training loss", "valid_loss": "loss on held-out text"}
    for name, words in titles.items():
        drawn = learned.lines(data, name)
        if not drawn:
            continue
        spacing = max(1, len({at for line in drawn for at in line.x}) // 8)
        label = f"{words}, {curves.VALUES['nll']}"
        axes = {"x": "training step", "y": label, "closer": curves.near(drawn), "every": spacing}
        content = elements.lines(drawn, f"learning-{name}", label, **axes)
        options[name] = words
        blocks.append(block(content, learning=name))
    if not options:
        return None
    return Section(
        "Loss against steps",
        "Means over seeds. A group is not done if its held-out loss at the end falls more than "
        f"{learned.FASTER:g} times as fast as that of the best group trained on the same text for "
        "as long; with three common seeds the difference must be significant. Its rank depends on "
        "the budget. The fall, in nats per token, is from the last held-out loss in the first "
        "three quarters of the steps to the final one, scaled to a quarter of the steps. Decaying "
        "the learning rate makes every loss fall, a high rate more. The n-gram reached is the "
        "longest that, like all shorter ones, is no better than the group on the targets of "
        "same_token at L.",
        "".join(blocks) + _falls(data),
        select("learning", "loss", options),
    )


def _falls(data: Gathered) -> str:
    numbers = {group: number for number, group in enumerate(figures.groups(data))}
    rows = []
    for row in learned.of(data):
        verdict = "" if row.done else "not done"
        cells = [
            row.group,
            f"{row.loss:.3f}",
            f"{row.fall:.3f}",
            elements.ends(row.interval),
        ]
        group = f"group-{numbers[row.group]}"
        rows.append(Row([*cells, row.reached or "–", verdict], group))
    head = ["group", "held-out loss", "its fall", "95%, seeds", "n-gram reached at L", "verdict"]
    no_verdict = (
        "No verdict: it needs a held-out loss in the first three quarters of the steps and at the "
        "last step (valid_every)."
    )
    return table(head, rows) if rows else elements.tag("p", no_verdict)
