"""Questions to the server, and which of them its user may not ask. A refusal is noted, never raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import redis

from ..call import Call
from ..client import Client
from ..errors import PermissionDenied, RsmqError
from .catalogue import found
from .finding import Finding

T = TypeVar("T")

#: So many queues are looked at in one round trip.
CALLS_AT_A_TIME = 100


class Probe:
    """One client, and what could not be asked with it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._refused: dict[str, str] = {}

    def ask(self, *command: str | int, about: str | None) -> Any | None:
        """Return the reply to a plain command, or None when the server refuses it.

        The refusal is a finding that names what it is about, unless that is None.
        """
        (reply,) = self.client.connection.exchange([command])
        if isinstance(reply, redis.ResponseError):
            if about is not None:
                self._refused.setdefault(about, f"{command[0]}: {reply}")
            return None
        return reply

    def run(self, call: Call[T], *, about: str) -> T | None:
        """Return what a script call reads, or None when the server's user may not run it."""
        return next(self.run_many([call], about=about))

    def run_many(self, calls: Sequence[Call[T]], *, about: str) -> Iterator[T | None]:
        """Yield what each call reads, None for those that the server's user may not run."""
        for first in range(0, len(calls), CALLS_AT_A_TIME):
            for result in self.client.run_many(calls[first : first + CALLS_AT_A_TIME]):
                if isinstance(result, PermissionDenied):
                    self._refused.setdefault(about, str(result))
                    yield None
                elif isinstance(result, RsmqError):
                    raise result
                else:
                    yield result

    def findings(self) -> list[Finding]:
        """Return what could not be looked at."""
        return [found("not-allowed", about, f"not allowed to look: {said}") for about, said in self._refused.items()]
