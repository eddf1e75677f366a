"""Damage by other programs: it is noticed, reported clearly, and costs no stored message."""

import pytest

from rsmq_django.core import Queue
from rsmq_django.core.errors import TopicBroken, TopicReset
from rsmq_django.core.topic import Bridge, NewMessage, Retention, Topic
from rsmq_django.core.topic.group import ConsumerGroup
from rsmq_django.core.topic.keys import topic_keys
from tests.core.topic.conftest import bodies, indexes
from tests.core.topic.plain_client import PlainClient
from tests.redis_server import PrivateServer


def test_holes_are_passed_over_and_counted(topic: Topic, server: PrivateServer):
    topic.publish(*"abcdef")
    server.redis.delete("orders:messages:1", "orders:messages:3", "orders:messages:6")

    batch = topic.group("g").read(10)

    assert (indexes(batch), batch.holes, batch.skipped) == ([2, 4, 5], 3, 0)
    assert indexes(topic.group("one").read(1)) == [2]


@pytest.mark.parametrize("block_ms", [0, 60_000])
@pytest.mark.parametrize("is_async", [False, True])
async def test_long_gap_does_not_stop_a_reader_nor_make_it_wait(
    topic: Topic, queue: Queue, server: PrivateServer, block_ms: int, is_async: bool
):
    server.redis.set("orders:nextIndex", 3500)
    assert topic.publish("behind the gap") == range(3501, 3502)
    group, bridge = topic.group("g"), Bridge(topic.group("to-jobs"), queue)

    batch = await group.aread(10, block_ms=block_ms) if is_async else group.read(10, block_ms=block_ms)
    done = await bridge.aforward(block_ms=block_ms) if is_async else bridge.forward(block_ms=block_ms)

    assert bodies(batch) == [b"behind the gap"] and done.moved == 1


def test_lost_index_is_found_again_by_the_next_publish(topic: Topic, server: PrivateServer, careful: ConsumerGroup):
    topic.publish(*"abc")
    careful.ack(careful.read(2))
    server.redis.delete("orders:nextIndex")

    with pytest.raises(TopicReset, match="has read up to 2, but the topic ends at 0"):
        careful.read()
    assert topic.publish("d") == range(4, 5), "behind the messages that are there"

    assert bodies(careful.read(10)) == [b"c", b"d"]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "9223372036854775807", "-100000000000000000", "x"])
@pytest.mark.parametrize("field", ["first", "last"])
def test_recorded_end_of_a_topic_that_is_not_an_index_is_replaced(
    topic: Topic, server: PrivateServer, field: str, value: str
):
    topic.publish(*"ab")
    server.redis.hset("rsmqt:orders:meta", mapping={field: value, "max_bytes": 1000})

    assert topic.publish("c") == range(3, 4)
    assert topic.trim(keep=3) == 0

    assert bodies(topic.group("g").read(10)) == [b"a", b"b", b"c"]
    assert server.redis.hget("rsmqt:orders:meta", "last") == b"3"


def test_deleted_topic_starts_again_and_its_readers_get_an_error(topic: Topic, server: PrivateServer):
    topic.publish(*"abc")
    for name in ("strict", "early", "late"):
        topic.group(name).read(10)
    server.redis.delete("orders:nextIndex", *(f"orders:messages:{n}" for n in (1, 2, 3)))

    assert topic.publish("new") == range(1, 2)

    with pytest.raises(TopicReset, match="group 'strict' of topic 'orders' has read up to 3"):
        topic.group("strict").read()
    assert bodies(topic.group("early", on_reset="earliest").read(10)) == [b"new"]
    late = topic.group("late", on_reset="latest")
    assert not late.read(10)
    topic.publish("newer")
    assert bodies(late.read(10)) == [b"newer"]
    topic.group("strict").seek("earliest", force=True)
    assert bodies(topic.group("strict").read(10)) == [b"new", b"newer"]


