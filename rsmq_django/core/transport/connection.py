"""Connections to one Redis server: URL, timeouts, pools. Handles commands and replies, but no queues.

redis-py opens sockets, authenticates and parses; settings that differ between its versions (timeouts, silent repeats,
protocol) are fixed here. An exchange is all or nothing for the caller: either every reply, or
`ConnectionFailed` (nothing was sent), or `OutcomeUnknown` (something was). A socket whose exchange was cut short is
closed, never reused: its late replies would be taken for replies to the next exchange.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import select
import socket
import threading
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, ReadOnlyError
from redis.retry import Retry

from ..errors import ConnectionFailed, DatabaseNotFound, OutcomeUnknown, PermissionDenied, RedisFailure, ServerRefused
from .cluster import ASK_FOR_NODES, ClusterNodes, moved
from .listener import Listener
from .read_timeout import Silence
from .wire import Wire

SCHEMES = ("redis", "rediss", "unix")

Command = tuple[str | bytes | int, ...]
#: Also a command that is packed already.
Request = Command | bytes
Reply = Any

NO_LIMIT = 2**31
#: An idle connection is checked after 30 s, then every 10 s, and is lost after three checks without an answer. By name,
#: because other systems than Linux lack some of these options.
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}
#: How often an exchange follows a redirection to another node of a cluster.
MOST_MOVES = 5

#: After an invalid reply the server is not a Redis, or the stream is out of step: the socket cannot be used any more.
_LOST = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.InvalidResponse, OSError)
#: Replies of a server that does not have the keys, or does not have them any more.
_ELSEWHERE = (MovedError, ReadOnlyError)
#: Refusals of all commands, which redis-py treats as lost connections; nothing of the exchange was carried out.
_REFUSED_ALL = (redis.BusyLoadingError, redis.AuthenticationError, redis.exceptions.AuthorizationError)


#: Prefixes of words up to this length in bytes; a lookup is faster than formatting them.
_MANY = 256
_LENGTHS = [b"$%d" % length for length in range(_MANY)]
#: Prefixes with words of numbers below that, which most numbers are.
_NUMBERS = [b"$%d\r\n%d" % (len(str(number)), number) for number in range(_MANY)]


class Connection:
    """A server by URL: `redis://`, `rediss://` or `unix://`. Does no I/O until it is used; safe to share and to fork.

    `timeout_s` (default 1 s) bounds connecting and each wait for a reply, so that a web request never hangs on a
    queue. Options of the server's user, database and TLS go into the URL as redis-py documents them.
    """

    def __init__(self, url: str, *, timeout_s: float = 1.0) -> None:
        if urlsplit(url).scheme not in SCHEMES:
            raise ValueError(f"unknown scheme in {masked(url)!r}; use one of {', '.join(s + '://' for s in SCHEMES)}")
        self.url = url
        self.timeout_s = timeout_s
        #: Shared with connections that have another timeout.
        self._route = ClusterNodes()
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()
        self._factory: Any = None
        self._lock = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPool] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Connection({masked(self.url)!r})"

    def expect_cluster(self) -> None:
        """Ask for all nodes with the first socket, if the server belongs to a cluster."""
        self._route.is_curious = True

    def with_timeout(self, timeout_s: float) -> Connection:
        """Return a connection to the same server that waits `timeout_s` seconds, with sockets of its own."""
        other = Connection(self.url, timeout_s=timeout_s)
        other._route = self._route
        return other

    # -- Sync ---------------------------------------------------------------------------------------------------------

    def exchange(self, commands: Sequence[Request]) -> list[Reply]:
        """Send all commands in one write and return their replies in order; error replies are returned, not raised."""
        link = self._take()
        replies = self._converse(link, packed(commands), len(commands))
        if link.is_elsewhere:
            self._follow(link, commands, replies)
        self._idle.append(link)
        return replies

    def exchange_with_one_node(self, commands: Sequence[Command]) -> list[Reply]:
        """Do what exchange() does, but do not forward commands to the node of a cluster that has their keys."""
        link = self._take()
        replies = self._converse(link, packed(commands), len(commands))
        link.is_elsewhere = False
        self._idle.append(link)
        return replies

    def begin(self, request: bytes) -> Any | None:
        """Send packed commands on an open idle socket and return the socket, for finish(); None when there is none.

        With None, nothing was sent. Raises OutcomeUnknown when the socket broke during the write.
        """
        if self._pid != os.getpid():
            return None
        try:
            link = self._idle.pop()
        except IndexError:
            return None
        if link._sock is None or _is_stale(link):
            self._idle.append(link)  # the next exchange connects it again
            return None
        self._converse(link, request, 0)
        return link

    def finish(self, link: Any, commands: Sequence[Command]) -> list[Reply]:
        """Return the replies to the commands that begin() sent; raises OutcomeUnknown."""
        replies = self._converse(link, b"", len(commands))
        if link.is_elsewhere:
            self._follow(link, commands, replies)
        self._idle.append(link)
        return replies

    def ask(self, command: Command) -> Any:
        """Send a command whose reply may take long, and return the socket, for is_answered() and answer_of().

        The socket now belongs to the caller, who has to disconnect it unless it waits for the reply.
        """
        link = self._take()
        self._converse(link, packed([command]), 0)
        return link

    def answer_of(self, link: Any) -> Reply | None:
        """Return the reply to the command that ask() sent; raises OutcomeUnknown.

        None also from a server that does not have the keys, or not any more: the next exchange follows them.
        """
        (reply,) = self._converse(link, b"", 1)
        if link.is_elsewhere:
            link.is_elsewhere = False
            link.disconnect()
            return None
        self._idle.append(link)
        return reply

    def _follow(self, link: Any, commands: Sequence[Request], replies: list[Reply]) -> None:
        """Send redirected commands to the node of the cluster that has their keys, and replace their replies.

        If that node cannot be reached, the replies stay as they are: nothing was done. A server that became a replica
        does not tell the address of the primary; but its name may resolve to it by now, so its sockets are closed.
        """
        link.is_elsewhere = False
        if ReadOnlyError in map(type, replies):
            self.close()
            link.disconnect()
        for _ in range(MOST_MOVES):
            places = moved(replies)
            if not places or not self._route.follow(link, replies[places[0]]):
                return
            link.disconnect()
            try:
                self._connected(link)
            except RedisFailure:
                return
            again = [ASK_FOR_NODES, *(commands[at] for at in places)]
            slots, *answers = self._converse(link, packed(again), len(again))
            self._route.learn(link, slots)
            for at, answer in zip(places, answers, strict=True):
                replies[at] = answer

    def _converse(self, link: Any, request: bytes, count: int) -> list[Reply]:
        replies: list[Reply] = []
        try:
            if request:
                _write(link, request)
            for _ in range(count):
                replies.append(_read(link))
            return replies
        except _REFUSED_ALL as error:
            link.disconnect()
            return _refused(self.url, error, replies, count)
        except _LOST as error:
            link.disconnect()
            self._route.leave(link)
            raise OutcomeUnknown(_lost_text(self.url, error)) from error
        except BaseException:
            link.disconnect()
            raise

    def subscriber(self, channels: Sequence[str]) -> redis.client.PubSub:
        """Return redis-py's PubSub, subscribed to channels on a socket of its own; the caller closes it."""
        # Not from_pool(): such a client closes its sockets when its last reference is gone.
        server: Any = redis.Redis(connection_pool=self._new_factory())
        subscriber: redis.client.PubSub = server.pubsub()
        subscriber.subscribe(*channels)
        return subscriber

    def listener(self, channels: Sequence[str], *, marker: str = "") -> Listener:
        """Return a listener that reports publishes on channels without their content; the caller closes it.

        `marker` is the name of the one channel whose publishes the listener reports separately.
        """
        link = self._connected(self._make())
        try:
            link.send_packed_command([packed([("SUBSCRIBE", *channels)])], check_health=False)
        except _LOST as error:
            link.disconnect()
            raise _not_connected(self.url, error) from error
        return Listener(link, masked(self.url), marker=marker.encode())

    def close(self) -> None:
        """Close the idle sockets of this process; the object stays usable."""
        while self._idle:
            self._idle.pop().disconnect()

    def _take(self) -> Any:
        if self._pid != os.getpid():  # after a fork the sockets belong to the parent
            self._idle, self._pid = deque(), os.getpid()
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._make()
        wire = link.wire
        if wire is not None and link._sock is not None and not wire.is_readable():
            return link
        return self._connected(link)

    def _make(self) -> Any:
        if self._factory is None:
            with self._lock:
                self._factory = self._factory or self._new_factory()
        return _new_link(self._factory)

    def _new_factory(self) -> redis.ConnectionPool:
        # Not from_url(): there the options of the URL override ours.
        parse_url: Any = redis.connection.parse_url
        options: dict[str, Any] = parse_url(self.url) | _options(self.url, self.timeout_s)
        return redis.ConnectionPool(**options | {"retry": Retry(NoBackoff(), 0)})

    def _connected(self, link: Any) -> Any:
        try:
            if link._sock is None:
                self._connect(link)
            if _is_stale(link):
                link.disconnect()
                self._connect(link)
        except (redis.RedisError, OSError) as error:
            link.disconnect()
            self._route.leave(link)
            raise _not_connected(self.url, error) from error
        return link

    def _connect(self, link: Any) -> None:
        self._route.aim(link)
        link.wire = None
        link.connect()
        link.wire = Wire.of(link, self.timeout_s)
        if self._route.is_curious:
            _write(link, packed([ASK_FOR_NODES]))
            self._route.learn(link, _read(link))

    # -- Async --------------------------------------------------------------------------------------------------------

    async def aexchange(self, commands: Sequence[Command]) -> list[Reply]:
        """See exchange()."""
        pool = await self._loop_pool()
        link = await pool.take(self.url, self.timeout_s, self._route)
        if self._route.is_curious:
            self._route.learn(link, (await self._aconverse(link, [ASK_FOR_NODES]))[0])
        replies = await self._aconverse(link, commands)
        if link.is_elsewhere:
            await self._afollow(pool, link, commands, replies)
        pool.idle.append(link)
        return replies

    async def _aconverse(self, link: Any, commands: Sequence[Command]) -> list[Reply]:
        replies: list[Reply] = []
        silence: Silence = link.silence
        try:
            # Our own timeout: before Python 3.12, redis-py's wait_for() sometimes loses a cancellation.
            async with asyncio.timeout(self.timeout_s) as timeout:
                await link.send_packed_command(packed(commands), check_health=False)
                silence.begin(timeout, self.timeout_s)
                for _ in commands:
                    replies.append(await _aread(link))
                return replies
        except _REFUSED_ALL as error:
            await link.disconnect(nowait=True)
            return _refused(self.url, error, replies, len(commands))
        except _LOST as error:
            await link.disconnect(nowait=True)
            self._route.leave(link)
            raise OutcomeUnknown(_lost_text(self.url, error)) from error
        except BaseException:  # cancelled too: later replies have no reader
            await link.disconnect(nowait=True)
            raise
        finally:
            silence.end()

    async def _afollow(self, pool: _LoopPool, link: Any, commands: Sequence[Command], replies: list[Reply]) -> None:
        """See _follow()."""
        link.is_elsewhere = False
        if ReadOnlyError in map(type, replies):
            for other in (link, *pool.idle):
                await other.disconnect(nowait=True)
        for _ in range(MOST_MOVES):
            places = moved(replies)
            if not places or not self._route.follow(link, replies[places[0]]):
                return
            await link.disconnect(nowait=True)
            try:
                await pool.connect(link, self.url, self.timeout_s, self._route)
            except RedisFailure:
                return
            slots, *answers = await self._aconverse(link, [ASK_FOR_NODES, *(commands[at] for at in places)])
            self._route.learn(link, slots)
            for at, answer in zip(places, answers, strict=True):
                replies[at] = answer

    async def aclose(self) -> None:
        """Close the idle sockets of the running event loop; the object stays usable."""
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.closer.aclose()

    async def _loop_pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None or pool.pid != os.getpid():
            options: dict[str, Any] = dict(redis.asyncio.connection.parse_url(self.url)) | _options(self.url, None)
            factory = redis.asyncio.ConnectionPool(**options | {"retry": AsyncRetry(NoBackoff(), 0)})
            pool = self._loops[loop] = _LoopPool(factory)
            await anext(pool.closer)
        return pool


