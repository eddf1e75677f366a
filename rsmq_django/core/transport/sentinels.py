"""Finds the primary of a service by its sentinels; not used without Sentinel.

The sentinels are asked each time a socket is opened, one after the other and each with a short time-out, beginning with
the last to answer. The server they name is used if it says itself that it is a primary; otherwise the next sentinel is
asked, which may know more. The URL is read in `sentinel_url.py`; sockets to servers are opened in `connection.py`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakSet

import redis
from redis.exceptions import AuthorizationError

from ..errors import ConnectionFailed, RedisFailure, SentinelDenied, SentinelServiceNotFound
from .factories import new_async_factory, new_factory
from .handshake import CredentialsFailed, leave_names_to_us
from .sentinel_url import Address, SentinelService, shown_address

#: The longest wait for one sentinel: for its connection, and for its reply.
LONGEST_ASK_S = 1.0
#: A primary that refuses writes for lack of replicas is looked for again at most this often.
LOOK_AGAIN_S = 1.0
#: Command that asks a server whether it is a primary.
ASK_FOR_ROLE = ("ROLE",)
#: Channel on which a sentinel publishes that another server is the primary.
SWITCHES = "+switch-master"

_FAILED = (redis.RedisError, OSError)
#: What the primary itself says to all who connect, and what another server would not change.
_REFUSED = (redis.BusyLoadingError, redis.AuthenticationError, AuthorizationError, CredentialsFailed)
_NOT_REACHED = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.InvalidResponse, OSError)
_DENIED = (redis.AuthenticationError, AuthorizationError, redis.exceptions.NoPermissionError)

#: Guards the sets of open sockets.
_lock = threading.Lock()


def _renew_lock() -> None:
    """After a fork: another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class Sentinels:
    """The sentinels of a service, and the open sockets to its primary; shared by all connections with one URL."""

    def __init__(self, service: SentinelService, where: str) -> None:
        self.service = service
        #: The URL without passwords.
        self.where = where
        #: In the order in which they are asked.
        self._order = service.sentinels
        #: Sockets to servers that were the primary when they were opened, and the process that opened them.
        self._links: WeakSet[Any] = WeakSet()
        self._pid = os.getpid()
        self._looked_again_at = 0.0

    @property
    def order(self) -> tuple[Address, ...]:
        """Return the sentinels, the one to ask first before the others."""
        return self._order

    def connect(self, link: Any, role_of: Callable[[Any], Any], timeout_s: float) -> None:
        """Connect a socket to the primary. `role_of` connects it to its address and returns the server's role.

        Raises ConnectionFailed or SentinelDenied, or what the primary says: that it is loading, or a wrong password.
        """
        search = PrimarySearch(self, timeout_s)
        while (address := search.next_address()) is not None:
            link.host, link.port = address
            try:
                if search.accepts(link, role_of(link)):
                    return
            except _REFUSED:
                raise
            except _NOT_REACHED as error:
                search.not_reached(error)
            link.disconnect()
        raise search.error()

    async def aconnect(self, link: Any, role_of: Callable[[Any], Awaitable[Any]], timeout_s: float) -> None:
        """See connect()."""
        search = PrimarySearch(self, timeout_s)
        while (address := await search.anext_address()) is not None:
            link.host, link.port = address
            try:
                if search.accepts(link, await role_of(link)):
                    return
            except _REFUSED:
                raise
            except _NOT_REACHED as error:
                search.not_reached(error)
            await link.disconnect(nowait=True)
        raise search.error()

    def new_link(self, sentinel: Address, timeout_s: float) -> Any:
        """Return a redis-py connection to a sentinel, which is not open."""
        link: Any = new_factory(self.service.sentinel_url, timeout_s).make_connection()
        leave_names_to_us(link)  # a sentinel needs none, and its user no right to set them
        link.host, link.port = sentinel
        return link

    def new_async_link(self, sentinel: Address, timeout_s: float) -> Any:
        """See new_link()."""
        link: Any = new_async_factory(self.service.sentinel_url, timeout_s).make_connection()
        leave_names_to_us(link)  # a sentinel needs none, and its user no right to set them
        link.host, link.port = sentinel
        return link

    def prefer(self, sentinel: Address) -> None:
        """Ask this one first."""
        self._order = (sentinel, *(each for each in self._order if each != sentinel))

    def avoid(self, sentinel: Address) -> None:
        """Ask this one last."""
        self._order = (*(each for each in self._order if each != sentinel), sentinel)

    def may_look_again(self) -> bool:
        """Return whether the sentinels may be asked because a server refused a write, and note that they were."""
        now = time.monotonic()
        if now - self._looked_again_at < LOOK_AGAIN_S:
            return False
        self._looked_again_at = now
        return True

    def add(self, link: Any) -> None:
        """Remember a socket to the primary."""
        with _lock:
            if self._pid != os.getpid():  # after a fork the sockets belong to the parent
                self._links, self._pid = WeakSet(), os.getpid()
            self._links.add(link)

    def leave_former_primary(self, sentinel: Address, timeout_s: float) -> int:
        """Ask a sentinel for the primary, shut down the sockets to other servers, and return how many were open.

        Also sockets on which a thread waits. A socket of a host that has failed would be noticed only by a time-out.
        Raises ConnectionFailed or SentinelDenied.
        """
        search = PrimarySearch(self, timeout_s, only=sentinel)
        primary = search.next_address()
        if primary is None:
            raise search.error()
        self.prefer(sentinel)
        with _lock:
            links = list(self._links) if self._pid == os.getpid() else []
        return sum(_shut_down(link) for link in links if (link.host, link.port) != primary)


