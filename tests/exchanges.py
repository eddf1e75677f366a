"""Exchanges with Redis in a test: noted, counted, and cut off on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.core.errors import ConnectionFailed, OutcomeUnknown
from rsmq_django.core.transport.packing import Command, Reply
from tests.redis_server import PrivateServer

NEVER = 10**9


class Exchanges:
    """Counts exchanges, and lets a fault happen after some of them."""

    def __init__(self, server: PrivateServer) -> None:
        self.count = 0
        #: After so many exchanges the server is at its memory limit, cannot be reached, or does not answer.
        self.full_after = self.gone_after = self.lost_after = NEVER
        #: How many replies are lost then.
        self.lost = NEVER
        self._server = server
        self._exchange, self._aexchange = Connection.exchange, Connection.aexchange
        self._begin_on, self._finish = Connection.begin, Connection.finish

    def begin_again(self) -> None:
        """Count from 0, without faults."""
        self.count, self.full_after, self.gone_after, self.lost_after, self.lost = 0, NEVER, NEVER, NEVER, NEVER
        self._server.redis.config_set("maxmemory", 0)

    def exchange(self, connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        """Take the place of Connection.exchange()."""
        self._begin()
        return self._end(self._exchange(connection, commands))

    async def aexchange(self, connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        """Take the place of Connection.aexchange()."""
        self._begin()
        return self._end(await self._aexchange(connection, commands))

    def begin(self, connection: Connection, request: bytes) -> Any | None:
        """Take the place of Connection.begin()."""
        if self.count >= self.gone_after:
            return None
        link = self._begin_on(connection, request)
        if link is not None:
            self._begin()
        return link

    def finish(self, connection: Connection, link: Any, commands: Sequence[Command]) -> list[Reply]:
        """Take the place of Connection.finish()."""
        return self._end(self._finish(connection, link, commands))

    def _begin(self) -> None:
        self.count += 1
        if self.count > self.full_after:
            self._server.redis.config_set("maxmemory", 1)
        if self.count > self.gone_after:
            raise ConnectionFailed("cannot connect; nothing was sent")

    def _end(self, replies: list[Reply]) -> list[Reply]:
        if self.count > self.lost_after and self.lost:
            self.lost -= 1
            raise OutcomeUnknown("did not answer") from TimeoutError()
        return replies


def note_connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Return the connections of the exchanges that follow, in their order."""
    seen: list[Connection] = []
    for name in ("exchange", "exchange_with_one_node"):
        original = getattr(Connection, name)

        def noted(connection: Connection, commands: Any, original: Any = original) -> Any:
            seen.append(connection)
            return original(connection, commands)

        monkeypatch.setattr(Connection, name, noted)
    return seen
