"""The session of a command line: server, namespace and output format.

A connection is opened when a command uses a queue. The caller chooses the default server: an environment variable for
the console script, the settings for `manage.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import redis

from ..core import Client, Connection, Queue
from ..core.connection import SCHEMES
from ..core.doctor import ExpectedQueue
from ..core.limits import TimeUnit
from .failures import Failed

DEFAULT_URL = "redis://localhost:6379"
#: Longer than in web requests: a busy server may need seconds for a page of large messages.
TIMEOUT_S = 5.0


@dataclass
class Session:
    """The options of a command line, shared by all commands."""

    #: URL of the server; None uses `default_client`.
    url: str | None = None
    #: Returns the client of a queue, or with None that of the namespace, in a project with several servers.
    default_client: Callable[[str | None], Client] | None = None
    namespace: str | None = None
    #: Unit in which queues store their times; None uses `settings`.
    vt_unit: TimeUnit | None = None
    #: Returns the queues that a project's settings declare for a client.
    settings: Callable[[Client], Mapping[str, ExpectedQueue]] = lambda _client: {}
    #: Print results on stdout and errors on stderr as JSON.
    json: bool = False
    #: Print tracebacks in addition to error lines.
    verbose: bool = False
    _connections: dict[str, Connection] = field(default_factory=dict)

    def client(self, queue_name: str | None = None) -> Client:
        """Return the client for a queue, or with None for the namespace."""
        if self.url is None and self.default_client is not None:
            client = self.default_client(queue_name)
            return Client(client.connection, namespace=self.namespace) if self.namespace else client
        return Client(self._connection(self.url or DEFAULT_URL), namespace=self.namespace or "rsmq")

    def queue(self, name: str) -> Queue:
        """Return a queue whose sends wake idle workers."""
        client = self.client(name)
        expected = self.expected(client).get(name)
        unit = self.vt_unit or (expected.vt_unit if expected else "s")
        return Queue(name, client, realtime=True, vt_unit=unit)

    def expected(self, client: Client) -> Mapping[str, ExpectedQueue]:
        """Return the queues that the project's settings declare; none if an option names another server."""
        return {} if self.url or self.namespace else self.settings(client)

    def _connection(self, url: str) -> Connection:
        if url not in self._connections:
            self._connections[url] = connect(url)
        return self._connections[url]


def console_session() -> Session:
    """Return the session of the console script: the server is REDIS_URL or localhost."""
    return Session(url=os.environ.get("REDIS_URL") or DEFAULT_URL)


def connect(url: str) -> Connection:
    """Return a connection. Raises Failed for an invalid URL, without showing its password."""
    try:
        if "@" in urlsplit(url)._replace(netloc="", scheme="").geturl() and not url.startswith("unix:"):
            raise ValueError("unescaped password: its second half would be parsed as a host")
        # Redis-py checks the options of a URL only when it makes a connection object; this opens no connection.
        if urlsplit(url).scheme in SCHEMES:
            redis.ConnectionPool.from_url(url).make_connection()
        return Connection(url, timeout_s=TIMEOUT_S)
    except (ValueError, TypeError):
        # Not `from error`: its text may contain a part of the password.
        shown = re.sub(".*@", "***@", url, flags=re.DOTALL)
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise Failed(
            "invalidUrl",
            f"invalid URL {shown!r}; use the form {DEFAULT_URL}/0 with one of {schemes}, "
            "and write special characters of a password as %XX",
        ) from None
