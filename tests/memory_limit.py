"""Every script call of a test is made twice: at the server's memory limit, and then, from the same state, with room.

Either it is refused there and has changed nothing, or it leaves behind what it leaves behind with room: the same keys,
as many entries in each, and an expiry or none. So whatever a test does shows that no script stops halfway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from rsmq_django.core.transport.call import load_script
from rsmq_django.core.transport.connection import Connection
from rsmq_django.core.transport.packing import Reply, Request
from tests.redis_server import PrivateServer
from tests.scripts import FILES

#: One script, so that no key expires between two looks at it.
_LOOK = """
local size = {hash = "HLEN", zset = "ZCARD", set = "SCARD", list = "LLEN", stream = "XLEN", string = "STRLEN"}
local keys, found = redis.call("KEYS", "*"), {}
table.sort(keys)
for n, key in ipairs(keys) do
  local kind = redis.call("TYPE", key).ok
  found[n] = {key, kind, redis.call(size[kind], key), redis.call("PTTL", key), redis.call("DUMP", key)}
end
return found
"""
#: Time passes between the two: a message becomes ready, a key expires. What does something else at the limit does it
#: each time.
MOST_TRIES = 20

State = dict[bytes, tuple[Any, ...]]


class MemoryLimit:
    """What happened to the scripts of a test at the limit."""

    def __init__(self, server: PrivateServer, exchange: Callable[..., list[Reply]]) -> None:
        self.worked: set[str] = set()
        self.refused: set[str] = set()
        self._redis = server.redis
        self._exchange = exchange
        self._lock = threading.Lock()
        self._names = {load_script(name).sha1: name for name in FILES}

    def exchange(self, connection: Connection, commands: list[Request]) -> list[Reply]:
        """Take the place of Connection.exchange()."""
        replies = []
        for command in commands:
            digest = digest_of(command)
            if digest is not None:
                with self._lock:
                    replies.append(self._twice(connection, command, self._names[digest]))
            else:
                replies += self._exchange(connection, [command])
        return replies

    def _twice(self, connection: Connection, command: Request, name: str) -> Reply:
        self._redis.script_load(load_script(name).source)
        contents = self._contents()
        for _ in range(MOST_TRIES):
            before = self._state()
            with full(self._redis):
                (reply,) = self._exchange(connection, [command])
            at_the_limit = self._state()
            self._restore(contents)
            (with_room,) = self._exchange(connection, [command])
            if at_the_limit == (before if is_refusal(reply) else self._state()):
                (self.refused if is_refusal(reply) else self.worked).add(name)
                return with_room
            self._restore(contents)
        raise AssertionError(f"{name} stops halfway or does something else at the limit: {reply!r}")

    def _look(self) -> list[Any]:
        return self._redis.eval(_LOOK, 0)  # type: ignore[no-any-return,unused-ignore]

    def _state(self) -> State:
        """Say of each key what type and size it has, and whether it expires."""
        return {key: (kind, size, ttl_ms > 0) for key, kind, size, ttl_ms, _ in self._look()}

    def _contents(self) -> list[tuple[Any, ...]]:
        return [("RESTORE", key, max(0, ttl_ms), dump) for key, _, _, ttl_ms, dump in self._look()]

    def _restore(self, contents: list[tuple[Any, ...]]) -> None:
        pipeline: Any = self._redis.pipeline(transaction=True)
        for command in [("FLUSHALL",), *contents]:
            pipeline.execute_command(*command)
        pipeline.execute()


def digest_of(command: Request) -> str | None:
    """Return the digest of the script that a command runs, None for another command; it may be packed already."""
    words = command.split(b"\r\n")[2:6:2] if isinstance(command, bytes) else command[:2]
    name, digest = (word.decode() if isinstance(word, bytes) else str(word) for word in (*words, b"")[:2])
    return digest if name == "EVALSHA" else None


def is_refusal(reply: Reply) -> bool:
    """Say whether the server has refused a script because of its memory limit."""
    return isinstance(reply, redis.RedisError) and ("OOM" in str(reply) or "maxmemory" in str(reply))


@contextmanager
def full(server: redis.Redis) -> Iterator[None]:
    """Let the server be at its memory limit."""
    server.config_set("maxmemory", 1)
    try:
        yield
    finally:
        server.config_set("maxmemory", 0)


@contextmanager
def looked_at(server: PrivateServer) -> Iterator[MemoryLimit]:
    """Make every script call of a block twice."""
    limit = MemoryLimit(server, Connection.exchange)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "exchange", lambda connection, commands: limit.exchange(connection, commands))
        patch.setattr(Connection, "begin", lambda *_: None)  # then it is sent by exchange()
        yield limit
