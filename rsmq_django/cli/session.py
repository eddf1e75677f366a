"""The session of a command line: server, namespace and output format.

A connection is opened when a command uses a queue. The default server is that of an environment variable, or under
`manage.py` those of the settings, which the session knows as its project.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol
from urllib.parse import urlsplit

from ..core import Client, Connection, Queue, list_queues
from ..core.doctor import ExpectedQueue, Finding
from ..core.limits import TimeUnit
from ..core.transport.factories import SCHEMES, masked
from ..core.transport.sentinel_url import is_sentinel_url
from .failures import Failed

Structure = Literal["topic", "reliable queue"]
DEFAULT_URL = "redis://localhost:6379"
#: Longer than in web requests: a busy server may need seconds for a page of large messages.
TIMEOUT_S = 5.0


class Project(Protocol):
    """The settings of a Django project, of which `manage.py` runs the commands."""

    def client(self, queue_name: str | None, aliases: Sequence[str]) -> Client:
        """Return the client of a queue, or with None the default one; `aliases` are those of --connection."""

    def shards(self, queue_name: str, aliases: Sequence[str]) -> Sequence[str]:
        """Return the connections of the shards of a queue; none if it has no shards or --connection names some."""

    def clients(self, aliases: Sequence[str]) -> Mapping[str, Client]:
        """Return the clients of these connections, or of all."""

    def expected(self, client: Client) -> Mapping[str, ExpectedQueue]:
        """Return the queues that the settings declare for a client."""

    def reviewed(self, client: Client, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings of the doctor without those that the settings explain, and with those about tasks."""

    def state(self) -> str:
        """Return the backlog, dead letters and workers of all connections on one line."""

    def dead_letter_queues(self, aliases: Sequence[str]) -> Sequence[str]:
        """Return the existing dead-letter queues of these connections, or of all."""

    def dead_letter_queue_of(self, queue_name: str) -> str | None:
        """Return the dead-letter queue of a queue that is not one itself."""

    def declares(self, structure: Structure, name: str) -> bool:
        """Return whether a topic or reliable queue of this name is in the settings."""

    def nearest_queue(self, queue_name: str) -> str:
        """Return the question for the nearest name in the settings; "" for a queue of the settings."""


@dataclass
class Session:
    """The options of a command line, shared by all commands."""

    #: URL of the server; None uses that of the project.
    url: str | None = None
    project: Project | None = None
    #: The connections that --connection names; none: those of the queues.
    aliases: Sequence[str] = ()
    namespace: str | None = None
    #: Unit in which queues store their times; None uses that of the project.
    vt_unit: TimeUnit | None = None
    #: Print results on stdout and errors on stderr as JSON.
    json: bool = False
    #: Print tracebacks in addition to error lines.
    verbose: bool = False
    _connections: dict[str, Connection] = field(default_factory=dict)

    def client(self, queue_name: str | None = None) -> Client:
        """Return the client for a queue, or with None for the namespace."""
        if self.url is None and self.project is not None:
            client = self.project.client(queue_name, self.aliases)
            return Client(client.connection, namespace=self.namespace) if self.namespace else client
        return Client(self._connection(self.url or DEFAULT_URL), namespace=self.namespace or "rsmq")

    def servers(self) -> Mapping[str | None, Client]:
        """Return the clients of the chosen connections of the project by alias, or of the one server of the options."""
        if self.used_project is None:
            return {None: self.client()}
        return dict(self.used_project.clients(self.aliases).items())

    def queue(self, name: str) -> Queue:
        """Return a queue whose sends wake idle workers."""
        client = self.client(name)
        expected = self.expected(client).get(name)
        unit = self.vt_unit or (expected.vt_unit if expected else "s")
        return Queue(name, client, realtime=True, vt_unit=unit)

    def shards(self, queue_name: str) -> Sequence[Session]:
        """Return a session for each shard of a queue; this one if the queue has no shards, or one was named."""
        project = self.used_project
        aliases = project.shards(queue_name, self.aliases) if project is not None else ()
        return [replace(self, aliases=(alias,)) for alias in aliases] or [self]

    def existing_shards(self, queue_name: str) -> Sequence[Session]:
        """Do what shards() does, without shards that do not exist yet; all of them when there is none."""
        every = self.shards(queue_name)
        if len(every) == 1:
            return every
        return [each for each in every if queue_name in list_queues(each.client(queue_name))] or every

    def shard_alias(self, queue_name: str) -> str | None:
        """Return the connection of this session if that is a shard of the queue."""
        project = self.used_project
        if project is None or len(self.aliases) != 1 or self.aliases[0] not in project.shards(queue_name, ()):
            return None
        return self.aliases[0]

    def expected(self, client: Client) -> Mapping[str, ExpectedQueue]:
        """Return the queues that the project's settings declare; none if an option names another server."""
        return self.used_project.expected(client) if self.used_project else {}

    @property
    def used_project(self) -> Project | None:
        """Return the project, unless an option names another server or namespace."""
        return None if self.url or self.namespace else self.project

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
        is_checked = is_sentinel_url(url) or url.startswith("unix:")
        if not is_checked and "@" in urlsplit(url)._replace(netloc="", scheme="").geturl():
            raise ValueError("unescaped password: its second half would be parsed as a host")
        connection = Connection(url, timeout_s=TIMEOUT_S, role="cli")
        connection.check_options()
        return connection
    except (ValueError, TypeError):
        # Not `from error`: its text may contain a part of the password.
        shown = re.sub(".*@", "***@", masked(url), flags=re.DOTALL)
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise Failed(
            "invalidUrl",
            f"invalid URL {shown!r}; use the form {DEFAULT_URL}/0 with one of {schemes} "
            "(with sentinels: redis+sentinel://s1:26379,s2:26379/mymaster/0), "
            "and write special characters of a password as %XX",
        ) from None
