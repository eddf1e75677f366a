"""Messages from one client to another: bodies, counts, times, delays and deletions, in both directions."""

import pytest

from rsmq_django.core import Client, Queue
from tests.interop.peers import NodePeer, Peer, PeerMessage, PyRsmqPeer
from tests.redis_server import PrivateServer
from tests.support import pass_time

pytestmark = pytest.mark.interop

BODIES = [
    pytest.param(b"invoice 7", id="ascii"),
    pytest.param("é".encode(), id="accent"),
    pytest.param("🦀 crab".encode(), id="emoji"),
    pytest.param(b"before\x00after", id="zero byte"),
    pytest.param(b"one\ntwo\r\n", id="newlines"),
    pytest.param('{"claim": 7, "who": "Zoë"}'.encode(), id="json"),
    pytest.param(b"", id="empty"),
    pytest.param("ä".encode() * 40_000, id="80,000 bytes"),
]


@pytest.fixture(params=["node", "pyrsmq"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of the other clients in turn."""
    value = request.getfixturevalue(request.param)
    assert isinstance(value, Peer)
    return value


@pytest.fixture
def unlimited(client: Client) -> Queue:
    queue = Queue("unlimited", client)
    queue.create(max_size_bytes=-1)
    return queue


def received_by(peer: Peer, queue: Queue, **options: int) -> PeerMessage:
    message = peer.receive(queue.name, **options)
    assert message is not None
    return message


# -- Bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BODIES)
def test_our_body_arrives_at_node(peer: Peer, unlimited: Queue, body: bytes):
    message_id = unlimited.send(body)

    message = received_by(peer, unlimited)

    assert (message.id, message.body, message.receive_count) == (message_id, body, 1)


@pytest.mark.parametrize("body", BODIES)
def test_body_from_there_arrives_here(peer: Peer, unlimited: Queue, body: bytes):
    if isinstance(peer, PyRsmqPeer) and not body:
        assert peer.call("sendMessage", qname=unlimited.name, body=body) is False  # it cannot send an empty body
        return
    message_id = peer.send(unlimited.name, body)

    message = unlimited.receive()

    assert message is not None
    assert (message.id, message.body, message.receive_count) == (message_id, body, 1)


@pytest.mark.parametrize("body", BODIES)
def test_our_body_is_popped_by_node(peer: Peer, unlimited: Queue, body: bytes):
    unlimited.send(body)

    message = peer.pop(unlimited.name)

    assert message is not None and message.body == body
    assert unlimited.attributes().messages == 0


def test_bytes_that_are_not_text_arrive_at_node_as_replacement_characters(node: NodePeer, queue: Queue):
    queue.send(b"\xff\xfe ok")

    assert received_by(node, queue).body == "\ufffd\ufffd ok".encode()


def test_bytes_that_are_not_text_arrive_from_pyrsmq_unchanged(pyrsmq: PyRsmqPeer, queue: Queue):
    pyrsmq.send("jobs", bytes(range(256)))

    message = queue.receive()
    assert message is not None and message.body == bytes(range(256))


# -- Counts and times ----------------------------------------------------------------------------------------------


def now_ms(server: PrivateServer) -> float:
    seconds, microseconds = server.redis.time()
    return float(seconds * 1000 + microseconds / 1000)


def test_times_of_a_message_from_node_are_those_that_node_reports(server: PrivateServer, node: NodePeer, queue: Queue):
    node.send("jobs", b"x")
    before_ms = now_ms(server)
    ours = queue.receive(visibility_timeout_s=0)
    after_ms = now_ms(server)
    theirs = received_by(node, queue)

    assert ours is not None and ours.first_received_ms is not None
    assert int(before_ms) <= ours.first_received_ms <= after_ms
    assert theirs.first_received_ms == ours.first_received_ms
    assert theirs.sent_ms == pytest.approx(ours.sent_ms, abs=0.0005)  # to the microsecond


def test_times_of_a_message_from_us_are_read_the_same_by_node(server: PrivateServer, node: NodePeer, queue: Queue):
    before_ms = now_ms(server)
    queue.send(b"x")
    after_ms = now_ms(server)

    theirs = received_by(node, queue, vt=0)
    ours = queue.receive()

    assert ours is not None and theirs.sent_ms is not None
    assert before_ms <= theirs.sent_ms <= after_ms
    assert ours.sent_ms == pytest.approx(theirs.sent_ms, abs=0.0005)
    assert ours.first_received_ms == theirs.first_received_ms


def test_message_received_by_node_becomes_ready_for_us_with_count_and_first_receive(peer: Peer, queue: Queue):
    queue.send(b"x")
    theirs = received_by(peer, queue, vt=30)
    assert queue.receive() is None

    pass_time(queue, seconds=31)

    ours = queue.receive()
    assert ours is not None
    assert (ours.id, ours.receive_count) == (theirs.id, 2)
    assert ours.first_received_ms == theirs.first_received_ms


def test_message_received_by_us_becomes_ready_for_node_with_count_and_first_receive(peer: Peer, queue: Queue):
    queue.send(b"x")
    ours = queue.receive(visibility_timeout_s=30)
    assert ours is not None
    assert peer.receive("jobs") is None

    pass_time(queue, seconds=31)

    theirs = received_by(peer, queue)
    assert (theirs.id, theirs.receive_count) == (ours.id, 2)
    assert theirs.first_received_ms == ours.first_received_ms


def test_visibility_timeout_of_the_queue_applies_to_both_clients(peer: Peer, client: Client):
    queue = Queue("patient", client)
    queue.create(visibility_timeout_s=100)
    queue.send(b"x")
    received_by(peer, queue)

    pass_time(queue, seconds=99)
    assert queue.receive() is None

    pass_time(queue, seconds=2)
    assert queue.receive() is not None
    pass_time(queue, seconds=99)
    assert peer.receive("patient") is None


def test_pop_after_their_receive_counts_on_and_removes_everything(server: PrivateServer, peer: Peer, queue: Queue):
    queue.send(b"x")
    theirs = received_by(peer, queue, vt=0)

    popped = queue.pop()

    assert popped is not None
    assert (popped.receive_count, popped.first_received_ms) == (2, theirs.first_received_ms)
    assert not [field for field in server.redis.hkeys("rsmq:jobs:Q") if theirs.id.encode() in field]
    assert not server.redis.exists("rsmq:jobs")


# -- Deleting and extending ----------------------------------------------------------------------------------------


def test_we_delete_by_id_messages_that_node_received(peer: Peer, queue: Queue):
    queue.send(b"x")
    theirs = received_by(peer, queue)

    assert queue.delete(theirs.id) is True
    assert peer.delete("jobs", theirs.id) is False
    assert queue.attributes().messages == 0


def test_node_deletes_messages_that_we_received(server: PrivateServer, peer: Peer, queue: Queue):
    queue.send(b"x")
    ours = queue.receive()
    assert ours is not None

    assert peer.delete("jobs", ours.id) is True

    assert queue.delete(ours) is False
    assert len(server.redis.hgetall("rsmq:jobs:Q")) == 7


def test_receipt_of_ours_is_void_once_they_received_the_message(peer: Peer, queue: Queue):
    queue.send(b"x")
    ours = queue.receive(visibility_timeout_s=1)
    assert ours is not None
    pass_time(queue, seconds=2)
    received_by(peer, queue)

    with pytest.raises(Exception, match=ours.id):
        queue.delete(ours)

    assert peer.delete("jobs", ours.id) is True


def test_node_releases_messages_that_we_leased(peer: Peer, queue: Queue):
    queue.send(b"x")
    ours = queue.receive()
    assert ours is not None

    assert peer.change_visibility("jobs", ours.id, 0) is True

    again = queue.receive()
    assert again is not None and again.receive_count == 2


def test_we_extend_leases_of_node(peer: Peer, queue: Queue):
    queue.send(b"x")
    theirs = received_by(peer, queue, vt=10)

    assert queue.change_visibility(theirs.id, 100) is True

    pass_time(queue, seconds=99)
    assert peer.receive("jobs") is None


# -- Delays --------------------------------------------------------------------------------------------------------


def test_delay_of_our_message_applies_to_node(peer: Peer, queue: Queue):
    message_id = queue.send(b"x", delay_s=60)
    assert peer.receive("jobs") is None

    pass_time(queue, seconds=61)

    assert received_by(peer, queue).id == message_id


def test_delay_with_a_fraction_of_a_second_applies_to_node(server: PrivateServer, peer: Peer, queue: Queue):
    message_id = queue.send(b"x", delay_s=60.3)
    assert server.redis.zscore("rsmq:jobs", message_id) == int(message_id[:10], 36) // 1000 + 60_300
    assert peer.receive("jobs") is None

    pass_time(queue, seconds=61)

    assert received_by(peer, queue).id == message_id


def test_delay_of_a_node_message_applies_to_us(peer: Peer, queue: Queue):
    message_id = peer.send("jobs", b"x", delay=60)
    assert queue.receive() is None

    pass_time(queue, seconds=61)

    message = queue.receive()
    assert message is not None and message.id == message_id


def test_delay_of_a_node_queue_applies_to_our_messages(peer: Peer, client: Client):
    peer.create_queue("slow", delay=60)
    queue = Queue("slow", client)
    queue.send(b"x")
    assert peer.receive("slow") is None

    pass_time(queue, seconds=61)

    assert peer.receive("slow") is not None


def test_we_release_messages_that_node_delayed(peer: Peer, queue: Queue):
    message_id = peer.send("jobs", b"x", delay=600)

    assert queue.change_visibility(message_id, 0) is True

    assert received_by(peer, queue).id == message_id


# -- Phantoms ------------------------------------------------------------------------------------------------------


def test_phantom_that_node_delivers_forever_is_removed_here(server: PrivateServer, node: NodePeer, queue: Queue):
    server.redis.zadd("rsmq:jobs", {"0" * 32: server.redis.time()[0] * 1000 - 60_000})
    node.send("jobs", b"real")
    assert received_by(node, queue, vt=0).body is None

    pass_time(queue, seconds=60)
    received = queue.receive_many(2, visibility_timeout_s=0)

    assert [message.body for message in received] == [b"real"]
    assert received_by(node, queue).body == b"real"
