"""What waits for the next exchange with Redis: outcomes, those that failed to go out, and those that were refused."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import BrokenQueue
from rsmq_django.core.transport import backoff as backoff
from rsmq_django.worker.lease import pending as module
from rsmq_django.worker.lease.pending import (
    GIVE_UP_REFUSED_AFTER_S,
    LONG_BYTES,
    LONGEST_LATE_WAIT_S,
    MOST_BYTES,
    PendingSettlements,
)
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Released, Succeeded
from tests.worker.still_clock import StillClock


class Delivery:
    """A message that was worked on."""

    def __init__(self) -> None:
        self.times_told = 0

    def release_waiter(self) -> None:
        self.times_told += 1


class Settlement:
    """An outcome of so many bytes, or of none."""

    def __init__(self, name: str, size: int | None = None) -> None:
        self.name = name
        self.outcome: Any = NOTHING_RETURNED if size is None else Succeeded("x" * size)
        self.delivery = Delivery()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr("rsmq_django.core.transport.backoff.random.uniform", lambda least, most: most)
    return StillClock(monkeypatch, module, backoff)


@pytest.fixture
def pending(clock: StillClock) -> Any:
    return PendingSettlements(Client(Connection("redis://nowhere")))


def names(settlements: Any) -> str:
    return "".join(settlement.name for settlement in settlements)


def test_outcomes_are_sent_in_order(pending: Any):
    pending.settlements.extend(map(Settlement, "abc"))
    assert (pending.count, pending.is_empty) == (3, False)

    assert names(pending.take_settlements()) == "abc"
    assert not pending.tries_late
    assert (pending.count, pending.is_empty, pending.take_settlements()) == (0, True, [])


def test_long_values_go_out_in_several_exchanges_and_one_of_any_length_alone(pending: Any):
    half = MOST_BYTES // 2
    pending.settlements.extend(
        [
            Settlement("a", half),
            Settlement("b", half - 1),
            Settlement("c", 1),
            Settlement("d", 5 * MOST_BYTES),
            Settlement("e"),
        ]
    )

    assert [names(pending.take_settlements()) for _ in range(3)] == ["abc", "d", "e"]


def test_other_outcomes_than_values_have_no_length(pending: Any):
    for _number in range(1001):
        pending.settlements.append(Settlement("a"))
        pending.settlements[-1].outcome = Released()

    assert [len(pending.take_settlements()) for _ in range(3)] == [1000, 1, 0]


def test_a_refused_outcome_is_sent_again_alone_and_before_later_ones(pending: Any):
    pending.settlements.extend(map(Settlement, "abcd"))
    taken = pending.take_settlements()
    pending.put_back(taken)
    pending.settlements.append(Settlement("e"))
    assert pending.count == 5

    assert names(pending.take_settlements()) == "a" and pending.tries_late
    pending.have_arrived()
    assert names(pending.take_settlements()) == "bc"
    pending.have_arrived()
    assert names(pending.take_settlements()) == "d"
    pending.have_arrived()
    assert names(pending.take_settlements()) == "e" and not pending.tries_late


def test_row_that_failed_again_waits_after_the_others_with_a_growing_delay(pending: Any, clock: StillClock):
    pending.put_back([Settlement("a", LONG_BYTES + 1), Settlement("b", LONG_BYTES)])
    waits = []
    for _ in range(12):
        pending.put_back(pending.take_settlements())
        waits.append((names(pending.late.settlements), round(pending.late.next_try_at - clock.now, 3)))
        assert pending.take_settlements() == [], "there are no others, and it is not time for these"
        clock.now = pending.late.next_try_at

    assert waits[:6] == [("ba", 0.2), ("ab", 0.2), ("ba", 0.4), ("ab", 0.4), ("ba", 0.8), ("ab", 0.8)]
    for _ in range(20):
        pending.put_back(pending.take_settlements())
        clock.now = pending.late.next_try_at
    pending.put_back(pending.take_settlements())
    assert pending.late.next_try_at == clock.now + LONGEST_LATE_WAIT_S
    clock.now = pending.late.next_try_at


def test_a_success_is_a_new_beginning(pending: Any, clock: StillClock):
    pending.put_back([Settlement("a", LONG_BYTES + 1)])
    for wait_s in (0.2, 0.4, 0.8):
        pending.put_back(pending.take_settlements())
        assert pending.late.next_try_at == clock.now + wait_s
        clock.now = pending.late.next_try_at
    pending.take_settlements()
    pending.have_arrived()

    pending.put_back([Settlement("b", LONG_BYTES + 1)])
    assert names(pending.take_settlements()) == "b", "it failed together with others, so it is tried alone"
    pending.put_back([Settlement("b", LONG_BYTES + 1)])
    assert pending.late.next_try_at == clock.now + 0.2


def test_outcomes_that_failed_together_wait_for_the_longest_of_them(pending: Any, clock: StillClock):
    pending.put_back([Settlement("a"), Settlement("b", LONG_BYTES + 1)])
    pending.late.most = 1

    pending.late.add(list(pending.late.settlements), were_late=True)

    assert pending.late.next_try_at == clock.now + 0.2


def test_an_exchange_without_late_outcomes_does_not_log_them(pending: Any):
    pending.settlements.append(Settlement("a"))
    pending.take_settlements()

    pending.have_arrived()

    assert pending.late.most == 1


def test_outcomes_that_a_damaged_queue_refused_are_sent_again_later(pending: Any, clock: StillClock):
    refused = [Settlement("a"), Settlement("b")]
    pending.refuse(refused, BrokenQueue("damaged"))
    assert (pending.count, pending.is_empty) == (0, False)
    assert [each.delivery.times_told for each in refused] == [1, 1], "what waits for it need not wait longer"

    pending.offer_refused_again(pending.damage.next_try_at - 0.001)
    assert pending.take_settlements() == []
    pending.offer_refused_again(pending.damage.next_try_at)
    assert (names(pending.take_settlements()), pending.is_empty) == ("ab", True)


@pytest.mark.parametrize(
    ("held", "waiting", "lasts_s", "is_stuck"),
    [
        (2, 0, GIVE_UP_REFUSED_AFTER_S + 0.1, True),
        (2, 0, GIVE_UP_REFUSED_AFTER_S, False),
        (3, 0, 60, False),  # something else still runs
        (2, 1, 60, False),
    ],
)
def test_settlements_are_stuck_when_only_repeatedly_refused_outcomes_are_left(
    pending: Any, clock: StillClock, held: int, waiting: int, lasts_s: float, is_stuck: bool
):
    assert not pending.is_stuck(0)
    pending.refuse([Settlement("a"), Settlement("b")], BrokenQueue("damaged"))
    pending.settlements.extend(Settlement("c") for _ in range(waiting))
    clock.now += lasts_s

    assert pending.is_stuck(held) is is_stuck


def test_messages_and_batches_to_strike_off_are_taken_out_once(pending: Any):
    deliveries = [Delivery() for _ in range(1001)]
    pending.abandon(deliveries, ["1 default"])

    assert [len(pending.take_abandoned()) for _ in range(3)] == [1000, 1, 0]
    assert (pending.take_over(), pending.take_over()) == (["1 default"], [])