def test_trimmed_topic_whose_index_is_found_again_keeps_its_first_message(topic: Topic, server: PrivateServer):
    topic.publish(*"abcde")
    topic.trim(before=4)
    server.redis.delete("orders:nextIndex")

    assert topic.trim() == 0
    assert topic.publish("f") == range(6, 7)

    assert (topic.status().first, topic.trim(keep=2)) == (4, 1)
    assert bodies(topic.group("g").read(10)) == [b"e", b"f"]


@pytest.mark.parametrize("sweeps", [False, True])
def test_trimmed_topic_that_a_plain_client_starts_again_is_read_from_its_start(
    topic: Topic, server: PrivateServer, plain: PlainClient, sweeps: bool
):
    topic.publish(*"abcdef")
    group = topic.group("g", on_reset="earliest")
    group.read(10)
    topic.trim(keep=0)
    server.redis.delete("orders:nextIndex")

    plain.send(b"1")
    assert (bodies(group.read(10)), group.read(10).left) == ([b"1"], 0)
    if sweeps:
        topic.trim(keep=100)
        for number in b"234567":
            plain.send(bytes([number]))
        assert bodies(topic.group("new").read(10)) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        assert topic.status().noted == 1


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "", "9" * 30, "1\r\n2"])
def test_index_that_is_not_a_number_is_an_error_that_names_key_and_value(
    topic: Topic, server: PrivateServer, value: str
):
    topic.publish("a")
    server.redis.set("orders:nextIndex", value)

    for action in (lambda: topic.publish("b"), topic.group("g").read, topic.status, topic.trim, topic.compact):
        with pytest.raises(TopicBroken, match="'orders:nextIndex'"):
            action()

    server.redis.delete("orders:nextIndex")  # as the error says
    assert topic.publish("b") == range(2, 3)


def test_cursor_that_is_not_a_number_is_an_error_and_can_be_set_again(topic: Topic, server: PrivateServer):
    topic.publish(*"ab")
    group = topic.group("g")
    server.redis.set("orders:g:nextIndex", "x y")

    with pytest.raises(TopicBroken, match="'orders:g:nextIndex', is 'x y'"):
        group.read()
    with pytest.raises(TopicBroken):
        group.status()
    group.seek(2)

    assert bodies(group.read(10)) == [b"b"]


def test_key_of_another_type_is_an_error(topic: Topic, server: PrivateServer):
    server.redis.rpush("orders:nextIndex", "x")

    with pytest.raises(TopicBroken, match="topic 'orders': one of its keys has the wrong type"):
        topic.publish("a")
    with pytest.raises(TopicBroken, match="wrong type"):
        topic.group("g").read()


@pytest.mark.parametrize("part", ["meta", "time", "headers", "keys", "latest", "stale", "tombstones"])
def test_publish_that_a_foreign_key_refuses_has_stored_nothing(topic: Topic, server: PrivateServer, part: str):
    topic.publish("a", "b")
    key = getattr(topic.keys, part)
    server.redis.hdel(topic.keys.meta, "slot")  # as when time has passed
    server.redis.delete(key)
    server.redis.set(key, "foreign")

    with pytest.raises(TopicBroken, match=f"topic 'orders' is damaged: .* its key '{key}'"):
        topic.publish(NewMessage(b"", key="k", headers={"a": "b"}))

    server.redis.delete(key)  # as the error says
    assert topic.publish("c") == range(3, 4)
    assert bodies(topic.group("g").read(10)) == [b"a", b"b", b"c"]


def test_nothing_is_deleted_for_groups_while_another_program_uses_their_key(topic: Topic, server: PrivateServer):
    topic.set_retention(Retention(max_count=1, wait_for_groups=True))
    topic.publish("a", "b")
    server.redis.set(topic.keys.groups, "foreign")

    topic.publish("c")
    topic.client.run(topic.sweep_call())

    assert [message.body for message in topic.read_range(1, 10).messages] == [b"a", b"b", b"c"]


def test_index_of_an_older_message_that_is_not_one_is_replaced(topic: Topic, server: PrivateServer):
    server.redis.hset(topic.keys.latest, "k", "foreign")

    assert topic.publish("a", "b", key="k") == range(1, 3)

    assert topic.compact() == 1


