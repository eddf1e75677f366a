"""When a worker looks for messages on one connection."""

from __future__ import annotations

import math

import pytest

from rsmq_django.worker.fetch import polling as module
from rsmq_django.worker.fetch.polling import PollSchedule
from tests.worker.still_clock import StillClock

POLL_S = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    return StillClock(monkeypatch, module)


class IdleTurns:
    """The other idle processes of the supervisor: this one waits `turn` seconds for them."""

    def __init__(self, turn: float, *, is_drained: bool = False) -> None:
        self.turn, self.is_drained = turn, is_drained
        self.asked: list[tuple[int, float]] = []
        self.noted: list[tuple[int, float]] = []

    def turn_s(self) -> float:
        return self.turn

    def is_drained_since(self, connection: int, at: float) -> bool:
        self.asked.append((connection, at))
        return self.is_drained

    def note_drained(self, connection: int, at: float) -> None:
        self.noted.append((connection, at))


def poll_schedule_of(idle_turns: IdleTurns | None = None) -> PollSchedule:
    return PollSchedule(poll_interval_s=POLL_S, idle_turns=idle_turns, connection_number=3)


def wait_after(
    poll_schedule: PollSchedule,
    clock: StillClock,
    *,
    found: int,
    next_s: float,
    is_partial: bool = False,
    more: bool = False,
) -> float:
    """Return the wait after a look that ended like this."""
    poll_schedule.begin()
    poll_schedule.plan_next(found=found, next_s=next_s, is_partial=is_partial, may_be_more=more)
    return poll_schedule.times()[0] - clock.now


@pytest.mark.parametrize(
    ("look", "wait_s"),
    [
        ({"found": 1, "next_s": -1, "more": True}, 0),
        ({"found": 0, "next_s": 60, "more": True}, 0),
        ({"found": 1, "next_s": -1, "is_partial": True}, 0),
        ({"found": 0, "next_s": -1, "is_partial": True}, 0.05),
        ({"found": 0, "next_s": -1}, POLL_S),
        ({"found": 1, "next_s": -1}, POLL_S),
        ({"found": 0, "next_s": 2}, 2),
        ({"found": 0, "next_s": 60}, POLL_S),
        ({"found": 0, "next_s": 0}, 0.05),
        ({"found": 2, "next_s": 0}, 0),
        ({"found": 2, "next_s": 0.01}, 0.01),
    ],
)
def test_next_fetch_is_planned_from_the_last_reply(clock: StillClock, look: dict[str, object], wait_s: float):
    assert wait_after(poll_schedule_of(), clock, **look) == pytest.approx(wait_s)


def test_polling_interval_is_short_after_messages_and_grows_without_them(clock: StillClock):
    poll_schedule = poll_schedule_of()
    waits = [wait_after(poll_schedule, clock, found=0, next_s=-1)]
    clock.now += POLL_S

    waits.append(wait_after(poll_schedule, clock, found=1, next_s=-1))
    for silence_s in (0.008, 2.0, 30.0):
        clock.now += silence_s
        waits.append(wait_after(poll_schedule, clock, found=0, next_s=-1))

    assert waits == pytest.approx([POLL_S, 0.008, 0.008, 0.2008, 3.2008])


def test_fetch_after_a_publish_does_not_shorten_the_polling_interval(clock: StillClock):
    poll_schedule = poll_schedule_of()
    wait_after(poll_schedule, clock, found=0, next_s=-1)

    poll_schedule.note_publish()

    assert wait_after(poll_schedule, clock, found=1, next_s=-1) == POLL_S


def test_fetch_for_a_due_message_does_not_shorten_the_polling_interval(clock: StillClock):
    poll_schedule = poll_schedule_of()
    wait_after(poll_schedule, clock, found=0, next_s=-1)
    poll_schedule.fetch_within(2)
    clock.now += 2

    assert poll_schedule.is_time()
    assert wait_after(poll_schedule, clock, found=1, next_s=-1) == POLL_S


