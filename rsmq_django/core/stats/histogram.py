"""Histograms of durations, in buckets that grow by two per cent: every quantile is exact within one per cent.

Bucket 0 counts durations up to a microsecond, bucket b those above 1.02^(b-1) and up to 1.02^b microseconds. Histograms
of any spans of time, queues, tasks and machines merge by adding their counts. Plain Python without Redis and Spark: the
counters of workers and the history of the pipeline have the same buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..numbers import read_whole

GROWTH = 1.02
LOG_GROWTH = math.log(GROWTH)
#: The bucket of three thousand years.
LAST_BUCKET = 2000


def bucket_of(duration_us: float) -> int:
    """Return the bucket of a duration in microseconds; a negative duration counts as 0."""
    return math.ceil(math.log(duration_us) / LOG_GROWTH) if duration_us > 1 else 0


def value_of(bucket: int) -> float:
    """Return the duration in microseconds that represents a bucket: at most one per cent from any duration in it."""
    return float(2 * GROWTH**bucket / (1 + GROWTH))


def read_bucket(text: bytes | str) -> int | None:
    """Return the number of a bucket; None if no duration can have it."""
    number = read_whole(text)
    return number if number is not None and 0 <= number <= LAST_BUCKET else None


@dataclass(slots=True)
class Histogram:
    """The number of durations in each bucket, and their sum."""

    counts: dict[int, int] = field(default_factory=dict)
    sum_us: int = 0

    @classmethod
    def of(cls, durations_us: Iterable[float]) -> Histogram:
        """Return the histogram of durations."""
        histogram = cls()
        for duration_us in durations_us:
            histogram.note(duration_us)
        return histogram

    @property
    def count(self) -> int:
        """Return the number of counted durations."""
        return sum(self.counts.values())

    @property
    def mean_us(self) -> float | None:
        """Return the exact mean; None without durations."""
        count = self.count
        return self.sum_us / count if count else None

    def note(self, duration_us: float) -> None:
        """Count one duration."""
        bucket = bucket_of(duration_us)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.sum_us += round(duration_us)

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.add_counts(other.counts)
        self.sum_us += other.sum_us

    def add_counts(self, counts: Mapping[int, int]) -> None:
        """Add counts by bucket."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def quantile_us(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1) in microseconds, within one per cent; None without durations."""
        rank, seen = max(1, math.ceil(share * self.count)), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return value_of(bucket)
        return None

    def count_up_to(self, limit_us: float) -> int:
        """Return the number of durations up to `limit_us`; the limit is exact within one per cent."""
        last = bucket_of(limit_us)
        return sum(count for bucket, count in self.counts.items() if bucket <= last)
