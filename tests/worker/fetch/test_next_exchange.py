"""What a worker concludes from a look at its queues, and when it talks to Redis again: at the first of its reasons."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed
from rsmq_django.core.transport import backoff as backoff_module
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.fetch import polling as polling_module
from rsmq_django.worker.fetch.exchange import Fetched, QueueFetch
from rsmq_django.worker.fetch.queue_selector import FetchOrder
from rsmq_django.worker.lease import pending as pending_module
from rsmq_django.worker.lease.pending import NOTE_START_AFTER_S
from rsmq_django.worker.sources import base as base_module
from rsmq_django.worker.sources import queues as source_module
from rsmq_django.worker.sources.queues import QueueSource
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, new_worker

POLL_S = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr("rsmq_django.core.transport.backoff.random.uniform", lambda least, most: most)
    return StillClock(monkeypatch, source_module, base_module, polling_module, backoff_module, pending_module)


@pytest.fixture
def source(configure: Configure, settings: Any, clock: StillClock) -> QueueSource:
    """The source of a worker that has just found its queues empty. Nothing here talks to Redis."""
    configure(default={}, mail={})
    (source,) = new_worker(poll_interval_s=POLL_S).sources
    assert isinstance(source, QueueSource)
    source.selector.known_count, source.selector.is_provisioned, source.selector.bands_are_known = 2, True, True
    look(source)
    return source


def look(
    source: QueueSource,
    *counts: int,
    next_ms: float = -1,
    room: int = 4,
    queue_count: int = 2,
    unreadable: tuple[int, ...] = (),
    is_partial: bool = False,
) -> None:
    """Let a look find so many messages in each queue."""
    found = [QueueFetch(position, ["id"] * count, [], []) for position, count in enumerate(counts, 1) if count]
    source.poll_schedule.begin()
    asked = FetchOrder(room, source.queues, [], None, is_partial)
    source._note_fetched(Fetched(0, next_ms, queue_count, list(unreadable), found), asked)


def hold(source: QueueSource, clock: StillClock, *, lease_s: float = 30.0) -> Delivery:
    work_queue = source.queues[0]
    work_queue.lease_s = lease_s
    delivery = Delivery(work_queue, Message("id", b"", 1, None), 1, clock.now, "1 default")
    source.leases.add([delivery])
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
def test_a_read_without_messages_returns_whether_there_are_any(
    source: QueueSource, found: dict[str, Any], is_drained: bool, is_empty: bool
):
    look(source, **found)

    assert (source.is_drained, source.is_empty) == (is_drained, is_empty)


def test_a_read_that_finds_messages_is_not_the_end(source: QueueSource):
    look(source, 0, 1)

    assert (source.is_drained, source.is_empty) == (False, False)


def test_queues_are_created_or_looked_up_again_when_something_about_them_changed(source: QueueSource):
    assert source.selector.is_settled
    look(source, unreadable=(0,))
    assert source.selector.is_settled, "what is paused cannot be read, and no queue is missing"
    look(source, 1, queue_count=3)
    assert (source.selector.is_provisioned, source.selector.bands_are_known) == (True, False)
    source.selector.bands_are_known = True
    look(source, 1, unreadable=(1,))
    assert (source.selector.is_provisioned, source.selector.bands_are_known) == (False, True)


def test_pauses_that_cannot_be_read_are_logged_once(source: QueueSource, caplog: pytest.LogCaptureFixture):
    for _ in range(3):
        look(source, unreadable=(0,))
    assert caplog.text.count("no queue counts as paused") == 1

    look(source)
    look(source, unreadable=(0,))

    assert caplog.text.count("no queue counts as paused") == 2


@pytest.mark.parametrize(("counts", "filled"), [((4,), 4), ((1, 3), 4), ((5,), 5), ((3,), 0), ((), 0)])
def test_only_a_fetch_with_the_full_number_of_messages_is_followed_by_an_early_one(
    source: QueueSource, counts: tuple[int, ...], filled: int
):
    look(source, *counts, room=4)

    assert source._filled == filled


# -- When the next exchange is -----------------------------------------------------------------------------------------


def in_s(source: QueueSource, clock: StillClock, room: int = 4, **patience: float) -> float | None:
    """Return in how many seconds the next exchange is."""
    at = source.next_exchange_at(room, **patience)
    return None if at is None else at - clock.now


def test_an_idle_worker_polls_and_one_without_room_waits_for_an_event(source: QueueSource, clock: StillClock):
    assert in_s(source, clock) == POLL_S
    assert in_s(source, clock, room=0) is None


def test_a_prepared_fetch_that_was_sent_is_read_at_once(source: QueueSource):
    source._pending_exchange = object()  # type: ignore[assignment]

    assert source.next_exchange_at(0) == 0.0


def test_outcomes_are_sent_at_once_or_within_the_allowed_delay(source: QueueSource, clock: StillClock):
    source.pending.settlements.append(object())  # type: ignore[arg-type]

    assert source.next_exchange_at(0) == 0.0
    assert in_s(source, clock, room=0, settle_within_s=0.25) == 0.25


def test_outcomes_that_failed_or_were_refused_have_times_of_their_own(source: QueueSource, clock: StillClock):
    source.pending.refused.append(object())  # type: ignore[arg-type]
    source.pending.damage.next_try_at = clock.now + 3
    assert in_s(source, clock, room=0) == 3

    source.pending.late.settlements.append(object())  # type: ignore[arg-type]
    source.pending.late.next_try_at = clock.now + 2
    assert in_s(source, clock, room=0) == 2


def test_leases_are_renewed_and_starts_are_noted_in_time(source: QueueSource, clock: StillClock):
    delivery = hold(source, clock)
    assert in_s(source, clock, room=0) == pytest.approx(NOTE_START_AFTER_S / 2)

    delivery.start_noted = True
    assert in_s(source, clock, room=0) == pytest.approx(3.0), "a tenth of the lease"


def test_batches_that_are_over_and_suspected_cancellations_wait_for_nothing(source: QueueSource, clock: StillClock):
    assert source.next_exchange_at(0) is None
    source.pending.over.append("1 default")
    assert source.next_exchange_at(0) == 0.0
    source.pending.take_over()
    source.suspect_cancellations()
    assert source.next_exchange_at(0) == 0.0
    delivery = hold(source, clock)
    assert source.cancellations.question(source.leases.held) is not None
    assert source.next_exchange_at(0) != 0.0, "it is asked once"
    source.cancellations.suspect([delivery])
    assert source.next_exchange_at(0) == 0.0


def test_a_report_that_is_due_is_a_reason(source: QueueSource, clock: StillClock):
    assert source.statistics is not None
    source.statistics.sent("default", "shop.pay", 1)
    source.statistics._report_at = clock.now + 0.5

    assert in_s(source, clock, room=0) == 0.5


def test_heartbeats_are_a_reason_only_with_a_supervisor(source: QueueSource, clock: StillClock):
    source.heartbeat.next_at = clock.now + 1.5

    assert in_s(source, clock) == 1.5


def test_during_an_outage_all_work_waits_for_the_next_try(source: QueueSource, clock: StillClock):
    source.pending.over.append("1 default")
    source.backoff.note(ConnectionFailed("no route"))

    assert in_s(source, clock, room=0) == pytest.approx(0.1)
    assert source.exchange(4) == [], "nothing is tried before"


# -- What is known about it --------------------------------------------------------------------------------------------


def test_it_is_idle_without_leased_messages_and_unsettled_outcomes(source: QueueSource, clock: StillClock):
    assert (source.is_idle, source.has_settlements, source.holds_nothing, source.unreported) == (True, False, True, 0)

    delivery = hold(source, clock)
    assert [source.is_idle] == [False]
    source.forget([delivery], removed=())
    assert source.is_idle and source.pending.take_over() == ["1 default"]

    source.pending.settlements.append(object())  # type: ignore[arg-type]
    assert (source.is_idle, source.has_settlements) == (False, True)
    source.pending.settlements.clear()
    source._pending_exchange = object()  # type: ignore[assignment]
    assert (source.is_idle, source.has_settlements) == (False, True)


def test_a_batch_that_its_outcome_has_struck_off_is_not_struck_off_again(source: QueueSource, clock: StillClock):
    delivery = hold(source, clock)

    source.forget([delivery], removed=["1 default"])

    assert source.pending.take_over() == []


def test_a_fetch_whose_reply_was_lost_may_have_taken_messages(source: QueueSource):
    steps, fetch = source._steps(4, 1000)
    assert fetch is None, "it is not time for a look"

    source.fetch_now()
    steps, fetch = source._steps(4, 1000)
    assert fetch is not None
    source._keep_for_later(steps, ConnectionFailed("no route"))
    assert source._undelivered.is_due() and source.holds_nothing, "nothing was sent"

    source._keep_for_later(steps, BrokenQueue("nobody knows"))
    assert not source.holds_nothing
