"""A real cluster of the server that all tests use: three nodes with slots, and a spare one or a replica of each."""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

from rsmq_django.core import Connection
from rsmq_django.embedded.binary import find_server
from tests import leftovers
from tests.support import wait_until

SLOTS = 16_384
MASTERS = 3
#: A replica that did not get the votes after this time asks again; a server forgets an order after five seconds.
VOTE_S = 6.0
#: How long a node has to be silent until the others take it for dead: never, or soon.
NEVER_MS, SOON_MS = 60_000, 2_000


class Node:
    """One server of a cluster, on a free port."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        for _ in range(100):
            # Neither this port nor that of the bus, which is 10,000 higher, where the system takes ports of its own.
            self.port = secrets.choice(range(10_001, 22_000))
            self.start()
            if self.is_alive:
                break
        self.id = self.ask("MYID").decode()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self) -> None:
        """Start it, on its own data when there are some."""
        command = [find_server().path, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        # Nobody is to be taken for dead because the machine is busy: who takes over is told to.
        command += ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NEVER_MS), "--save", ""]
        command += ["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        leftovers.keep(self._process.pid)  # a node that a test starts again belongs to the tests after it, too
        self._connection = Connection(self.url, timeout_s=60)
        wait_until(lambda: self._answers() or not self.is_alive)

    def ask(self, *words: str | int) -> Any:
        """Return the answer to a CLUSTER command."""
        return self.run("CLUSTER", *words)

    def run(self, *words: str | int) -> Any:
        """Return the answer to a command."""
        (answer,) = self._connection.exchange([words])
        assert not isinstance(answer, redis.RedisError), answer
        return answer

    def follow(self, primary: Node) -> None:
        """Become a replica of another node, and wait until it has the data of that one."""
        self.ask("REPLICATE", primary.id)
        wait_until(lambda: self.is_replica)

    @property
    def is_replica(self) -> bool:
        """Return whether it receives what another node writes."""
        return b"master_link_status:up" in self.run("INFO", "replication")

    def take_over(self, how: str) -> None:
        """Become a primary in the place of the one that it follows; FORCE: without asking it.

        One vote may fail, if the others are late to hear of something.
        """
        asked_at = -math.inf

        def is_primary() -> bool:
            nonlocal asked_at
            if self.run("ROLE")[0] == b"master":
                return True
            if time.monotonic() > asked_at + VOTE_S:
                asked_at = time.monotonic()
                self.ask("FAILOVER", *how.split())
            return False

        wait_until(is_primary)

    def set_timeout(self, milliseconds: int) -> None:
        """Set after which time without an answer another node counts as dead."""
        self.run("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def kill(self) -> None:
        """End it as a crash would."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its sockets stay open and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            # Somebody else's server may have that port.
            return f"process_id:{self._process.pid}\r".encode() in self.run("INFO", "server")
        return False


class Cluster:
    """Three nodes with a third of the slots each, and a spare one."""

    def __init__(self, directory: Path, *, spares: int = 1) -> None:
        self.nodes = [Node(directory / str(number)) for number in range(MASTERS + spares)]
        for number, node in enumerate(self.nodes[:MASTERS]):
            node.ask("ADDSLOTS", *range(number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS))
            node.ask("SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("MEET", "127.0.0.1", node.port)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes))
        self.settle()

    def slot_of(self, key: str) -> int:
        return int(self.nodes[0].ask("KEYSLOT", key))

    def owner_of(self, key: str) -> Node:
        """Return the node that has a key."""
        slot = self.slot_of(key)
        return next(node for node in self.masters() if any(first <= slot <= last for first, last in self._own(node)))

    def masters(self) -> list[Node]:
        """Return the nodes that have slots; each is asked about itself, because the others hear of changes later."""
        return [node for node in self.nodes if node.is_alive and self._own(node)]

    def move(self, key: str, target: Node, *, stop_halfway: bool = False) -> None:
        """Move the slot of a key to another node, as the tools that come with the server do."""
        slot, source = self.slot_of(key), self.owner_of(key)
        target.ask("SETSLOT", slot, "IMPORTING", source.id)
        source.ask("SETSLOT", slot, "MIGRATING", target.id)
        if not stop_halfway:
            self.end_move(key, source, target)

    def end_move(self, key: str, source: Node, target: Node) -> None:
        """Move what there is, and tell everybody."""
        slot = self.slot_of(key)
        while keys := source.ask("GETKEYSINSLOT", slot, 100):
            source.run("MIGRATE", "127.0.0.1", target.port, "", 0, 60_000, "KEYS", *(each.decode() for each in keys))
        for node in (target, source, *self.masters()):
            node.ask("SETSLOT", slot, "NODE", target.id)

    def back_up(self, node: Node) -> Node:
        """Let the spare node copy another one, and return it when it has what that one has now."""
        (spare,) = [each for each in self.nodes if each not in self.masters()]
        spare.follow(node)
        offset = _number(node.run("INFO", "replication"), "master_repl_offset")
        wait_until(lambda: _number(spare.run("INFO", "replication"), "slave_repl_offset") >= offset)
        return spare

    def settle(self) -> None:
        """Wait until all nodes are ready and agree who has which slots: they hear of changes one by one."""
        wait_until(lambda: all(b"cluster_state:ok" in node.ask("INFO") for node in self.nodes))
        wait_until(lambda: len({str(sorted(self._owners(node))) for node in self.nodes}) == 1)

    def stop(self) -> None:
        for node in self.nodes:
            node.resume()
            node.kill()

    def _knows_all(self, node: Node) -> bool:
        lines = node.ask("NODES").decode()
        return b"cluster_state:ok" in node.ask("INFO") and all(other.id in lines for other in self.nodes)

    def _owners(self, node: Node) -> list[tuple[int, int, bytes]]:
        return [(first, last, owner[2]) for first, last, owner, *_ in node.ask("SLOTS")]

    def _own(self, node: Node) -> list[tuple[int, int]]:
        slots = node.ask("SLOTS")
        return [(first, last) for first, last, owner, *_ in slots if owner[2].decode() == node.id]


class ReplicatedCluster(Cluster):
    """Three nodes with a third of the slots each, and a replica of each."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, spares=MASTERS)
        for primary, replica in zip(self.nodes[:MASTERS], self.nodes[MASTERS:], strict=True):
            replica.follow(primary)
        wait_until(lambda: all(self.replicas_of(node) for node in self.masters()))

    def replicas_of(self, primary: Node) -> list[Node]:
        """Return the replicas that a node knows."""
        lines = b" ".join(primary.ask("REPLICAS", primary.id)).decode()
        return [node for node in self.nodes if node.is_alive and node.id in lines.replace(primary.id, "")]

    def heal(self) -> None:
        """Start what was killed, and wait until each node with slots has a replica with its data."""
        for node in self.nodes:
            if not node.is_alive:
                node.start()
        wait_until(self._is_whole)
        self.settle()

    def _is_whole(self) -> bool:
        primaries = self.masters()
        replicas = [node for node in self.nodes if node not in primaries]
        return len(primaries) == MASTERS and all(node.is_replica for node in replicas)


def _number(text: bytes, field: str) -> int:
    return int(text.decode().split(f"\n{field}:")[1].split("\r")[0])
