"""Creating, listing, describing, changing and deleting queues."""

import time

import pytest

from rsmq_django.core import Client, Connection, Queue, alist_queues, list_queues
from rsmq_django.core.errors import NoAttributeSupplied, QueueExists, QueueNotFound
from tests.redis_server import PrivateServer


def test_new_queue_has_exactly_the_five_fields_of_the_format(server: PrivateServer, client: Client):
    Queue("mail", client).create()

    stored = server.redis.hgetall("rsmq:mail:Q")
    assert set(stored) == {b"vt", b"delay", b"maxsize", b"created", b"modified"}
    assert (stored[b"vt"], stored[b"delay"], stored[b"maxsize"]) == (b"30", b"0", b"65536")
    assert stored[b"created"] == stored[b"modified"]
    assert abs(int(stored[b"created"]) - time.time()) < 60


def test_new_queue_is_listed_and_takes_no_further_key(server: PrivateServer, client: Client):
    Queue("mail", client).create()

    assert server.redis.smembers("rsmq:QUEUES") == {b"mail"}
    assert sorted(server.redis.keys()) == [b"rsmq:QUEUES", b"rsmq:mail:Q"]


def test_attributes_given_at_creation_are_stored_as_integer_seconds(server: PrivateServer, client: Client):
    Queue("mail", client).create(visibility_timeout_s=45, delay_s=7, max_size_bytes=2048)

    stored = server.redis.hmget("rsmq:mail:Q", "vt", "delay", "maxsize")
    assert stored == [b"45", b"7", b"2048"]


def test_creating_a_queue_twice_is_refused_and_changes_nothing(server: PrivateServer, client: Client):
    queue = Queue("mail", client)
    queue.create(visibility_timeout_s=45)
    before = server.redis.hgetall("rsmq:mail:Q")

    with pytest.raises(QueueExists, match="mail"):
        queue.create(visibility_timeout_s=60)

    assert server.redis.hgetall("rsmq:mail:Q") == before


def test_creating_a_half_created_queue_lists_it_again(server: PrivateServer, client: Client):
    queue = Queue("mail", client)
    queue.create()
    server.redis.delete("rsmq:QUEUES")  # another client died between its two steps

    with pytest.raises(QueueExists):
        queue.create()

    assert list_queues(client) == ["mail"]


def test_queues_are_listed_in_alphabetical_order(client: Client):
    for name in ("zebra", "ant", "mouse", "ANT", "_x", "9"):
        Queue(name, client).create()

    assert list_queues(client) == sorted(["zebra", "ant", "mouse", "ANT", "_x", "9"])


async def test_async_listing_reports_the_same(client: Client):
    Queue("b", client).create()
    Queue("a", client).create()

    assert await alist_queues(client) == ["a", "b"]
    await client.connection.aclose()


def test_listing_an_empty_namespace_gives_an_empty_list(client: Client):
    assert list_queues(client) == []


def test_names_that_no_client_may_write_to_are_listed_anyway(server: PrivateServer, client: Client):
    strange = "groß und spät"  # PyRSMQ creates such queues
    server.redis.sadd("rsmq:QUEUES", strange)

    assert list_queues(client) == [strange]


def test_listed_names_that_are_not_utf8_do_not_break_the_list(server: PrivateServer, client: Client):
    server.redis.sadd("rsmq:QUEUES", b"\xff\xfe", b"mail")

    names = list_queues(client)

    assert len(names) == 2
    assert "mail" in names


def test_attributes_of_a_new_queue(client: Client):
    queue = Queue("mail", client)
    queue.create(visibility_timeout_s=45, delay_s=7, max_size_bytes=-1)

    attributes = queue.attributes()

    assert (attributes.visibility_timeout_s, attributes.delay_s, attributes.max_size_bytes) == (45, 7, -1)
    assert (attributes.total_received, attributes.total_sent) == (0, 0)
    assert (attributes.messages, attributes.hidden_messages) == (0, 0)
    assert attributes.created_s == attributes.modified_s


