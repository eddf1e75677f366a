"""Failovers by Sentinel under load: no confirmed call is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core.errors import RedisFailure
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks.task import Task
from tests.durability.conftest import Use
from tests.sentinel_topology import SentinelTopology
from tests.support import wait_until
from tests.worker.workshop import declare

#: Number of acknowledged calls before the primary is killed, and after the promotion.
ENOUGH = 30
LONG_FAILOVERS = 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTopology]:
    topology = SentinelTopology(tmp_path_factory.mktemp("sentinel"))
    yield topology
    topology.stop()


class Load:
    """Threads that send calls one by one, and note those that were acknowledged."""

    def __init__(self, task: Task[..., Any]) -> None:
        self.acknowledged: list[str] = []
        self._task = task
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, name="sender of a test") for _ in range(2)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(120)

    def more(self, count: int = ENOUGH) -> None:
        """Wait until more calls are acknowledged."""
        enough = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= enough)

    def _send(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(RedisFailure):
                self.acknowledged.append(self._task.enqueue().id)


def on_primary(topology: SentinelTopology, namespace: str) -> set[str]:
    return {message.decode()[10:] for message in topology.primary.run("ZRANGE", f"{namespace}:default", 0, -1)}


def fail_over_under_load(topology: SentinelTopology, namespace: str) -> tuple[int, int, float]:
    """Kill the primary under load; return the number of acknowledged and of lost calls, and the time to resume."""
    topology.settle()
    wait_until(lambda: _queue_exists())
    with Load(declare(lambda: None)) as load:
        load.more()
        topology.kill_primary()
        promoted_at = time.monotonic()
        load.more()
        resumed_s = time.monotonic() - promoted_at
    return len(load.acknowledged), len(set(load.acknowledged) - on_primary(topology, namespace)), resumed_s


def _queue_exists() -> bool:
    with contextlib.suppress(RedisFailure):
        return bool(ensure_queue("default"))
    return False


def test_confirmed_calls_survive_a_failover_by_sentinel(shared: SentinelTopology, use: Use, namespace: str):
    use({"REPLICAS": 1}, url=shared.url)

    acknowledged, lost, _ = fail_over_under_load(shared, namespace)

    assert acknowledged >= 2 * ENOUGH
    assert lost == 0


@pytest.mark.long
@pytest.mark.parametrize("durability", [{"REPLICAS": 1}, None], ids=["one replica", "none"])
def test_twenty_failovers_lose_no_confirmed_call(
    shared: SentinelTopology,
    use: Use,
    namespace: str,
    record_testsuite_property: Callable[[str, object], None],
    durability: dict[str, Any] | None,
):
    use(durability, url=shared.url)
    runs = [fail_over_under_load(shared, namespace) for _ in range(LONG_FAILOVERS)]
    record_testsuite_property(f"acknowledged ({durability})", sum(run[0] for run in runs))
    record_testsuite_property(f"lost ({durability})", sum(run[1] for run in runs))
    record_testsuite_property(f"slowest to resume (s) ({durability})", max(run[2] for run in runs))

    assert durability is None or sum(run[1] for run in runs) == 0
