"""Charts as inline SVG: classes only, no style attribute and no script, so that a strict CSP accepts them.

Colours come from the style sheet, light and dark. Each point in time has an invisible column whose native `<title>`
tells all its values; people who cannot see the chart get its title, a sentence that sums it up, and a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from .formats import days_title, times_title

WIDTH, HEIGHT = 480, 200
LEFT, RIGHT, TOP, BOTTOM = 62, 10, 12, 26  # room for the labels of the axes, in units of the viewBox
GRID_LINES = 4
TIME_LABELS = 5
SPARK_WIDTH, SPARK_HEIGHT = 96, 22

Number = float | None
EMPTY = SafeString()


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one layer of columns."""

    label: str
    #: "a" to "d": which colour of the style sheet.
    colour: str
    #: None where nothing is known.
    values: Sequence[Number]

    @property
    def last(self) -> Number:
        """Return the latest value."""
        return next((value for value in reversed(self.values) if value is not None), None)


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows: series of equally many values, at equal distances in time."""

    name: str
    title: str
    times: Sequence[str]
    series: Sequence[Series]
    #: How a value is written at the axis, in tooltips and in the table.
    show: Callable[[float], str]
    #: Columns on top of each other rather than lines.
    is_stacked: bool = False
    #: Text of an empty chart; "" for the default text.
    nothing: str = ""
    #: A known 0 is news, too.
    shows_zero: bool = False
    #: Days of UTC rather than moments.
    is_daily: bool = False
    #: Address of the page about each time; none for charts without such pages.
    urls: Sequence[str] = ()

    @property
    def axis(self) -> str:
        """Return the title of the axis of time, with its zone."""
        return days_title() if self.is_daily else times_title()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to see."""
        return not any(self._is_news(at) for at in range(len(self.times)))

    @property
    def summary(self) -> str:
        """Return one sentence for people who cannot see it."""
        parts = [f"{one.label}: {'-' if one.last is None else self.show(one.last)}" for one in self.series]
        return f"{self.axis}: {self.times[0]} - {self.times[-1]}. {', '.join(parts)}" if self.times else ""

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the table, the latest first, without times in which nothing happened. Times lead to their pages."""
        rows = []
        for at in range(len(self.times) - 1, -1, -1):
            values = [one.values[at] for one in self.series]
            if self._is_news(at):
                rows.append((self._linked_time(at), ["-" if value is None else self.show(value) for value in values]))
        return rows

    def svg(self) -> SafeString:
        """Return the drawing."""
        scale = _Scale(len(self.times), nice_top(self._highest()), is_banded=self.is_stacked)
        layers = _stack(self.series, scale) if self.is_stacked else _lines(self.series, scale)
        return format_html(
            '<svg class="rsmq-chart" viewBox="0 0 {} {}" role="img" aria-labelledby="rsmq-{}-t rsmq-{}-d">'
            '<title id="rsmq-{}-t">{}</title><desc id="rsmq-{}-d">{}</desc>{}{}{}</svg>',
            WIDTH,
            HEIGHT,
            *[self.name] * 3,
            self.title,
            self.name,
            self.summary,
            _join(_axes(self.times, scale, self.show)),
            _join(layers),
            _join(self._columns(scale)),
        )

    def _linked_time(self, at: int) -> str:
        time = self.times[at]
        return format_html('<a href="{}">{}</a>', self.urls[at], time) if self.urls else time

    def _is_news(self, at: int) -> bool:
        values = [one.values[at] for one in self.series]
        return any(value is not None for value in values) if self.shows_zero else any(values)

    def _highest(self) -> float:
        if self.is_stacked:
            return max((sum(values) for values in zip(*(_known(one) for one in self.series), strict=True)), default=0)
        return max((value for one in self.series for value in _known(one)), default=0)

    def _columns(self, scale: _Scale) -> Iterator[SafeString]:
        """Return what shows the values when pointed at."""
        for at, time in enumerate(self.times):
            values = [
                f"{one.label}: {self.show(value)}" for one in self.series if (value := one.values[at]) is not None
            ]
            if self._is_news(at):
                text = "\n".join([time, *values])
                yield format_html(
                    '<rect class="rsmq-column" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
                    f"{scale.left_of(at):.1f}",
                    TOP,
                    f"{scale.step:.1f}",
                    HEIGHT - TOP - BOTTOM,
                    text,
                )


@dataclass(frozen=True, slots=True)
class _Scale:
    count: int
    top: float
    is_banded: bool

    @property
    def step(self) -> float:
        return (WIDTH - LEFT - RIGHT) / max(self.count, 1)

    def left_of(self, at: int) -> float:
        return LEFT + at * self.step

    def x(self, at: int) -> float:
        return self.left_of(at) + self.step / 2

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - BOTTOM - TOP)


def sparkline(values: Sequence[float], label: str) -> SafeString:
    """Return a tiny chart for a cell of a table; empty when there is nothing to see."""
    if not any(values):
        return EMPTY
    top, step = max(values), SPARK_WIDTH / max(len(values) - 1, 1)
    floor = SPARK_HEIGHT - 1
    points = " ".join(f"{at * step:.1f},{floor - value / top * (floor - 2):.1f}" for at, value in enumerate(values))
    return format_html(
        '<svg class="rsmq-spark" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        '<polygon class="rsmq-area rsmq-a" points="{} {},{} 0,{}"/>'
        '<polyline class="rsmq-line rsmq-a" points="{}"/></svg>',
        SPARK_WIDTH,
        SPARK_HEIGHT,
        label,
        label,
        points,
        SPARK_WIDTH,
        floor,
        floor,
        points,
    )


def nice_top(value: float) -> float:
    """Round a maximum up to a multiple that the grid divides well: 1, 2, 4 or 8 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * step for step in (1, 2, 4, 8, 10) if power * step >= value)


