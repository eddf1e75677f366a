"""Sending: stored form, order, visibility, and refusals."""

import re

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidValue, MessageTooLong, QueueNotFound, RsmqError
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until

BODIES = [
    pytest.param(b"invoice 7", id="ascii"),
    pytest.param("é".encode(), id="accent"),
    pytest.param("🦀".encode(), id="emoji"),
    pytest.param(b"before\x00after", id="zero byte"),
    pytest.param(b"one\ntwo\r\n", id="newlines"),
    pytest.param(b'{"claim_id": 7}', id="json"),
    pytest.param(b"", id="empty"),
    pytest.param(b"\xff\xfe\x80", id="invalid utf-8"),
    pytest.param(bytes(range(256)), id="every byte"),
]


@pytest.mark.parametrize("body", BODIES)
def test_body_comes_back_byte_for_byte(queue: Queue, body: bytes):
    message_id = queue.send(body)

    message = queue.receive()

    assert message is not None
    assert (message.id, message.body) == (message_id, body)


def test_text_is_sent_as_utf8(server: PrivateServer, queue: Queue):
    message_id = queue.send("grüße 🦀")

    assert server.redis.hget("rsmq:jobs:Q", message_id) == "grüße 🦀".encode()


@pytest.mark.parametrize("body", [None, 7, ["x"], {"a": 1}, object(), "half a pair: \ud83e"])
def test_body_that_is_neither_bytes_nor_encodable_text_is_refused(queue: Queue, body: object):
    with pytest.raises(RsmqError) as refusal:
        queue.send(body)  # type: ignore[arg-type]

    assert isinstance(refusal.value, TypeError)
    assert refusal.value.rsmq_name == "messageNotString"
    assert queue.attributes().messages == 0


def test_send_writes_exactly_the_format(server: PrivateServer, queue: Queue):
    message_id = queue.send(b"invoice 7")

    stored = server.redis.hgetall("rsmq:jobs:Q")
    new_fields = set(stored) - {b"vt", b"delay", b"maxsize", b"created", b"modified"}
    assert new_fields == {message_id.encode(), b"totalsent"}
    assert stored[b"totalsent"] == b"1"
    assert server.redis.zrange("rsmq:jobs", 0, -1) == [message_id.encode()]


def test_score_of_a_message_is_server_time_in_whole_milliseconds(server: PrivateServer, queue: Queue):
    before_s, before_us = server.redis.time()
    message_id = queue.send(b"x")
    after_s, after_us = server.redis.time()

    score = server.redis.zscore("rsmq:jobs", message_id)

    assert score == int(score)
    assert before_s * 1000 + before_us // 1000 <= score <= after_s * 1000 + after_us // 1000


def test_large_scores_are_stored_without_an_exponent(server: PrivateServer, queue: Queue):
    message_id = queue.send(b"x", delay_s=9_999_999)

    [(member, score)] = server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)

    assert member == message_id.encode()
    now_s = server.redis.time()[0]
    assert abs(score - (now_s + 9_999_999) * 1000) < 60_000
    assert re.fullmatch(rb"\d{13,14}", server.redis.execute_command("EVAL", _RAW_SCORE, 1, "rsmq:jobs", message_id))


_RAW_SCORE = 'return redis.call("ZSCORE", KEYS[1], ARGV[1])'


def test_messages_come_out_in_the_order_they_were_sent(queue: Queue):
    sent = [queue.send(str(number)) for number in range(50)]

    received = [message.id for message in queue.receive_many(50)]

    assert received == sent
    assert sent == sorted(sent)


def test_batch_keeps_its_order(queue: Queue):
    bodies = [str(number).encode() for number in range(1000)]

    sent = queue.send_many(bodies)

    received = queue.receive_many(1000)
    assert [message.id for message in received] == sent
    assert [message.body for message in received] == bodies


def test_ids_of_a_batch_carry_successive_microseconds(queue: Queue):
    ids = queue.send_many([b"x"] * 100)

    sent_us = [int(message_id[:10], 36) for message_id in ids]

    assert sent_us == list(range(sent_us[0], sent_us[0] + 100))


def test_batch_of_nothing_sends_nothing(queue: Queue):
    assert queue.send_many([]) == []
    assert queue.attributes().total_sent == 0


def test_batch_larger_than_one_script_call_is_sent_whole_and_in_order(queue: Queue):
    bodies = [str(number).encode() for number in range(2500)]

    ids = queue.send_many(bodies)

    assert len(set(ids)) == 2500
    assert queue.attributes().total_sent == 2500
    received = [message.body for _ in range(3) for message in queue.receive_many(1000)]
    assert received == bodies


def test_batch_may_mix_bytes_and_text_and_come_from_a_generator(queue: Queue):
    queue.send_many(body for body in ("é", b"\xff", ""))

    assert [message.body for message in queue.receive_many(3)] == ["é".encode(), b"\xff", b""]


def test_sending_to_a_missing_queue_leaves_nothing_behind(server: PrivateServer, client: Client):
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).send(b"x")
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).send_many([b"x", b"y"])

    assert server.redis.keys() == []


# -- Size: bytes, not characters -----------------------------------------------------------------------------------


def test_body_of_exactly_64_kib_is_accepted_and_one_byte_more_refused(queue: Queue):
    queue.send(b"x" * 65_536)

    with pytest.raises(MessageTooLong, match=r"(?s)65537.*65536"):
        queue.send(b"x" * 65_537)

    assert queue.attributes().messages == 1


