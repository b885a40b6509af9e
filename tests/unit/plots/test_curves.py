"""Pictures of curves, the looks in them, and what they are as an element of a page."""

import re

import pytest

from posenc_jax.display import Line
from posenc_jax.plots import curves, style


def test_a_figure_on_a_page_is_the_same_text_with_ids_of_its_own():
    def drawn(name):
        look = style.look_of_method("none")
        seeds = [[1.0, 3.0], [2.0, 4.0]]
        line = Line("rope", [16, 32], [2.0, 3.0], look, ([1, 2], [3, 4]), seeds)
        figure = curves.chart([line], y="bits", lengths=[16, 32], trained=[32])
        return style.svg(figure, name, "a <title>")

    text = drawn("a")
    assert text == drawn("a") and "<title>" not in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids) and all(name.startswith("a-") for name in ids)
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', drawn("b")))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= set(ids)
    assert ">rope</text>" in text


@pytest.mark.parametrize("count", [curves.BANDS, curves.BANDS + 1])
def test_every_interval_is_drawn_as_a_band_or_of_many_lines_as_a_bar(count):
    band = ([1.0, 2.0], [3.0, 4.0])
    lines = [Line(f"line {n}", [16, 32], [2.0, 3.0], {}, band) for n in range(count)]
    drawn = [type(one).__name__ for one in curves.chart(lines, y="bits").axes[0].collections]
    bands = {True: "FillBetweenPolyCollection", False: "LineCollection"}
    assert drawn == [bands[count <= curves.BANDS]] * count
