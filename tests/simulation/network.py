"""The simulated network: sockets of simulated processes to the server, and what becomes of each exchange."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hiredis
import redis

from tests.simulation.books import Books
from tests.simulation.calls import Calls
from tests.simulation.scheduler import Process, Scheduler, Thread
from tests.simulation.server import Server, Words

CLOSED = "Connection closed by server."
#: One direction takes at least this time; a little more each time.
LATENCY_S = 0.0002


@dataclass(eq=False)
class Weather:
    """A fault of the network that is going on."""

    kind: str
    #: The processes that it affects; None for all.
    processes: set[Process] | None
    dice: random.Random
    share: float = 0.5
    #: When it ends, as far as that matters to requests under way.
    until: float = 0.0

    def strikes(self, process: Process) -> bool:
        return (self.processes is None or process in self.processes) and self.dice.random() < self.share


@dataclass(eq=False)
class Socket:
    """A connection to the server, seen from the process."""

    process: Process
    number: int
    replies: deque[Any] = field(default_factory=deque)
    #: What was published on its channels, in the protocol's format.
    unread: bytearray = field(default_factory=bytearray)
    channels: set[bytes] = field(default_factory=set)
    is_closed: bool = False
    #: When the latest reply arrives: none arrives before an earlier one.
    last_at: float = 0.0
    reader: Thread | None = None

    def setblocking(self, _: bool) -> None: ...

    def fileno(self) -> int:
        return self.number

    def recv(self, count: int) -> bytes:
        if self.unread:
            data = bytes(self.unread[:count])
            del self.unread[:count]
            return data
        if self.is_closed:
            return b""
        raise BlockingIOError

    @property
    def is_ready(self) -> bool:
        return bool(self.unread or self.is_closed or self.replies)


class Network:
    """All sockets, and the server behind them."""

    def __init__(self, scheduler: Scheduler, server: Server, dice: random.Random) -> None:
        self.scheduler, self.server = scheduler, server
        self.calls = Calls(server.body, lambda: scheduler.now)
        self.books = Books(self.calls)
        self._dice = dice
        self.weather: list[Weather] = []
        self.sockets: dict[int, Socket] = {}
        self._numbers = itertools.count(10_000)
        #: What the server's clock is ahead.
        self.server_offset_s = 0.0
        self.is_down = False
        self.counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        #: Ids of workers -> their processes.
        self.workers: dict[str, Process] = {}

    @property
    def digest(self) -> str:
        """A short text that is the same for the same course of events."""
        return self._digest.hexdigest()[:16]

    @property
    def server_us(self) -> int:
        return int((self.scheduler.now + self.server_offset_s) * 1e6)

    # -- Processes ----------------------------------------------------------------------------------------------------

    def connect(self, process: Process) -> Socket:
        scheduler = self.scheduler
        scheduler.sleep(self._latency(process))
        if self._is_struck(process, "hole"):
            scheduler.sleep(1.0)
            raise redis.TimeoutError("Timeout connecting to server")
        if self.is_down or self._is_struck(process, "refuse"):
            raise redis.ConnectionError("Connection refused.")
        link = Socket(process, next(self._numbers))
        self.sockets[link.number] = link
        return link

    def close(self, link: Socket) -> None:
        """Close a socket from the process's end, or from the server's."""
        link.is_closed = True
        link.channels.clear()
        self.sockets.pop(link.number, None)
        self.scheduler.wake(link.reader)

    def write(self, link: Socket, request: bytes) -> None:
        if link.process.is_dead:
            self.scheduler.block()
        user = self.scheduler.current.process
        assert user is link.process, "simulated processes share a socket: a cache of the package is not one of each"
        if link.is_closed:
            raise redis.ConnectionError(CLOSED)
        self.counts["exchanges"] += 1
        commands = _read_commands(request)
        arrival = self.scheduler.now + self._latency(link.process)
        kind = next((each.kind for each in self.weather if each.strikes(link.process)), "")
        if self.is_down or kind in ("lose requests", "refuse"):
            self._strike(kind, arrival, lambda: self.close(link))
        elif kind == "hole":
            self._into_the_hole(link, commands)
        elif kind == "cut requests":
            first = self._dice.randrange(len(commands))
            self._strike(kind, arrival, lambda: self._carry_out(link, commands[:first], 0, closes=True))
        elif kind == "split requests":
            first = self._dice.randrange(len(commands))
            later = arrival + self._dice.uniform(0, 0.2)
            self._strike(kind, arrival, lambda: self._carry_out(link, commands[:first]))
            self.scheduler.at(later, lambda: self._carry_out(link, commands[first:]))
        elif kind in ("lose replies", "cut replies"):
            most = self._dice.randrange(len(commands)) if kind == "cut replies" else 0
            self._strike(kind, arrival, lambda: self._carry_out(link, commands, most, closes=True))
        else:
            self.scheduler.at(arrival, lambda: self._carry_out(link, commands))

    def read(self, link: Socket, timeout_s: float) -> Any:
        deadline = self.scheduler.now + timeout_s
        while not link.replies:
            if link.is_closed:
                raise redis.ConnectionError(CLOSED)
            if self.scheduler.now >= deadline:
                raise redis.TimeoutError("Timeout reading from socket")
            link.reader = self.scheduler.current
            self.scheduler.block(deadline)
        return link.replies.popleft()

    def subscribe(self, link: Socket, channels: Sequence[bytes]) -> None:
        def subscribe() -> None:
            if link.is_closed or self.is_down:
                self.close(link)
                return
            link.channels.update(channels)
            self._listen()
            link.unread += b"*3\r\n$9\r\nsubscribe\r\n" + b"".join(channels) + b"\r\n"
            self.scheduler.wake(link.reader)

        self.scheduler.at(self.scheduler.now + self._latency(link.process), subscribe)

    # -- What happens -------------------------------------------------------------------------------------------------

    def reset(self, process: Process | None = None) -> None:
        """Close all sockets of a process, or of all."""
        for link in list(self.sockets.values()):
            if process is None or link.process is process:
                self.close(link)

    def _strike(self, kind: str, when: float, do: Any) -> None:
        self.counts[kind or "down"] += 1
        self.scheduler.at(when, do)

    def _into_the_hole(self, link: Socket, commands: list[Words]) -> None:
        """Let a request arrive much later, or never."""
        self.counts["hole"] += 1
        if self._dice.random() < 0.5:
            ends_at = max(each.until for each in self.weather if each.kind == "hole")
            late = ends_at + self._dice.uniform(0, 3)
            self.scheduler.at(late, lambda: self._carry_out(link, commands))

    def _carry_out(self, link: Socket, commands: list[Words], most: int | None = None, closes: bool = False) -> None:
        """Carry out commands, and send the replies, or the first ones only."""
        if self.is_down or not commands:
            if self.is_down or closes:
                self.close(link)
            return
        actor, now_us = link.process, self.server_us
        replies, states = self.server.execute(commands, now_us)
        names = [self.server.name_of(command) for command in commands]
        self._digest.update(f"{self.scheduler.now:.6f} {actor.number} {' '.join(names)} {len(states)}\n".encode())
        for name, command in zip(names, commands, strict=True):
            if name == "tasks/worker/beat":
                for word in command[5:]:
                    if (beating := self.workers.get(word.decode())) is not None:
                        self.books.beats_ms[beating] = now_us / 1000
        self.books.compare(actor, states, now_us / 1000)
        self._publish(self.server.published(commands))
        back = link.last_at = max(link.last_at, self.scheduler.now + self._latency(actor))
        kept = replies[:most] if closes else replies

        def arrive() -> None:
            if not link.is_closed:
                link.replies.extend(kept)
                if closes:
                    self.close(link)
                self.scheduler.wake(link.reader)

        self.scheduler.at(back, arrive)

    def _publish(self, published: Sequence[tuple[bytes, bytes]]) -> None:
        for channel, text in published:
            push = b"*3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(text), text)
            for link in list(self.sockets.values()):
                if channel in link.channels and not self._is_struck(link.process, "hole"):
                    arrival = self.scheduler.now + self._latency(link.process)
                    self.scheduler.at(arrival, partial(self._push, link, push))

    def _push(self, link: Socket, push: bytes) -> None:
        link.unread += push
        self.scheduler.wake(link.reader)

    def _listen(self) -> None:
        self.server.listen({channel for link in self.sockets.values() for channel in link.channels})

    def _is_struck(self, process: Process, kind: str) -> bool:
        return any(each.kind == kind and each.strikes(process) for each in self.weather)

    def _latency(self, process: Process) -> float:
        slow = sum(each.dice.uniform(0, 0.4) for each in self.weather if each.kind == "slow" and each.strikes(process))
        return LATENCY_S + self._dice.expovariate(1 / LATENCY_S) + slow


def _read_commands(request: bytes) -> list[Words]:
    reader, commands = hiredis.Reader(notEnoughData=Ellipsis), list[Words]()
    reader.feed(request)
    while (command := reader.gets()) is not Ellipsis:
        commands.append(command)
    return commands


# -- What Connection uses instead of redis-py's sockets ---------------------------------------------------------------


class Link:
    """A connection of redis-py, as far as the package uses one."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._sock: Socket | None = None

    def connect(self) -> None:
        self._sock = self._network.connect(self._network.scheduler.current.process)

    def disconnect(self, *_: object, **__: object) -> None:
        if self._sock is not None:
            self._network.close(self._sock)
        self._sock = None

    def send_packed_command(self, parts: Sequence[bytes], **_: object) -> None:
        assert self._sock is not None
        for name, *channels in _read_commands(b"".join(parts)):
            assert name == b"SUBSCRIBE"
            self._network.subscribe(self._sock, channels)


class Factory:
    """Makes links."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def make_connection(self) -> Link:
        return Link(self._network)


class SimulatedWire:
    """The package's wire on a simulated socket."""

    def __init__(self, network: Network, link: Link, timeout_s: float) -> None:
        assert link._sock is not None
        self._network, self._link, self._timeout_s = network, link._sock, timeout_s

    def is_readable(self) -> bool:
        return self._link.is_ready

    def write(self, request: bytes) -> None:
        self._network.write(self._link, request)

    def read(self) -> Any:
        return self._network.read(self._link, self._timeout_s)
