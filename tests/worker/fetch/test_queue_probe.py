"""Very many queues: which of them the next fetch names, and when all of them are scanned."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.worker.delivery import WorkQueue
from rsmq_django.worker.fetch.queue_selector import (
    CHECK_EVERY_S,
    MANY,
    SCAN_EVERY_S,
    SCANNED_AT_A_TIME,
    ProbeResult,
    QueueProbe,
    together,
)
from tests.worker.workshop import Configure, new_worker, queue_source


@pytest.fixture
def scan(configure: Configure) -> QueueProbe:
    """The scan of a worker on a hundred queues that has just checked all of them, at the time 1000."""
    configure(**{f"q{number:02}": {} for number in range(100)})
    scan = queue_source(new_worker()).selector.scan
    assert scan is not None and names_in(scan, 1000.0) == [2 * 100]
    return scan


def names_in(scan: QueueProbe, now: float) -> list[int]:
    """Return how many keys of queues each call of the scan has."""
    return [len(call.keys) - 2 for call in scan.next_calls(now)]


def found(*positions: int) -> ProbeResult:
    return ProbeResult(0, -1, 100, list(positions))


def names(queues: Any) -> list[str]:
    return [work_queue.name for work_queue in queues]


def test_first_scan_and_one_every_ten_seconds_also_find_deleted_queues(scan: QueueProbe):
    assert names_in(scan, 1000.0 + CHECK_EVERY_S - 0.001) == [100]
    assert names_in(scan, 1000.0 + CHECK_EVERY_S) == [2 * 100]
    assert names_in(scan, 1000.0 + CHECK_EVERY_S) == [100]


def test_queues_are_scanned_when_none_is_known_to_have_something_and_now_and_then(scan: QueueProbe):
    assert scan.is_due(1000.0)
    scan.scanned(found(3), 1000.0)
    assert not scan.is_due(1000.0 + SCAN_EVERY_S - 0.001)
    assert scan.is_due(1000.0 + SCAN_EVERY_S)
    scan.scanned(found(), 1001.0)
    assert scan.is_due(1001.0)


def test_only_queues_with_messages_are_fetched_in_their_order(scan: QueueProbe):
    scan.scanned(found(1, 5, 100), 1000.0)

    assert names(scan.choose()) == ["q00", "q04", "q99"]


def test_a_fetch_reads_a_limited_number_of_queues(scan: QueueProbe):
    scan.scanned(found(*range(1, 101)), 1000.0)

    chosen = scan.choose()
    assert len(chosen) == MANY
    scan.fetched(chosen, chosen[-1], is_full=False)

    assert names(scan.choose()) == [f"q{number}" for number in range(MANY, 100)]


@pytest.mark.parametrize(
    ("last", "is_full", "left"),
    [
        (1, True, ["q04", "q99"]),  # it may have others
        (1, False, []),
        (None, False, []),
        (None, True, []),
        (0, True, ["q00", "q04", "q99"]),
    ],
)
def test_without_room_for_more_the_queue_of_the_last_message_is_fetched_again(
    scan: QueueProbe, last: int | None, is_full: bool, left: list[str]
):
    scan.scanned(found(1, 5, 100), 1000.0)
    chosen = scan.choose()
    queue: WorkQueue | None = None if last is None else chosen[last]

    scan.fetched(chosen, queue, is_full=is_full)

    assert names(scan.choose()) == left


def test_scan_of_very_many_queues_is_in_portions_unless_the_worker_ends_when_they_are_empty(scan: QueueProbe):
    queues, rest = list(scan.queues) * 11, 100  # 1100

    several = QueueProbe("rsmq", queues, in_turn=list)
    at_once = QueueProbe("rsmq", queues, in_turn=list, in_one_step=True)

    assert names_in(several, 1000.0) == [2 * SCANNED_AT_A_TIME, 2 * SCANNED_AT_A_TIME, 2 * rest]
    assert names_in(several, 1000.0) == [SCANNED_AT_A_TIME, SCANNED_AT_A_TIME, rest]
    assert (names_in(at_once, 1000.0), names_in(at_once, 1000.0)) == ([2 * len(queues)], [len(queues)])


def test_portions_of_a_scan_are_one_result():
    parts = [ProbeResult(7, -1, 3, [1, 4]), ProbeResult(8, 300, 4, []), ProbeResult(9, 200, 5, [1001])]

    assert together(parts) == ProbeResult(7, 200, 5, [1, 4, 1001])
    assert together(parts[:1]).next_ms == -1
