"""Publishing: indexes in a row, all or nothing, and what is refused before anything is sent."""

import subprocess
import sys
from pathlib import Path

import pytest

from rsmq_django.core import Client
from rsmq_django.core.errors import InvalidName, InvalidValue, MessageNotBytes, MessageTooLong, QueueFull
from rsmq_django.core.limits import MAX_BODY_BYTES
from rsmq_django.core.topic import NewMessage, Topic, list_topics
from tests.core.topic.conftest import bodies
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parents[3]
PROCESSES, EACH = 8, 5000
PUBLISHER = """
import sys
from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
topic = Topic("orders", Client(Connection(url, timeout_s=60)))
seen = [index for n in range(count) for index in topic.publish(f"{name}-{n}")]
assert seen == sorted(set(seen))
"""


@pytest.mark.slow
def test_eight_processes_lose_and_overwrite_nothing(topic: Topic, server: PrivateServer):
    publishers = [
        subprocess.Popen([sys.executable, "-c", PUBLISHER, server.url, str(n), str(EACH)], cwd=ROOT)
        for n in range(PROCESSES)
    ]
    assert [publisher.wait(300) for publisher in publishers] == [0] * PROCESSES

    reader = topic.group("all")
    got = [body for _ in range(PROCESSES * EACH // 1000) for body in bodies(reader.read(1000))]

    assert server.redis.get("orders:nextIndex") == b"40000"
    assert len(set(got)) == len(got) == 40_000
    assert topic.status().length == 40_000 and not reader.read()


def test_indexes_are_in_a_row_and_begin_at_one(topic: Topic):
    assert [topic.publish("a"), topic.publish("b", "c"), topic.publish("d")] == [range(1, 2), range(2, 4), range(4, 5)]


def test_key_and_headers_are_sent_with_the_body(topic: Topic):
    topic.publish(NewMessage("1", key="k1", headers={"type": "ä"}), "2", NewMessage(b"3"), headers={"source": "test"})

    first, second, third = topic.group("g").read(10)

    assert (first.body, first.key, first.headers) == (b"1", "k1", {"type": "ä"})
    assert (second.body, second.key, second.headers) == (b"2", None, {"source": "test"})
    assert (third.body, third.headers) == (b"3", {"source": "test"})


def test_thousand_messages_fit_into_one_call(topic: Topic):
    assert topic.publish(*map(str, range(1000)), headers={"n": "1"}) == range(1, 1001)


@pytest.mark.parametrize("count", [0, 1001])
def test_other_numbers_of_messages_are_refused(topic: Topic, count: int):
    with pytest.raises(InvalidValue, match="1 to 1000"):
        topic.publish(*["x"] * count)

    assert not topic.status().exists


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (None, MessageNotBytes),
        (7, MessageNotBytes),
        ({"a": 1}, MessageNotBytes),
        ("\ud800", MessageNotBytes),
        (b"x" * (MAX_BODY_BYTES + 1), MessageTooLong),
        (NewMessage(b"", key=""), InvalidValue),
        (NewMessage(b"", key=7), InvalidValue),
        (NewMessage(b"", key="x" * 1025), InvalidValue),
        (NewMessage(b"", headers={"a": 1}), InvalidValue),  # type: ignore[dict-item]
        (NewMessage(b"", headers={"a": "x" * 9000}), InvalidValue),
    ],
)
def test_bad_input_is_refused_whole(topic: Topic, entry: object, error: type[Exception]):
    with pytest.raises(error):
        topic.publish("good", entry)

    assert not topic.status().exists


@pytest.mark.parametrize("name", ["", "a:b", "x" * 161, "rsmq", "rsmqt", "rq", "a\n", " a", None, 7, "a\0"])
def test_impossible_names_of_topics_are_refused(client: Client, name: str):
    with pytest.raises(InvalidName):
        Topic(name, client)


@pytest.mark.parametrize("name", ["", "a:b", "messages", "x" * 161, "a\n", None, 7])
def test_impossible_names_of_groups_are_refused(topic: Topic, name: str):
    with pytest.raises(InvalidName):
        topic.group(name)


def test_topic_named_like_the_namespace_of_the_queues_is_refused(client: Client):
    ours = Client(client.connection, namespace="shop")

    with pytest.raises(InvalidName, match="belong to queues"):
        Topic("shop", ours)


def test_topics_that_were_used_are_listed(client: Client):
    Topic("b", client).publish("x")
    Topic("ä", client).group("g").read()
    Topic("unused", client).status()

    assert list_topics(client) == ["b", "ä"]


def test_server_at_its_memory_limit_takes_nothing_and_still_gives(topic: Topic, server: PrivateServer):
    careful = topic.group("careful", at_least_once=True)
    topic.publish(*"abc")
    server.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull):
            topic.publish("d", "e")

        assert bodies(topic.group("g").read(10)) == [b"a", b"b", b"c"]
        assert careful.ack(careful.read(2)) == 2
        assert topic.trim(before=3) == 2
    finally:
        server.redis.config_set("maxmemory", 0)
    assert topic.publish("d") == range(4, 5)


def test_log_gets_an_identity_at_the_memory_limit_and_keeps_it(topic: Topic, server: PrivateServer):
    topic.publish("a")
    server.redis.config_set("maxmemory", 1)
    try:
        found = [topic.client.run(topic.identify_call()) for _ in range(2)]
    finally:
        server.redis.config_set("maxmemory", 0)

    assert found[0].log and found == [(found[0].log, 1, 1)] * 2


@pytest.mark.parametrize("garbage", [b"\xff\xfe", b"", b"a log of another program"])
def test_identity_that_another_client_has_written_is_replaced(topic: Topic, server: PrivateServer, garbage: bytes):
    topic.publish("a")
    server.redis.hset("rsmqt:orders:meta", "log", garbage)

    found = [topic.client.run(topic.identify_call()) for _ in range(2)]

    assert len(found[0].log) == 32 and found == [(found[0].log, 1, 1)] * 2
