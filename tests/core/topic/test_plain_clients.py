"""A client that knows only the three kinds of keys shares a topic with us, in both directions."""

import pytest

from rsmq_django.core.topic import ConsumerGroup, Topic
from tests.core.topic.conftest import bodies, indexes
from tests.core.topic.plain_client import PlainClient
from tests.redis_server import PrivateServer


def test_keys_are_those_of_plain_clients_byte_for_byte(topic: Topic, server: PrivateServer):
    topic.publish(b"a\x00\xff", "zwei")
    topic.group("billing").read()

    ours = {key for key in server.redis.keys() if not key.startswith(b"rsmqt:")}

    assert ours == {b"orders:nextIndex", b"orders:messages:1", b"orders:messages:2", b"orders:billing:nextIndex"}
    assert server.redis.get("orders:nextIndex") == b"2"
    assert server.redis.get("orders:messages:1") == b"a\x00\xff"
    assert server.redis.get("orders:billing:nextIndex") == b"1"
    assert server.redis.ttl("orders:messages:1") == -1


def test_both_publish_to_one_log(topic: Topic, plain: PlainClient):
    published = [list(topic.publish("1")), plain.send("2"), list(topic.publish("3", "4")), plain.send("5")]

    assert published == [[1], 2, [3, 4], 5]
    assert bodies(topic.group("ours").read(10)) == [b"1", b"2", b"3", b"4", b"5"]
    assert plain.poll_all("theirs") == [b"1", b"2", b"3", b"4", b"5"]


def test_both_read_for_one_group_and_share_its_messages(topic: Topic, plain: PlainClient):
    topic.publish(*"abcdef")
    group = topic.group("shared")

    got = [plain.poll("shared"), *bodies(group.read(2)), plain.poll("shared"), *bodies(group.read(10))]

    assert got == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert plain.poll("shared") is None


def test_plain_client_replays_our_group(topic: Topic, plain: PlainClient):
    topic.publish(*"abc")
    group, other = topic.group("ours"), topic.group("other")
    group.read(10), other.read(10)

    plain.unsubscribe("ours")

    assert bodies(group.read(10)) == [b"a", b"b", b"c"]
    assert not other.read(10)


def test_plain_client_replays_a_group_that_began_at_the_end(topic: Topic, plain: PlainClient):
    topic.publish(*"abc")
    group = topic.group("late", start="latest")
    assert not group.read(10)

    plain.unsubscribe("late")

    assert bodies(group.read(10)) == [b"a", b"b", b"c"]


def test_we_replay_the_group_of_a_plain_client(topic: Topic, plain: PlainClient):
    topic.publish(*"abc")
    plain.poll_all("theirs")

    topic.group("theirs").replay()

    assert plain.poll_all("theirs") == [b"a", b"b", b"c"]


def test_plain_client_never_skips_our_messages_in_flight(topic: Topic, plain: PlainClient):
    topic.publish(*"abcd")
    group = topic.group("both", at_least_once=True)
    held = group.read(3)

    group.ack(held.messages[0])

    assert plain.poll_all("both") == [b"b", b"c", b"d"], "everything that is not acknowledged"


def test_plain_client_that_replays_also_moves_our_messages_in_flight(topic: Topic, plain: PlainClient):
    topic.publish(*"abc")
    group = topic.group("both", at_least_once=True)
    held = group.read(2)

    plain.unsubscribe("both")
    late = group.ack(held)

    assert late == 0
    assert indexes(group.read(10)) == [1, 2, 3], "the replay was not undone by a late acknowledgement"


def test_messages_of_a_plain_client_are_seen_by_a_waiting_reader(topic: Topic, plain: PlainClient):
    group = topic.group("waiting")
    group.read()

    plain.send("silent")

    assert bodies(group.read(block_ms=5000)) == [b"silent"]


@pytest.mark.parametrize(("set_back_to", "acknowledged"), [(2, 2), (1, 0), (0, 0)])
def test_acknowledging_does_not_undo_that_a_plain_client_set_the_group_back(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer, set_back_to: int, acknowledged: int
):
    topic.publish(*"abcd")
    careful.ack(careful.read(2))
    held = careful.read(2)
    server.redis.set(careful.keys.cursor, set_back_to)

    assert careful.ack(held) == acknowledged

    assert int(server.redis.get(careful.keys.cursor)) == (4 if acknowledged else set_back_to)
