"""Many ids without a body in front of a queue: workers remove them in slices and reach the messages behind them."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.worker.fetch.exchange import FetchStep
from rsmq_django.worker.sources import queues as source
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work

MANY = 200_000


def add_phantoms(server: PrivateServer, count: int) -> None:
    overdue_ms = server.redis.time()[0] * 1000 - 60_000
    server.redis.zadd("rsmq:default", {f"{number:032d}": overdue_ms for number in range(count)})


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[FetchStep]:
    """Every fetch that a worker prepares."""
    prepared: list[FetchStep] = []

    class Counted(FetchStep):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            prepared.append(self)

    monkeypatch.setattr(source, "FetchStep", Counted)
    return prepared


def test_worker_reaches_a_task_behind_many_phantoms_in_a_few_fetches(
    project: Configure, server: PrivateServer, fetches: list[FetchStep]
):
    ran = []

    @declare
    def behind() -> None:
        ran.append(True)

    behind.enqueue()
    add_phantoms(server, MANY)

    assert work(threads=1)

    assert ran == [True]
    assert len(fetches) <= MANY / 5_000 + 10
    assert server.redis.hget("rsmq::phantoms:default", "removed") == str(MANY).encode()


def test_phantoms_of_one_queue_do_not_keep_a_worker_from_another_queue(
    configure: Configure, server: PrivateServer, fetches: list[FetchStep]
):
    configure(default={}, other={})
    fetched_before = []

    @declare(queue_name="other")
    def elsewhere() -> None:
        fetched_before.append(len(fetches))

    @declare
    def behind() -> None:
        pass

    behind.enqueue()
    elsewhere.enqueue()
    add_phantoms(server, MANY)

    assert work(threads=1)

    assert fetched_before[0] <= 3
