"""Reach and order: one is relative to the ceiling, the other to a reader without order."""

from types import SimpleNamespace

import pandas as pd
import pytest

from posenc_jax.plots.answers import Arrow, Place, reach_and_order
from posenc_jax.report import answers


def points(rows):
    names = "protocol,part,group,method,length,seed,trained,accuracy,ceiling,orderless".split(",")
    return SimpleNamespace(points=pd.DataFrame(rows, columns=names))


def rows_of(group, method, length, seed, trained, reach, latest, ceiling=1.0):
    same = (group, method, length, seed, trained)
    return [
        ("reach", "", *same, reach, ceiling, ceiling),
        ("latest", "all", *same, latest, 1.0, 0.5),
        ("latest", "1-2", *same, 0.0, 1.0, 0.5),
    ]


def test_reach_is_of_the_ceiling_and_order_of_the_way_from_no_order():
    data = points(
        rows_of("rope", "none", 64, 0, 64, 0.6, 0.95, ceiling=0.6)
        + rows_of("rope", "none", 512, 0, 64, 0.9, 0.75)
        + rows_of("nope", "none", 512, 1, 64, 1.0, 0.5)
        + rows_of("rope-512", "none", 512, 0, 512, 1.0, 1.0)
    )
    found = answers.collect_order(data)
    assert (found.trained, found.longest) == (64, 512)
    at = found.points.set_index(["group", "length"])
    assert at.reach["rope", 64] == 1.0 and at.order["rope", 64] == pytest.approx(0.9)
    assert at.reach["rope", 512] == 0.9 and at.order["rope", 512] == pytest.approx(0.5)
    assert at.order["nope", 512] == 0.0 and at.order["rope-512", 512] == 1.0


def test_without_questions_of_order_there_is_no_picture():
    only = [row for row in rows_of("rope", "none", 64, 0, 64, 0.6, 0.9) if row[0] == "reach"]
    assert (
        answers.collect_order(points(only)) is None
        and answers.picture_of_order(points(only)) is None
    )


def test_every_method_is_a_mark_with_its_intervals(tmp_path):
    look = {"color": "#0072B2", "marker": "o", "linestyle": "-"}
    far = Place(0.9, 0.5, (0.85, 0.95), (0.4, 0.6))
    figure = reach_and_order([Arrow("rope", look, Place(1.0, 0.9), far)], 64, 512)
    (axes,) = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rope"]
    assert len(axes.collections) == 2 and "reach" in axes.get_xlabel()
