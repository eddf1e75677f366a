"""The Redis server of the pipeline, with retries: a job of an hour must survive a restart.

Lost connections, servers that load their data and failovers are retried for `patience_s`; calls that are not safe to
repeat are not repeated. Other errors of `core.errors` are raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis

from ..core import Client, Connection
from ..core.errors import ConnectionFailed, OutcomeUnknown, QueueFull, ServerRefused
from ..core.transport.call import Call
from ..core.transport.client import as_our_error
from ..core.transport.packing import Command, Reply

T = TypeVar("T")

#: Errors after which a server has been waited for.
NO_ANSWER = (ConnectionFailed, OutcomeUnknown)
#: Long enough for a chunk of a thousand large bodies on a busy machine.
REPLY_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


class Server:
    """Runs calls and plain reading commands on one server, in one namespace."""

    def __init__(self, url: str, *, namespace: str, patience_s: float = 30.0, credential_provider: Any = None) -> None:
        connection = Connection(
            url, timeout_s=REPLY_TIMEOUT_S, credential_provider=credential_provider, role="pipeline"
        )
        self.client = Client(connection, namespace=namespace)
        self.patience_s = patience_s

    @property
    def url(self) -> str:
        """Return the address, with its password."""
        return self.client.connection.url

    @property
    def namespace(self) -> str:
        """Return the namespace of the queues."""
        return self.client.namespace

    def run(self, call: Call[T]) -> T:
        """Return the result of a call."""
        return self._patiently(lambda: self.client.run(call), repeatable=call.repeatable)

    def ask(self, *commands: Command) -> list[Reply]:
        """Return the replies to read-only commands, sent in one round trip."""
        replies = self._patiently(lambda: self._exchange(commands), repeatable=True)
        return list(replies)

    def ask_one(self, *command: str | bytes | int) -> Reply:
        """Return the reply to a read-only command."""
        return self.ask(command)[0]

    def now_us(self) -> int:
        """Return the server's time in epoch microseconds."""
        seconds, micros = self.ask_one("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def close(self) -> None:
        """Close the idle sockets."""
        self.client.connection.close()

    def _exchange(self, commands: tuple[Command, ...]) -> list[Reply]:
        replies = self.client.connection.exchange(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, redis.RedisError):
                raise as_our_error(_as_call(command), reply)
        return replies

    def _patiently(self, attempt: Callable[[], T], *, repeatable: bool) -> T:
        deadline, pause_s = time.monotonic() + self.patience_s, FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except (ConnectionFailed, OutcomeUnknown, ServerRefused) as error:
                is_hopeless = isinstance(error, QueueFull) or (isinstance(error, OutcomeUnknown) and not repeatable)
                if is_hopeless or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _as_call(command: Command) -> Call[Any]:
    return Call(str(command[0]), tuple(map(str, command[1:2])), (), lambda reply: reply)
