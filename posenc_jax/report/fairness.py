"""Sections on how alike groups were treated: rates, learning, and what a bias shows at all."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan

import numpy as np

from posenc_jax.plots import curves
from posenc_jax.report import elements, figures
from posenc_jax.report import learning as learned
from posenc_jax.report.elements import Row, Section, block, select, table
from posenc_jax.report.gather import Frame, Gathered, members


def rates(data: Gathered) -> Section | None:
    """What every scheme of a tuned sweep was tried at, and what was chosen."""
    tried = data.choices
    if tried.empty:
        return None
    head = ["scheme", "learning rate", "encoding rate", "tuned at L", "as shipped", "tried"]
    by_scheme = tried.groupby(["sweep", "scheme"], sort=False)
    rows = [Row([scheme, *_rates(own)]) for (_, scheme), own in by_scheme]
    times = ", ".join(f"{value:g}" for value in sorted(tried.times.unique()))
    several = [own for _, own in by_scheme if own.encoding_rate.nunique() > 1]
    by_all = set(tried.encoding_rate).intersection(*(own.encoding_rate for own in several))
    own_rates = ", ".join(f"{value:g}" for value in sorted(by_all))
    return Section(
        "Rates, tuned at L",
        "Every scheme was tried at the same learning rates, in multiples of its recipe's "
        f"({times}; one beyond the others where the best was at their edge), with one seed"
        + (
            f"; where it has trained arrays at the best of these at encoding rates {own_rates}"
            if several
            else ""
        )
        + "; and at its recipe's own rates, as shipped, where these were not among them. Values "
        "are the loss at L on a third split, which is neither trained on nor held out, in bits per "
        "byte, or in nats where there are none; no longer length had a say. The run that was "
        "chosen is also the first of the scheme's seeds.",
        table(head, rows, prose=True) + elements.csv(tried.drop(columns=["id"]), "choices"),
    )


def _rates(own: Frame) -> list[str]:
    """The cells of a scheme: the chosen rates, its loss there and as shipped, and all others."""
    values = own.choose_bpb if own.choose_bpb.notna().any() else own.choose_loss
    values = values.where(own.choose_loss != inf, inf)
    chosen, shipped = own[own.chosen == "yes"], own[own.shipped == "yes"]
    cells = ["–", "–"]
    for row in chosen.itertuples():
        edge = " (at the edge)" if row.edge else ""
        cells = [f"{row.learning_rate:g}{edge}", f"{row.encoding_rate:g}"]
    several = own.encoding_rate.nunique() > 1
    tried = []
    for row in own.itertuples():
        rate = f", encoding {row.encoding_rate:g}" if several else ""
        tried.append(f"{row.learning_rate:g}{rate}: {_value(values[row.Index])}")
    ends = [_value(values[part.index].min()) for part in (chosen, shipped)]
    return [*cells, *ends, "; ".join(tried)]


def _value(value: float) -> str:
    if isnan(value):
        return "–"
    return f"{value:.3f}" if isfinite(value) else "not finite"


def learning(data: Gathered) -> Section | None:
    """How far training came, and who is not done."""
    options, blocks = {}, []
    names = {"loss": "training loss", "valid_loss": "loss on held-out text"}
    for name, words in names.items():
        drawn = learned.lines(data, name)
        if not drawn:
            continue
        every = max(1, len({at for line in drawn for at in line.x}) // 8)
        label = f"{words}, {curves.VALUES['nll']}"
        axes = {"x": "training step", "y": label, "closer": curves.near(drawn), "every": every}
        content = elements.lines(drawn, f"learning-{name}", label, **axes)
        options[name] = words
        blocks.append(block(content, learning=name))
    if not options:
        return None
    return Section(
        "Loss against steps",
        "Means over seeds. A group is not done where its held-out loss falls more than "
        f"{learned.FASTER:g} times as fast at the end as that of the best one trained on the same "
        "text for as long, and over seeds where there are three: its ranking is one of budgets. "
        "The fall is from the last held-out loss by three quarters of the steps to the last one, "
        "scaled to a quarter of the steps, in nats per token; a rate that goes down makes all of "
        "them fall, a high one more. The n-gram reached is the longest one that is no better on "
        "the targets of same_token at L, as no shorter one is.",
        "".join(blocks) + _falls(data),
        select("learning", "loss", options),
    )


def _falls(data: Gathered) -> str:
    numbers = {group: number for number, group in enumerate(figures.groups(data))}
    rows = []
    for one in learned.of(data):
        verdict = "" if one.done else "not done"
        cells = [one.group, f"{one.loss:.3f}", f"{one.fall:.3f}", elements.ends(one.interval)]
        group = f"group-{numbers[one.group]}"
        rows.append(Row([*cells, one.reached or "–", verdict], group))
    head = ["group", "held-out loss", "its fall", "95%, seeds", "n-gram reached at L", "verdict"]
    few = (
        "No held-out loss by three quarters of the steps and at the last: no verdict (valid_every)."
    )
    return table(head, rows) if rows else elements.tag("p", few)


def keys(data: Gathered) -> Section | None:
    """How many keys a query without content sees, before and after training."""
    rows = []
    for number, group in enumerate(figures.groups(data)):
        runs = members(data, group)
        known = [run["keys"] for run in runs if run["keys"]]
        if not known:
            continue
        steps = {run["evaluated_at"] for run in runs}
        last = max(steps & set(known[0]), default=max(known[0]))
        layers = len(known[0][last])
        for layer in range(layers):
            name = str(layer) if layers > 1 else "all"
            cells = [_heads(known, step, layer) for step in (0, last)]
            rows.append(Row([group, name, *cells], f"group-{number}"))
    if not rows:
        return None
    return Section(
        "Effective keys",
        "How many of L keys the last query sees where its content says nothing (q . k = 0): the "
        "exponential of the entropy of its weights, which are then those of the bias alone, by "
        "head, as means over seeds. L is a uniform average, 1 a single key; gates that read the "
        "content are read from zeros.",
        table(["group", "layer", "at step 0, by head", "at the end, by head"], rows, left=4),
    )


def _heads(known: Sequence[Mapping[int, np.ndarray]], step: int, layer: int) -> str:
    values = [keys[step][layer] for keys in known if step in keys]
    return "  ".join(f"{value:.1f}" for value in np.mean(values, axis=0)) if values else "–"
