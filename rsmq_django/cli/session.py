"""What one run of the command line knows: which server, which namespace, which form of output.

Connects to nothing before a command asks for a queue. Where the default server comes from is the caller's business:
an environment variable for the console script, the settings for `manage.py`.
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
#: People wait longer than web requests, and a busy server may take its time for a page of large messages.
TIMEOUT_S = 5.0


@dataclass
class Session:
    """The choices of one run, shared by all commands."""

    #: The server; None asks `default_client`.
    url: str | None = None
    #: Queue name, or None for the namespace as a whole -> its client in a project that has several servers.
    default_client: Callable[[str | None], Client] | None = None
    namespace: str | None = None
    #: In which unit queues store their times; None asks `settings`.
    vt_unit: TimeUnit | None = None
    #: What a project says about the queues of a client.
    settings: Callable[[Client], Mapping[str, ExpectedQueue]] = lambda _client: {}
    #: The machine form: results on stdout and errors on stderr are JSON.
    json: bool = False
    #: Tracebacks as well as the line that says what happened.
    verbose: bool = False
    _connections: dict[str, Connection] = field(default_factory=dict)

    def client(self, queue_name: str | None = None) -> Client:
        """Return the client for a queue, or for the namespace as a whole."""
        if self.url is None and self.default_client is not None:
            client = self.default_client(queue_name)
            return Client(client.connection, namespace=self.namespace) if self.namespace else client
        return Client(self._connection(self.url or DEFAULT_URL), namespace=self.namespace or "rsmq")

    def queue(self, name: str) -> Queue:
        """Return a queue whose sends wake waiting workers."""
        client = self.client(name)
        expected = self.expected(client).get(name)
        unit = self.vt_unit or (expected.vt_unit if expected else "s")
        return Queue(name, client, realtime=True, vt_unit=unit)

    def expected(self, client: Client) -> Mapping[str, ExpectedQueue]:
        """Return what the project's settings say about queues; nothing when a flag names another server."""
        return {} if self.url or self.namespace else self.settings(client)

    def _connection(self, url: str) -> Connection:
        if url not in self._connections:
            self._connections[url] = connect(url)
        return self._connections[url]


def console_session() -> Session:
    """Return the session of the console script: the server is REDIS_URL, or the local one."""
    return Session(url=os.environ.get("REDIS_URL") or DEFAULT_URL)


def connect(url: str) -> Connection:
    """Return a connection. Raises Failed for a URL that makes no sense, without showing its password."""
    try:
        if "@" in urlsplit(url)._replace(netloc="", scheme="").geturl() and not url.startswith("unix:"):
            raise ValueError("an unescaped password: its second half would be taken for a host")
        # Redis-py looks at the options of a URL only when it makes a connection; nothing is opened here.
        if urlsplit(url).scheme in SCHEMES:
            redis.ConnectionPool.from_url(url).make_connection()
        return Connection(url, timeout_s=TIMEOUT_S)
    except (ValueError, TypeError):
        # Not `from error`: its text may hold a piece of the password.
        shown = re.sub(".*@", "***@", url, flags=re.DOTALL)
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise Failed(
            "invalidUrl",
            f"cannot read the URL {shown!r}; write {DEFAULT_URL}/0 or the like, with one of {schemes}, "
            "and special characters of a password as %XX",
        ) from None