def test_totals_count_sends_and_receptions(queue: Queue):
    for _ in range(3):
        queue.send(b"x")
    queue.receive(visibility_timeout_s=0)
    queue.receive()
    queue.pop()

    attributes = queue.attributes()

    assert (attributes.total_sent, attributes.total_received) == (3, 3)


def test_message_just_sent_is_not_counted_as_hidden(queue: Queue):
    queue.send(b"x")

    # The reference counts from the start of the current second and so would say 1.
    assert queue.attributes().hidden_messages == 0
    assert queue.attributes().messages == 1


def test_hidden_messages_are_those_delayed_or_in_flight(queue: Queue):
    queue.send(b"ready")
    queue.send(b"taken", delay_s=0)
    queue.send(b"delayed", delay_s=60)
    queue.receive()

    attributes = queue.attributes()

    assert (attributes.messages, attributes.hidden_messages, attributes.ready_messages) == (3, 2, 1)


def test_setting_one_attribute_leaves_the_others(queue: Queue):
    changed = queue.set_attributes(visibility_timeout_s=90)

    assert (changed.visibility_timeout_s, changed.delay_s, changed.max_size_bytes) == (90, 0, 65536)
    assert queue.attributes() == changed


def test_zero_is_a_value_and_not_the_absence_of_one(queue: Queue):
    queue.set_attributes(visibility_timeout_s=30, delay_s=30)

    changed = queue.set_attributes(visibility_timeout_s=0, delay_s=0)

    assert (changed.visibility_timeout_s, changed.delay_s) == (0, 0)


def test_setting_attributes_touches_the_time_of_modification_only(server: PrivateServer, queue: Queue):
    server.redis.hset("rsmq:jobs:Q", mapping={"created": 1_600_000_000, "modified": 1_600_000_000})

    changed = queue.set_attributes(max_size_bytes=-1)

    assert changed.created_s == 1_600_000_000
    assert changed.modified_s is not None
    assert abs(changed.modified_s - time.time()) < 60


def test_setting_nothing_is_refused(queue: Queue):
    with pytest.raises(NoAttributeSupplied):
        queue.set_attributes()


def test_setting_attributes_of_a_missing_queue_writes_nothing(server: PrivateServer, client: Client):
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).set_attributes(visibility_timeout_s=5)

    assert server.redis.keys() == []


def test_deleted_queue_leaves_nothing_behind(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    queue.receive()

    queue.delete_queue()

    assert server.redis.keys() == []


def test_deleting_one_queue_leaves_its_neighbours_alone(client: Client, queue: Queue):
    other = Queue("jobs2", client)
    other.create()
    other.send(b"mine")

    queue.delete_queue()

    assert list_queues(client) == ["jobs2"]
    message = other.receive()
    assert message is not None and message.body == b"mine"


@pytest.mark.parametrize("operation", ["attributes", "delete_queue", "receive", "pop"])
def test_operations_on_a_missing_queue_say_so(server: PrivateServer, client: Client, operation: str):
    with pytest.raises(QueueNotFound, match="nowhere"):
        getattr(Queue("nowhere", client), operation)()

    assert server.redis.keys() == []


def test_namespaces_do_not_see_each_other(server: PrivateServer):
    ours = Client(Connection(server.url, timeout_s=15), namespace="shop")
    theirs = Client(Connection(server.url, timeout_s=15), namespace="shop2")
    Queue("mail", ours).create()
    Queue("mail", ours).send(b"for shop")

    with pytest.raises(QueueNotFound):
        Queue("mail", theirs).receive()

    assert (list_queues(ours), list_queues(theirs)) == (["mail"], [])
    assert all(key.startswith(b"shop:") for key in server.redis.keys())


def test_namespace_with_a_cluster_hash_tag_is_plain_text(server: PrivateServer):
    client = Client(Connection(server.url, timeout_s=15), namespace="{rsmq}")
    queue = Queue("mail", client)
    queue.create()
    queue.send(b"x")

    assert sorted(server.redis.keys()) == [b"{rsmq}:QUEUES", b"{rsmq}:mail", b"{rsmq}:mail:Q"]