class _LoopPool:
    """The idle sockets of one event loop. They close when the loop shuts its asynchronous generators down."""

    def __init__(self, factory: Any) -> None:
        self.factory = factory
        self.idle: deque[Any] = deque()
        self.pid = os.getpid()
        # asyncio.run() and async_to_sync() end a loop with shutdown_asyncgens(): the only hook for a library.
        self.closer = self._close_at_the_end()

    async def _close_at_the_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            while self.idle:
                await self.idle.pop().disconnect()

    async def take(self, url: str, timeout_s: float, route: ClusterNodes) -> Any:
        link = self.idle.pop() if self.idle else self._new_link()
        await self.connect(link, url, timeout_s, route)
        return link

    def _new_link(self) -> Any:
        link = _new_link(self.factory)
        link.silence = Silence()
        return link

    async def connect(self, link: Any, url: str, timeout_s: float, route: ClusterNodes) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                if not link.is_connected:
                    route.aim(link)
                await link.connect()
                if await _ais_stale(link):
                    await link.disconnect(nowait=True)
                    route.aim(link)
                    await link.connect()
            link.silence.listen_to(link._reader)
        except (redis.RedisError, OSError) as error:
            await link.disconnect(nowait=True)
            route.leave(link)
            raise _not_connected(url, error) from error
        except BaseException:
            await link.disconnect(nowait=True)
            raise


