"""A real cluster: calls to any node go to the one that has the keys, also when that changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import QueueExists, RedisFailure, ServerRefused
from rsmq_django.core.queue.browse import count
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.prepared_calls import ReadiedCalls
from tests.cluster import Cluster, Node
from tests.core.topic.conftest import bodies
from tests.support import wait_until

pytestmark = pytest.mark.slow

TAG = "{rsmq}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def _empty(cluster: Cluster) -> None:
    cluster.settle()
    for node in cluster.masters():
        node.run("FLUSHALL")


def client_of(node: Node) -> Client:
    return Client(Connection(node.url, timeout_s=15), namespace=TAG)


def queue_at(node: Node) -> Queue:
    queue = Queue("jobs", client_of(node))
    with contextlib.suppress(QueueExists):
        queue.create()
    return queue


def another(cluster: Cluster) -> Node:
    """Return a node that has slots, but not that of the namespace."""
    return next(node for node in cluster.masters() if node is not cluster.owner_of(TAG))


async def test_any_node_may_be_named(cluster: Cluster):
    for number, node in enumerate(cluster.masters()):
        queue, fresh = queue_at(node), Queue("jobs", client_of(node))
        ids = queue.send_many([b"a", b"b"])
        first, second = queue.receive(), await fresh.areceive()
        assert first is not None and second is not None and [first.id, second.id] == ids
        assert await fresh.adelete(first) and queue.delete(second)
        assert queue.attributes().total_sent == 2 * (number + 1)
        await fresh.client.connection.aclose()


def test_other_tags_live_on_other_nodes(cluster: Cluster):
    client = client_of(another(cluster))
    names = ["{a}", "{b}", "{c}", "{d}"]
    assert len({cluster.owner_of(name).id for name in names}) > 1

    for name in names:
        Topic(name, client).publish("a")
    calls = [Topic(name, client).status_call() for name in names]

    assert [status.last for status in client.run_many(calls)] == [1] * 4
    assert [bodies(Topic(name, client).group("g").read(1)) for name in names] == [[b"a"]] * 4


async def test_slot_moves_to_another_node_without_an_error(cluster: Cluster):
    queue, later = queue_at(cluster.owner_of(TAG)), queue_at(another(cluster))
    reliable = ReliableQueue("parcels", queue.client)
    ids = queue.send_many([b"a"] * 4)
    reliable.push("p")
    assert (await queue.aattributes()).messages == 4
    readied = ReadiedCalls(later.client, [count(TAG, "jobs")])
    assert readied.send() and readied.results()[0].messages == 4

    cluster.move(TAG, another(cluster))

    assert readied.send() and readied.results()[0].messages == 4
    assert [message.id for message in queue.receive_many(2)] == ids[:2]
    assert [message.id for message in await queue.areceive_many(5)] == ids[2:]
    assert reliable.pop(1, 100) is not None
    await queue.client.connection.aclose()


def test_call_while_a_slot_moves_is_refused_whole_and_works_afterwards(cluster: Cluster):
    source, target = cluster.owner_of(TAG), another(cluster)
    queue = queue_at(source)
    queue.send(b"a")
    cluster.move(TAG, target, stop_halfway=True)
    try:
        with pytest.raises(ServerRefused, match="nothing was changed, try again later"):
            ReliableQueue("new", queue.client).push("a")
    finally:
        cluster.end_move(TAG, source, target)

    assert queue.attributes().messages == 1
    assert ReliableQueue("new", queue.client).push("a")


async def test_replica_takes_over_when_a_node_dies(cluster: Cluster):
    owner = cluster.owner_of(TAG)
    named_first, named_other = queue_at(owner), queue_at(another(cluster))
    ids = named_first.send_many([b"a"] * 3)
    spare = cluster.back_up(owner)
    await named_first.aattributes()

    owner.kill()
    spare.ask("FAILOVER", "TAKEOVER")

    def received(queue: Queue) -> str | None:
        try:
            message = queue.receive()
        except RedisFailure:
            return None
        return message.id if message else None

    assert wait_until(lambda: received(named_first)) == ids[0]
    assert wait_until(lambda: received(named_other)) == ids[1]
    last = await named_first.areceive()
    assert last is not None and last.id == ids[2]
    await named_first.client.connection.aclose()
    owner.start()
    wait_until(lambda: b"role:slave" in owner.run("INFO", "replication"))


@pytest.mark.parametrize("is_async", [False, True])
async def test_node_that_confirms_redirected_writes_does_not_confirm_those_of_another_node(
    cluster: Cluster, is_async: bool
):
    here, there = cluster.masters()[:2]
    cluster.back_up(there)
    own, foreign = (
        next(key for key in map(str, range(1000)) if cluster.owner_of(key) is node) for node in (here, there)
    )
    connection = Connection(here.url, timeout_s=15)
    commands: list[Any] = [("SET", own, "x"), ("SET", foreign, "x"), ("WAIT", 1, 100)]

    if is_async:
        replies = await connection.aexchange(commands)
        await connection.aclose()
    else:
        replies = connection.exchange(commands)

    assert replies == [b"OK", b"OK", 0]
    connection.close()