def test_size_is_counted_in_bytes_and_not_in_characters(client: Client):
    queue = Queue("small", client)
    queue.create(max_size_bytes=1024)
    queue.send("é" * 512)

    with pytest.raises(MessageTooLong, match="small"):
        queue.send("é" * 513)

    assert queue.attributes().messages == 1


def test_batch_of_bodies_as_long_as_the_limit_is_stored(client: Client):
    queue = Queue("small", client)
    queue.create(max_size_bytes=1024)

    queue.send_many([b"x" * 1024, "é" * 512])

    assert queue.attributes().messages == 2


def test_batch_with_one_body_too_long_stores_nothing(client: Client):
    queue = Queue("small", client)
    queue.create(max_size_bytes=1024)

    with pytest.raises(MessageTooLong):
        queue.send_many([b"fits", b"x" * 1025, b"fits too"])

    attributes = queue.attributes()
    assert (attributes.messages, attributes.total_sent) == (0, 0)


def test_queue_without_a_limit_takes_bodies_above_64_kib(client: Client):
    queue = Queue("large", client)
    queue.create(max_size_bytes=-1)
    body = b"\x00\xff" * 50_000

    queue.send(body)

    message = queue.receive()
    assert message is not None and message.body == body


def test_changed_limit_holds_for_the_next_message(queue: Queue):
    queue.set_attributes(max_size_bytes=1024)

    with pytest.raises(MessageTooLong):
        queue.send(b"x" * 1025)


# -- Delay ---------------------------------------------------------------------------------------------------------


def test_delayed_message_waits_for_its_time(queue: Queue):
    message_id = queue.send(b"later", delay_s=30)
    assert queue.receive() is None

    pass_time(queue, seconds=31)

    message = queue.receive()
    assert message is not None and message.id == message_id


def test_delay_of_the_queue_is_the_default(client: Client):
    queue = Queue("slow", client)
    queue.create(delay_s=30)
    queue.send(b"x")
    assert queue.receive() is None

    pass_time(queue, seconds=31)

    assert queue.receive() is not None


def test_delay_of_zero_overrides_the_delay_of_the_queue(client: Client):
    queue = Queue("slow", client)
    queue.create(delay_s=30)
    queue.send(b"now", delay_s=0)

    assert queue.receive() is not None


def test_delay_below_a_second_moves_only_the_score(server: PrivateServer, queue: Queue):
    message_id = queue.send(b"x", delay_s=0.3)
    sent_ms = int(message_id[:10], 36) // 1000

    assert server.redis.zscore("rsmq:jobs", message_id) == sent_ms + 300
    assert server.redis.hget("rsmq:jobs:Q", "delay") == b"0"


@pytest.mark.parametrize(("delay_s", "delay_ms"), [(0.3, 300), (2.007, 2007), (4.001, 4001), (0.001, 1), (0.0001, 1)])
def test_delay_is_exact_to_the_millisecond_and_never_shorter(
    server: PrivateServer, queue: Queue, delay_s: float, delay_ms: int
):
    message_id = queue.send(b"x", delay_s=delay_s)

    assert server.redis.zscore("rsmq:jobs", message_id) == int(message_id[:10], 36) // 1000 + delay_ms


def test_message_delayed_by_a_fraction_of_a_second_arrives(queue: Queue):
    queue.send(b"x", delay_s=0.05)

    assert wait_until(queue.receive).body == b"x"


def test_batch_takes_its_delay_as_a_whole(server: PrivateServer, queue: Queue):
    queue.send_many([b"a", b"b"], delay_s=60)

    scores = {score for _, score in server.redis.zrange("rsmq:jobs", 0, -1, withscores=True)}
    assert len(scores) == 1
    assert queue.attributes().hidden_messages == 2


@pytest.mark.parametrize("delay_s", [-1, 10_000_000, float("nan"), float("inf"), "10abc", -0.001])
def test_impossible_delay_is_refused(queue: Queue, delay_s: float):
    with pytest.raises(InvalidValue):
        queue.send(b"x", delay_s=delay_s)

    assert queue.attributes().messages == 0


# -- Realtime ------------------------------------------------------------------------------------------------------


def test_realtime_queue_publishes_the_number_of_messages(server: PrivateServer, client: Client, queue: Queue):
    listener = server.redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("rsmq:rt:jobs")
    wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:jobs")[0][1])
    loud = Queue("jobs", client, realtime=True)

    loud.send(b"one")
    loud.send(b"hidden", delay_s=60)
    loud.send_many([b"a", b"b", b"c"])

    heard: list[bytes] = []
    wait_until(lambda: _listen(listener, heard) and len(heard) == 3)
    assert heard == [b"1", b"2", b"5"]
    listener.close()


def test_queue_that_is_not_realtime_publishes_nothing(server: PrivateServer, client: Client, queue: Queue):
    listener = server.redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("rsmq:rt:jobs")
    wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:jobs")[0][1])

    queue.send(b"silent")
    Queue("jobs", client, realtime=True).send(b"loud")

    heard: list[bytes] = []
    wait_until(lambda: _listen(listener, heard))
    assert heard == [b"2"]
    listener.close()


def _listen(listener: object, heard: list[bytes]) -> bool:
    if (message := listener.get_message(timeout=0.01)) is not None:  # type: ignore[attr-defined]
        heard.append(message["data"])
    return bool(heard)