def _axes(times: Sequence[str], scale: _Scale, show: Callable[[float], str]) -> Iterator[SafeString]:
    for line in range(GRID_LINES + 1):
        value = scale.top * line / GRID_LINES
        y = f"{scale.y(value):.1f}"
        yield format_html('<line class="rsmq-grid" x1="{}" x2="{}" y1="{}" y2="{}"/>', LEFT, WIDTH - RIGHT, y, y)
        if line % 2 == 0:
            yield format_html(
                '<text class="rsmq-tick rsmq-tick-y" x="{}" y="{}" dy="5">{}</text>', LEFT - 6, y, show(value)
            )
    every = max(1, len(times) // TIME_LABELS)
    for at in range(every // 2, len(times), every):
        x = f"{scale.x(at):.1f}"
        yield format_html('<text class="rsmq-tick rsmq-tick-x" x="{}" y="{}">{}</text>', x, HEIGHT - 6, times[at])


def _lines(series: Sequence[Series], scale: _Scale) -> Iterator[SafeString]:
    for one in series:
        for first, part in _parts(one.values):
            # A single value would be a line without length.
            places = [(scale.x(first + at), value) for at, value in enumerate(part)]
            if len(part) == 1:
                places = [(scale.left_of(first), part[0]), (scale.left_of(first + 1), part[0])]
            points = " ".join(f"{x:.1f},{scale.y(value):.1f}" for x, value in places)
            floor = f"{places[-1][0]:.1f},{scale.y(0):.1f} {places[0][0]:.1f},{scale.y(0):.1f}"
            yield format_html('<polygon class="rsmq-area rsmq-{}" points="{} {}"/>', one.colour, points, floor)
            yield format_html('<polyline class="rsmq-line rsmq-{}" points="{}"/>', one.colour, points)


def _parts(values: Sequence[Number]) -> Iterator[tuple[int, list[float]]]:
    """Return the stretches of known values, each with the place of its first."""
    part: list[float] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            part.append(value)
        elif part:
            yield at - len(part), part
            part = []


def _stack(series: Sequence[Series], scale: _Scale) -> Iterator[SafeString]:
    floors = [0.0] * scale.count
    for one in series:
        for at, value in enumerate(_known(one)):
            if value:
                top, bottom = scale.y(floors[at] + value), scale.y(floors[at])
                floors[at] += value
                yield format_html(
                    '<rect class="rsmq-bar rsmq-{}" x="{}" y="{}" width="{}" height="{}"/>',
                    one.colour,
                    f"{scale.left_of(at) + scale.step * 0.1:.1f}",
                    f"{top:.1f}",
                    f"{scale.step * 0.8:.1f}",
                    f"{max(bottom - top, 0.5):.1f}",
                )


def _known(one: Series) -> list[float]:
    return [value or 0.0 for value in one.values]


def _join(parts: Iterator[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))
