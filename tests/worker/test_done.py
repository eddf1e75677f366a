"""When a worker ends: what it was asked for is done, or nothing that is left can be done in time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rsmq_django.worker.worker import RECONNECT_WITHIN_S, Worker
from tests.worker.workshop import Configure, new_worker


@dataclass
class Server:
    """What a worker knows about its queues on one server."""

    is_idle: bool = True
    is_empty: bool = True
    is_drained: bool = True
    is_stuck: bool = False
    is_unavailable: bool = False
    left_to_others: int = 0


BUSY = Server(is_idle=False, is_empty=False, is_drained=False)
STUCK = Server(is_idle=False, is_empty=False, is_drained=False, is_stuck=True)
AWAY = Server(is_idle=False, is_unavailable=True)
DELAYED = Server(is_empty=False)
UNKNOWN = Server(is_empty=False, left_to_others=1)
READY = Server(is_empty=False, is_drained=False)


def worker_with(*servers: Server, runs: bool = False, **options: Any) -> Worker:
    """Return a worker on these servers."""
    worker: Any = new_worker(**options)
    worker.pool = SimpleNamespace(is_idle=not runs, moved_at=0.0)
    worker.sources = list(servers)
    return worker  # type: ignore[no-any-return]


def test_a_worker_runs_until_it_is_stopped(project: Configure):
    assert not worker_with(Server())._is_done()


@pytest.mark.parametrize(
    ("servers", "is_done"),
    [
        ((Server(), Server()), True),
        ((Server(), DELAYED), False),
        ((DELAYED, Server()), False),
        ((Server(), BUSY), False),
        ((BUSY, Server()), False),
        ((UNKNOWN, Server()), True),
        ((UNKNOWN, DELAYED), False),
    ],
)
def test_until_no_message_is_left_on_any_server(project: Configure, servers: tuple[Server, ...], is_done: bool):
    assert worker_with(*servers, until_empty=True)._is_done() is is_done


@pytest.mark.parametrize(
    ("servers", "is_done"),
    [((Server(), DELAYED), True), ((DELAYED, READY), False), ((READY, Server()), False), ((BUSY, Server()), False)],
)
def test_until_nothing_is_ready_on_any_server(project: Configure, servers: tuple[Server, ...], is_done: bool):
    assert worker_with(*servers, until_drained=True)._is_done() is is_done


@pytest.mark.parametrize("option", ["until_empty", "until_drained"])
def test_not_before_tasks_have_ended(project: Configure, option: str):
    assert not worker_with(Server(), runs=True, **{option: True})._is_done()


def test_a_process_ends_after_a_number_of_tasks_when_their_outcomes_are_settled(project: Configure):
    for taken, servers, runs, is_done in (
        (2, (READY,), False, False),
        (3, (READY,), False, True),
        (4, (READY,), False, True),
        (3, (Server(), BUSY), False, False),
        (3, (READY,), True, False),
    ):
        worker = worker_with(*servers, runs=runs, max_tasks=3)
        worker.taken = taken

        assert worker._is_done() is is_done, (taken, servers, runs)


def test_a_worker_that_stops_ends_when_nothing_runs_or_its_time_is_over(project: Configure):
    for servers, runs, is_done in (((READY,), False, True), ((READY,), True, False), ((READY, BUSY), False, False)):
        worker = worker_with(*servers, runs=runs)
        worker.stop(within_s=60)
        assert worker._is_done() is is_done, (servers, runs)

        worker.stop(within_s=0)
        assert worker._is_done()


@pytest.mark.parametrize(
    ("servers", "for_s", "moved_s", "is_done"),
    [
        ((AWAY,), RECONNECT_WITHIN_S + 1, 60, True),
        ((AWAY, Server()), RECONNECT_WITHIN_S + 1, 60, True),
        ((AWAY, BUSY), RECONNECT_WITHIN_S + 1, 60, False),
        ((AWAY,), RECONNECT_WITHIN_S - 1, 60, False),
        ((AWAY,), RECONNECT_WITHIN_S + 1, 1, False),  # a task has just ended
    ],
)
def test_a_stopping_worker_waits_a_limited_time_for_an_unreachable_server(
    project: Configure,
    servers: tuple[Server, ...],
    for_s: float,
    moved_s: float,
    is_done: bool,
):
    worker: Any = worker_with(*servers)
    worker.stop(within_s=600)
    worker._stopping.awaited_since = time.monotonic() - for_s
    worker.pool.moved_at = time.monotonic() - moved_s

    assert worker._is_done() is is_done


def test_a_process_that_is_to_be_replaced_waits_for_an_unreachable_server_unless_an_operator_stops_it(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.worker.RECONNECT_WITHIN_S", 0)
    worker: Any = worker_with(AWAY, shutdown_timeout_s=600)
    worker._stopping.stop_sooner()  # a function was interrupted in it
    assert not worker._is_done()

    worker.stop(within_s=600)
    assert worker._is_done()


@pytest.mark.parametrize(
    ("servers", "options", "is_done"),
    [
        ((STUCK,), {"until_empty": True}, True),
        ((STUCK, Server()), {"until_drained": True}, True),
        ((STUCK, BUSY), {"until_empty": True}, False),
        ((BUSY,), {"until_empty": True}, False),
        ((STUCK,), {}, False),
    ],
)
def test_a_burst_worker_drops_outcomes_that_a_damaged_queue_refuses(
    project: Configure, servers: tuple[Server, ...], options: dict[str, bool], is_done: bool
):
    assert worker_with(*servers, **options)._is_done() is is_done
