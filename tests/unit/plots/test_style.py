"""The forms of pictures: files for screens and for papers."""

import numpy as np
import pytest
from matplotlib.text import Text

from posenc_jax.display import Line
from posenc_jax.plots import answers, curves, style

LINES = [Line(f"line {i}", [64, 128], [1.0, 2.0], {}) for i in range(6)]


def drawn():
    return curves.chart(LINES, y="bits per byte", lengths=[64, 128], title="a title", note="note")


@pytest.mark.parametrize("format_", style.FORMATS)
def test_a_picture_is_saved_in_the_requested_format(format_, tmp_path):
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    with style.printed(style.Form(format_)):
        path = style.save(drawn(), tmp_path / "of.dots-s0.png")
    assert path.name == f"of.dots-s0.{format_}"
    assert style.formed(path).name == "of.dots-s0.png"  # the form ends with the block
    assert path.read_bytes().startswith(begins[format_])


def test_a_narrow_picture_has_text_of_8_points_and_no_title():
    usual = drawn()
    with style.printed(style.Form("pdf", 3.3)):
        narrow = drawn()
    assert narrow.get_figwidth() == 3.3 and usual.get_figwidth() == 8
    assert {text.get_size() for text in narrow.findobj(Text) if text.get_text()} == {8}
    assert not narrow.get_suptitle() and usual.get_suptitle() == "a title"


LONG = "variables-rope-s0-L512-batch_size=4-far=1.0 + yarn:8:beta_fast=16:attention_factor=1.2+logn"


def unreadable(figure):
    """Texts of a figure that are cut, too small for print, or on top of one another."""
    figure.draw_without_rendering()
    beyond = {
        id(tick.label1)
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in axis.get_major_ticks()
        if not min(low, high) <= tick.get_loc() <= max(low, high)  # never drawn
    }
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    shown = [t for t in shown if id(t) not in beyond]
    boxes = [(t.get_text(), t.get_window_extent().padded(-1)) for t in shown]
    page = figure.bbox.padded(1)
    found = [t.get_text() for t in shown if t.get_size() < 7]
    found += [t for t, box in boxes if outside(box, page)]
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a[1].overlaps(b[1])]
    return found + [(a[0], b[0]) for a, b in pairs]


def outside(box, page):
    return box.x0 < page.x0 or box.y0 < page.y0 or box.x1 > page.x1 or box.y1 > page.y1


@pytest.mark.parametrize("trained", [64, 128])
def test_everything_in_a_column_can_be_read(trained):
    names = ["rope", "fire, encoding_rate=16", "ceiling: all that a window holds", LONG, LONG + "s"]
    lengths = [64, 128, 256, 512]
    lines = [Line(name, lengths, [1.0, 2.0, 3.0, 4.0], {}) for name in names]
    with style.printed(style.Form("pdf", 3.3)):
        figure = curves.chart(lines, y="bits per byte", lengths=lengths, trained=[trained])
        assert unreadable(figure) == []
    panel = figure.axes[0].get_window_extent()
    assert figure.legends[0].get_window_extent().y1 < panel.y0
    assert panel.width > 0.7 * figure.bbox.width


@pytest.mark.parametrize("panels", [1, 2])
@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("of", ["{}", "variables-{}-s0 with NTK by parts by 8"])
@pytest.mark.parametrize("width", [3.3, 6.75])
def test_a_paper_s_figure_can_be_read(width, of, count, panels):
    """Numbers along its axes stand apart, and names that do not fit beside lines are below them."""
    lengths = [2**i for i in range(6, 18)]
    names = [of.format(name) for name in style.ENCODINGS][:count]
    lines = [
        Line(name, lengths, [n + i / 10 for i in range(12)], style.look_of_encoding("rope"))
        for n, name in enumerate(names)
    ]
    view = curves.View("", "accuracy, as a share of the best possible", lines, [64])
    with style.printed(style.Form("pdf", width)):
        figure = curves.named(*[view] * panels)
    assert unreadable(figure) == [] and figure.get_figwidth() == width
    assert {text.get_size() for text in figure.findobj(Text) if text.get_text()} == {8}
    assert bool(figure.legends) == (of != "{}")
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert not outside(box, figure.bbox)
        assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    tops = {round(axes.get_position().y1, 3) for axes in figure.axes}
    assert len(tops) == (1 if width > 5 else panels)


@pytest.mark.parametrize("width", [None, 3.3])
def test_a_map_of_long_names_and_few_answers_can_be_read(width):
    names = ["fire", "rope + ntk_by_parts:8", LONG, LONG + "s"]
    parts = ["1-16", "17-32", "33-64", "65-128", "129-256", "257-512"]
    values = np.full((4, 6), 0.5)
    values[:, 0] = np.nan
    with style.printed(style.Form(width=width)):
        figure = answers.by_gap(values, names, parts, 64)
        assert unreadable(figure) == []
        assert figure.axes[0].get_window_extent().width > 0.4 * figure.bbox.width
    assert sum(text.get_text() == "0.50" for text in figure.axes[0].texts) == 20


def test_a_folded_name_loses_nothing():
    lines = style.folded(LONG, 22).split("\n")
    assert max(map(len, lines)) <= 22 and "".join(lines).replace(" ", "") == LONG.replace(" ", "")
    assert style.folded("yarn:8", 22) == "yarn:8"
    assert style.folded("x" * 50, 22).replace("\n", "") == "x" * 50


def test_a_width_must_be_positive():
    with pytest.raises(ValueError, match="width must be"), style.printed(style.Form("pdf", 0.0)):
        pass
