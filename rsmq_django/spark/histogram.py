"""Additive histograms of times, in buckets that grow by two per cent: quantiles are exact to one per cent.

Plain Python, so that a web page can aggregate any range of hours and tasks without Spark.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

#: Neighbouring buckets differ by 2 %, so the middle of one is within 1 % of every value in it.
BASE = 1.02
LOG_BASE = math.log(BASE)

Histogram = Mapping[int, int]


def bucket(value_us: float) -> int:
    """Return the bucket of a time; 0 for a microsecond or less."""
    return max(0, math.ceil(math.log(value_us) / LOG_BASE)) if value_us > 1 else 0


def value_us(number: int) -> float:
    """Return the representative time of a bucket."""
    return float(2 * BASE**number / (1 + BASE))


def of(values_us: Iterable[float]) -> dict[int, int]:
    """Return the histogram of some times."""
    return dict(Counter(map(bucket, values_us)))


def merged(histograms: Iterable[Histogram]) -> dict[int, int]:
    """Return the sum of histograms, in any order."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def quantile_us(histogram: Histogram, q: float) -> float | None:
    """Return the q-quantile (0 to 1) within one per cent; None for an empty histogram."""
    rank, seen = q * sum(histogram.values()), 0
    for number in sorted(histogram):
        seen += histogram[number]
        if seen >= rank and seen:
            return value_us(number)
    return None
