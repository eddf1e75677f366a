"""Rejects the servers of the settings in tests without private queues.

Otherwise a test without private queues would send to the server of the settings, where a worker may run its calls, and
pass. The addresses (server and database) in the project's settings.RSMQ are rejected; a test may use other addresses,
from overridden settings or a `Connection`. Only this process is protected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import redis
from django.core.exceptions import ImproperlyConfigured

from ..conf.caches import cache_url
from ..conf.settings import ConnectionSettings, get_settings
from ..core import Connection
from ..core.transport.factories import masked
from ..core.transport.sentinel_url import is_sentinel_url, read_sentinel_url, shown_address
from .server import started_url

#: The methods of a Connection that access its server.
TALKING = ("exchange", "begin", "subscriber", "listener", "switch_listener")

Address = tuple[str, int, int]


class ServerNotPrivate(AssertionError):
    """A test tried to use a server of the settings."""


@dataclass(slots=True)
class Refusal:
    """Rejected servers, and the attempts to use them."""

    servers: frozenset[Address]
    #: State directories of embedded servers, which have no address before their start.
    state_dirs: frozenset[Path] = frozenset()
    #: Errors raised so far, kept in case the project's code catches the exception.
    said: list[str] = field(default_factory=list)

    def check(self, url: str) -> None:
        """Raise ServerNotPrivate if the server is one of the settings."""
        address = address_of(url)
        private = started_url()
        if address in self.servers and (private is None or address[0] != address_of(private)[0]):
            self.refuse(masked(url))

    def refuse(self, server: str) -> None:
        """Store and raise the error."""
        self.said.append(
            f"this test uses {server}, a server of settings.RSMQ. Use the fixture `rsmq` (in unittest: "
            "private_queues()), or allow it: @pytest.mark.rsmq_server for a test, `rsmq_allow_server = true` in the "
            "configuration of pytest for all"
        )
        raise ServerNotPrivate(self.said[-1])


def refusal_of_settings() -> Refusal:
    """Return the refusal of the servers of settings.RSMQ; an empty one if the settings are invalid."""
    try:
        connections = get_settings().connections.values()
    except ImproperlyConfigured:
        return Refusal(frozenset())
    urls = filter(None, map(_url_of, connections))
    state_dirs = frozenset(each.state_dir.resolve() for each in connections if each.state_dir is not None)
    return Refusal(frozenset(map(address_of, urls)), state_dirs)


def _url_of(connection: ConnectionSettings) -> str | None:
    if connection.cache is not None:
        try:
            return cache_url(connection.cache)
        except ImproperlyConfigured:
            return None
    if connection.url is None and connection.state_dir is not None:
        from ..embedded.files import StateFiles

        socket = StateFiles(connection.state_dir.resolve()).recorded_socket()
        return f"unix://{quote(str(socket))}" if socket is not None else None
    return connection.url


@cache
def address_of(url: str) -> Address:
    """Return host or socket path, port, and database of a URL; for a URL with sentinels, service and sentinels."""
    if is_sentinel_url(url):
        service = read_sentinel_url(url)
        return f"{service.name} of {', '.join(sorted(map(shown_address, service.sentinels)))}", 0, service.database
    parse_url: Any = redis.connection.parse_url
    options = parse_url(url)
    if "path" in options:
        return options["path"], 0, options.get("db", 0)
    return options.get("host", "localhost"), options.get("port", 6379), options.get("db", 0)


@contextmanager
def refused(refusal: Refusal) -> Iterator[Refusal]:
    """Reject these servers until the block ends; an empty refusal has no cost."""
    with ExitStack() as stack:
        if refusal.servers or refusal.state_dirs:
            for name in TALKING:
                stack.enter_context(patch.object(Connection, name, _checked(getattr(Connection, name), refusal)))
            checked = _achecked(Connection.aexchange, refusal)
            stack.enter_context(patch.object(Connection, "aexchange", checked))
        if refusal.state_dirs:
            from ..embedded import EmbeddedServer

            starting = _checked_start(EmbeddedServer.ensure, refusal)
            stack.enter_context(patch.object(EmbeddedServer, "ensure", starting))
        yield refusal


def _checked(method: Callable[..., Any], refusal: Refusal) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Connection, *args: Any, **kwargs: Any) -> Any:
        refusal.check(self.url)
        return method(self, *args, **kwargs)

    return call


def _achecked(method: Callable[..., Any], refusal: Refusal) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: Connection, *args: Any, **kwargs: Any) -> Any:
        refusal.check(self.url)
        return await method(self, *args, **kwargs)

    return call


def _checked_start(method: Callable[..., Any], refusal: Refusal) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any) -> Any:
        if self.files.directory in refusal.state_dirs:
            refusal.refuse(f"the embedded server in {self.files.directory}")
        return method(self)

    return call
