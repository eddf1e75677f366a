"""A real Sentinel topology: one primary, two replicas and three sentinels, each a process on a free port of 127.0.0.1.

One topology serves all tests of a module; a test that changes it calls `settle()` at its end, or at its start.

Sentinels take nobody for dead because the machine is busy: a server counts as down only after a test has asked for
that (`kill_primary()`, `pause_primary()`), and one sentinel alone then begins the failover, so that no vote is split.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from rsmq_django.core import Client, Connection
from rsmq_django.embedded.binary import find_server
from tests import leftovers
from tests.support import wait_until

SERVICE = "mymaster"
HOST = "127.0.0.1"
REPLICAS = 2
SENTINELS = 3
NEVER_MS = 600_000
SOON_MS = 200
#: Pauses between what sentinels do, in milliseconds; Redis 6.2 has only its own, of up to ten seconds. Sentinels do
#: nothing for half a minute after they stood still, as they do on a busy machine: not here.
FAST = ("ask-period", 100, "info-period", 200, "ping-period", 300, "tilt-trigger", 60_000, "tilt-period", 100)
#: How often a sentinel tells the others what it knows. A sentinel demotes a primary that it has not been told about for
#: four times that long, so the pause is short only until they know each other.
PUBLISH_FIRST_MS, PUBLISH_MS = 100, 4_000


class Process:
    """A server or a sentinel on a port of its own, which it keeps when it is started again."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.port = 0
        for _ in range(100):
            self.port = secrets.choice(range(10_001, 22_000))  # below those that the system hands out
            self.start()
            if self.is_alive:
                break

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def command(self) -> list[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self.command(), cwd=self.directory, stdout=subprocess.DEVNULL)
        leftovers.keep(self._process.pid)  # tests after the one that starts it again need it, too
        self._connection = Connection(self.url, timeout_s=60)
        wait_until(lambda: self._answers() or not self.is_alive)

    def run(self, *words: str | bytes | int) -> Any:
        """Return the reply to a command; a server that loads its data is asked again, other errors fail the test."""
        return self._reply_of(self._connection.exchange, words)

    def ask(self, *words: str | bytes | int) -> Any:
        """Do what run() does, again after a lost reply: sentinels close the sockets of a server they reconfigure."""
        return self._reply_of(Client(self._connection).ask, words)

    def _reply_of(self, exchange: Callable[[list[Any]], list[Any]], words: tuple[str | bytes | int, ...]) -> Any:
        replies: list[Any] = []

        def has_loaded() -> bool:
            replies[:] = exchange([words])
            return not isinstance(replies[0], redis.BusyLoadingError)

        wait_until(has_loaded)
        assert not isinstance(replies[0], redis.RedisError), replies[0]
        return replies[0]

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its sockets stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would (kill -9)."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(Exception):
            # Another program may have that port.
            return f"process_id:{self.pid}\r".encode() in self.run("INFO", "server")
        return False


