"""Calls that take several exchanges: an error in the middle says what was carried out before it.

The items come from generators, which let the fault happen when the second thousand is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from rsmq_django.core import Client, Connection, Queue, SettleResult
from rsmq_django.core.errors import (
    ConnectionFailed,
    MessageTooLong,
    OutcomeUnknown,
    PartlyDone,
    QueueFull,
    ServerRefused,
)
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.packing import Reply, Request
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer, without_its_disk


def bodies(fault: Callable[[], object], *, after: int = 1000, count: int = 3000) -> Iterator[bytes]:
    for number in range(count):
        if number == after:
            fault()
        yield b"%d" % number


def fill(server: PrivateServer) -> None:
    """Put the server at its memory limit."""
    server.redis.config_set("maxmemory", 1)


@pytest.fixture
def unlimited(server: PrivateServer) -> Iterator[None]:
    yield
    server.redis.config_set("maxmemory", 0)


@pytest.mark.usefixtures("unlimited")
def test_full_server_in_the_middle_of_a_batch_does_not_say_that_nothing_was_stored(server: PrivateServer, queue: Queue):
    with pytest.raises(PartlyDone, match=r"^2000 were carried out, the others were not: .*memory limit") as caught:
        queue.send_many(bodies(lambda: fill(server), after=2000))

    error = caught.value
    assert isinstance(error.__cause__, QueueFull)
    assert not isinstance(error, ServerRefused)
    assert "nothing was" not in str(error)
    assert (error.queue_name, error.unknown) == ("jobs", {})
    server.redis.config_set("maxmemory", 0)
    assert [message.id for _ in range(2) for message in queue.receive_many(1000)] == list(error.done.values())
    assert list(error.done) == list(range(2000))


@pytest.mark.usefixtures("unlimited")
async def test_async_batch_reports_the_same(server: PrivateServer, queue: Queue):
    with pytest.raises(PartlyDone) as caught:
        await queue.asend_many(bodies(lambda: fill(server)))

    assert len(caught.value.done) == 1000
    assert caught.value.unknown == {}
    await queue.client.connection.aclose()


def test_connection_that_breaks_in_the_middle_reports_the_sent_calls(proxy: FaultProxy, warm: Queue, queue: Queue):
    def cut() -> None:
        proxy.refuse()
        proxy.reset_connections()

    with pytest.raises(PartlyDone) as caught:
        warm.send_many(bodies(cut))

    assert isinstance(caught.value.__cause__, ConnectionFailed)
    assert (len(caught.value.done), caught.value.unknown) == (1000, {})
    assert queue.attributes().messages == 1000


def test_server_that_becomes_a_replica_in_the_middle_reports_the_stored_messages(server: PrivateServer, queue: Queue):
    try:
        with pytest.raises(PartlyDone, match=r"^1000 were carried out, the others were not: .*is a replica") as caught:
            queue.send_many(bodies(lambda: server.redis.replicaof("127.0.0.1", "1")))
    finally:
        server.redis.replicaof("NO", "ONE")

    assert isinstance(caught.value.__cause__, ServerRefused)
    assert (len(caught.value.done), caught.value.unknown) == (1000, {})
    assert queue.attributes().messages == 1000


def test_server_that_cannot_save_in_the_middle_reports_the_stored_messages(server: PrivateServer, queue: Queue):
    with ExitStack() as until_the_end:
        disk_fails = partial(until_the_end.enter_context, without_its_disk(server))
        with pytest.raises(PartlyDone, match=r"^1000 were carried out, the others were not: .*MISCONF") as caught:
            queue.send_many(bodies(disk_fails))

    assert isinstance(caught.value.__cause__, ServerRefused)
    assert (len(caught.value.done), caught.value.unknown) == (1000, {})
    assert queue.attributes().messages == 1000


def test_lost_reply_in_the_middle_reports_which_messages_may_have_been_sent(
    proxy: FaultProxy, warm: Queue, queue: Queue
):
    with pytest.raises(PartlyDone, match="1000 were carried out, 1000 may have been, the others were not") as caught:
        warm.send_many(bodies(lambda: proxy.lose_reply_to(b"EVALSHA")))

    assert list(caught.value.done) == list(range(1000))
    assert list(caught.value.unknown) == list(range(1000, 2000))
    assert queue.attributes().messages == 2000


def test_too_long_body_in_the_middle_reports_the_calls_sent_before_it(queue: Queue):
    with pytest.raises(PartlyDone) as caught:
        queue.send_many([*bodies(lambda: None, count=1500), b"x" * 70_000])

    assert isinstance(caught.value.__cause__, MessageTooLong)
    assert len(caught.value.done) == queue.attributes().messages == 1000


@pytest.mark.usefixtures("unlimited")
def test_first_exchange_of_a_batch_fails_as_ever(server: PrivateServer, queue: Queue):
    with pytest.raises(QueueFull):
        queue.send_many(bodies(lambda: fill(server), after=0))

    assert queue.attributes().messages == 0


def test_lost_reply_to_the_first_exchange_of_a_batch_is_an_unknown_outcome(proxy: FaultProxy, warm: Queue):
    with pytest.raises(OutcomeUnknown) as caught:
        warm.send_many(bodies(lambda: proxy.lose_reply_to(b"EVALSHA"), after=0))

    assert not isinstance(caught.value, PartlyDone)


def test_delete_that_fails_in_the_middle_reports_the_deleted_messages(proxy: FaultProxy, warm: Queue, queue: Queue):
    def cut() -> None:
        proxy.refuse()
        proxy.reset_connections()

    queue.send_many(bodies(lambda: None, count=1500))
    received = [message for _ in range(2) for message in queue.receive_many(1000)]

    def with_a_cut() -> Iterator[Any]:
        for number, message in enumerate(received):
            if number == 1000:
                cut()
            yield message

    with pytest.raises(PartlyDone) as caught:
        warm.delete_many(with_a_cut())

    assert caught.value.done == dict.fromkeys(range(1000), SettleResult.DONE)
    assert queue.attributes().messages == 500


class CutOff(Connection):
    """One that cannot be reached any more after some exchanges."""

    left = 1

    def exchange(self, commands: Sequence[Request]) -> list[Reply]:
        self._refuse_if_over()
        return self._counted(super().exchange(commands))

    async def aexchange(self, commands: Sequence[Request]) -> list[Reply]:
        self._refuse_if_over()
        return self._counted(await super().aexchange(commands))

    def _refuse_if_over(self) -> None:
        if self.left == 0:
            raise ConnectionFailed("cannot connect; nothing was sent")

    def _counted(self, replies: list[Reply]) -> list[Reply]:
        self.left -= not isinstance(replies[0], redis.exceptions.NoScriptError)
        return replies


def test_partly_settled_reliable_messages_are_not_reported_as_unsettled(server: PrivateServer):
    whole = ReliableQueue("jobs", Client(Connection(server.url)))
    for _ in range(2):
        whole.push(*bodies(lambda: None, count=1000))
    receipts = [message.receipt for _ in range(2) for message in whole.pop_messages(1000)]
    brief = ReliableQueue("jobs", Client(CutOff(server.url)))

    with pytest.raises(PartlyDone, match="1000 were carried out, the others were not: cannot connect$") as caught:
        brief.nack(*receipts[:1500], delay_s=5)

    assert list(caught.value.done) == list(range(1000))
    assert whole.statistics().depth.delayed == 1000


@pytest.mark.parametrize("action", ["aack", "anack", "aextend", "abury"])
async def test_partly_settled_reliable_messages_of_a_coroutine_are_counted_exactly(server: PrivateServer, action: str):
    whole = ReliableQueue("jobs", Client(Connection(server.url)))
    for _ in range(2):
        whole.push(*bodies(lambda: None, count=1000))
    receipts = [message.receipt for _ in range(2) for message in whole.pop_messages(1000)]
    brief = ReliableQueue("jobs", Client(CutOff(server.url)))
    more = {"aextend": {"seconds": 60}}.get(action, {})

    with pytest.raises(PartlyDone) as caught:
        await getattr(brief, action)(*receipts[:1500], **more)

    assert list(caught.value.done) == list(range(1000))
    await brief.client.connection.aclose()


async def test_partly_acknowledged_topic_messages_of_a_coroutine_are_counted_exactly(server: PrivateServer):
    topic = Topic("orders", Client(Connection(server.url)))
    topic.publish(*[b"x"] * 1000)
    topic.publish(*[b"x"] * 500)
    topic.group("mail", at_least_once=True).read(1000)
    group = Topic("orders", Client(CutOff(server.url))).group("mail", at_least_once=True)

    with pytest.raises(PartlyDone) as caught:
        await group.aack(range(1, 1501))

    assert list(caught.value.done) == list(range(1000))
    await group.client.connection.aclose()


def test_partly_acknowledged_topic_messages_are_not_reported_as_unacknowledged(server: PrivateServer):
    client = Client(Connection(server.url))
    topic = Topic("orders", client)
    topic.publish(*[b"x"] * 1000)
    topic.publish(*[b"x"] * 500)
    topic.group("mail", at_least_once=True).read(1000)
    group = Topic("orders", Client(CutOff(server.url))).group("mail", at_least_once=True)

    with pytest.raises(PartlyDone) as caught:
        group.ack(range(1, 1501))

    assert list(caught.value.done) == list(range(1000))
