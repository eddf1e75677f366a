"""What the books of a simulation say about a message."""

from __future__ import annotations

import pytest

from tests.simulation.books import SILENT_MS, Books, State
from tests.simulation.calls import Calls
from tests.simulation.scheduler import Process

#: Process 1 takes the message at this time, for ten seconds.
TAKEN_MS, LEASE_MS = 1000.0, 10_000.0


@pytest.fixture
def worker() -> Process:
    return Process(1, "worker")


@pytest.fixture
def books(worker: Process) -> Books:
    """Return books in which a worker has the message m."""
    books = Books(Calls(lambda _: b'{"task": "plain", "id": "t"}', lambda: 0.0))
    books.beats_ms[worker] = TAKEN_MS
    books.compare(Process(9, "sender"), {"m": State(0, 0)}, 0)
    books.compare(worker, {"m": State(TAKEN_MS + LEASE_MS, 1)}, TAKEN_MS)
    return books


def test_process_that_took_a_message_may_renew_and_remove_it(books: Books, worker: Process):
    books.compare(worker, {"m": State(TAKEN_MS + 2 * LEASE_MS, 1)}, TAKEN_MS + 1)
    books.compare(worker, {}, TAKEN_MS + 2)

    assert books.problems == []


def test_message_may_be_taken_again_when_its_lease_is_over(books: Books):
    books.compare(Process(2, "worker"), {"m": State(90_000, 2)}, TAKEN_MS + LEASE_MS)

    assert books.problems == []


def test_process_may_send_and_take_a_message_at_once(books: Books, worker: Process):
    before = {"m": State(TAKEN_MS + LEASE_MS, 1)}
    books.compare(worker, before | {"n": State(90_000, 1)}, TAKEN_MS + 1)
    books.compare(worker, before, TAKEN_MS + 2)

    assert books.problems == []


def test_message_that_is_taken_during_its_lease_is_a_problem(books: Books):
    books.compare(Process(2, "worker"), {"m": State(90_000, 2)}, TAKEN_MS + LEASE_MS - 1)

    assert books.problems == ["message m was taken, and belonged to worker 1 for longer (worker 2)"]


@pytest.mark.parametrize("after", [{}, {"m": State(TAKEN_MS, 1)}, {"m": State(90_000, 1)}])
def test_message_that_another_process_changes_is_a_problem(books: Books, after: dict[str, State]):
    books.compare(Process(2, "worker"), after, TAKEN_MS + 1)

    assert len(books.problems) == 1


def test_message_that_comes_back_is_a_problem(books: Books, worker: Process):
    books.compare(worker, {}, TAKEN_MS + 1)
    books.compare(worker, {"m": State(0, 1)}, TAKEN_MS + 2)

    assert books.problems == ["message m is back after it was removed (worker 1)"]


def test_supervisor_may_renew_the_leases_of_its_processes_only(books: Books, worker: Process):
    own, other = Process(3, "supervisor"), Process(4, "supervisor")
    books.supervisors[worker] = own

    books.compare(own, {"m": State(20_000, 1)}, TAKEN_MS + 1)
    assert books.problems == []

    books.compare(other, {"m": State(30_000, 1)}, TAKEN_MS + 1)
    assert len(books.problems) == 1


def test_supervisor_may_release_messages_of_a_process_that_is_dead_or_silent(books: Books, worker: Process):
    supervisor = Process(3, "supervisor")

    books.compare(supervisor, {"m": State(40_000, 1)}, TAKEN_MS + SILENT_MS)
    worker.is_dead = True
    books.compare(supervisor, {"m": State(2_000, 1)}, TAKEN_MS + 1)
    assert books.problems == []

    worker.is_dead = False
    books.compare(supervisor, {"m": State(1_000, 1)}, TAKEN_MS + 1)
    assert len(books.problems) == 1


def test_message_that_is_taken_before_a_ready_one_of_a_higher_priority_is_a_problem(books: Books, worker: Process):
    before = {"m": State(TAKEN_MS + LEASE_MS, 1), "high": State(0, 0, 1), "low": State(0, 0, 2)}
    books.compare(Process(9, "sender"), before, TAKEN_MS)

    books.compare(worker, before | {"high": State(90_000, 1, 1), "low": State(90_000, 1, 2)}, TAKEN_MS + 1)
    assert books.problems == []

    again = before | {
        "high": State(90_000, 1, 1),
        "low": State(90_000, 1, 2),
        "new": State(0, 0, 1),
        "last": State(0, 0, 2),
    }
    books.compare(Process(9, "sender"), again, TAKEN_MS + 2)
    books.compare(worker, again | {"last": State(90_000, 1, 2)}, TAKEN_MS + 3)
    assert books.problems == ["message new was left, and one of a lower priority taken (worker 1)"]