class Server(Process):
    """A primary or a replica."""

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        self._options = options
        super().__init__(directory)

    def command(self) -> list[str]:
        words = [find_server().path, "--port", str(self.port), "--bind", HOST, "--dir", str(self.directory)]
        words += ["--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        return [*words, "--repl-ping-replica-period", "1", "--logfile", "log", *self._options]

    @property
    def role(self) -> str:
        """Return `master` or `slave`."""
        return str(self.ask("ROLE")[0].decode())

    def follow(self, primary: Server) -> None:
        """Become a replica of another server."""
        self.ask("REPLICAOF", HOST, primary.port)

    def follows(self, primary: Server) -> bool:
        """Return whether this is a replica of a server, has its data and receives its writes."""
        role = self.ask("ROLE")
        return role[0] == b"slave" and role[2] == primary.port and role[3] == b"connected"


class Sentinel(Process):
    """A sentinel; it is told about the service when all processes run."""

    def command(self) -> list[str]:
        config = self.directory / "sentinel.conf"
        if not self.port or f"port {self.port}\n" not in (config.read_text() if config.exists() else ""):
            config.write_text(f"port {self.port}\nbind {HOST}\ndir {self.directory}\nlogfile log\n")
        return [find_server().path, str(config), "--sentinel"]

    def watch(self, primary: Server) -> None:
        """Begin to watch the service."""
        self.run("SENTINEL", "MONITOR", SERVICE, HOST, primary.port, 1)  # quorum 1: see the module
        self.set("down-after-milliseconds", NEVER_MS)
        self.set("failover-timeout", 10_000)
        self.set("parallel-syncs", REPLICAS)
        self.debug(*FAST)
        self.debug("publish-period", PUBLISH_FIRST_MS)

    def debug(self, *words: str | int) -> None:
        """Set pauses, where the server can."""
        self._connection.exchange([("SENTINEL", "DEBUG", *words)])

    def set(self, option: str, value: str | int) -> None:
        """Set an option of the service."""
        self.run("SENTINEL", "SET", SERVICE, option, value)

    @property
    def primary_port(self) -> int:
        """Return the port of the primary as this sentinel tells it."""
        reply = self.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(reply[1]) if reply else 0

    def agrees(self, primary: Server) -> bool:
        """Return whether this sentinel knows the others, the primary, and replicas of it that it may promote."""
        state = _fields(self.run("SENTINEL", "MASTER", SERVICE))
        replicas = [_fields(each) for each in self.run("SENTINEL", "SLAVES", SERVICE)]
        knows_others = int(state["num-other-sentinels"]) == SENTINELS - 1
        is_quiet = state["flags"] == "master" and "failover-state" not in state
        return (
            (int(state["port"]), knows_others, is_quiet) == (primary.port, True, True)
            and len(replicas) == REPLICAS
            and all(each["flags"] == "slave" and each["master-link-status"] == "ok" for each in replicas)
            and all(int(each["master-port"]) == primary.port for each in replicas)
        )


class SentinelTopology:
    """One primary, two replicas, three sentinels; `options` are more words of the servers' command line."""

    def __init__(self, directory: Path, *, options: Sequence[str] = ()) -> None:
        self.servers = [Server(directory / f"server{number}", options) for number in range(1 + REPLICAS)]
        self.sentinels = [Sentinel(directory / f"sentinel{number}") for number in range(SENTINELS)]
        for replica in self.servers[1:]:
            replica.follow(self.servers[0])
        self._watch(self.servers[0])

    @property
    def url(self) -> str:
        """Return the URL of the service."""
        return f"redis+sentinel://{','.join(each.address for each in self.sentinels)}/{SERVICE}/0"

    @property
    def primary(self) -> Server:
        """Return the server that the first sentinel which runs names as the primary."""
        port = next(each for each in self.sentinels if each.is_alive).primary_port
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[Server]:
        primary = self.primary
        return [server for server in self.servers if server is not primary and server.is_alive]

    def fail_over(self) -> Server:
        """Tell a sentinel to promote a replica, as an operator does, and return it when it is the only primary.

        A sentinel demotes the former primary only four times PUBLISH_MS later, so this does it in the same way. Until
        then it takes writes, which are lost.
        """
        old = self.primary
        self.sentinels[0].run("SENTINEL", "FAILOVER", SERVICE)
        promoted = self._promoted(old)
        old.follow(promoted)
        old.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return promoted

    def kill_primary(self) -> Server:
        """Kill the primary (kill -9), and return the new one when the sentinels have promoted it."""
        old = self.primary
        old.kill()
        return self.promote_another(old)

    def pause_primary(self) -> Server:
        """Let the primary stand still, and return the new one when the sentinels have promoted it.

        The old one still believes that it is the primary when `resume()` wakes it, until a sentinel demotes it.
        """
        old = self.primary
        old.pause()
        return self.promote_another(old)

    def promote_another(self, old: Server) -> Server:
        """Let a sentinel notice that the primary does not answer, and return the new one."""
        self.sentinels[0].set("down-after-milliseconds", SOON_MS)
        promoted = self._promoted(old)
        self.sentinels[0].set("down-after-milliseconds", NEVER_MS)
        return promoted

    def hand_over(self) -> Server:
        """Replace the primary by hand, and return the new one. Clients of the old one are not cut off."""
        old, new = self.primary, self.replicas[0]
        new.run("REPLICAOF", "NO", "ONE")
        for sentinel in self.sentinels:
            sentinel.run("SENTINEL", "REMOVE", SERVICE)
        for server in self.servers:
            if server is not new:
                server.follow(new)
        self._watch(new)
        assert old.role == "slave"
        return new

    def wait_for_replicas(self) -> None:
        """Wait until the replicas have what was written so far."""
        offset = self.primary.run("ROLE")[1]
        wait_until(lambda: all(replica.run("ROLE")[4] >= offset for replica in self.replicas))

    def settle(self) -> None:
        """Start what was killed, and wait until all agree: one primary, two replicas with its data.

        A sentinel demotes a former primary only after a while, so this does it.
        """
        for process in (*self.sentinels, *self.servers):
            if not process.is_alive:
                process.start()
        primary = self.primary
        for server in self.servers:
            if server is not primary and server.role == "master":
                server.follow(primary)
        wait_until(self._is_settled)

    def stop(self) -> None:
        for process in (*self.sentinels, *self.servers):
            process.kill()

    def _watch(self, primary: Server) -> None:
        for sentinel in self.sentinels:
            sentinel.watch(primary)
        self.settle()
        for sentinel in self.sentinels:
            sentinel.debug("publish-period", PUBLISH_MS)

    def _promoted(self, old: Server) -> Server:
        wait_until(lambda: self.primary is not old and self.primary.role == "master")
        return self.primary

    def _is_settled(self) -> bool:
        primary = self.primary
        if primary.role != "master" or not all(sentinel.agrees(primary) for sentinel in self.sentinels):
            return False
        return all(server.follows(primary) for server in self.servers if server is not primary)


def _fields(words: list[bytes]) -> dict[str, str]:
    texts = [word.decode() for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))
