"""What waits for the next exchange with Redis: outcomes, those that failed to go out, and those that were refused."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import BrokenQueue
from rsmq_django.worker import outage
from rsmq_django.worker import tray as module
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Released, Succeeded
from rsmq_django.worker.tray import GIVE_UP_REFUSED_AFTER_S, LONG_BYTES, LONGEST_LATE_WAIT_S, MOST_BYTES, Tray
from tests.worker.still_clock import StillClock


class Delivery:
    """A message that was worked on."""

    def __init__(self) -> None:
        self.times_told = 0

    def tell_outcome(self) -> None:
        self.times_told += 1


class Ending:
    """An outcome of so many bytes, or of none."""

    def __init__(self, name: str, size: int | None = None) -> None:
        self.name = name
        self.outcome: Any = NOTHING_RETURNED if size is None else Succeeded("x" * size)
        self.delivery = Delivery()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr("rsmq_django.worker.outage.random.uniform", lambda least, most: most)
    return StillClock(monkeypatch, module, outage)


@pytest.fixture
def tray(clock: StillClock) -> Any:
    return Tray(Client(Connection("redis://nowhere")))


def names(endings: Any) -> str:
    return "".join(ending.name for ending in endings)


def test_outcomes_go_out_in_their_order(tray: Any):
    tray.endings.extend(map(Ending, "abc"))
    assert (tray.count, tray.is_empty) == (3, False)

    assert names(tray.take_endings()) == "abc"
    assert not tray.tries_late
    assert (tray.count, tray.is_empty, tray.take_endings()) == (0, True, [])


def test_long_values_go_out_in_several_exchanges_and_one_of_any_length_alone(tray: Any):
    half = MOST_BYTES // 2
    tray.endings.extend(
        [Ending("a", half), Ending("b", half - 1), Ending("c", 1), Ending("d", 5 * MOST_BYTES), Ending("e")]
    )

    assert [names(tray.take_endings()) for _ in range(3)] == ["abc", "d", "e"]


def test_other_outcomes_than_values_have_no_length(tray: Any):
    for _number in range(1001):
        tray.endings.append(Ending("a"))
        tray.endings[-1].outcome = Released()

    assert [len(tray.take_endings()) for _ in range(3)] == [1000, 1, 0]


def test_an_outcome_that_failed_is_tried_alone_and_before_later_ones(tray: Any):
    tray.endings.extend(map(Ending, "abcd"))
    taken = tray.take_endings()
    tray.put_back(taken)
    tray.endings.append(Ending("e"))
    assert tray.count == 5

    assert names(tray.take_endings()) == "a" and tray.tries_late
    tray.have_arrived()
    assert names(tray.take_endings()) == "bc"
    tray.have_arrived()
    assert names(tray.take_endings()) == "d"
    tray.have_arrived()
    assert names(tray.take_endings()) == "e" and not tray.tries_late


def test_what_failed_again_waits_behind_the_others_and_longer_when_it_is_long(tray: Any, clock: StillClock):
    tray.put_back([Ending("a", LONG_BYTES + 1), Ending("b", LONG_BYTES)])
    waits = []
    for _ in range(12):
        tray.put_back(tray.take_endings())
        waits.append((names(tray.late.endings), round(tray.late.next_try_at - clock.now, 3)))
        assert tray.take_endings() == [], "there are no others, and it is not time for these"
        clock.now = tray.late.next_try_at

    assert waits[:6] == [("ba", 0.2), ("ab", 0.2), ("ba", 0.4), ("ab", 0.4), ("ba", 0.8), ("ab", 0.8)]
    for _ in range(20):
        tray.put_back(tray.take_endings())
        clock.now = tray.late.next_try_at
    tray.put_back(tray.take_endings())
    assert tray.late.next_try_at == clock.now + LONGEST_LATE_WAIT_S
    clock.now = tray.late.next_try_at


def test_a_success_is_a_new_beginning(tray: Any, clock: StillClock):
    tray.put_back([Ending("a", LONG_BYTES + 1)])
    for wait_s in (0.2, 0.4, 0.8):
        tray.put_back(tray.take_endings())
        assert tray.late.next_try_at == clock.now + wait_s
        clock.now = tray.late.next_try_at
    tray.take_endings()
    tray.have_arrived()

    tray.put_back([Ending("b", LONG_BYTES + 1)])
    assert names(tray.take_endings()) == "b", "it failed together with others, so it is tried alone"
    tray.put_back([Ending("b", LONG_BYTES + 1)])
    assert tray.late.next_try_at == clock.now + 0.2


def test_outcomes_that_failed_together_wait_for_the_longest_of_them(tray: Any, clock: StillClock):
    tray.put_back([Ending("a"), Ending("b", LONG_BYTES + 1)])
    tray.late.most = 1

    tray.late.add(list(tray.late.endings), were_late=True)

    assert tray.late.next_try_at == clock.now + 0.2


def test_an_exchange_without_late_outcomes_says_nothing_about_them(tray: Any):
    tray.endings.append(Ending("a"))
    tray.take_endings()

    tray.have_arrived()

    assert tray.late.most == 1


def test_what_a_damaged_queue_refused_is_offered_again_when_it_may_be_mended(tray: Any, clock: StillClock):
    refused = [Ending("a"), Ending("b")]
    tray.refuse(refused, BrokenQueue("damaged"))
    assert (tray.count, tray.is_empty) == (0, False)
    assert [each.delivery.times_told for each in refused] == [1, 1], "what waits for it need not wait longer"

    tray.offer_refused_again(tray.damage.next_try_at - 0.001)
    assert tray.take_endings() == []
    tray.offer_refused_again(tray.damage.next_try_at)
    assert (names(tray.take_endings()), tray.is_empty) == ("ab", True)


@pytest.mark.parametrize(
    ("held", "waiting", "lasts_s", "is_stuck"),
    [
        (2, 0, GIVE_UP_REFUSED_AFTER_S + 0.1, True),
        (2, 0, GIVE_UP_REFUSED_AFTER_S, False),
        (3, 0, 60, False),  # something else still runs
        (2, 1, 60, False),
    ],
)
def test_a_tray_is_stuck_when_nothing_is_left_but_what_was_refused_for_a_while(
    tray: Any, clock: StillClock, held: int, waiting: int, lasts_s: float, is_stuck: bool
):
    assert not tray.is_stuck(0)
    tray.refuse([Ending("a"), Ending("b")], BrokenQueue("damaged"))
    tray.endings.extend(Ending("c") for _ in range(waiting))
    clock.now += lasts_s

    assert tray.is_stuck(held) is is_stuck


def test_messages_and_batches_to_strike_off_are_taken_out_once(tray: Any):
    deliveries = [Delivery() for _ in range(1001)]
    tray.let_go(deliveries, ["1 default"])

    assert [len(tray.take_let_go()) for _ in range(3)] == [1000, 1, 0]
    assert (tray.take_over(), tray.take_over()) == (["1 default"], [])
