"""The spans of time that counters are kept by: three resolutions, and windows of equal steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Resolution:
    """Spans of one length, and how long each is kept."""

    span_s: int
    keep_s: int

    def begin_of(self, at_s: float) -> int:
        """Return the begin of the span that contains a time."""
        return int(at_s // self.span_s) * self.span_s


#: A chart of an hour, a day or a week has 60, 144 or 168 points, and each is one small hash.
RESOLUTIONS = (Resolution(60, 3 * 3600), Resolution(600, 26 * 3600), Resolution(3600, 8 * 86_400))
#: The most points that one series may have.
MOST_SLOTS = 1000


@dataclass(frozen=True, slots=True)
class Window:
    """Which spans a series consists of."""

    resolution: Resolution
    step_s: int
    #: Multiples of the step. The end is the first second that does not belong to it.
    begins_s: int
    ends_s: int

    @classmethod
    def of(cls, since_s: float, until_s: float | None = None, step_s: int | None = None) -> Window:
        """Choose the finest resolution that is kept as far back as `since_s`, or a resolution that divides `step_s`.

        The span that contains `until_s` (default: now) is included. Raises InvalidValue for times without counters.
        """
        now_s = time.time()
        last_s = now_s if until_s is None else until_s
        if last_s < since_s:
            raise InvalidValue(f"a series from {since_s:.0f} cannot end before it begins, at {last_s:.0f}")
        resolution = _resolution(now_s - since_s, last_s - since_s, step_s)
        step = step_s or resolution.span_s
        window = cls(resolution, step, int(since_s // step) * step, (int(last_s // step) + 1) * step)
        if len(window.steps) > MOST_SLOTS:
            raise InvalidValue(f"a series has at most {MOST_SLOTS} points; choose a longer step than {step} s")
        return window

    @property
    def steps(self) -> range:
        """Return the begin of each step."""
        return range(self.begins_s, self.ends_s, self.step_s)

    @property
    def spans(self) -> range:
        """Return the begin of each stored span, with the span before the first one: growth is calculated from it."""
        span_s = self.resolution.span_s
        return range(self.begins_s - span_s, self.ends_s, span_s)


def ttls() -> list[int]:
    """Return the time to live in seconds of a span of each resolution."""
    # A span is complete at its end, and is kept for `keep_s` from then on.
    return [resolution.keep_s + resolution.span_s for resolution in RESOLUTIONS]


def _resolution(age_s: float, length_s: float, step_s: int | None) -> Resolution:
    if step_s is not None:
        fitting = [each for each in RESOLUTIONS if step_s % each.span_s == 0]
        if not fitting or step_s <= 0:
            raise InvalidValue(f"step must be a multiple of 60 s, got {step_s}; counters are kept by the minute")
    else:
        fitting = list(RESOLUTIONS)
    kept = [each for each in fitting if each.keep_s >= age_s and length_s / each.span_s <= MOST_SLOTS]
    if not kept:
        longest = max(each.keep_s for each in fitting)
        # Spans before it are empty; the others are still worth showing.
        return next(each for each in reversed(fitting) if each.keep_s == longest)
    # Of the resolutions that divide the step, the coarsest needs the fewest reads.
    return kept[-1] if step_s is not None else kept[0]
