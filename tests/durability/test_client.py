"""A DurableClient returns when replicas or disks have its writes; otherwise it says what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Durability, DurableClient, Queue, RsmqError
from rsmq_django.core.errors import (
    InvalidValue,
    NotConfirmed,
    OutcomeUnknown,
    PermissionDenied,
    QueueNotFound,
    ServerRefused,
)
from rsmq_django.core.queue.browse import count
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from tests.durability.conftest import PATIENT_S, SHORT_S
from tests.replicated_server import ReplicatedServer

ONE_REPLICA = Durability(replicas=1, timeout_s=PATIENT_S)
NO_TIME = Durability(replicas=1, timeout_s=SHORT_S)
ON_DISK = [
    Durability(fsync="local", timeout_s=PATIENT_S),
    Durability(replicas=1, fsync="local", timeout_s=PATIENT_S),
    Durability(replicas=1, fsync="replicas", timeout_s=PATIENT_S),
]
LEVELS = [ONE_REPLICA, *(pytest.param(level, marks=pytest.mark.needs_redis(7, 2)) for level in ON_DISK)]


def queue_of(client: Client, durability: Durability) -> Queue:
    queue = Queue("mail", client, sender=DurableClient(client, durability))
    queue.create()
    return queue


def messages(server: ReplicatedServer, client: Client, name: str = "mail") -> int:
    return int(server.redis.zcard(f"{client.namespace}:{name}"))


@pytest.mark.parametrize("durability", LEVELS, ids=repr)
def test_message_is_on_the_replica_when_the_send_returns(
    client: Client, replica: ReplicatedServer, durability: Durability
):
    queue = queue_of(client, durability)
    for number in range(2):
        queue.send("hello")
        assert messages(replica, client) == number + 1 or durability.replicas == 0


def test_async_send_and_bulk_sends_wait_too(client: Client, replica: ReplicatedServer):
    queue = queue_of(client, ONE_REPLICA)

    asyncio.run(queue.asend("first"))
    assert messages(replica, client) == 1
    queue.send_many(["more"] * 1500)
    assert messages(replica, client) == 1501
    asyncio.run(queue.asend_many(["more"] * 20))
    assert messages(replica, client) == 1521


@pytest.mark.parametrize("is_async", [False, True])
def test_message_that_no_replica_confirms_is_stored_and_its_id_is_in_the_error(
    client: Client, replica: ReplicatedServer, is_async: bool
):
    queue = queue_of(client, NO_TIME)
    replica.stand_still()

    with pytest.raises(NotConfirmed, match="not confirmed within 0.05 s: 0 of 1 replica") as caught:
        asyncio.run(queue.asend("hello")) if is_async else queue.send("hello")

    assert isinstance(caught.value, OutcomeUnknown)
    message = queue.receive()
    assert message is not None
    assert caught.value.message_ids == [message.id]


@pytest.mark.parametrize("durability", [NO_TIME, Durability(replicas=1, fsync="replicas", timeout_s=SHORT_S)])
def test_later_send_is_confirmed_when_the_replica_is_back(
    client: Client, replica: ReplicatedServer, durability: Durability
):
    queue = queue_of(client, durability)
    replica.stand_still()
    with pytest.raises(NotConfirmed):
        queue.send("first")
    replica.go_on()

    DurableClient(client, ONE_REPLICA).confirm()

    assert messages(replica, client) == 1


def test_confirm_waits_for_what_other_sockets_have_written(client: Client, replica: ReplicatedServer):
    queue = queue_of(client, ONE_REPLICA)
    replica.stand_still()
    Queue("mail", client).send("by another one")
    other = Client(Connection(client.connection.url, timeout_s=60), namespace=client.namespace)

    with pytest.raises(NotConfirmed):
        DurableClient(other, NO_TIME).confirm()
    with pytest.raises(NotConfirmed):
        asyncio.run(DurableClient(other, NO_TIME).aconfirm())

    replica.go_on()
    DurableClient(other, ONE_REPLICA).confirm()
    other.connection.close()
    assert messages(replica, client) == 1
    assert queue.receive() is not None


def test_more_replicas_than_there_are_is_an_error_that_counts_them(client: Client, replica: ReplicatedServer):
    queue = queue_of(client, Durability(replicas=2, timeout_s=SHORT_S))

    with pytest.raises(NotConfirmed, match="1 of 2 replicas|0 of 2 replicas"):
        queue.send("hello")


def test_error_of_the_call_itself_is_raised_and_not_that_nothing_confirmed_it(
    client: Client, replica: ReplicatedServer
):
    replica.stand_still()
    with pytest.raises(QueueNotFound):
        Queue("missing", client, sender=DurableClient(client, NO_TIME)).send("hello")


def test_wait_is_repeated_with_the_script_that_a_restarted_server_does_not_know(
    client: Client, primary: ReplicatedServer, replica: ReplicatedServer
):
    queue = queue_of(client, NO_TIME)
    queue.sender._known_scripts.add("queue/send")
    primary.redis.script_flush()
    replica.stand_still()

    with pytest.raises(NotConfirmed) as caught:
        queue.send("hello")

    assert len(caught.value.message_ids) == 1
    replica.go_on()


@pytest.mark.usefixtures("replica")
def test_user_that_may_not_load_scripts_can_wait(client: Client, primary: ReplicatedServer):
    primary.redis.execute_command("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-script")
    queue_of(client, ONE_REPLICA)
    primary.redis.script_flush()
    connection = Connection(primary.url.replace("redis://", "redis://narrow:secret@"), timeout_s=60)
    sender = DurableClient(Client(connection, namespace=client.namespace), ONE_REPLICA)

    assert Queue("mail", client, sender=sender).send("hello")
    connection.close()


def test_pushed_and_published_messages_wait_too(client: Client, replica: ReplicatedServer):
    sender = DurableClient(client, NO_TIME)
    reliable, topic = ReliableQueue("jobs", client, sender=sender), Topic(f"t{client.namespace}", client, sender=sender)
    ReliableQueue("jobs", client).push("first")
    replica.stand_still()

    with pytest.raises(NotConfirmed) as caught:
        reliable.push("second")
    assert len(caught.value.message_ids) == 1
    for index in (1, 2):  # the first call of a process adds the topic to a list, too
        with pytest.raises(NotConfirmed) as caught:
            topic.publish("hello")
        assert caught.value.results[-1] == range(index, index + 1)
    with pytest.raises(NotConfirmed):
        asyncio.run(topic.apublish("hello"))
    with pytest.raises(NotConfirmed):
        asyncio.run(reliable.apush("third"))

    assert topic.status().last == 3
    replica.go_on()


@pytest.mark.needs_redis(7, 2)
def test_server_without_an_append_only_file_says_so(client: Client, primary: ReplicatedServer):
    queue = queue_of(client, Durability(fsync="local", timeout_s=PATIENT_S))
    primary.redis.config_set("appendonly", "no")
    try:
        with pytest.raises(NotConfirmed, match="refused to wait: .*appendonly is disabled"):
            queue.send("hello")
    finally:
        primary.redis.config_set("appendonly", "yes")


@pytest.mark.needs_redis(7, 2)
def test_server_that_does_not_know_waitaof_says_what_is_needed(client: Client, primary: ReplicatedServer):
    primary.redis.execute_command("ACL", "SETUSER", "old", "on", ">secret", "~*", "&*", "+@all", "-waitaof")
    url = primary.url.replace("redis://", "redis://old:secret@")
    connection = Connection(url, timeout_s=60)
    queue_of(client, ONE_REPLICA)
    sender = DurableClient(Client(connection, namespace=client.namespace), Durability(fsync="local"))

    with pytest.raises(NotConfirmed, match="refused to wait: .*waitaof"):
        Queue("mail", client, sender=sender).send("hello")
    connection.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replicas": 0},
        {"replicas": True},
        {"replicas": -1},
        {"replicas": 101},
        {"replicas": "1"},
        {"replicas": 1, "fsync": "remote"},
        {"fsync": "replicas"},
        {"replicas": 1, "timeout_s": 0},
        {"replicas": 1, "timeout_s": 31},
        {"replicas": 1, "timeout_s": float("nan")},
        {"replicas": 1, "timeout_s": "1"},
    ],
    ids=repr,
)
def test_durability_that_cannot_be_is_refused(options: dict[str, Any]):
    with pytest.raises(InvalidValue):
        Durability(**options)


def test_wait_that_is_longer_than_the_timeout_of_the_connection_is_refused():
    client = Client(Connection("redis://localhost", timeout_s=1.0))
    DurableClient(client, Durability(replicas=1, timeout_s=0.8))

    with pytest.raises(InvalidValue, match="waits for 0.9 s; with the connection's timeout of 1 s .* 0.8 s at most"):
        DurableClient(client, Durability(replicas=1, timeout_s=0.9))


def test_client_without_durability_sends_nothing_more(client: Client, primary: ReplicatedServer):
    queue = Queue("mail", client)
    queue.create()
    before = primary.redis.info("commandstats").get("cmdstat_wait", {}).get("calls", 0)

    queue.send("hello")

    assert primary.redis.info("commandstats").get("cmdstat_wait", {}).get("calls", 0) == before


def test_refused_calls_of_a_batch_have_their_errors_among_the_results(client: Client, replica: ReplicatedServer):
    queue_of(client, ONE_REPLICA)
    sender = DurableClient(client, NO_TIME)
    calls = [Queue("mail", client)._send(["hello"], None), Queue("missing", client)._send(["hello"], None)]
    replica.stand_still()

    with pytest.raises(NotConfirmed) as caught:
        sender.run_many(calls)

    first, second = caught.value.results
    assert len(first) == 1
    assert isinstance(second, RsmqError)
    assert len(caught.value.message_ids) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_repeat_of_a_part_on_another_socket_does_not_confirm_what_was_done_before(
    client: Client, primary: ReplicatedServer, replica: ReplicatedServer, is_async: bool
):
    queue = queue_of(client, NO_TIME)
    connection = ClosingConnection(primary.url, timeout_s=60)
    sender = DurableClient(Client(connection, namespace=client.namespace), NO_TIME)
    primary.redis.script_flush()
    client.run(queue._send(["the server has only this script"], None))
    calls: list[Any] = [queue._send(["hello"], None), count(client.namespace, "mail")]
    sender._known_scripts.update(call.script for call in calls)
    replica.stand_still()

    with pytest.raises(NotConfirmed) as caught:
        await sender.arun_many(calls) if is_async else sender.run_many(calls)

    assert len(caught.value.message_ids) == 1 and messages(primary, client) == 2


class ClosingConnection(Connection):
    """Closes its idle sockets after each exchange, as a thread does that has met a replica."""

    def exchange(self, commands: Any) -> Any:
        replies = super().exchange(commands)
        self.close()
        return replies

    async def aexchange(self, commands: Any) -> Any:
        replies = await super().aexchange(commands)
        await self.aclose()
        return replies


# -- Servers that refuse writes ---------------------------------------------------------------------------------------


@pytest.fixture
def refused(client: Client, primary: ReplicatedServer, replica: ReplicatedServer) -> Iterator[Queue]:
    """A queue that waits for two replicas, while the primary refuses all writes because it has one."""
    queue = queue_of(client, Durability(replicas=2, timeout_s=5.0))
    primary.redis.config_set("min-replicas-to-write", 2)
    yield queue
    primary.redis.config_set("min-replicas-to-write", 0)


def test_send_that_is_refused_for_lack_of_replicas_leaves_its_socket_and_does_not_wait_for_them(
    client: Client, refused: Queue
):
    for _ in range(2):
        with pytest.raises(ServerRefused, match="NOREPLICAS.*nothing was changed"):
            refused.send("hello")
        assert [link._sock for link in client.connection._idle] == [None]


async def test_async_send_that_is_refused_for_lack_of_replicas_does_not_wait_for_them(client: Client, refused: Queue):
    for _ in range(2):
        with pytest.raises(ServerRefused, match="NOREPLICAS.*nothing was changed"):
            await refused.asend("hello")
        pool = await client.connection._loop_pool()
        assert [link.is_connected for link in pool.idle] == [False]


def test_send_after_the_refusal_gets_its_own_answers(
    client: Client, primary: ReplicatedServer, replica: ReplicatedServer
):
    queue = queue_of(client, ONE_REPLICA)
    primary.redis.config_set("min-replicas-to-write", 2)
    try:
        with pytest.raises(ServerRefused):
            queue.send("hello")
    finally:
        primary.redis.config_set("min-replicas-to-write", 0)

    assert queue.send_many(["a", "b"]) and messages(replica, client) == 2


@pytest.fixture
def needs_a_password(primary: ReplicatedServer) -> Iterator[None]:
    """Sockets that are open already need none, until they are reset."""
    primary.redis.config_set("requirepass", "secret")
    yield
    primary.redis.config_set("requirepass", "")


@pytest.mark.parametrize("is_async", [False, True])
async def test_send_on_a_socket_that_the_server_refuses_altogether_was_not_carried_out(
    client: Client, primary: ReplicatedServer, replica: ReplicatedServer, is_async: bool, request: Any
):
    queue = queue_of(client, ONE_REPLICA)
    await queue.asend("first") if is_async else queue.send("first")
    request.getfixturevalue("needs_a_password")
    reset = [("RESET",)]
    await client.connection.aexchange(reset) if is_async else client.connection.exchange(reset)

    with pytest.raises(PermissionDenied):
        await queue.asend("second") if is_async else queue.send("second")

    assert messages(primary, client) == 1
    await client.connection.aclose()
