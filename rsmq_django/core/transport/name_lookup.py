"""Connections of redis-py that look a host name up within their time-out, anew for each socket.

The system's lookup has no time-out: while no name server answers, it takes ten seconds and more. So a thread does it,
one for each name at a time, and a connection waits for it no longer than for a server. A thread that nothing waits for
any more ends with its lookup. Addresses are used as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import redis
import redis.asyncio

#: The lookups that have not ended, by host and port.
_pending: dict[tuple[str, int], Future[list[str]]] = {}
_lock = threading.Lock()


def _forget_lookups() -> None:
    """After a fork, the threads and perhaps the lock belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _pending.clear()


os.register_at_fork(after_in_child=_forget_lookups)


def _lookup(host: str, port: int) -> Future[list[str]]:
    """Return the lookup of a name, begun now unless there is one already."""
    with _lock:
        if (pending := _pending.get((host, port))) is not None:
            return pending
        lookup = _pending[host, port] = Future()
    thread = threading.Thread(target=_look_up, args=(host, port, lookup), name="rsmq-name-lookup", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the limit of the system
        _look_up(host, port, lookup)
    return lookup


def _is_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _look_up(host: str, port: int, lookup: Future[list[str]]) -> None:
    found: list[Any] = []
    failure: Exception | None = None
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except Exception as error:
        failure = error
    with _lock:  # first: what asks from now on gets a new lookup
        _pending.pop((host, port), None)
    if failure is not None:
        lookup.set_exception(failure)
    else:
        lookup.set_result(list(dict.fromkeys(str(each[4][0]) for each in found)))


def _addresses(host: str, port: int, *, within_s: float | None) -> list[str]:
    if _is_address(host):
        return [host]
    try:
        return _lookup(host, port).result(within_s)
    except TimeoutError:
        raise redis.TimeoutError(f"the name {host!r} was not resolved in time; does its name server answer?") from None


async def _aaddresses(host: str, port: int) -> list[str]:
    """See _addresses(). Not on an executor of the event loop, which would wait for the thread at its end."""
    if _is_address(host):
        return [host]
    loop, lookup = asyncio.get_running_loop(), _lookup(host, port)
    is_over = loop.create_future()

    def end() -> None:
        if not is_over.done():
            is_over.set_result(None)

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end)

    lookup.add_done_callback(tell)
    await is_over
    return lookup.result()


def _no_address() -> OSError:
    return OSError(errno.EADDRNOTAVAIL, "The name has no address")


class NamedConnection(redis.Connection):
    """A TCP connection whose name is looked up within `socket_connect_timeout`."""

    def _connect(self) -> Any:
        name, error = self.host, _no_address()
        connect: Any = super()._connect
        try:
            for address in _addresses(name, self.port, within_s=self.socket_connect_timeout):
                self.host = address
                try:
                    return connect()
                except OSError as refused:
                    error = refused
        finally:
            self.host = name
        raise error


class NamedTLSConnection(redis.SSLConnection, NamedConnection):
    """The same with TLS; the certificate is that of the name."""


class AsyncNamedConnection(redis.asyncio.Connection):
    """See NamedConnection. The caller limits the time of everything."""

    _address = ""

    async def _connect(self) -> None:
        error = _no_address()
        connect: Any = super()._connect
        for address in await _aaddresses(self.host, int(self.port)):
            self._address = address
            try:
                await connect()
            except OSError as refused:
                error = refused
            else:
                return
        raise error

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = {**super()._connection_arguments(), "host": self._address}
        return arguments | {"server_hostname": self.host} if "ssl" in arguments else arguments


class AsyncNamedTLSConnection(AsyncNamedConnection, redis.asyncio.SSLConnection):
    """The same with TLS."""


_NAMED: dict[Any, Any] = {
    redis.Connection: NamedConnection,
    redis.SSLConnection: NamedTLSConnection,
    redis.asyncio.Connection: AsyncNamedConnection,
    redis.asyncio.SSLConnection: AsyncNamedTLSConnection,
}


def named(connection_class: Any) -> Any:
    """Return the class to use instead of redis-py's; itself for unix sockets."""
    return _NAMED.get(connection_class, connection_class)
