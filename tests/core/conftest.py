"""Fixtures of the core's tests: a bad network between a queue and its server."""

from collections.abc import Iterator

import pytest

from rsmq_django.core import Client, Connection, Queue, list_queues
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    """A way to the private server by TCP that misbehaves on demand."""
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def distant(proxy: FaultProxy, queue: Queue) -> Queue:
    """The queue "jobs" by way of the proxy. Its server knows all scripts, and a socket is open."""
    for message_id in queue.send_many([b"a", b"b", b"c"]):
        queue.change_visibility(message_id, 0)
    taken = queue.receive()
    assert taken is not None
    queue.delete(taken)
    queue.pop()
    queue.pop()
    queue.set_attributes(visibility_timeout_s=30)
    list_queues(queue.client)
    distant = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    distant.attributes()
    return distant


@pytest.fixture
def warm(proxy: FaultProxy, queue: Queue) -> Queue:
    """The queue "jobs" by way of the proxy, with a socket that is open."""
    warm = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    warm.send(b"warm")
    queue.pop()
    return warm


def lose_patience(queue: Queue) -> None:
    """Let the next call wait for a moment only, which makes a black hole cheap; later sockets wait as before."""
    for link in queue.client.connection._idle:
        link._sock.settimeout(0.3)