# -- Protocol and redis-py -------------------------------------------------------------------------------------------


def packed_words(words: Sequence[str | bytes | int]) -> bytes:
    """Return words in the protocol's format, without their number before them and the line break after them."""
    return packed([tuple(words)]).partition(b"\r\n")[2][:-2]


def length_prefix(length: int) -> bytes:
    """Return the prefix of a word of this length in the protocol's format."""
    return _LENGTHS[length] if length < _MANY else b"$%d" % length


def packed(commands: Sequence[Request]) -> bytes:
    """Return commands in the protocol's format. redis-py needs three times as long, most of the time of a send."""
    if len(commands) == 1 and type(commands[0]) is bytes:
        return commands[0]
    parts: list[bytes] = []
    add = parts.append
    for command in commands:
        if type(command) is bytes:
            add(command[:-2])
            continue
        add(b"*%d" % len(command))
        for word in command:
            if isinstance(word, str):
                try:
                    encoded = word.encode()  # an argument for errors makes it three times slower
                except UnicodeEncodeError:
                    # Surrogates: an id of another client that is not UTF-8 becomes the same bytes again.
                    encoded = word.encode("utf-8", "surrogateescape")
                word = encoded
            elif isinstance(word, int):
                if 0 <= word < _MANY:
                    add(_NUMBERS[word])
                    continue
                word = b"%d" % word
            length = len(word)
            add(_LENGTHS[length] if length < _MANY else b"$%d" % length)
            add(word)
    add(b"")
    return b"\r\n".join(parts)


