"""Queues made, described, changed and deleted by one client and used by another."""

import threading
from collections.abc import Iterator

import pytest

from rsmq_django.core import Client, Connection, Queue, list_queues
from rsmq_django.core.errors import InvalidName, QueueExists, QueueNotFound
from tests.fault_proxy import FaultProxy
from tests.interop.peers import NodePeer, Peer, PeerError, PyRsmqPeer
from tests.redis_server import PrivateServer
from tests.support import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(params=["node", "pyrsmq"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of the other clients in turn."""
    value = request.getfixturevalue(request.param)
    assert isinstance(value, Peer)
    return value


def assert_same_attributes(queue: Queue, theirs: dict[str, float]) -> None:
    ours = queue.attributes()
    assert theirs == {
        "vt": ours.visibility_timeout_s,
        "delay": ours.delay_s,
        "maxsize": ours.max_size_bytes,
        "totalrecv": ours.total_received,
        "totalsent": ours.total_sent,
        "created": ours.created_s,
        "modified": ours.modified_s,
        "msgs": ours.messages,
        "hiddenmsgs": ours.hidden_messages,
    }


# -- Attributes ----------------------------------------------------------------------------------------------------


def test_queue_they_made_has_the_same_attributes_here(peer: Peer, client: Client):
    peer.create_queue("theirs", vt=45, delay=7, maxsize=2048)

    assert_same_attributes(Queue("theirs", client), peer.attributes("theirs"))
    assert list_queues(client) == ["theirs"]


def test_queue_we_made_has_the_same_attributes_there(peer: Peer, client: Client):
    queue = Queue("ours", client)
    queue.create(visibility_timeout_s=45, delay_s=7, max_size_bytes=-1)

    assert_same_attributes(queue, peer.attributes("ours"))
    assert peer.list_queues() == ["ours"]


def test_counters_after_traffic_are_the_same(peer: Peer, queue: Queue):
    queue.send_many([b"a", b"b", b"c"], delay_s=60)
    peer.send("jobs", b"d", delay=60)
    queue.change_visibility(peer.send("jobs", b"e", delay=60), 0)
    assert peer.receive("jobs") is not None

    # All five are hidden, so the reference's coarse "now" makes no difference.
    assert_same_attributes(queue, peer.attributes("jobs"))
    assert queue.attributes().total_sent == 5


def test_queue_made_by_us_is_stored_like_one_made_by_node(server: PrivateServer, node: NodePeer, client: Client):
    node.create_queue("theirs")
    Queue("ours", client).create()

    theirs, ours = server.redis.hgetall("rsmq:theirs:Q"), server.redis.hgetall("rsmq:ours:Q")
    times = (b"created", b"modified")
    assert set(ours) == set(theirs)
    assert {k: v for k, v in ours.items() if k not in times} == {k: v for k, v in theirs.items() if k not in times}
    assert all(ours[name].isdigit() and len(ours[name]) == len(theirs[name]) for name in times)


def test_our_operations_leave_the_same_data_as_those_of_node(server: PrivateServer, node: NodePeer, client: Client):
    node.create_queue("theirs")
    Queue("ours", client).create()
    theirs, ours = Traces(server, "theirs"), Traces(server, "ours")

    their_ids = [node.send("theirs", b"a"), node.send("theirs", b"b", delay=60)]
    our_ids = [Queue("ours", client).send(b"a"), Queue("ours", client).send(b"b", delay_s=60)]
    assert ours.of(our_ids) == theirs.of(their_ids)

    node.receive("theirs", vt=50)
    Queue("ours", client).receive(visibility_timeout_s=50)
    assert ours.of(our_ids) == theirs.of(their_ids)

    node.change_visibility("theirs", their_ids[0], 70)
    Queue("ours", client).change_visibility(our_ids[0], 70)
    assert ours.of(our_ids) == theirs.of(their_ids)

    node.delete("theirs", their_ids[0])
    Queue("ours", client).delete(our_ids[0])
    assert ours.of(our_ids) == theirs.of(their_ids)


class Traces:
    """What a queue's keys hold, with everything that differs from run to run made equal."""

    def __init__(self, server: PrivateServer, name: str) -> None:
        self.redis, self.name = server.redis, name

    def of(self, ids: list[str]) -> object:
        def plain(text: bytes) -> str:
            for number, message_id in enumerate(ids):
                text = text.replace(message_id.encode(), b"<id %d>" % number)
            return text.decode()

        stored = self.redis.hgetall(f"rsmq:{self.name}:Q")
        volatile = (b"created", b"modified")
        fields = {
            plain(field): "<ms>" if field.endswith(b":fr") and len(value) == 13 else value
            for field, value in stored.items()
            if field not in volatile
        }
        now_s = self.redis.time()[0]
        members = self.redis.zrange(f"rsmq:{self.name}", 0, -1, withscores=True)
        # Scores are whole milliseconds; to ten seconds, of which eight may have passed, they say which delay it was.
        return fields, [
            (plain(member), score == int(score), (score / 1000 - now_s + 8.5) // 10) for member, score in members
        ]


def test_creating_an_existing_queue_is_refused_by_every_client(peer: Peer, client: Client):
    peer.create_queue("theirs")
    with pytest.raises(QueueExists):
        Queue("theirs", client).create()

    Queue("ours", client).create()
    with pytest.raises(PeerError, match="queueExists|QueueAlreadyExists"):
        peer.create_queue("ours")


def test_attributes_we_set_are_seen_there(server: PrivateServer, peer: Peer, queue: Queue):
    server.redis.hset("rsmq:jobs:Q", "modified", 1_600_000_000)

    queue.set_attributes(visibility_timeout_s=77, delay_s=3, max_size_bytes=-1)

    theirs = peer.attributes("jobs")
    assert (theirs["vt"], theirs["delay"], theirs["maxsize"]) == (77, 3, -1)
    assert theirs["modified"] > 1_600_000_000


def test_attributes_they_set_are_seen_here(server: PrivateServer, peer: Peer, queue: Queue):
    server.redis.hset("rsmq:jobs:Q", "modified", 1_600_000_000)

    peer.set_attributes("jobs", vt=77, delay=3, maxsize=-1)

    ours = queue.attributes()
    assert (ours.visibility_timeout_s, ours.delay_s, ours.max_size_bytes) == (77, 3, -1)
    assert ours.modified_s is not None and ours.modified_s > 1_600_000_000


def test_unlimited_queue_of_ours_takes_large_bodies_from_node(node: NodePeer, client: Client):
    queue = Queue("large", client)
    queue.create(max_size_bytes=-1)

    node.send("large", b"x" * 100_000)

    message = queue.receive()
    assert message is not None and len(message.body) == 100_000


def test_size_limit_of_our_queue_applies_to_node(node: NodePeer, client: Client):
    Queue("small", client).create(max_size_bytes=1024)

    with pytest.raises(PeerError) as refusal:
        node.send("small", b"x" * 1025)

    assert refusal.value.name == "messageTooLong"


def test_float_attributes_of_pyrsmq_are_read_here(pyrsmq: PyRsmqPeer, client: Client):
    pyrsmq.create_queue("floats", vt=1.5, delay=0.5)

    attributes = Queue("floats", client).attributes()

    assert (attributes.visibility_timeout_s, attributes.delay_s) == (1.5, 0.5)


def test_default_size_of_pyrsmq_is_read_here(pyrsmq: PyRsmqPeer, client: Client):
    pyrsmq.create_queue("defaults")

    assert Queue("defaults", client).attributes().max_size_bytes == 65_565


def test_node_in_another_namespace_shares_our_queue_there(server: PrivateServer, node: NodePeer):
    queue = Queue("jobs", Client(Connection(server.url, timeout_s=15), namespace="shop"))
    queue.create()

    node.call("sendMessage", client={"ns": "shop"}, qname="jobs", body=b"for shop")

    message = queue.receive()
    assert message is not None and message.body == b"for shop"


# -- Deleting ------------------------------------------------------------------------------------------------------


def test_queue_deleted_by_us_does_not_exist_for_node(server: PrivateServer, peer: Peer, queue: Queue):
    peer.send("jobs", b"x")

    queue.delete_queue()

    with pytest.raises(PeerError, match="queueNotFound|QueueDoesNotExist"):
        peer.attributes("jobs")
    assert server.redis.keys() == []


def test_queue_deleted_by_node_does_not_exist_for_us(server: PrivateServer, peer: Peer, queue: Queue):
    queue.send(b"x")

    peer.delete_queue("jobs")

    with pytest.raises(QueueNotFound):
        queue.receive()
    assert server.redis.keys() == []


@pytest.fixture
def slow_node(server: PrivateServer) -> Iterator[tuple[NodePeer, FaultProxy]]:
    """The npm package `rsmq` behind a proxy that can hold the replies it waits for."""
    with FaultProxy(server.url) as proxy, NodePeer(proxy.url) as peer:
        yield peer, proxy


def test_leftovers_of_a_queue_that_was_deleted_during_a_send_are_not_a_queue(
    node: NodePeer, slow_node: tuple[NodePeer, FaultProxy], queue: Queue, client: Client, server: PrivateServer
):
    peer, proxy = slow_node
    peer.send("jobs", b"warm")
    seen = len(proxy.requests)
    proxy.hold_replies()
    sender = threading.Thread(target=peer.send, args=("jobs", b"lost"))
    sender.start()
    wait_until(lambda: len(proxy.requests) > seen)  # its first step is on its way, and the answer is held

    queue.delete_queue()
    proxy.release()
    sender.join()

    assert server.redis.zcard("rsmq:jobs") == 1  # the reference was told that it had sent something
    with pytest.raises(QueueNotFound):
        queue.receive()
    with pytest.raises(QueueNotFound):
        queue.send(b"x")
    assert list_queues(client) == []


# -- Names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-z_09", "x" * 160])
def test_names_that_node_allows_are_allowed_here(node: NodePeer, client: Client, name: str):
    node.create_queue(name)

    assert list_queues(client) == [name]
    Queue(name, client).send(b"x")
    assert node.receive(name) is not None


@pytest.mark.parametrize("name", ["x" * 161, "a\n", "a b", "a:b", "é"])
def test_names_that_node_refuses_are_refused_here(node: NodePeer, client: Client, name: str):
    with pytest.raises(PeerError) as refusal:
        node.create_queue(name)
    assert refusal.value.name == "invalidFormat"

    with pytest.raises(InvalidName):
        Queue(name, client)


def test_name_that_only_pyrsmq_allows_is_listed_and_not_writable(pyrsmq: PyRsmqPeer, client: Client):
    pyrsmq.create_queue("groß und spät")

    assert list_queues(client) == ["groß und spät"]
    with pytest.raises(InvalidName):
        Queue("groß und spät", client)


def test_queue_named_like_the_list_is_refused_here_though_node_makes_it(node: NodePeer, client: Client):
    node.create_queue("QUEUES")

    with pytest.raises(InvalidName):
        Queue("QUEUES", client)
    assert list_queues(client) == ["QUEUES"]


# -- Errors --------------------------------------------------------------------------------------------------------


def test_our_errors_carry_the_names_and_texts_that_node_uses(node: NodePeer, client: Client, queue: Queue):
    mistakes = [
        (lambda: node.receive("nowhere"), lambda: Queue("nowhere", client).receive()),
        (lambda: node.create_queue("jobs"), lambda: queue.create()),
        (lambda: node.create_queue("a b"), lambda: Queue("a b", client)),
        (lambda: node.delete("jobs", "vt"), lambda: queue.delete("vt")),
        (lambda: node.set_attributes("jobs"), lambda: queue.set_attributes()),
        (lambda: node.send("jobs", b"x" * 70_000), lambda: queue.send(b"x" * 70_000)),
        (
            lambda: node.create_queue("v", vt=10_000_000),
            lambda: Queue("v", client).create(visibility_timeout_s=10_000_000),
        ),
        (lambda: node.create_queue("d", delay=-1), lambda: Queue("d", client).create(delay_s=-1)),
        (lambda: node.create_queue("m", maxsize=3), lambda: Queue("m", client).create(max_size_bytes=3)),
    ]

    for theirs, ours in mistakes:
        with pytest.raises(PeerError) as their_refusal:
            theirs()
        with pytest.raises(Exception) as our_refusal:
            ours()
        names = our_refusal.value.rsmq_name, our_refusal.value.rsmq_message  # type: ignore[attr-defined]
        assert names == (their_refusal.value.name, their_refusal.value.message)


def test_queue_that_pyrsmq_damaged_is_missing_here_and_still_listed(pyrsmq: PyRsmqPeer, client: Client, queue: Queue):
    pyrsmq.delete("jobs", "vt")  # removes the queue's own attribute

    with pytest.raises(QueueNotFound):
        queue.receive()
    assert list_queues(client) == ["jobs"]
