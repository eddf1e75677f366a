"""Several clients at once: order, exactly one delivery, realtime, lost scripts, and the workers of the others."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from tests.interop.conftest import require_node
from tests.interop.peers import NodePeer, PeerError, PyRsmqPeer
from tests.redis_server import PrivateServer
from tests.support import wait_until

pytestmark = pytest.mark.interop

CONSUMERS = 4
MESSAGES = 2000


@pytest.mark.slow
def test_messages_of_three_clients_come_out_in_the_order_they_were_sent(
    node: NodePeer, pyrsmq: PyRsmqPeer, queue: Queue
):
    sent: list[str] = []
    for number in range(330):
        body = str(number).encode()
        sent += [node.send("jobs", body), queue.send(body), pyrsmq.send("jobs", body)]

    received = queue.receive_many(990)

    assert [message.id for message in received] == sent
    assert sent == sorted(sent)


def test_batch_of_ours_keeps_its_order_for_node(node: NodePeer, queue: Queue):
    queue.send_many([str(number).encode() for number in range(50)])

    bodies = [message.body for _ in range(50) if (message := node.receive("jobs"))]

    assert bodies == [str(number).encode() for number in range(50)]


@pytest.mark.slow
def test_each_message_goes_to_exactly_one_of_many_consumers(server: PrivateServer, queue: Queue):
    require_node()
    start, all_have_one = threading.Barrier(2 * CONSUMERS + 1), threading.Barrier(2 * CONSUMERS, timeout=90)

    def consume(receive: Callable[[], Any]) -> list[str]:
        start.wait()
        first = receive()
        all_have_one.wait()  # nobody takes everything before the others have begun
        return [first.id, *(message.id for message in iter(receive, None))]

    def consume_with_node(peer: NodePeer) -> list[str]:
        assert peer.receive("jobs") is None  # it is connected and has loaded its scripts
        return consume(lambda: peer.receive("jobs", vt=600))

    def consume_here() -> list[str]:
        return consume(lambda: queue.receive(visibility_timeout_s=600))

    with ExitStack() as stack, ThreadPoolExecutor(2 * CONSUMERS) as pool:
        peers = [stack.enter_context(NodePeer(server.url)) for _ in range(CONSUMERS)]
        there = [pool.submit(consume_with_node, peer) for peer in peers]
        here = [pool.submit(consume_here) for _ in range(CONSUMERS)]
        wait_until(lambda: start.n_waiting == 2 * CONSUMERS)
        queue.send_many([str(number).encode() for number in range(MESSAGES)])
        start.wait()
        ids_there = [message_id for taken in there for message_id in taken.result()]
        ids_here = [message_id for taken in here for message_id in taken.result()]

    deliveries = Counter(ids_there + ids_here)
    assert len(deliveries) == MESSAGES
    assert max(deliveries.values()) == 1
    attributes = queue.attributes()
    assert (attributes.total_sent, attributes.total_received) == (MESSAGES, MESSAGES)


# -- Realtime ------------------------------------------------------------------------------------------------------


def test_node_receives_the_number_of_messages_after_each_send_of_ours(node: NodePeer, client: Client, queue: Queue):
    node.subscribe("rsmq:rt:jobs")
    loud = Queue("jobs", client, realtime=True)

    loud.send(b"a")
    loud.send(b"b", delay_s=60)
    loud.send_many([b"c"] * 10)  # one publish for the whole batch
    loud.send(b"d")

    assert wait_until(lambda: (heard := node.published()) and len(heard) == 4 and heard) == ["1", "2", "12", "13"]


def test_we_receive_publishes_of_node(server: PrivateServer, node: NodePeer, queue: Queue):
    listener = server.redis.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(queue.keys.channel)
    wait_until(lambda: server.redis.pubsub_numsub(queue.keys.channel)[0][1])

    node.send("jobs", b"x", realtime=True)

    message = wait_until(lambda: listener.get_message(timeout=0.01))
    assert message["data"] == b"1"
    listener.close()


# -- Lost scripts --------------------------------------------------------------------------------------------------


def test_our_client_continues_where_node_fails_after_the_scripts_were_lost(
    server: PrivateServer, node: NodePeer, queue: Queue
):
    queue.send_many([b"a", b"b"])
    assert node.receive("jobs") is not None

    server.redis.script_flush()

    with pytest.raises(PeerError, match="NOSCRIPT"):
        node.receive("jobs")
    message = queue.receive()
    assert message is not None and message.body == b"b"


@pytest.mark.slow
def test_all_continue_after_a_restart_of_the_server(
    server: PrivateServer, node: NodePeer, pyrsmq: PyRsmqPeer, queue: Queue
):
    queue.send(b"from us")
    node.send("jobs", b"from node")
    pyrsmq.send("jobs", b"from pyrsmq")

    server.restart()
    node.reset()
    pyrsmq.reset()

    ours, theirs, others = queue.receive(), node.receive("jobs"), pyrsmq.receive("jobs")
    assert ours is not None and theirs is not None and others is not None
    assert (ours.body, theirs.body, others.body) == (b"from us", b"from node", b"from pyrsmq")


# -- The workers of the others -------------------------------------------------------------------------------------

RAW = [b"invoice 7", "é 🦀".encode(), b'{"claim": 7}', b"line\nbreak"]


def test_worker_of_node_processes_our_messages(node: NodePeer, queue: Queue):
    node.start_worker("jobs")

    queue.send_many(RAW)

    wait_until(lambda: queue.attributes().messages == 0)
    assert node.processed() == RAW


def test_we_receive_messages_of_the_node_worker(node: NodePeer, client: Client):
    node.start_worker("elsewhere")
    queue = Queue("theirs", client)
    queue.create()
    node.start_worker("idle")

    node.call("sendMessage", qname="theirs", body=RAW[1])

    message = queue.receive()
    assert message is not None and message.body == RAW[1]


def test_consumer_of_pyrsmq_processes_our_messages(pyrsmq: PyRsmqPeer, queue: Queue):
    pyrsmq.start_consumer("jobs")

    queue.send_many(RAW)

    wait_until(lambda: queue.attributes().messages == 0)
    assert pyrsmq.processed() == RAW


def test_unfinished_message_of_a_pyrsmq_consumer_is_delivered_to_us(pyrsmq: PyRsmqPeer, queue: Queue):
    pyrsmq.send("jobs", RAW[1])
    theirs = pyrsmq.receive("jobs", vt=1)
    assert theirs is not None

    ours = wait_until(queue.receive)

    assert (ours.id, ours.body, ours.receive_count) == (theirs.id, RAW[1], 2)