def _write(link: Any, request: bytes) -> None:
    if link.wire is not None:
        link.wire.write(request)
    else:
        link.send_packed_command([request], check_health=False)


def _read(link: Any) -> Reply:
    if link.wire is not None:
        reply = link.wire.read()
        return _error_read(link, reply) if isinstance(reply, redis.RedisError) else reply
    try:
        return link.read_response()
    except redis.ResponseError as error:
        return _noted(link, error)


def _error_read(link: Any, error: redis.RedisError) -> redis.ResponseError:
    """Return an error reply, or raise it as redis-py does: a server that is loading refuses everything."""
    if isinstance(error, redis.ResponseError):
        return _noted(link, error)
    raise error


async def _aread(link: Any) -> Reply:
    try:
        return await link.read_response()
    except redis.ResponseError as error:
        return _noted(link, error)


def _new_link(factory: Any) -> Any:
    link = factory.make_connection()
    #: Whether a reply said that another server has the keys. A check of each reply would be slower.
    link.is_elsewhere = False
    #: The way past redis-py, while the socket is connected and has one.
    link.wire = None
    return link


def _noted(link: Any, error: redis.ResponseError) -> redis.ResponseError:
    if "-READONLY " in str(error):  # Redis 6.2 wraps an error in a script into a text
        error = ReadOnlyError(str(error))
    link.is_elsewhere = link.is_elsewhere or isinstance(error, _ELSEWHERE)
    return error


