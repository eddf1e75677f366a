"""What a worker concludes from a look at its queues, and when it talks to Redis again: at the first of its reasons."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed
from rsmq_django.worker import fetcher as fetcher_module
from rsmq_django.worker import lookout as lookout_module
from rsmq_django.worker import outage as outage_module
from rsmq_django.worker import tray as tray_module
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.fetcher import Fetcher
from rsmq_django.worker.lineup import Look
from rsmq_django.worker.starts import NOTE_START_AFTER_S
from rsmq_django.worker.steps import Fetched, Portion
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, new_worker

POLL_S = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr("rsmq_django.worker.outage.random.uniform", lambda least, most: most)
    return StillClock(monkeypatch, fetcher_module, lookout_module, outage_module, tray_module)


@pytest.fixture
def fetcher(configure: Configure, settings: Any, clock: StillClock) -> Fetcher:
    """The fetcher of a worker that has just found its queues empty. Nothing here talks to Redis."""
    configure(default={}, mail={})
    (fetcher,) = new_worker(poll_interval_s=POLL_S).fetchers
    assert isinstance(fetcher, Fetcher)
    fetcher.lineup.known_count, fetcher.lineup.is_provisioned, fetcher.lineup.bands_are_known = 2, True, True
    look(fetcher)
    return fetcher


def look(
    fetcher: Fetcher,
    *counts: int,
    next_ms: float = -1,
    room: int = 4,
    queue_count: int = 2,
    unreadable: tuple[int, ...] = (),
    is_partial: bool = False,
) -> None:
    """Let a look find so many messages in each queue."""
    found = [Portion(position, ["id"] * count, [], []) for position, count in enumerate(counts, 1) if count]
    fetcher.lookout.begin()
    asked = Look(room, fetcher.queues, [], None, is_partial)
    fetcher.looked(Fetched(0, next_ms, queue_count, list(unreadable), found), asked)


def hold(fetcher: Fetcher, clock: StillClock, *, lease_s: float = 30.0) -> Delivery:
    work_queue = fetcher.queues[0]
    work_queue.lease_s = lease_s
    delivery = Delivery(work_queue, Message("id", b"", 1, None), 1, clock.now, "1 default")
    fetcher.leases.hold([delivery])
    return delivery


# -- What a look says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_drained", "is_empty"),
    [
        ({}, True, True),
        ({"next_ms": 700}, True, False),
        ({"next_ms": 0}, False, False),
        ({"next_ms": 0.4}, True, False),
        ({"is_partial": True}, False, False),
        ({"queue_count": 3}, False, False),
        ({"unreadable": (2,)}, False, False),
        ({"unreadable": (0,)}, True, True),
    ],
)
def test_a_look_without_messages_says_whether_there_are_any(
    fetcher: Fetcher, found: dict[str, Any], is_drained: bool, is_empty: bool
):
    look(fetcher, **found)

    assert (fetcher.is_drained, fetcher.is_empty) == (is_drained, is_empty)


def test_a_look_that_finds_messages_is_no_end(fetcher: Fetcher):
    look(fetcher, 0, 1)

    assert (fetcher.is_drained, fetcher.is_empty) == (False, False)


def test_queues_are_created_or_looked_up_again_when_something_about_them_changed(fetcher: Fetcher):
    assert fetcher.lineup.is_settled
    look(fetcher, unreadable=(0,))
    assert fetcher.lineup.is_settled, "what is paused cannot be read, and no queue is missing"
    look(fetcher, 1, queue_count=3)
    assert (fetcher.lineup.is_provisioned, fetcher.lineup.bands_are_known) == (True, False)
    fetcher.lineup.bands_are_known = True
    look(fetcher, 1, unreadable=(1,))
    assert (fetcher.lineup.is_provisioned, fetcher.lineup.bands_are_known) == (False, True)


def test_pauses_that_cannot_be_read_are_told_once(fetcher: Fetcher, caplog: pytest.LogCaptureFixture):
    for _ in range(3):
        look(fetcher, unreadable=(0,))
    assert caplog.text.count("nothing counts as paused") == 1

    look(fetcher)
    look(fetcher, unreadable=(0,))

    assert caplog.text.count("nothing counts as paused") == 2


@pytest.mark.parametrize(("counts", "filled"), [((4,), 4), ((1, 3), 4), ((5,), 5), ((3,), 0), ((), 0)])
def test_only_a_look_that_brought_all_it_asked_for_is_followed_by_one_ahead(
    fetcher: Fetcher, counts: tuple[int, ...], filled: int
):
    look(fetcher, *counts, room=4)

    assert fetcher._filled == filled


# -- When the next exchange is -----------------------------------------------------------------------------------------


def in_s(fetcher: Fetcher, clock: StillClock, room: int = 4, **patience: float) -> float | None:
    """Return in how many seconds the next exchange is."""
    at = fetcher.next_exchange_at(room, **patience)
    return None if at is None else at - clock.now


def test_an_idle_worker_polls_and_one_without_room_waits_for_an_event(fetcher: Fetcher, clock: StillClock):
    assert in_s(fetcher, clock) == POLL_S
    assert in_s(fetcher, clock, room=0) is None


def test_a_look_that_is_under_way_is_read_at_once(fetcher: Fetcher):
    fetcher._flight = object()  # type: ignore[assignment]

    assert fetcher.next_exchange_at(0) == 0.0


def test_outcomes_go_out_at_once_or_as_late_as_the_worker_has_patience(fetcher: Fetcher, clock: StillClock):
    fetcher.tray.endings.append(object())  # type: ignore[arg-type]

    assert fetcher.next_exchange_at(0) == 0.0
    assert in_s(fetcher, clock, room=0, patience_s=0.25) == 0.25


def test_outcomes_that_failed_or_were_refused_have_times_of_their_own(fetcher: Fetcher, clock: StillClock):
    fetcher.tray.refused.append(object())  # type: ignore[arg-type]
    fetcher.tray.damage.next_try_at = clock.now + 3
    assert in_s(fetcher, clock, room=0) == 3

    fetcher.tray.late.endings.append(object())  # type: ignore[arg-type]
    fetcher.tray.late.next_try_at = clock.now + 2
    assert in_s(fetcher, clock, room=0) == 2


def test_leases_are_renewed_and_starts_are_noted_in_time(fetcher: Fetcher, clock: StillClock):
    delivery = hold(fetcher, clock)
    assert in_s(fetcher, clock, room=0) == pytest.approx(NOTE_START_AFTER_S / 2)

    delivery.start_noted = True
    assert in_s(fetcher, clock, room=0) == pytest.approx(3.0), "a tenth of the lease"


def test_batches_that_are_over_and_suspected_cancellations_wait_for_nothing(fetcher: Fetcher, clock: StillClock):
    assert fetcher.next_exchange_at(0) is None
    fetcher.tray.over.append("1 default")
    assert fetcher.next_exchange_at(0) == 0.0
    fetcher.tray.take_over()
    fetcher.suspect_cancellations()
    assert fetcher.next_exchange_at(0) == 0.0
    delivery = hold(fetcher, clock)
    assert fetcher.cancellations.question(fetcher.leases.held) is not None
    assert fetcher.next_exchange_at(0) != 0.0, "it is asked once"
    fetcher.cancellations.suspect([delivery])
    assert fetcher.next_exchange_at(0) == 0.0


def test_a_report_that_is_due_is_a_reason(fetcher: Fetcher, clock: StillClock):
    assert fetcher.statistics is not None
    fetcher.statistics.sent("default", "shop.pay", 1)
    fetcher.statistics._report_at = clock.now + 0.5

    assert in_s(fetcher, clock, room=0) == 0.5


def test_heartbeats_are_a_reason_only_with_a_supervisor(fetcher: Fetcher, clock: StillClock):
    fetcher.next_beat_at = clock.now + 1.5

    assert in_s(fetcher, clock) == 1.5


def test_while_the_server_is_away_every_reason_waits_for_the_next_try(fetcher: Fetcher, clock: StillClock):
    fetcher.tray.over.append("1 default")
    fetcher.outage.note(ConnectionFailed("no route"))

    assert in_s(fetcher, clock, room=0) == pytest.approx(0.1)
    assert fetcher.exchange(4) == [], "nothing is tried before"


# -- What is known about it --------------------------------------------------------------------------------------------


def test_it_is_idle_when_nothing_is_held_and_redis_knows_all(fetcher: Fetcher, clock: StillClock):
    assert (fetcher.is_idle, fetcher.has_endings, fetcher.holds_nothing, fetcher.unreported) == (True, False, True, 0)

    delivery = hold(fetcher, clock)
    assert not fetcher.is_idle
    fetcher.forget([delivery], struck=())
    assert fetcher.is_idle and fetcher.tray.take_over() == ["1 default"]

    fetcher.tray.endings.append(object())  # type: ignore[arg-type]
    assert (fetcher.is_idle, fetcher.has_endings) == (False, True)
    fetcher.tray.endings.clear()
    fetcher._flight = object()  # type: ignore[assignment]
    assert (fetcher.is_idle, fetcher.has_endings) == (False, True)


def test_a_batch_that_its_outcome_has_struck_off_is_not_struck_off_again(fetcher: Fetcher, clock: StillClock):
    delivery = hold(fetcher, clock)

    fetcher.forget([delivery], struck=["1 default"])

    assert fetcher.tray.take_over() == []


def test_a_fetch_whose_reply_was_lost_may_have_taken_messages(fetcher: Fetcher):
    steps, fetch = fetcher._steps(4, 1000)
    assert fetch is None, "it is not time for a look"

    fetcher.look_now()
    steps, fetch = fetcher._steps(4, 1000)
    assert fetch is not None
    fetcher._lose(steps, ConnectionFailed("no route"))
    assert fetcher._ghosts.is_due() and fetcher.holds_nothing, "nothing was sent"

    fetcher._lose(steps, BrokenQueue("nobody knows"))
    assert not fetcher.holds_nothing
