"""What a report says of answers: who finds them, from how far, between ceiling and floor."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posenc_jax.plots import answers, curves, style
from posenc_jax.plots.curves import Line
from posenc_jax.report import figures
from posenc_jax.report.gather import Frame, Gathered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADMITTED = 0.8  # of the way from chance to ceiling, by an oracle


class Answers(NamedTuple):
    """Accuracies of every method of every group, over the seeds."""

    points: Frame  # of the protocol `answers`
    gaps: Frame  # of the protocol `gap`
    trained: int  # L of all but the oracles
    longest: int
    names: dict[str, str]  # of groups; the encoding's where no other group that answers has it


def of(data: Gathered) -> Answers | None:
    """None where no answers were scored."""
    scored = data.points[data.points.accuracy.notna()]
    points = scored[scored.protocol == "answers"]
    if points.empty:
        return None
    longest = int(points.length.max())
    beyond = points[points.trained < longest]
    trained = int(beyond.trained.min()) if len(beyond) else longest
    gaps = scored[scored.protocol == "gap"]
    return Answers(points, gaps, trained, longest, _names(points))


def _names(points: Frame) -> dict[str, str]:
    known = points[["group", "encoding", "trained"]].drop_duplicates("group")
    alone = ~known.duplicated(["encoding", "trained"], keep=False)
    return dict(zip(known.group, known.encoding.where(alone, known.group), strict=True))


def entry(found: Answers, group: str, method: str) -> str:
    """What a line or a row is called."""
    if method == "window":
        return "a window of L"
    name = found.names[group]
    return name if method == "none" else f"{name} + {method}"


def at_longest(found: Answers) -> dict[tuple[str, str], float]:
    """The accuracy of every group and method at the longest length, the best first."""
    own = found.points[found.points.length == found.longest]
    means = own.groupby(["group", "method"]).accuracy.mean().sort_values(ascending=False)
    return {(str(group), str(method)): float(value) for (group, method), value in means.items()}


def oracles(data: Gathered, found: Answers) -> dict[str, float]:
    """Groups that were trained at the longest length, with their accuracy there."""
    groups = {run["group"] for run in data.runs if run["trained"] >= found.longest}
    best = at_longest(found)
    return {group: best[group, "none"] for group in groups if (group, "none") in best}


def admitted(data: Gathered, found: Answers) -> str:
    """Whether the task measures reach: a sentence of the page."""
    chance = float(found.points.chance.dropna().mean())
    known = oracles(data, found)
    if found.trained >= found.longest:
        return "Nothing was read beyond the trained length."
    if not known:
        return (
            f"There is no oracle: no run was trained at {found.longest} tokens, so what is learned "
            "and what is reached are not told apart."
        )
    name = max(known, key=lambda group: known[group])
    own = found.names[name]
    way = (known[name] - chance) / (1 - chance)
    word = "is admitted" if way >= ADMITTED else "measures learning, not reach: it is not admitted"
    return (
        f"The oracle {own}, trained at {found.longest} tokens, is right in {known[name]:.3f}, "
        f"{way:.0%} of the way from chance ({chance:.3f}) to the ceiling: the task {word}."
    )


def lines(data: Gathered, found: Answers, most: int = 9) -> list[Line]:
    """The best methods at the longest length, every encoding as trained among them if it fits."""
    looks = figures.looks(data)
    numbers = {group: number for number, group in enumerate(figures.groups(data))}
    known = oracles(data, found)
    drawn = []
    order = [pair for pair in at_longest(found) if pair[1] != "window" and pair[0] not in known]
    plain = [pair for pair in order if pair[1] == "none"]
    best_of = {group: next((p for p in order if p[0] == group), None) for group, _ in plain}
    chosen = [*plain, *(pair for pair in best_of.values() if pair and pair not in plain)]
    kept = [pair for pair in order if pair in chosen][: max(most, len(plain))]
    for group, method in kept:
        own = found.points[(found.points.group == group) & (found.points.method == method)]
        look = looks[group]._asdict()
        if method != "none":
            look |= {"linestyle": "--", "markerfacecolor": "white"}
        gid = f"group-{numbers[group]}"
        drawn.append(figures.line(entry(found, group, method), own, look, "accuracy", gid=gid))
    return drawn + controls(data, found)


def controls(data: Gathered, found: Answers) -> list[Line]:
    """The ceiling, the window of L and the oracles."""
    ceiling = found.points.groupby("length").ceiling.mean().dropna()
    made = [curves.CEILING._replace(x=list(ceiling.index), y=list(ceiling))]
    window = found.points[found.points.method == "window"]
    window = window[window.trained == found.trained]
    made.append(figures.line("window: the last L tokens", window, dict(style.WINDOW), "accuracy"))
    for group in oracles(data, found):
        own = found.points[(found.points.group == group) & (found.points.method == "none")]
        look = {"color": figures.looks(data)[group].color, "linestyle": ":", "linewidth": 1.2}
        made.append(figures.line(f"{found.names[group]}, oracle", own, look, "accuracy"))
    return [line._replace(seeds=(), band=None) for line in made if line.x]


def grid(data: Gathered, found: Answers) -> tuple[np.ndarray, list[str], list[str]]:
    """Accuracy by method and by how far back the answer stands; the best at the longest first."""
    parts = list(dict.fromkeys(found.gaps.part))
    parts.sort(key=lambda part: int(part.partition("-")[0]))
    known = oracles(data, found)
    order = [pair for pair in at_longest(found) if pair[1] != "window"]
    order = [p for p in order if p[0] in known] + [p for p in order if p[0] not in known]
    order = [p for p in order if p[0] not in known or p[1] == "none"]
    floors = [p for p in at_longest(found) if p[1] == "window" and p[0] not in known][:1]
    means = found.gaps.groupby(["group", "method", "part"]).accuracy.mean()
    pairs = [pair for pair in order + floors if pair in means.index.droplevel("part")]
    values = np.array([[means.get((*pair, part), np.nan) for part in parts] for pair in pairs])
    names = [entry(found, *pair) + (", oracle" if pair[0] in known else "") for pair in pairs]
    return values, names, parts


def text(data: Gathered, found: Answers) -> list[Line]:
    """Bits of text against context, of the groups that answer nothing, as they were trained."""
    plain = data.points[(data.points.protocol == "same_token") & (data.points.method == "none")]
    plain = plain[plain.accuracy.isna()]
    looks = figures.looks(data)
    return [
        figures.line(str(group), own, looks[str(group)]._asdict())
        for group, own in plain.groupby("group", sort=False)
        if group not in found.names
    ]


def picture(data: Gathered) -> "Figure | None":
    """Those who answer, and beside them, small, those of `data` that read text."""
    found = of(data)
    if found is None or found.gaps.empty:
        return None
    values, names, parts = grid(data, found)
    title = f"Trained at {found.trained}. The answer was d tokens ago. Who finds it?"
    read = text(data, found)
    return answers.headline(lines(data, found), read, values, names, parts, found.trained, title)
