"""Histograms of durations: exactness of merging and quantiles."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core.stats.histogram import GROWTH, Histogram, bucket_of, value_of

durations = st.lists(st.floats(min_value=0, max_value=1e12, allow_nan=False), max_size=200)


@given(st.floats(min_value=1.0001, max_value=1e13))
def test_value_of_a_bucket_is_within_one_per_cent_of_all_that_it_holds(duration_us: float):
    assert value_of(bucket_of(duration_us)) == pytest.approx(duration_us, rel=0.0101)


def test_durations_up_to_a_microsecond_are_in_bucket_0():
    assert [bucket_of(us) for us in (-5, 0, 0.3, 1)] == [0, 0, 0, 0]
    assert bucket_of(1.01) == 1


@given(st.integers(min_value=1, max_value=1400))
def test_buckets_end_at_the_limits_of_the_scheme(bucket: int):
    assert bucket_of(GROWTH**bucket * 0.9999) == bucket
    assert bucket_of(GROWTH**bucket * 1.0001) == bucket + 1


@given(durations, durations, durations)
def test_merging_gives_the_same_in_any_order_and_the_same_as_counting_all(a: list, b: list, c: list):
    left, right = Histogram(), Histogram()
    for part in (a, b, c):
        left.add(Histogram.of(part))
    for part in (c, a, b):
        right.add(Histogram.of(part))

    assert left == right
    assert left.counts == Histogram.of([*a, *b, *c]).counts
    assert left.count == len(a) + len(b) + len(c)


@given(durations)
def test_merging_leaves_the_other_histogram_alone(values: list):
    other = Histogram.of(values)
    before = (dict(other.counts), other.sum_us)

    total = Histogram()
    total.add(other)
    total.add(other)

    assert (other.counts, other.sum_us) == before
    assert total.count == 2 * other.count


@given(durations.filter(bool), st.floats(min_value=0, max_value=1))
def test_quantile_is_within_one_per_cent_of_the_exact_one(values: list, share: float):
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]

    assert Histogram.of(values).quantile_us(share) == pytest.approx(exact, rel=0.0101, abs=1)


@given(durations, st.floats(min_value=2, max_value=1e12))
def test_count_up_to_a_limit_is_exact_but_for_the_bucket_of_the_limit(values: list, limit_us: float):
    histogram = Histogram.of(values)

    found = histogram.count_up_to(limit_us)

    assert sum(value <= limit_us for value in values) <= found
    assert found <= sum(value <= limit_us * GROWTH * 1.0001 for value in values)


def test_empty_histogram_has_neither_mean_nor_quantile():
    assert (Histogram().mean_us, Histogram().quantile_us(0.5), Histogram().count) == (None, None, 0)


def test_p99_of_a_hundred_thousand_durations_comes_from_a_few_hundred_numbers():
    draw = random.Random(7)
    values = [draw.lognormvariate(9, 1) for _ in range(100_000)]

    histogram = Histogram.of(values)

    exact = sorted(values)[99_000 - 1]
    assert histogram.quantile_us(0.99) == pytest.approx(exact, rel=0.011)
    assert histogram.mean_us == pytest.approx(sum(values) / len(values), rel=0.001)
    assert len(histogram.counts) < 500