def _is_stale(link: Any) -> bool:
    """Return whether the server closed a socket, or the socket has an unexpected reply."""
    if link.wire is not None:
        return bool(link.wire.is_readable())
    try:
        # redis-py changes the socket's timeout twice for this; TLS may have bytes that the socket does not show.
        return bool(link.can_read()) if isinstance(link, redis.SSLConnection) else _is_readable(link._sock)
    except (redis.RedisError, OSError, ValueError):  # ValueError: it is closed
        return True


def is_answered(link: Any, *, within_s: float) -> bool:
    """Return whether a socket of ask() gets a reply, or is closed, within `within_s` seconds."""
    if isinstance(link, redis.SSLConnection):
        return bool(link.can_read(within_s))
    return _is_readable(link._sock, within_s=within_s)


def _is_readable(sock: Any, *, within_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(math.ceil(within_s * 1000)))


async def _ais_stale(link: Any) -> bool:
    writer = getattr(link, "_writer", None)
    if writer is not None:
        # After a reset, or an end that the event loop has not read yet: the check below finds neither.
        if writer.is_closing() or _is_readable(writer.get_extra_info("socket")):
            return True
    look = getattr(link, "can_read", None) or link.can_read_destructive  # redis-py before 8
    try:
        return bool(await look())
    except (redis.RedisError, OSError):
        return True


def _not_connected(url: str, error: Exception) -> RedisFailure:
    where = masked(url)
    if isinstance(error.__cause__, redis.RedisError):  # the async client wraps the server's error
        error = error.__cause__
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.NoPermissionError)):
        return PermissionDenied(f"{where} refused the user or password ({error}); correct them in the URL")
    if isinstance(error, redis.BusyLoadingError):
        return ServerRefused(f"{where} is still loading its data; try again in a moment")
    if "max number of clients" in str(error):
        return ServerRefused(
            f"{where} has reached its maximum number of clients; raise maxclients, or close some of them"
        )
    if "DB index" in str(error) or "Invalid Database" in str(error):
        parse_url: Any = redis.connection.parse_url
        database = parse_url(url).get("db", 0)
        return DatabaseNotFound(f"{where} has no database {database} ({error}); correct the number in the URL")
    if isinstance(error, redis.ResponseError):
        return ServerRefused(f"{where} refused the connection: {error}")
    why = str(error) or type(error).__name__  # our own timeouts have no text
    return ConnectionFailed(f"cannot connect to {where} ({why}); nothing was sent. Is the server running there?")


def _refused(url: str, error: Exception, replies: Sequence[Reply], count: int) -> list[Reply]:
    """Return the error for each command. Raises OutcomeUnknown when the server had replied to some commands before."""
    if replies:
        raise OutcomeUnknown(_lost_text(url, error)) from error
    return [error] * count


def _lost_text(url: str, error: Exception) -> str:
    why = str(error) or type(error).__name__
    return f"{masked(url)} did not answer ({why}); the command may have been carried out or not"


def masked(url: str) -> str:
    """Return the URL with its password replaced, for people and logs."""
    hidden = re.sub(r"(//[^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)


def _options(url: str, timeout_s: float | None) -> dict[str, Any]:
    """Return the options whose defaults differ between versions of redis-py."""
    options = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        "decode_responses": False,
        "encoding": "utf-8",
        # redis-py 8 limits a pool to a hundred connections. Our sockets never return to the pool, so a process would
        # fail after that number of lost connections.
        "max_connections": NO_LIMIT,
    }
    if urlsplit(url).scheme == "unix":
        return options
    # The kernel detects a half-open TCP connection (a cut cable, a NAT without its state) within a minute. Without
    # keepalive it would never be detected, with the defaults of Linux after two hours.
    return options | {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