class PrimarySearch:
    """One search: yields each address that a sentinel names, until one is accepted or the time is over."""

    def __init__(self, sentinels: Sentinels, timeout_s: float, *, only: Address | None = None) -> None:
        self._sentinels = sentinels
        self._order = [only] if only is not None else list(sentinels.order)
        self._limit_s = min(LONGEST_ASK_S, timeout_s / len(self._order))
        self._ends_at = time.monotonic() + timeout_s
        self._asked: Address | None = None
        self._named: list[Address] = []
        #: What went wrong, for people, and the errors.
        self._said: list[str] = []
        self._errors: list[Exception] = []

    def next_address(self) -> Address | None:
        """Return the next address to try; None when there is none."""
        while (sentinel := self._next_sentinel()) is not None:
            link = self._sentinels.new_link(sentinel, self._limit_s)
            try:
                link.connect()
                link.send_command(*self._question)
                address = self._answered(link.read_response())
            except _FAILED as error:
                self._not_answered(error)
                continue
            finally:
                link.disconnect()
            if address is not None:
                return address
        return None

    async def anext_address(self) -> Address | None:
        """See next_address()."""
        while (sentinel := self._next_sentinel()) is not None:
            link = self._sentinels.new_async_link(sentinel, self._limit_s)
            try:
                await link.connect()
                await link.send_command(*self._question)
                address = self._answered(await link.read_response())
            except _FAILED as error:
                self._not_answered(error)
                continue
            finally:
                await link.disconnect(nowait=True)
            if address is not None:
                return address
        return None

    def accepts(self, link: Any, role: Any) -> bool:
        """Return whether a connected server is the primary, by its reply to ASK_FOR_ROLE.

        A user may lack the right to ask; a replica refuses writes in any case.
        """
        assert self._asked is not None
        if not isinstance(role, Exception) and role[0] != b"master":
            self._say(f"{self._named_by} is not a primary any more")
            self._sentinels.avoid(self._asked)
            return False
        self._sentinels.prefer(self._asked)
        self._sentinels.add(link)
        return True

    def not_reached(self, error: Exception) -> None:
        """Note that the named server cannot be reached; another sentinel may name another one."""
        assert self._asked is not None
        self._errors.append(error)
        self._say(f"{self._named_by} does not answer ({_why(error)})")
        self._sentinels.avoid(self._asked)

    def error(self) -> RedisFailure:
        """Return the error of a search without success."""
        name, where = self._sentinels.service.name, self._sentinels.where
        text = f"cannot find the primary of {name!r} for {where}: {'; '.join(self._said)}"
        if self._errors and not self._named and all(isinstance(each, _DENIED) for each in self._errors):
            return SentinelDenied(f"{text}; correct sentinel_username and sentinel_password in the URL")
        is_unknown = not (self._named or self._errors or self._order)  # all of them have answered
        kind = SentinelServiceNotFound if is_unknown else ConnectionFailed
        failure = kind(f"{text}; nothing was sent. {self._next_step}")
        failure.__cause__ = self._errors[-1] if self._errors else None
        return failure

    @property
    def _next_step(self) -> str:
        if self._named:
            return "Sentinels promote a replica if it stays away for down-after-milliseconds"
        if self._errors:
            return "Are the sentinels running there?"
        return "Correct the name in the URL; `SENTINEL MASTERS` lists the names that a sentinel knows"

    @property
    def _question(self) -> tuple[str, str, str]:
        return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._sentinels.service.name

    @property
    def _named_by(self) -> str:
        return f"{shown_address(self._named[-1])}, which sentinel {shown_address(self._asked or ('', 0))} names,"

    def _next_sentinel(self) -> Address | None:
        is_late = self._asked is not None and time.monotonic() >= self._ends_at
        self._asked = None if is_late or not self._order else self._order.pop(0)
        return self._asked

    def _answered(self, reply: Any) -> Address | None:
        assert self._asked is not None
        if reply is None:
            self._say(f"sentinel {shown_address(self._asked)} does not know that name")
            return None
        address = (_text(reply[0]), int(reply[1]))
        if address in self._named:
            return None
        self._named.append(address)
        return address

    def _not_answered(self, error: Exception) -> None:
        assert self._asked is not None
        self._errors.append(error)
        verb = "denies access" if isinstance(error, _DENIED) else "does not answer"
        self._say(f"sentinel {shown_address(self._asked)} {verb} ({_why(error)})")

    def _say(self, text: str) -> None:
        self._said.append(text)


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)


def _why(error: Exception) -> str:
    return (str(error) or type(error).__name__).rstrip(".")


def _shut_down(link: Any) -> bool:
    """Return whether the socket was open."""
    writer = getattr(link, "_writer", None)
    sock = writer.get_extra_info("socket") if writer is not None else getattr(link, "_sock", None)
    with contextlib.suppress(OSError, ValueError):  # it is closed already
        if isinstance(sock, socket.socket):
            # Not the method of a TLS socket, which would read what follows without decryption.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
            return True
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
            return True
    return False
