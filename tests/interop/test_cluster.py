"""A server in cluster mode refuses scripts with keys in different slots; ours run there in a namespace with a hash tag.

The scripts of the reference implementation, which pass times and ids as keys, do not.

One server that owns all slots is a whole cluster, and checks the same.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rsmq_django.core import Client, Connection, Queue, SettleResult, errors, list_queues
from rsmq_django.core.reliable import ReliableQueue, list_reliable_queues
from rsmq_django.embedded.binary import find_server
from tests.interop.conftest import require_node
from tests.interop.peers import NodePeer, PeerError
from tests.support import wait_until

pytestmark = pytest.mark.interop

SLOTS = 16_384


@pytest.fixture(scope="module")
def cluster_url() -> Iterator[str]:
    """A cluster of one, on a unix socket. It wants a port for its bus; nobody else connects to it."""
    directory = Path(tempfile.gettempdir()) / f"rsmq-cluster-{os.getpid()}-{secrets.token_hex(3)}"
    directory.mkdir(mode=0o700)
    server = redis.Redis(unix_socket_path=str(directory / "s"), socket_timeout=60)
    process = _start(directory, server)
    try:
        server.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        wait_until(lambda: b"cluster_state:ok" in _cluster_info(server))
        yield f"unix://{directory / 's'}"
        server.close()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, server: "redis.Redis") -> "subprocess.Popen[bytes]":
    """Start the server on some port; again on another one when somebody took that, or the one of its bus, first."""
    for _ in range(100):
        port = secrets.choice(range(10_001, 22_000))  # neither of the two where the system takes ports of its own
        command = [find_server().path, "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
        command += ["--unixsocket", str(directory / "s"), "--dir", str(directory), "--save", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(lambda: _answers(server) or process.poll() is not None)  # noqa: B023 - asked in the same round
        if process.poll() is None:
            return process
    raise AssertionError("no free port")


def _answers(server: "redis.Redis") -> bool:
    with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError):
        return bool(server.ping())
    return False


def _cluster_info(server: "redis.Redis") -> bytes:
    answer = server.execute_command("CLUSTER", "INFO")
    return answer if isinstance(answer, bytes) else str(answer).encode()


@pytest.mark.slow
def test_every_operation_of_ours_runs_in_a_namespace_with_a_hash_tag(cluster_url: str):
    client = Client(Connection(cluster_url, timeout_s=15), namespace="{rsmq}")
    queue = Queue("jobs", client, realtime=True)
    queue.create()

    ids = queue.send_many([b"a", b"b", b"c"])
    first = queue.receive()
    assert first is not None
    popped = queue.pop()

    assert popped is not None and [first.id, popped.id] == ids[:2]
    assert queue.change_visibility(first, 60)
    assert queue.delete_many([first, ids[2]]) == [SettleResult.DONE, SettleResult.DONE]
    assert queue.set_attributes(delay_s=1).messages == 0
    assert "jobs" in list_queues(client)
    queue.delete_queue()


def test_reliable_queues_work_there_too(cluster_url: str):
    client = Client(Connection(cluster_url, timeout_s=15), namespace="{rsmq}")
    first, second = ReliableQueue("first", client), ReliableQueue("second", client)
    first.configure(max_deliveries=2)
    first.push("a", "b")
    second.push("c")

    popped = first.pop_messages(3, 0, second)
    first.nack(popped[0])
    first.extend(popped[1], seconds=9)
    assert [message.body for message in first.recover_messages(3, 0)] == []
    second.bury(popped[2])

    assert first.pop_messages(1, 50)[0].body == b"a" and first.pop(1, 50) is None
    assert second.redrive(count=1) == [popped[2].id]
    assert list_reliable_queues(client) == ["first", "second"]
    second.delete_queue()
    with pytest.raises(errors.ServerRefused, match="slot"):
        ReliableQueue("jobs", Client(Connection(cluster_url, timeout_s=15), namespace="plain")).push("x")


def test_without_a_hash_tag_the_server_refuses_and_we_say_so(cluster_url: str):
    queue = Queue("jobs", Client(Connection(cluster_url, timeout_s=15), namespace="plain"))

    with pytest.raises(errors.ServerRefused, match="slot"):
        queue.create()


def test_the_reference_can_send_there_but_not_receive(cluster_url: str):
    require_node()
    queue = Queue("shared", Client(Connection(cluster_url, timeout_s=15), namespace="{rsmq}"))
    queue.create()
    with NodePeer(cluster_url) as node:
        in_namespace = {"ns": "{rsmq}"}
        message_id = node.call("sendMessage", qname="shared", body=b"from node", client=in_namespace)
        ours = queue.receive(visibility_timeout_s=0)

        with pytest.raises(PeerError, match="CROSSSLOT|same slot"):
            node.call("receiveMessage", qname="shared", client=in_namespace)

    assert ours is not None and (ours.id, ours.body) == (message_id, b"from node")