def test_message_that_becomes_visible_after_the_next_poll_changes_nothing(clock: StillClock):
    poll_schedule = poll_schedule_of()
    wait_after(poll_schedule, clock, found=0, next_s=2)

    poll_schedule.fetch_within(3)
    later = poll_schedule.times()[0] - clock.now
    poll_schedule.fetch_within(1)

    assert (later, poll_schedule.times()[0] - clock.now) == (2, 1)


def test_single_worker_fetches_at_once_after_a_publish(clock: StillClock):
    poll_schedule = poll_schedule_of()
    wait_after(poll_schedule, clock, found=0, next_s=-1)
    before = poll_schedule.is_time()

    assert poll_schedule.note_publish()

    assert (before, poll_schedule.is_time(), poll_schedule.times()) == (False, True, (0.0, math.inf))
    poll_schedule.begin()
    assert not poll_schedule.is_time(), "a look answers all that was published before it"


@pytest.mark.parametrize("is_drained", [False, True])
def test_worker_after_others_takes_its_turn_unless_one_of_them_found_no_messages(clock: StillClock, is_drained: bool):
    idle_turns = IdleTurns(0.02, is_drained=is_drained)
    poll_schedule = poll_schedule_of(idle_turns)
    wait_after(poll_schedule, clock, found=0, next_s=-1)

    is_news = [poll_schedule.note_publish(), poll_schedule.note_publish()]
    turn_at = poll_schedule.times()[1] - clock.now
    poll_schedule.take_turn()
    early = poll_schedule.has_wakeup
    clock.now += 0.02
    poll_schedule.take_turn()

    assert (is_news, early) == ([True, False], False)
    assert turn_at == pytest.approx(0.02)
    assert poll_schedule.has_wakeup is not is_drained
    assert idle_turns.asked == [(3, StillClock.now)] and poll_schedule.times()[1] == math.inf


def test_empty_fetch_is_shared_with_the_other_processes(clock: StillClock):
    idle_turns = IdleTurns(0.0)

    poll_schedule_of(idle_turns).note_drained(7.0)
    poll_schedule_of().note_drained(7.0)

    assert idle_turns.noted == [(3, 7.0)]


def test_fetch_is_repeated_soon_after_a_lost_reply(clock: StillClock):
    poll_schedule = poll_schedule_of()
    wait_after(poll_schedule, clock, found=0, next_s=-1)

    poll_schedule.fetch_soon()

    assert poll_schedule.is_time()


def test_idle_polls_of_several_connections_fall_together(clock: StillClock):
    schedules = [
        PollSchedule(poll_interval_s=POLL_S, idle_turns=None, connection_number=number, polls_from=999.0)
        for number in range(3)
    ]
    times = set()
    for poll_schedule in schedules:
        clock.now += 0.25
        wait_after(poll_schedule, clock, found=0, next_s=-1)
        times.add(poll_schedule.times()[0])

    assert times == {1004.0}
    assert [each.is_idle_poll(1004.0) for each in schedules] == [True] * 3
    assert not schedules[0].is_idle_poll(1003.9)


def test_fetch_for_another_reason_is_no_idle_poll(clock: StillClock):
    poll_schedule = PollSchedule(poll_interval_s=POLL_S, idle_turns=None, connection_number=0, polls_from=999.0)
    assert not poll_schedule.is_idle_poll(clock.now)  # the first fetch
    wait_after(poll_schedule, clock, found=0, next_s=-1)
    later = clock.now + POLL_S

    poll_schedule.has_wakeup = True
    assert not poll_schedule.is_idle_poll(later)
    poll_schedule.begin()
    assert poll_schedule.is_idle_poll(later)
    poll_schedule.fetch_within(1)
    assert not poll_schedule.is_idle_poll(later)
    wait_after(poll_schedule, clock, found=0, next_s=1)
    assert not poll_schedule.is_idle_poll(later)
