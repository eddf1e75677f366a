"""Shares by weight, without a server: what each queue may take."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsmq_django.worker.fetch.queue_selector import Weights


def drain(weights: dict[str, int], backlog: dict[str, int], rooms: Iterator[int], *, until: int) -> Counter[str]:
    """Serve queues as the fetch script does, until so many messages were served, and count them."""
    shares, waiting, total = Weights(weights), Counter(backlog), Counter[str]()
    while total.total() < until and waiting.total():
        room = next(rooms)
        quotas, served, left = shares.quotas(room), Counter[str](), room
        for limits in (quotas, dict.fromkeys(quotas, room)):
            for name in quotas:
                took = min(limits[name], left, waiting[name])
                served[name] += took
                waiting[name] -= took
                left -= took
        shares.note(quotas, served, room)
        total += served
    return total


@pytest.mark.parametrize("rooms", [[1], [2], [3, 1], [10], [37], [200], [200, 1, 1, 5]], ids=str)
def test_served_messages_follow_the_weights_under_backlog(rooms: list[int]):
    weights = {"urgent": 6, "mail": 4, "slow": 2}

    served = drain(weights, dict.fromkeys(weights, 5000), cycle(rooms), until=1200)

    for name, weight in weights.items():
        assert served[name] == pytest.approx(100 * weight, rel=0.1)


def test_an_empty_queue_gives_its_share_away_in_proportion():
    weights = {"urgent": 6, "mail": 3, "slow": 3}

    served = drain(weights, {"urgent": 5000, "mail": 0, "slow": 5000}, repeat(10), until=1200)

    assert served["urgent"] == pytest.approx(800, rel=0.1)
    assert served["slow"] == pytest.approx(400, rel=0.1)


def test_a_queue_that_was_empty_has_saved_nothing_up():
    shares = Weights({"busy": 1, "idle": 1})
    for _ in range(1000):
        shares.note(shares.quotas(10), {"busy": 10}, 10)

    quotas = shares.quotas(10)

    assert quotas == {"busy": 5, "idle": 5}


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=5),
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
)
def test_no_queue_with_messages_starves_and_shares_stay_near_the_weights(numbers: list[int], rooms: list[int]):
    weights = {f"q{number}": weight for number, weight in enumerate(numbers)}

    served = drain(weights, dict.fromkeys(weights, 20_000), cycle(rooms), until=5_000)

    for name, weight in weights.items():
        assert served[name] == pytest.approx(served.total() * weight / sum(numbers), rel=0.1, abs=max(rooms))


def test_largest_lag_comes_first():
    shares = Weights({"a": 1, "b": 1, "c": 2})

    shares.note(shares.quotas(1), {"a": 1}, 1)

    assert list(shares.quotas(8)) == ["c", "b", "a"]
    assert shares.quotas(8) == {"c": 4, "b": 2, "a": 1}


def test_one_message_is_requested_from_a_queue_that_was_empty():
    shares = Weights({"busy": 99, "idle": 1})
    assert shares.quotas(10)["idle"] == 0

    shares.note({"busy": 10, "idle": 1}, {"busy": 9}, 10)

    assert shares.quotas(10)["idle"] == 1
