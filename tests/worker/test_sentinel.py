"""Workers with Sentinel: they follow the primary, whatever happens to the former one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core.errors import RedisFailure
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.worker.fetch.primary_watch import PrimaryWatch
from rsmq_django.worker.worker import Worker
from tests.sentinel_topology import SentinelTopology
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, working


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTopology]:
    topology = SentinelTopology(tmp_path_factory.mktemp("sentinel"))
    yield topology
    topology.stop()


@pytest.fixture
def topology(shared: SentinelTopology, configure: Configure) -> SentinelTopology:
    shared.settle()
    shared.primary.run("FLUSHALL")
    configure(url=shared.url, timeout_s=5)
    ensure_queue("default")
    return shared


@pytest.mark.parametrize("way", ["fail_over", "kill_primary", "hand_over"])
def test_work_goes_on_at_the_new_primary(topology: SentinelTopology, way: str):
    ran: set[int] = set()

    @declare
    def note(number: int) -> None:
        ran.add(number)

    with working():
        note.enqueue(1)
        wait_until(lambda: 1 in ran)
        topology.wait_for_replicas()
        getattr(topology, way)()
        wait_until(lambda: _is_sent(note, 2))
        wait_until(lambda: 2 in ran)


def _is_sent(task: Any, *args: int) -> bool:
    with contextlib.suppress(RedisFailure):
        task.enqueue(*args)
        return True
    return False


def test_idle_worker_leaves_a_former_primary_that_does_not_close_its_sockets(topology: SentinelTopology):
    ran = threading.Event()

    @declare
    def note() -> None:
        ran.set()

    with working(poll_interval_s=3600) as worker:
        wait_until(lambda: [each for each in _watches(worker) if each._listener and each._listener._is_confirmed])
        topology.wait_for_replicas()
        old = topology.primary
        topology.pause_primary()
        try:
            get_client().connection.close()  # this one would wait for the former primary
            wait_until(lambda: _is_sent(note))
            assert ran.wait(60)
        finally:
            old.resume()


def test_worker_without_sentinels_watches_nothing(configure: Configure):
    configure()
    ensure_queue("default")
    with working() as worker:
        wait_until(lambda: worker.wakeup._subscriptions)
        assert not _watches(worker)


def _watches(worker: Worker) -> list[PrimaryWatch]:
    return [each for each in worker.wakeup._subscriptions if isinstance(each, PrimaryWatch)]
