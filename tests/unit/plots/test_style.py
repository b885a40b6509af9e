"""The forms of pictures: files for screens and for papers."""

import pytest

from posenc_jax.plots import curves, style

LINES = [curves.Line(f"line {i}", [64, 128], [1.0, 2.0], {}) for i in range(6)]


def drawn():
    return curves.chart(LINES, y="bits per byte", lengths=[64, 128], title="a title", note="note")


@pytest.mark.parametrize("format_", style.FORMATS)
def test_a_picture_is_saved_in_the_format_asked_for(format_, tmp_path):
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    with style.printed(style.Form(format_)):
        path = style.save(drawn(), tmp_path / "of.dots-s0.png")
    assert path.name == f"of.dots-s0.{format_}"
    assert path.read_bytes().startswith(begins[format_])


def test_in_a_column_text_keeps_its_size_and_the_legend_stands_below():
    usual = drawn()
    with style.printed(style.Form("pdf", 3.3)):
        narrow = drawn()
    assert narrow.get_figwidth() == 3.3 and usual.get_figwidth() == 8
    assert [a.xaxis.label.get_size() for a in narrow.axes] == [
        a.xaxis.label.get_size() for a in usual.axes
    ]
    narrow.draw_without_rendering()
    legend = narrow.legends[0].get_window_extent()
    panel = narrow.axes[0].get_window_extent()
    assert legend.y1 < panel.y0 and legend.x1 <= narrow.bbox.x1
    assert panel.width > 0.7 * narrow.bbox.width
    assert not narrow.get_suptitle() and usual.get_suptitle() == "a title"


def test_the_form_ends_with_the_block_and_must_be_known():
    with style.printed(style.Form("svg")):
        assert style.formed(style.Path("a.png")).name == "a.svg"
    assert style.formed(style.Path("a.png")).name == "a.png"
    with pytest.raises(ValueError, match="format"), style.printed(style.Form("jpg")):
        pass
    with pytest.raises(ValueError, match="width must be"), style.printed(style.Form("pdf", 0.0)):
        pass
