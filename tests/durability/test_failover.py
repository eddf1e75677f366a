"""A primary that is killed under load: every confirmed call is on the replica that takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.errors import ConnectionFailed, NotConfirmed, OutcomeUnknown, RedisFailure
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import repeat
from rsmq_django.tasks.task import Task
from tests.durability.conftest import PATIENT_S, SHORT_S, Use
from tests.replicated_server import ReplicatedServer
from tests.support import wait_until
from tests.worker.workshop import declare, work

SENDERS = 3
#: Number of confirmed calls before the primary is killed.
ENOUGH = 60


@pytest.fixture
def first(tmp_path: Path) -> Iterator[ReplicatedServer]:
    server = ReplicatedServer(tmp_path / "first")
    yield server
    server.kill()


@pytest.fixture
def second(tmp_path: Path, first: ReplicatedServer) -> Iterator[ReplicatedServer]:
    server = ReplicatedServer(tmp_path / "second")
    server.follow(first)
    yield server
    server.kill()


def on(server: ReplicatedServer, namespace: str) -> set[str]:
    """Return the ids of the tasks of messages on a server."""
    return {message.decode()[10:] for message in server.redis.zrange(f"{namespace}:default", 0, -1)}


def send_until_it_fails(task: Task[..., Any], confirmed: list[str], failed: list[RedisFailure]) -> None:
    """Send calls one by one until the server is gone; note the confirmed ones."""
    for number in range(100_000):
        try:
            confirmed.append(task.enqueue(number).id)
        except RedisFailure as error:
            failed.append(error)
            return


def test_every_confirmed_call_is_on_the_replica_that_takes_over(
    use: Use, first: ReplicatedServer, second: ReplicatedServer, namespace: str
):
    use({"REPLICAS": 1, "TIMEOUT_S": PATIENT_S}, url=first.url)
    ensure_queue("default")
    task, confirmed, failed = declare(lambda number: None), list[str](), list[RedisFailure]()
    senders = [
        threading.Thread(target=send_until_it_fails, args=(task, confirmed, failed), name="sender of a test")
        for _ in range(SENDERS)
    ]
    for sender in senders:
        sender.start()
    wait_until(lambda: len(confirmed) >= ENOUGH)
    first.process.kill()
    for sender in senders:
        sender.join(120)
    second.take_over()

    assert set(confirmed) - on(second, namespace) == set()
    assert len(failed) == SENDERS


def test_call_that_was_not_confirmed_and_is_lost_is_sent_to_the_new_primary_by_a_repeat(
    use: Use, first: ReplicatedServer, second: ReplicatedServer, namespace: str
):
    seen: list[str] = []
    use({"REPLICAS": 1, "TIMEOUT_S": SHORT_S}, url=first.url)
    ensure_queue("default")
    wait_until(lambda: second.redis.exists(f"{namespace}:QUEUES"))
    task = declare(lambda name: seen.append(name))
    second.take_over()  # it is cut off, and takes over while the first still answers
    with pytest.raises(NotConfirmed) as caught:
        task.enqueue("Ada")
    first.kill()
    assert on(second, namespace) == set()

    with pytest.raises((ConnectionFailed, OutcomeUnknown)):
        repeat(caught.value)
    (outgoing, _) = caught.value.stored[0]  # type: ignore[attr-defined]
    outgoing.route.client.connection.url = second.url  # as a name that a failover moves
    outgoing.route.client.connection._factory = None
    with pytest.raises(NotConfirmed):  # it has no replica yet
        repeat(caught.value)

    assert on(second, namespace) == set(caught.value.task_ids)
    use(url=second.url)
    work()
    assert seen == ["Ada"]


def test_without_durability_calls_that_only_the_dead_primary_had_are_lost(
    use: Use, first: ReplicatedServer, second: ReplicatedServer, namespace: str
):
    use(url=first.url)
    ensure_queue("default")
    wait_until(lambda: second.redis.exists(f"{namespace}:QUEUES"))
    task = declare(lambda number: None)
    second.take_over()
    acknowledged = {task.enqueue(number).id for number in range(10)}
    first.process.kill()

    assert acknowledged & on(second, namespace) == set()
