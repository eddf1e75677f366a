"""Pushed messages survive the death of consumers, restarts of the server with either kind of file, and a failover."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import ServerRefused
from rsmq_django.core.reliable import KINDS, ReliableQueue
from rsmq_django.embedded.binary import find_server
from tests.redis_server import PrivateServer
from tests.support import wait_until

ROOT = Path(__file__).parents[3]


class OwnServer:
    """A server with options of its own, on a unix socket in a directory of its own."""

    def __init__(self, *options: str) -> None:
        self.directory = Path(tempfile.gettempdir()) / f"rsmq-own-{os.getpid()}-{secrets.token_hex(3)}"
        self.directory.mkdir(mode=0o700)
        self.socket = self.directory / "s"
        self.url = f"unix://{self.socket}"
        self.redis = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=60)
        self.command = [find_server().path, "--port", "0", "--unixsocket", str(self.socket)]
        self.command += ["--dir", str(self.directory), "--save", "", *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        wait_until(lambda: self._answers() or self.process.poll() is not None)
        assert self.process.poll() is None, "the server ended"

    def listen(self) -> int:
        """Let the server listen on a port too, which it returns; another one when somebody was quicker there."""
        for _ in range(100):
            port = secrets.choice(range(10_001, 32_000))
            with contextlib.suppress(redis.ResponseError):
                self.redis.config_set("port", port)
                return port
        raise AssertionError("no free port")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return bool(self.redis.ping())
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.redis.close()
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def queue(self, name: str = "jobs") -> ReliableQueue:
        return ReliableQueue(name, Client(Connection(self.url, timeout_s=15)), consumer="someone")


@contextlib.contextmanager
def own_server(*options: str) -> Iterator[OwnServer]:
    server = OwnServer(*options)
    try:
        yield server
    finally:
        server.close()


def fill(queue: ReliableQueue) -> None:
    """Put messages of every kind into a queue."""
    queue.configure(max_deliveries=2)
    queue.push(*"abcdef")
    queue.push("later", delay_s=3600)
    queue.nack(queue.pop_messages()[0])
    queue.nack(queue.pop_messages()[0])
    queue.pop(3)
    queue.recover(1, 0)


def contents(queue: ReliableQueue) -> dict[str, Any]:
    """Return everything that is in a queue, without what changes by itself."""
    found: dict[str, Any] = {
        kind: [(m.id, m.body, m.at_ms, m.deliveries, m.consumer) for m in queue.messages(kind)] for kind in KINDS
    }
    assert all(found[kind] for kind in KINDS), "there is something of each kind"
    statistics = queue.statistics()
    return found | {"totals": (statistics.depth.total_sent, statistics.total_popped, statistics.max_deliveries)}


def test_everything_is_there_after_saving_and_a_restart_from_the_snapshot():
    with own_server("--appendonly", "no") as server:
        fill(server.queue())
        before = contents(server.queue())
        server.redis.save()

        server.kill()
        server.start()

        assert contents(server.queue()) == before
        assert [row[2] for row in server.queue().pop(5) or []] == [b"e", b"f"]


def test_everything_is_there_after_a_crash_and_a_restart_from_the_append_only_file():
    with own_server("--appendonly", "yes", "--appendfsync", "always") as server:
        fill(server.queue())
        before = contents(server.queue())

        server.kill()
        server.start()

        assert contents(server.queue()) == before


def test_replica_takes_over_with_everything_and_ids_continue_growing():
    with own_server("--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0") as primary:
        port = primary.listen()
        with own_server("--replicaof", "127.0.0.1", str(port)) as replica:
            wait_until(lambda: replica.redis.info("replication")["master_link_status"] == "up")
            fill(primary.queue())
            before = contents(primary.queue())
            last_id = primary.queue().push("last")[0]
            with primary.redis.client() as connection:
                connection.set("last", "")  # WAIT is about the writes of its own socket
                assert connection.wait(1, 50_000) == 1
            with pytest.raises(ServerRefused):
                replica.queue().push("to a replica")

            primary.kill()
            replica.redis.replicaof("no", "one")

            queue = replica.queue()
            assert queue.messages("undelivered", -1, 1)[0].id == last_id
            assert contents(queue)["delivered"] == before["delivered"]
            [next_id] = queue.push("after the failover")
            assert _as_numbers(next_id) > _as_numbers(last_id)
            assert len(queue.recover(5, 0) or []) == 2
            replica.queue().ack(*[m.id for m in queue.messages("delivered")])
            assert queue.statistics().depth.in_flight == 0


def _as_numbers(message_id: str) -> list[int]:
    return [int(part) for part in message_id.split("-")]


@pytest.mark.slow
def test_killed_consumers_lose_nothing(server: PrivateServer, client: Client):
    names = ["k1", "k2"]
    queues = {name: ReliableQueue(name, client) for name in names}
    everything: set[str] = set()
    held: set[str] = set()
    finished: set[str] = set()

    for number in range(6):
        # Enough for each consumer, however many of the earlier ones finished before they were killed.
        for name, queue in queues.items():
            bodies = [f"{name}-{number}-{n}" for n in range(60)]
            queue.push(*bodies)
            everything.update(bodies)
        consumer = _start_consumer(server, f"consumer-{number}", names)
        assert consumer.stdout is not None
        # Killed at some point between a pop and an acknowledgement: never twice at the same one.
        lines = [consumer.stdout.readline() for _ in range(20 + 7 * number)]
        consumer.kill()
        lines += consumer.communicate()[0].splitlines()
        held |= {line.split()[1] for line in lines}
        finished |= {words[1] for line in lines if len(words := line.split()) == 3}

    acknowledged = sum(queue.statistics().total_acked for queue in queues.values())
    left = set()
    for queue in queues.values():
        while rows := queue.recover(1000, 0):
            left |= {row[1].decode() for row in rows}
            queue.ack(*[row[0] for row in rows])
        left |= {row[2].decode() for row in queue.pop(1000) or []}
    assert held | left == everything
    assert acknowledged + len(left) == len(everything)
    assert not finished & left, "what was acknowledged did not come back"


def _start_consumer(server: PrivateServer, name: str, queues: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.core.reliable.consumer", server.url, name, *queues]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
