"""Tables as Markdown and as LaTeX."""

from collections.abc import Sequence
from typing import NamedTuple

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class Table(NamedTuple):
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    body = "\n".join("| " + " | ".join(_escaped(line)) + " |" for line in lines)
    return f"{table.caption}\n\n{body}"


def _escaped(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


def latex(table: Table) -> str:
    """With booktabs."""

    def form(cells: Sequence[str]) -> str:
        return " & ".join(map(tex, cells)) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{tex(table.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
            r"\toprule",
            form(table.head),
            r"\midrule",
            *map(form, table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def tex(text: str) -> str:
    """A text as LaTeX prints it."""
    written = "".join(SPECIAL.get(c, c) for c in text)
    return written.replace("±", r"$\pm$").replace("–", "--")


FORMS = {"markdown": markdown, "latex": latex}
