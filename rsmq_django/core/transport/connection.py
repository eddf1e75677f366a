"""Connections to one Redis server: URL, timeouts, pools. Handles commands and replies, but no queues.

redis-py opens sockets, authenticates and parses; settings that differ between its versions (timeouts, silent repeats,
protocol) are fixed here. An exchange is all or nothing for the caller: either every reply, or
`ConnectionFailed` (nothing was sent), or `OutcomeUnknown` (something was). A socket whose exchange was cut short is
closed, never reused: its late replies would be taken for replies to the next exchange.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.exceptions import MovedError

from ..errors import InvalidValue, RedisFailure
from .cluster import ASK_FOR_NODES, ClusterNodes, moved
from .connection_errors import connection_lost, not_connected, refused
from .factories import has_credentials, masked, new_async_factory, new_factory, service_of
from .handshake import Credentials, greeting
from .listener import Listener, subscribed
from .loop_pool import LoopPool
from .packing import Command, Reply, Request, packed
from .read_timeout import Silence
from .sentinel_url import Address
from .sentinels import ASK_FOR_ROLE, SWITCHES, Sentinels
from .sockets import DEMOTED, LOST, REFUSED_ALL, aread, is_stale, lacks_replicas, new_socket, read, write
from .waits import WAITS, is_in_vain, not_waited, replace_repeated, some_done, waits_of
from .wire import Wire

#: A day. Sockets take 2**31 ms at most.
MOST_TIMEOUT_S = 86_400
#: How often an exchange follows a redirection to another node of a cluster.
MOST_MOVES = 5


class Connection:
    """A server by URL: `redis://`, `rediss://` or `unix://`. Does no I/O until it is used; safe to share and to fork.

    `redis+sentinel://` and `rediss+sentinel://` name sentinels and a service, and lead to its primary.

    `timeout_s` (default 1 s) bounds connecting and each wait for a reply, so that a web request never hangs on a
    queue; a day at most. Options of the server's user, database and TLS go into the URL as redis-py documents them.
    `credential_provider` (see redis.credentials) gives user and password for each new socket; the URL then has none.
    `role` is a part of the name that the server shows for each socket; default: the role of the process.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 1.0, credential_provider: Any = None, role: str | None = None
    ) -> None:
        if not 0 < timeout_s <= MOST_TIMEOUT_S:
            raise InvalidValue(f"timeout_s is {timeout_s!r}; it must be above 0, and at most {MOST_TIMEOUT_S} seconds")
        service = service_of(url)
        self.url = url
        self.timeout_s = timeout_s
        if credential_provider is not None and has_credentials(url):
            raise ValueError(f"{masked(url)!r} has a user or password besides the credential provider; remove it")
        self.credential_provider = credential_provider
        self._role = role
        #: Both are shared with connections that have another timeout.
        self._route = ClusterNodes()
        self._sentinels = Sentinels(service, masked(url)) if service is not None else None
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()
        self._factory: Any = None
        self._lock = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Connection({masked(self.url)!r})"

    def check_options(self) -> None:
        """Check the options of the URL, which redis-py does only when it makes a connection; opens none.

        Raises TypeError or ValueError.
        """
        try:
            self._make()
            if self._sentinels is not None:
                self._sentinels.new_link(self._sentinels.order[0], self.timeout_s)
        except redis.RedisError as error:  # of a TLS option
            raise ValueError(f"an option cannot be used: {error}") from error

    def expect_cluster(self) -> None:
        """Ask for all nodes with the first socket, if the server belongs to a cluster."""
        self._route.is_curious = self._sentinels is None  # they manage no clusters

    def shares_server_with(self, other: Connection) -> bool:
        """Return whether both certainly lead to the same server: not in a cluster, whose nodes may differ."""
        return self is other or (self.url == other.url and not self._route.is_known and not other._route.is_known)

    def with_timeout(self, timeout_s: float) -> Connection:
        """Return a connection to the same server that waits `timeout_s` seconds, with sockets of its own."""
        other = Connection(self.url, timeout_s=timeout_s, credential_provider=self.credential_provider, role=self._role)
        other._route, other._sentinels = self._route, self._sentinels
        return other

    # -- Sync ---------------------------------------------------------------------------------------------------------

    def exchange(self, commands: Sequence[Request]) -> list[Reply]:
        """Send all commands in one write and return their replies in order; error replies are returned, not raised."""
        link = self._take()
        if commands and commands[-1][0] in WAITS:
            replies = self._converse_and_wait(link, commands)
        else:
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
        if link._sock is None or is_stale(link):
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

    def finish_with_one_node(self, link: Any, count: int) -> list[Reply]:
        """Do what finish() does, but do not forward commands to the node of a cluster that has their keys."""
        replies = self._converse(link, b"", count)
        link.is_elsewhere = False
        self._idle.append(link)
        return replies

    def give_up(self, link: Any) -> NoReturn:
        """Close the socket of begin() instead of waiting for replies any longer; raises OutcomeUnknown."""
        link.disconnect()
        self._route.leave(link)
        late = redis.TimeoutError(f"no reply within {self.timeout_s:g} s")
        raise connection_lost(self.url, late) from late

    @property
    def has_open_socket(self) -> bool:
        """Return whether begin() finds a socket that was open when it was last used."""
        return self._open_link() is not None

    @property
    def must_connect(self) -> bool:
        """Return whether the next exchange has to open a socket first: there is none, or the server has closed it."""
        if self._pid != os.getpid():
            return True
        try:
            link = self._idle.pop()  # a socket may be asked by one thread at a time
        except IndexError:
            return True
        must_connect = link._sock is None or is_stale(link)
        self._idle.append(link)
        return must_connect

    @property
    def open_server(self) -> Hashable:
        """Return what is equal for connections whose open sockets lead to one server, with one user; None without."""
        link = self._open_link()
        if link is None:
            return None
        address = getattr(link, "host", None), getattr(link, "port", None)
        return self.url, id(self.credential_provider), self.timeout_s, *address

    def _open_link(self) -> Any | None:
        """Return the idle socket that is used next, if it was open when it was last used."""
        try:
            link = self._idle[-1]
        except IndexError:  # another thread may have taken it a moment ago
            return None
        return link if self._pid == os.getpid() and link._sock is not None else None

    @property
    def server(self) -> Hashable:
        """Return an equal value for all connections to one server, with one user.

        Where a cluster is expected, each first has to ask for the nodes.
        """
        nodes = self if self._route.is_curious else self._route.node
        return self.url, id(self.credential_provider), self.timeout_s, nodes

    def leave_server(self) -> None:
        """Close the idle sockets; in a cluster, the next one leads to another node. The server does not answer."""
        self.close()
        self._route.skip()

    def ask(self, command: Command) -> Any:
        """Send a command whose reply may take long, and return the socket, for sockets.is_answered() and answer_of().

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

        If that node cannot be reached, the replies stay as they are: nothing was done.
        """
        link.is_elsewhere = False
        if (refused := self._refused_by_replica(commands, replies)) is not None:
            self._repeat(link, commands, replies, refused)
        for _ in range(MOST_MOVES):
            places = moved(replies)
            if not places or not self._route.follow(link, replies[places[0]]):
                return
            link.disconnect()
            try:
                self._connected(link)
            except RedisFailure:
                return
            places += waits_of(commands)
            again = [ASK_FOR_NODES, *(commands[at] for at in places)]
            slots, *answers = self._converse(link, packed(again), len(again))
            self._route.learn(link, slots)
            replace_repeated(commands, replies, places, answers)

    def _repeat(self, link: Any, commands: Sequence[Request], replies: list[Reply], places: Sequence[int]) -> None:
        """Send commands that a replica has refused to the server that is the primary now, and replace their replies.

        A replica does not tell the address of the primary. Sentinels do; and its name may resolve to it by now.
        """
        self.close()
        link.disconnect()
        try:
            self._connected(link)
        except RedisFailure:
            return
        answers = self._converse_and_wait(link, [commands[at] for at in places])
        link.is_elsewhere = MovedError in map(type, answers)
        for at, answer in zip(places, answers, strict=True):
            replies[at] = answer

    def _refused_by_replica(self, commands: Sequence[Request], replies: Sequence[Reply]) -> list[int] | None:
        """Return the positions of commands that another server may accept, which was found out by now; None if none.

        A primary that the others have left refuses writes for lack of replicas, if it is configured so. Waits are
        repeated with what they wait for; if anything else was carried out here, nothing is repeated: one wait cannot
        confirm the writes of two servers.
        """
        places = [at for at, reply in enumerate(replies) if isinstance(reply, DEMOTED)]
        alone = [at for at, reply in enumerate(replies) if lacks_replicas(reply)]
        if alone and self._sentinels is not None and self._sentinels.may_look_again():
            places = sorted(places + alone)
        if not places:
            return None
        if not (waits := waits_of(commands)):
            return places
        return [] if some_done([command[0] for command in commands], replies) else sorted({*places, *waits})

    def _converse_and_wait(self, link: Any, commands: Sequence[Request]) -> list[Reply]:
        """Send commands, with waits at their end or none, and return the replies.

        A server that refuses writes for lack of replicas answers a wait only when its time is over: it is not read.
        """
        asked = len(commands) - len(waits_of(commands))
        replies = self._converse(link, packed(commands), asked)
        if is_in_vain(commands, replies):
            link.disconnect()  # its late replies would be taken for others
            return [*replies, *not_waited(len(commands) - asked)]
        return [*replies, *self._converse(link, b"", len(commands) - asked)]

    def _converse(self, link: Any, request: bytes, count: int) -> list[Reply]:
        replies: list[Reply] = []
        try:
            if request:
                write(link, request)
            for _ in range(count):
                replies.append(read(link))
            return replies
        except REFUSED_ALL as error:
            link.disconnect()
            return refused(self.url, error, replies, count)
        except LOST as error:
            link.disconnect()
            self._route.leave(link)
            raise connection_lost(self.url, error) from error
        except BaseException:
            link.disconnect()
            raise

    def subscriber(self, channels: Sequence[str]) -> redis.client.PubSub:
        """Return redis-py's PubSub, subscribed to channels on a socket of its own; the caller closes it."""
        factory = self._new_factory()
        if self._sentinels is not None:
            primary = self._take()
            factory.connection_kwargs.update(host=primary.host, port=primary.port)
            self._idle.append(primary)
        # Not from_pool(): such a client closes its sockets when its last reference is gone.
        server: Any = redis.Redis(connection_pool=factory)
        subscriber: redis.client.PubSub = server.pubsub()
        subscriber.subscribe(*channels)
        return subscriber

    def listener(self, channels: Sequence[str], *, markers: Sequence[str] = ()) -> Listener:
        """Return a listener that reports publishes on channels without their content; the caller closes it.

        `markers` are the names of channels whose publishes the listener reports separately.
        """
        return subscribed(self._connected(self._make()), self.url, channels, markers=markers)

    @property
    def has_sentinels(self) -> bool:
        """Return whether sentinels tell which server is the primary."""
        return self._sentinels is not None

    def switch_listener(self) -> tuple[Listener, Address]:
        """Return a listener for the promotions that a sentinel publishes, and that sentinel; the caller closes it."""
        assert self._sentinels is not None
        sentinel = self._sentinels.order[0]
        link = self._sentinels.new_link(sentinel, self.timeout_s)
        try:
            link.connect()
        except (redis.RedisError, OSError) as error:
            link.disconnect()
            self._sentinels.avoid(sentinel)
            raise not_connected(self.url, error) from error
        return subscribed(link, self.url, [SWITCHES]), sentinel

    def leave_former_primary(self, sentinel: Address) -> int:
        """Ask a sentinel for the primary, shut down all sockets of this process to other servers, and return how many.

        Raises ConnectionFailed when the sentinel does not answer.
        """
        assert self._sentinels is not None
        return self._sentinels.leave_former_primary(sentinel, self.timeout_s)

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
        return new_socket(self._factory)

    def _new_factory(self) -> redis.ConnectionPool:
        url = self.url if self._sentinels is None else self._sentinels.service.server_url
        return new_factory(url, self.timeout_s, **self._credentials(), redis_connect_func=greeting(packed, self._role))

    def _new_async_factory(self) -> Any:
        url = self.url if self._sentinels is None else self._sentinels.service.server_url
        return new_async_factory(url, None, **self._credentials())

    def _credentials(self) -> dict[str, Any]:
        provider = self.credential_provider
        return {} if provider is None else {"credential_provider": Credentials(provider)}

    def _connected(self, link: Any) -> Any:
        try:
            if link._sock is None:
                self._connect(link)
            if is_stale(link):
                link.disconnect()
                self._connect(link)
        except (redis.RedisError, OSError) as error:
            link.disconnect()
            self._route.leave(link)
            raise not_connected(self.url, error) from error
        return link

    def _connect(self, link: Any) -> None:
        link.wire = None
        if self._sentinels is not None:
            self._sentinels.connect(link, self._role_of, self.timeout_s)
            return
        self._route.aim(link)
        link.connect()
        link.wire = Wire.of(link, self.timeout_s)
        if self._route.is_curious:
            write(link, packed([ASK_FOR_NODES]))
            self._route.learn(link, read(link))

    def _role_of(self, link: Any) -> Reply:
        """Connect a socket, and return what the server says about its role."""
        link.wire = None
        link.connect()
        link.wire = Wire.of(link, self.timeout_s)
        write(link, packed([ASK_FOR_ROLE]))
        return read(link)

    # -- Async --------------------------------------------------------------------------------------------------------

    async def aexchange(self, commands: Sequence[Command]) -> list[Reply]:
        """See exchange()."""
        pool = await self._loop_pool()
        link = await pool.take(self.timeout_s)
        if self._route.is_curious:
            self._route.learn(link, (await self._aconverse(link, [ASK_FOR_NODES]))[0])
        replies = await self._aconverse_and_wait(link, commands)
        if link.is_elsewhere:
            await self._afollow(pool, link, commands, replies)
        pool.idle.append(link)
        return replies

    async def _aconverse_and_wait(self, link: Any, commands: Sequence[Command]) -> list[Reply]:
        """See _converse_and_wait()."""
        if not (waits := waits_of(commands)):
            return await self._aconverse(link, commands)
        asked = len(commands) - len(waits)
        replies = await self._aconverse(link, commands, asked)
        if is_in_vain(commands, replies):
            await link.disconnect(nowait=True)
            return [*replies, *not_waited(len(commands) - asked)]
        return [*replies, *await self._aconverse(link, (), len(commands) - asked)]

    async def _aconverse(self, link: Any, commands: Sequence[Command], count: int | None = None) -> list[Reply]:
        """Send commands, and return `count` replies, by default all of them."""
        count = len(commands) if count is None else count
        replies: list[Reply] = []
        silence: Silence = link.silence
        try:
            # Our own timeout: before Python 3.12, redis-py's wait_for() sometimes loses a cancellation.
            async with asyncio.timeout(self.timeout_s) as timeout:
                if commands:
                    await link.send_packed_command(packed(commands), check_health=False)
                silence.begin(timeout, self.timeout_s)
                for _ in range(count):
                    replies.append(await aread(link))
                return replies
        except REFUSED_ALL as error:
            await link.disconnect(nowait=True)
            return refused(self.url, error, replies, count)
        except LOST as error:
            await link.disconnect(nowait=True)
            self._route.leave(link)
            raise connection_lost(self.url, error) from error
        except BaseException:  # cancelled too: later replies have no reader
            await link.disconnect(nowait=True)
            raise
        finally:
            silence.end()

    async def _afollow(self, pool: LoopPool, link: Any, commands: Sequence[Command], replies: list[Reply]) -> None:
        """See _follow()."""
        link.is_elsewhere = False
        if (refused := self._refused_by_replica(commands, replies)) is not None:
            await self._arepeat(pool, link, commands, replies, refused)
        for _ in range(MOST_MOVES):
            places = moved(replies)
            if not places or not self._route.follow(link, replies[places[0]]):
                return
            await link.disconnect(nowait=True)
            try:
                await pool.connect(link, self.timeout_s)
            except RedisFailure:
                return
            places += waits_of(commands)
            slots, *answers = await self._aconverse(link, [ASK_FOR_NODES, *(commands[at] for at in places)])
            self._route.learn(link, slots)
            replace_repeated(commands, replies, places, answers)

    async def _arepeat(
        self, pool: LoopPool, link: Any, commands: Sequence[Command], replies: list[Reply], places: Sequence[int]
    ) -> None:
        """See _repeat()."""
        for other in (link, *pool.idle):
            await other.disconnect(nowait=True)
        try:
            await pool.connect(link, self.timeout_s)
        except RedisFailure:
            return
        answers = await self._aconverse_and_wait(link, [commands[at] for at in places])
        link.is_elsewhere = MovedError in map(type, answers)
        for at, answer in zip(places, answers, strict=True):
            replies[at] = answer

    async def aclose(self) -> None:
        """Close the idle sockets of the running event loop; the object stays usable."""
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.closer.aclose()

    async def _loop_pool(self) -> LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None or pool.pid != os.getpid():
            factory = self._new_async_factory()
            pool = self._loops[loop] = LoopPool(self.url, self._route, self._sentinels, factory, self._role)
            await anext(pool.closer)
        return pool
