"""Charts: well-formed SVG without style and script, with any numbers and names."""

import datetime as dt
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from rsmq_django.admin.charts import Chart, Series, nice_top, sparkline
from rsmq_django.admin.past_charts import time_label
from rsmq_django.live.history import HOUR

HOSTILE = '</title><script>alert(1)</script>" onload="x'


def a_chart(*values: list[float | None], is_stacked: bool = False, title: str = "Run time") -> Chart:
    series = [Series(f"{HOSTILE}{n}", "abcd"[n], each) for n, each in enumerate(values)]
    times = [f"12:{n:02}" for n in range(len(values[0]))]
    return Chart("run", title, times, series, lambda value: f"{value:g}", is_stacked)


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)  # noqa: S314 - our own


ODD = [[0.0], [None], [5.0], [0.001, None, 3.0], [1e9, 3.0], [None, None, 7.0], [0.0] * 60]


@pytest.mark.parametrize("is_stacked", [False, True])
@pytest.mark.parametrize("values", ODD)
def test_charts_are_well_formed_and_without_style_or_script(values: list[float | None], is_stacked: bool):
    root = parsed(a_chart(values, values, is_stacked=is_stacked, title=HOSTILE).svg())

    assert {each.tag for each in root.iter()} <= {"svg", "title", "desc", "line", "text", "polygon", "polyline", "rect"}
    names = {name for each in root.iter() for name in each.attrib}
    assert not any(name == "style" or name.startswith("on") for name in names)
    assert not re.search(r"nan|inf", " ".join(each.get("points", "") for each in root.iter()))


def test_unknown_values_are_a_gap_in_the_line():
    root = parsed(a_chart([1.0, 2.0, None, 3.0, 4.0]).svg())

    assert len(root.findall("polyline")) == 2


def test_columns_are_stacked():
    root = parsed(a_chart([1.0], [3.0], is_stacked=True).svg())

    lower, upper = root.findall("rect[@class='rsmq-bar rsmq-a']") + root.findall("rect[@class='rsmq-bar rsmq-b']")
    assert float(upper.get("y", 0)) + float(upper.get("height", 0)) == pytest.approx(float(lower.get("y", 0)), abs=0.2)


def test_the_table_has_the_values_of_the_chart_latest_first():
    assert a_chart([1.0, 0.0, 2.5], [None, 0.0, 4.0]).rows == [("12:02", ["2.5", "4"]), ("12:00", ["1", "-"])]


def test_a_chart_has_a_title_and_a_sentence_for_screen_readers():
    root = parsed(a_chart([1.0, 2.0]).svg())

    named = [root.find(f"*[@id='{part}']") for part in root.get("aria-labelledby", "").split()]
    assert [each.text for each in named if each is not None][0] == "Run time"
    assert len(named) == 2 and None not in named


def test_the_top_of_an_axis_divides_well():
    assert [nice_top(value) for value in (0, 1, 3, 7, 9, 11, 199)] == [1, 1, 4, 8, 10, 20, 200]
    assert nice_top(0.03) == pytest.approx(0.04)


def test_sparklines_show_nothing_when_nothing_happened():
    assert sparkline([0, 0], "x") == "" and sparkline([], "x") == ""
    assert "<script>" not in sparkline([1, 2], HOSTILE)
    parsed(sparkline([7], HOSTILE))


def test_a_known_zero_is_hidden_unless_the_chart_asks_for_zeros():
    usual = a_chart([0.0, None])
    telling = Chart("lag", "Lag", usual.times, usual.series, usual.show, shows_zero=True)

    assert usual.is_empty and not usual.rows
    assert not telling.is_empty and telling.rows == [("12:00", ["0"])]
    assert "0" in "".join(parsed(telling.svg()).itertext())
    assert Chart("lag", "Lag", ["12:00"], [Series("a", "a", [None])], usual.show, shows_zero=True).is_empty


def test_rows_of_the_table_lead_to_the_pages_of_their_times():
    chart = Chart("run", "Run time", ["12:00", "13:00"], [Series("p50", "a", [1.0, 2.0])], str, urls=["?a", "?b&c"])

    assert [time for time, _values in chart.rows] == ['<a href="?b&amp;c">13:00</a>', '<a href="?a">12:00</a>']


@pytest.mark.parametrize("uses_tz", [True, False])
def test_charts_of_hours_are_labelled_in_the_zone_of_the_site(settings: Any, uses_tz: bool):
    settings.USE_TZ, settings.TIME_ZONE = uses_tz, "Australia/Lord_Howe"
    begins = [dt.datetime(2026, 4, 4, hour, tzinfo=dt.UTC).timestamp() for hour in (14, 15, 16)]

    assert [time_label(round(each), HOUR) for each in begins] == ["01:00", "01:30 +1030", "02:30"]
    assert a_chart([1.0]).axis == "Time (Australia/Lord_Howe)"
