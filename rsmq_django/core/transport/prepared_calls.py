"""Calls that are packed in advance, and sent without waiting for their replies.

For a worker that always sends the same call after a wake-up: the request is a single system call. And for callers that
do other work until the replies arrive.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from .call import Call
from .client import Client, by_digest
from .packing import packed


class ReadiedCalls:
    """Calls to be sent once, together. Not shared between threads."""

    def __init__(self, client: Client, calls: Sequence[Call[Any]], *, loads: bool = False) -> None:
        """Pack the calls; with `loads` behind commands that load the scripts which the server may not have."""
        self._client = client
        self._calls = calls
        self._loads = client.loads(calls) if loads else []
        self._commands = [*self._loads, *map(by_digest, calls)]
        self._request = packed(self._commands)
        self._link: Any = None

    def send(self) -> bool:
        """Send the calls on an open socket; return False when there is none, and nothing was sent.

        Raises OutcomeUnknown when the socket broke meanwhile.
        """
        self._link = self._client.connection.begin(self._request)
        return self._link is not None

    def fileno(self) -> int:
        """Return the descriptor on which the replies arrive."""
        return int(self._link._sock.fileno())

    def give_up(self) -> NoReturn:
        """Close the socket instead of waiting any longer; raises OutcomeUnknown."""
        link, self._link = self._link, None
        self._client.connection.give_up(link)

    def results(self, *, overdue_at: float | None = None) -> list[Any]:
        """Wait for the replies and return what Client.run_many() does, with errors in their places; raises as it does.

        The first one has to arrive by a time of the monotonic clock, if one is given. Only calls whose scripts the
        server did not have are sent a second time.
        """
        if overdue_at is not None and not self._are_replies_there(overdue_at):
            self.give_up()
        link, self._link = self._link, None
        replies = self._client.connection.finish(link, self._commands)
        return self._client.read_many(self._calls, replies[len(self._loads) :])

    def _are_replies_there(self, until: float) -> bool:
        """Wait until replies arrive; return False if none has by this time."""
        arriving = select.poll()
        arriving.register(self.fileno(), select.POLLIN)
        return bool(arriving.poll(max(0, math.ceil((until - time.monotonic()) * 1000))))


class OneNodeCalls(ReadiedCalls):
    """Read-only calls in several namespaces, sent once and together to the server that has all of them."""

    def __init__(self, client: Client, calls: Sequence[Call[Any]]) -> None:
        super().__init__(client, calls, loads=True)

    def results(self, *, overdue_at: float | None = None) -> list[Any]:
        """Wait for the replies and return the result of each call, or its error: nothing is sent a second time.

        A call whose keys are on another node, for example, fails. Raises OutcomeUnknown.
        """
        link, self._link = self._link, None
        replies = self._client.connection.finish_with_one_node(link, len(self._commands))
        return self._client.read_once(self._calls, replies[len(self._loads) :])