def test_message_of_another_type_counts_as_a_hole(topic: Topic, server: PrivateServer):
    topic.publish(*"abc")
    server.redis.delete("orders:messages:2")
    server.redis.rpush("orders:messages:2", "x")

    assert indexes(topic.group("g").read(10)) == [1, 3]


def test_lost_side_data_costs_no_message(topic: Topic, careful: ConsumerGroup, server: PrivateServer):
    topic.publish(*"abcd")
    careful.ack(careful.read(3).messages[0])
    server.redis.delete(*server.redis.keys("rsmqt:*"))

    assert indexes(careful.read(10)) == [2, 3, 4]
    assert topic.publish("e") == range(5, 6)


@pytest.mark.parametrize("forgot", [b"\xff", b"a\nb", b"soon"])
def test_time_of_a_move_that_is_not_a_time_is_a_part_of_the_receipts(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer, forgot: bytes
):
    topic.publish(*"ab")
    server.redis.hset("rsmqt:orders:group:careful", "forgot", forgot)

    batch = careful.read(10)

    assert bodies(batch) == [b"a", b"b"]
    assert careful.ack(batch) == 2
    assert not careful.read(10)


def test_headers_that_are_not_json_are_left_out(topic: Topic, server: PrivateServer):
    topic.publish("a", headers={"a": "b"})
    server.redis.hset(topic.keys.headers, "1", b"\xff{")

    (message,) = topic.group("g").read()

    assert message.headers == {}


@pytest.mark.parametrize("part", ["index", "meta", "time", "headers", "keys", "latest", "stale", "tombstones"])
def test_damaged_dead_letter_topic_blocks_nothing_and_loses_nothing(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer, part: str
):
    topic.publish(*"abc")
    spent = topic.group("careful", at_least_once=True, max_deliveries=1)
    spent.retry(spent.read(1).messages)
    key = getattr(topic_keys("orders.dlt"), part)
    server.redis.sadd(key, "foreign")

    assert bodies(spent.read(10)) == [b"b", b"c"]
    with pytest.raises(TopicBroken, match=f"dead-letter topic of topic 'orders' cannot store.* its key '{key}'"):
        spent.read(10)

    server.redis.delete(key)  # as the error says
    assert spent.read(10).dead_lettered == 1
    assert bodies(topic_of(topic, "orders.dlt").group("look").read(10)) == [b"a"]


def test_consumer_that_waits_for_its_dead_letter_topic_counts_as_live(topic: Topic, server: PrivateServer):
    topic.publish("a")
    group = topic.group("g", at_least_once=True, max_deliveries=1)
    group.retry(group.read().messages)
    group.leave()
    server.redis.sadd("orders.dlt:nextIndex", "foreign")

    with pytest.raises(TopicBroken):
        group.read()

    assert group.status().live_consumers == 1


def test_damaged_dead_letter_topic_does_not_delay_other_retries(topic: Topic, server: PrivateServer):
    topic.publish(*"ab")
    group = topic.group("g", at_least_once=True, max_deliveries=2)
    poison, good = group.read(2)
    group.retry(poison)
    group.retry([group.read(1).messages[0], good])
    server.redis.sadd("orders.dlt:nextIndex", "foreign")

    assert bodies(group.read(1)) == [b"b"]


@pytest.mark.parametrize("part", ["index", "headers"])
def test_bridge_waits_for_its_dead_letter_topic_to_be_repaired(
    topic: Topic, queue: Queue, server: PrivateServer, part: str
):
    queue.set_attributes(max_size_bytes=1024)
    topic.publish("a", "x" * 2000, "b")
    bridge = Bridge(topic.group("g"), queue)
    key = getattr(topic_keys("orders.dlt"), part)
    server.redis.sadd(key, "foreign")

    with pytest.raises(TopicBroken, match="dead-letter topic"):
        bridge.forward(10)
    server.redis.delete(key)

    done = bridge.forward(10)
    assert (done.moved, done.dead_lettered) == (2, 1)
    assert [message.body for message in queue.receive_many(10)] == [b"a", b"b"]


def topic_of(topic: Topic, name: str) -> Topic:
    return Topic(name, topic.client)
