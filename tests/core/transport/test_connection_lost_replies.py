"""Lost and cut replies, and resets: what is repeated silently and what is reported instead.

The number of requests that went by the proxy tells whether something was repeated.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Message, Queue, alist_queues, list_queues
from rsmq_django.core.errors import ConnectionFailed, OutcomeUnknown, RedisFailure, RsmqError, ServerRefused
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.packing import Reply, Request
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer

# -- One lost reply: what is not repeated --------------------------------------------------------------------------


def test_send_with_a_lost_reply_is_reported_and_never_sent_again(proxy: FaultProxy, distant: Queue, queue: Queue):
    before, sent = proxy.times_seen(b"EVALSHA"), queue.attributes().total_sent
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.send(b"invoice 7")

    assert proxy.times_seen(b"EVALSHA") == before + 1
    assert queue.attributes().messages == 1
    assert queue.attributes().total_sent == sent + 1


def test_batch_with_a_lost_reply_is_stored_once(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.send_many([b"a", b"b", b"c"])

    assert queue.attributes().messages == 3


def test_receive_with_a_lost_reply_hides_one_message_and_no_second(proxy: FaultProxy, distant: Queue, queue: Queue):
    queue.send_many([b"a", b"b", b"c"])
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.receive()

    assert queue.attributes().hidden_messages == 1
    message = distant.receive()
    assert message is not None and message.body == b"b"


def test_pop_with_a_lost_reply_takes_one_message_and_no_second(proxy: FaultProxy, distant: Queue, queue: Queue):
    queue.send_many([b"a", b"b", b"c"])
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.pop()

    assert queue.attributes().messages == 2


@pytest.mark.parametrize("operation", ["asend", "areceive", "apop"])
async def test_async_calls_with_a_lost_reply_are_not_repeated(
    proxy: FaultProxy, distant: Queue, queue: Queue, operation: str
):
    queue.send_many([b"a", b"b", b"c"])
    await distant.aattributes()
    before = proxy.times_seen(b"EVALSHA")
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        await getattr(distant, operation)(*([b"d"] if operation == "asend" else []))

    assert proxy.times_seen(b"EVALSHA") == before + 1
    attributes = queue.attributes()
    expected = {"asend": (4, 0), "areceive": (3, 1), "apop": (2, 0)}[operation]
    assert (attributes.messages, attributes.hidden_messages) == expected
    await distant.client.connection.aclose()


def test_batch_of_calls_with_one_send_among_them_is_not_repeated(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.client.run_many([distant._attributes(), distant._send([b"x"], None)])

    assert queue.attributes().messages == 1


# -- One lost reply: what is repeated ------------------------------------------------------------------------------


def held(queue: Queue) -> Message:
    queue.send(b"x")
    message = queue.receive()
    assert message is not None
    return message


def test_delete_with_a_lost_reply_is_repeated_silently(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    before = proxy.times_seen(b"EVALSHA")
    proxy.lose_reply_to(b"EVALSHA")

    distant.delete(message)

    assert proxy.times_seen(b"EVALSHA") == before + 2
    assert queue.attributes().messages == 0


def test_change_of_visibility_with_a_lost_reply_is_repeated_silently(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    proxy.lose_reply_to(b"EVALSHA")

    assert distant.change_visibility(message, 0) is True

    assert queue.attributes().hidden_messages == 0


REPEATED: dict[str, Callable[[Queue], Any]] = {
    "attributes": lambda queue: queue.attributes(),
    "set_attributes": lambda queue: queue.set_attributes(delay_s=3),
    "list_queues": lambda queue: list_queues(queue.client),
}


@pytest.mark.parametrize("operation", REPEATED)
def test_reads_and_settings_with_a_lost_reply_are_repeated_silently(
    proxy: FaultProxy, distant: Queue, queue: Queue, operation: str
):
    proxy.lose_reply_to(b"EVALSHA")

    answer = REPEATED[operation](distant)

    assert (
        answer
        == {
            "attributes": queue.attributes(),
            "set_attributes": queue.attributes(),
            "list_queues": ["jobs"],
        }[operation]
    )


async def test_async_calls_that_are_harmless_twice_are_repeated(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    await distant.aattributes()

    proxy.lose_reply_to(b"EVALSHA")
    assert (await distant.aattributes()).messages == 1
    proxy.lose_reply_to(b"EVALSHA")
    assert await distant.achange_visibility(message, 60) is True
    proxy.lose_reply_to(b"EVALSHA")
    assert await alist_queues(distant.client) == ["jobs"]
    proxy.lose_reply_to(b"EVALSHA")
    await distant.adelete(message)

    assert queue.attributes().messages == 0
    await distant.client.connection.aclose()


def test_repeat_that_cannot_connect_does_not_hide_that_the_call_may_have_been_carried_out(
    proxy: FaultProxy, distant: Queue, queue: Queue
):
    message = held(queue)
    distant.attributes()
    proxy.lose_reply_to(b"EVALSHA")
    proxy.refuse()

    with pytest.raises(OutcomeUnknown):
        distant.delete(message)

    assert queue.attributes().messages == 0


async def test_async_repeat_that_cannot_connect_reports_the_same(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    await distant.aattributes()
    proxy.lose_reply_to(b"EVALSHA")
    proxy.refuse()

    with pytest.raises(OutcomeUnknown):
        await distant.adelete(message)

    assert queue.attributes().messages == 0
    await distant.client.connection.aclose()


@pytest.mark.parametrize(
    "refusal",
    [ConnectionFailed("cannot connect; nothing was sent"), ServerRefused("it is loading; nothing was changed")],
    ids=["unsent", "refused"],
)
def test_partly_carried_out_calls_are_not_reported_as_unsent(
    client: Client, server: PrivateServer, refusal: RedisFailure
):
    class Brief(Connection):
        """One that is cut off after its second exchange."""

        exchanges = 0

        def exchange(self, commands: Sequence[Request]) -> list[Reply]:
            self.exchanges += 1
            if self.exchanges > 2:
                raise refusal
            return super().exchange(commands)

    topic = Topic("orders", client)
    brief = Client(Brief(server.url))
    brief.run_many([topic.publish_call("x"), topic.status_call()])  # from now on it takes both scripts for loaded
    server.redis.script_flush()
    topic.publish("warm")  # so that the server knows this script, and not the other one

    with pytest.raises(OutcomeUnknown, match="1 of 2 calls had been carried out; [a-z ]+$"):
        brief.run_many([topic.publish_call("x"), topic.status_call()])

    assert topic.status().last == 3


REFUSING = b"-MISCONF Errors writing to the AOF file: No space left on device\r\n"


def test_repeat_that_is_refused_does_not_hide_that_the_call_may_have_been_carried_out(
    proxy: FaultProxy, distant: Queue, queue: Queue
):
    message = held(queue)
    proxy.lose_reply_to(b"EVALSHA")
    proxy.answer_instead(b"EVALSHA", REFUSING)

    with pytest.raises(OutcomeUnknown, match="did not answer.*the repeat was refused.*MISCONF") as caught:
        distant.delete(message)

    assert "nothing was changed" not in str(caught.value)
    assert queue.attributes().messages == 0


async def test_async_repeat_that_is_refused_reports_the_same(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    await distant.aattributes()
    proxy.lose_reply_to(b"EVALSHA")
    proxy.answer_instead(b"EVALSHA", REFUSING)

    with pytest.raises(OutcomeUnknown, match="the repeat was refused"):
        await distant.adelete(message)

    await distant.client.connection.aclose()


#: A server that begins to load its data between two calls: a replica whose primary sends it everything anew.
BEGINS_TO_LOAD = b"$32\r\n%s\r\n-LOADING Redis is loading the dataset in memory\r\n" % (b"a" * 32)


def test_server_that_begins_to_refuse_in_the_middle_has_carried_out_a_part(proxy: FaultProxy, distant: Queue):
    proxy.answer_instead(b"EVALSHA", BEGINS_TO_LOAD)

    with pytest.raises(OutcomeUnknown):
        distant.client.run_many([distant._send([b"a"], None), distant._send([b"b"], None)])


async def test_async_server_that_begins_to_refuse_in_the_middle_has_carried_out_a_part(
    proxy: FaultProxy, distant: Queue
):
    await distant.aattributes()
    proxy.answer_instead(b"EVALSHA", BEGINS_TO_LOAD)

    with pytest.raises(OutcomeUnknown):
        await distant.client.arun_many([distant._send([b"a"], None), distant._send([b"b"], None)])

    await distant.client.connection.aclose()


def test_call_is_repeated_once_and_not_forever(proxy: FaultProxy, distant: Queue):
    before = proxy.times_seen(b"EVALSHA")
    proxy.lose_reply_to(b"EVALSHA", times=100)

    with pytest.raises(RedisFailure):
        distant.attributes()

    assert proxy.times_seen(b"EVALSHA") == before + 2


def test_repeated_delete_never_deletes_a_message_that_another_consumer_received_meanwhile(
    proxy: FaultProxy, distant: Queue, queue: Queue
):
    first = held(queue)
    queue.change_visibility(first, 0)
    second = queue.receive()
    assert second is not None
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(RsmqError, match=first.id):
        distant.delete(first)

    assert queue.delete(second) is True


# -- Resets --------------------------------------------------------------------------------------------------------


def test_reset_between_calls_goes_unnoticed(proxy: FaultProxy, distant: Queue, queue: Queue):
    for number in range(20):
        proxy.reset_connections()
        distant.send(str(number))

    assert [message.body for message in queue.receive_many(50)] == [str(number).encode() for number in range(20)]


async def test_reset_between_async_calls_goes_unnoticed(proxy: FaultProxy, distant: Queue, queue: Queue):
    for number in range(20):
        await distant.asend(str(number))
        proxy.reset_connections()
        for _ in range(5):  # let the event loop see what happened to its socket, as it does between two calls
            await asyncio.sleep(0)

    assert queue.attributes().messages == 20
    await distant.client.connection.aclose()


def test_server_that_resets_new_connections_is_tried_twice_at_most(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.refuse()
    proxy.reset_connections()
    before = proxy.connections

    with pytest.raises(ConnectionFailed):
        distant.send(b"x")

    assert 1 <= proxy.connections - before <= 4
    proxy.release()
    distant.send(b"y")
    assert queue.attributes().messages == 1


@pytest.mark.parametrize("after_bytes", [0, 1, 2, 5, 20, 37, 38])
def test_reply_that_is_cut_short_is_a_lost_reply(proxy: FaultProxy, distant: Queue, queue: Queue, after_bytes: int):
    # The reply to a send is "*1\r\n$32\r\n" + 32 characters + "\r\n": 43 bytes.
    proxy.cut_next_reply(after_bytes=after_bytes)

    with pytest.raises(OutcomeUnknown):
        distant.send(b"x")

    assert distant.attributes().messages == 1


@pytest.mark.parametrize("after_bytes", [0, 1, 9, 40, 70])
def test_message_that_is_cut_short_is_never_delivered_in_part(
    proxy: FaultProxy, distant: Queue, queue: Queue, after_bytes: int
):
    queue.send_many([b"0123456789" * 3, b"next"])
    proxy.cut_next_reply(after_bytes=after_bytes)

    with pytest.raises(OutcomeUnknown):
        distant.receive()

    message = distant.receive()
    assert message is not None and message.body == b"next"


def test_slow_network_changes_no_answer(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.delay_s = 0.02

    ids = [distant.send(str(number)) for number in range(5)]

    assert [message.id for message in distant.receive_many(5)] == ids
