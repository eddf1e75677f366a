"""A queue with shards on a real cluster: it is on all nodes, and one that stands still stops its own shards only."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.core.errors import RedisFailure
from rsmq_django.core.keys import shard_namespace
from rsmq_django.tasks import fixed, waiting
from rsmq_django.tasks.compat import task_backends
from rsmq_django.tasks.shards import shard_of_key
from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.supervise.maintenance import make_maintenance, run_due
from tests.cluster import Cluster, Node
from tests.support import wait_until
from tests.vault import Vault
from tests.worker.workshop import declare, work, working

pytestmark = pytest.mark.slow

SHARDS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def sharded(cluster: Cluster, settings: Any) -> None:
    """A project with one queue of eight shards on an empty cluster."""
    for node in cluster.masters():
        node.run("FLUSHALL")
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": cluster.nodes[0].url, "NAMESPACE": "{rsmq}", "TIMEOUT_S": 15}},
        "QUEUES": {"default": {"SHARDS": SHARDS}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }


def owners(cluster: Cluster) -> list[Node]:
    """Return the node of each shard."""
    return [cluster.owner_of(shard_namespace("{rsmq}", shard)) for shard in range(SHARDS)]


def is_sent(declared: Any, number: int) -> bool:
    """Send a call and return whether it was confirmed: a busy machine may need longer than the timeout."""
    try:
        declared.enqueue(number)
    except RedisFailure:
        return False
    return True


def is_awaited(cluster: Cluster, task_id: str) -> bool:
    """Return whether a process has noted that it waits for the end of a task."""
    keys = [f"{shard_namespace('{rsmq}', shard)}::result:{task_id}" for shard in range(SHARDS)]
    return any(cluster.owner_of(key).run("HEXISTS", key, "awaited_by") for key in keys)


def test_shards_of_a_queue_are_on_all_nodes_and_workers_follow_all_of_them(cluster: Cluster, sharded: None):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    ids = declared.enqueue_many([[number] for number in range(10 * SHARDS)])
    assert len(set(owners(cluster))) == 3
    for shard, owner in enumerate(owners(cluster)):
        assert owner.run("ZCARD", f"{shard_namespace('{rsmq}', shard)}:default") == 10

    assert work()

    assert sorted(seen) == list(range(10 * SHARDS))
    assert all(task_backends["default"].get_result(task_id).is_finished for task_id in ids)


def test_who_waits_is_woken_by_the_end_of_a_task_on_any_node(
    cluster: Cluster, sharded: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "NOTED_WAIT_S", 3600.0)
    declared = declare(shard_by=["number"])(lambda number: number)
    results = [declared.enqueue(number) for number in range(SHARDS)]
    with ThreadPoolExecutor(SHARDS) as executor:
        waits = [executor.submit(result.wait, 80) for result in results]
        wait_until(lambda: all(is_awaited(cluster, result.id) for result in results))
        with working():
            assert [each.result(80).return_value for each in waits] == list(range(SHARDS))


def test_worker_goes_on_on_all_nodes_when_passwords_change(cluster: Cluster, sharded: None, settings: Any):
    vault = Vault(*(node.run for node in cluster.nodes))
    connection = {**settings.RSMQ["CONNECTIONS"]["default"], "CREDENTIAL_PROVIDER": vault}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}
    seen: set[int] = set()
    declared = declare(lambda number: seen.add(number))

    with working(poll_interval_s=3600):
        for turn in range(3):
            numbers = range(turn * SHARDS, (turn + 1) * SHARDS)
            for number in numbers:
                wait_until(lambda number=number: is_sent(declared, number))  # type: ignore[misc]
            wait_until(lambda numbers=numbers: seen.issuperset(numbers))  # type: ignore[misc]
            vault.rotate(f"password-{turn}")
            vault.cut_sockets()


def test_supervisor_makes_one_request_to_each_node_and_waits_once_for_one_that_stands_still(
    cluster: Cluster, sharded: None, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    connection = {**settings.RSMQ["CONNECTIONS"]["default"], "TIMEOUT_S": 2}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}
    every_maintenance = make_maintenance(queue_settings([]), max_crashes=3)
    own, requests, owned = [each.client.connection for each in every_maintenance], list[str](), owners(cluster)
    for name in ("exchange", "exchange_with_one_node"):
        original = getattr(Connection, name)

        def noted(connection: Connection, commands: Any, name: str = name, original: Any = original) -> Any:
            requests.extend([name] * (connection in own))
            return original(connection, commands)

        monkeypatch.setattr(Connection, name, noted)

    def beats() -> list[bool]:
        """Return for each shard whether it gets a heartbeat of a worker, and nothing of a node that stands still."""
        for maintenance in every_maintenance:
            maintenance._backoff.next_try_at = 0.0
            for number, job in enumerate(maintenance._jobs):
                job._due_at, job._backoff.next_try_at = math.inf if number else 0.0, 0.0
        requests.clear()
        run_due(every_maintenance, ["w1"])
        keys = [f"{shard_namespace('{rsmq}', shard)}::workers" for shard in range(SHARDS)]
        return [bool(owner.run("DEL", key)) for owner, key in zip(owned, keys, strict=True) if owner is not silent]

    silent: Node | None = None
    wait_until(lambda: beats() == [True] * SHARDS and requests == ["exchange_with_one_node"] * 3)

    silent = owned[0]
    silent.pause()
    try:
        others = [True] * sum(owner is not silent for owner in owned)
        assert beats() == others and requests == ["exchange_with_one_node"] * 3
        # The shards of the silent node ask another one, which sends them back: one of them finds out that it is silent.
        assert beats() == others and sorted(requests) == ["exchange", *["exchange_with_one_node"] * 2]
    finally:
        silent.resume()
    silent = None
    wait_until(lambda: beats() == [True] * SHARDS)
    for maintenance in every_maintenance:
        maintenance.close()


def test_node_that_stands_still_stops_its_own_shards_only_and_loses_nothing(
    cluster: Cluster, sharded: None, settings: Any
):
    seen: set[int] = set()
    declared = declare(max_attempts=20, backoff=fixed(0), shard_by=["number"])(lambda number: seen.add(number))
    silent = cluster.masters()[1]
    is_silent = [owner is silent for owner in owners(cluster)]
    assert any(is_silent) and not all(is_silent)
    numbers = range(20 * SHARDS)
    reachable = {number for number in numbers if not is_silent[shard_of_key(str(number), SHARDS)]}
    declared.enqueue_many([[number] for number in numbers])
    connection = {**settings.RSMQ["CONNECTIONS"]["default"], "TIMEOUT_S": 1}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}

    silent._process.send_signal(signal.SIGSTOP)
    try:
        with working(threads=2):
            wait_until(lambda: reachable <= seen)
            more = next(number for number in range(1000, 2000) if not is_silent[shard_of_key(str(number), SHARDS)])
            wait_until(lambda: is_sent(declared, more))
            wait_until(lambda: more in seen)
            assert seen == {*reachable, more}
            lost = next(number for number in range(1000, 2000) if is_silent[shard_of_key(str(number), SHARDS)])
            with pytest.raises(RedisFailure):
                declared.enqueue(lost)

            silent._process.send_signal(signal.SIGCONT)
            wait_until(lambda: seen >= set(numbers))
    finally:
        silent._process.send_signal(signal.SIGCONT)
