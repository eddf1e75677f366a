"""Durability: how many replicas or disks must have a write before a call returns, and the client that waits for them.

WAIT and WAITAOF travel behind the calls in the same request, on the same socket: they wait for the writes of that
socket. The wait costs time, and no round trip. It blocks this socket only, not the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import redis

from ..errors import InvalidValue, NotConfirmed, RsmqError, without_claims
from ..keys import confirm_key
from .call import Call
from .client import Client, PreparedCall, by_digest, raise_or_return
from .packing import Command, Reply, Request

T = TypeVar("T")
Fsync = Literal["local", "replicas"]

#: Command that waits for disks, of Redis 7.2 and Valkey.
DISK_COMMAND = "WAITAOF"
MOST_REPLICAS = 100
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.01, 30.0
#: Largest share of the connection's timeout that a wait may take: the reply has to arrive before the socket gives up.
SHARE_OF_TIMEOUT = 0.8
#: How long the key of confirm() exists.
CONFIRM_TTL_MS = 60_000


@dataclass(frozen=True)
class Durability:
    """What a call waits for: `replicas` that have its writes, and disks that have them.

    `fsync` is "local" (the append-only file of the server), "replicas" (those of `replicas` replicas) or None. When
    that is not confirmed within `timeout_s`, the call raises NotConfirmed: its writes are stored on the server only.
    """

    replicas: int = 0
    fsync: Fsync | None = None
    timeout_s: float = 0.5

    def __post_init__(self) -> None:
        if type(self.replicas) is not int or not 0 <= self.replicas <= MOST_REPLICAS:
            raise InvalidValue(f"replicas is {self.replicas!r}; it must be a whole number from 0 to {MOST_REPLICAS}")
        if self.fsync not in (None, "local", "replicas"):
            raise InvalidValue(f"fsync is {self.fsync!r}; it must be 'local', 'replicas' or None")
        if type(self.timeout_s) not in (int, float) or not LEAST_TIMEOUT_S <= self.timeout_s <= MOST_TIMEOUT_S:
            limits = f"{LEAST_TIMEOUT_S:g} to {MOST_TIMEOUT_S:g}"
            raise InvalidValue(f"timeout_s is {self.timeout_s!r}; it must be {limits} seconds")
        if not self.replicas and self.fsync != "local":
            raise InvalidValue("this durability waits for nothing; set replicas to at least 1, or fsync to 'local'")

    def check_fits(self, timeout_s: float) -> None:
        """Raise InvalidValue if a connection with this timeout would give up before the wait is over."""
        most = most_wait_s(timeout_s)
        if self.timeout_s > most:
            raise InvalidValue(
                f"the durability waits for {self.timeout_s:g} s; with the connection's timeout of {timeout_s:g} s it "
                f"may wait for {most:g} s at most"
            )

    def waits(self) -> list[Call[str]]:
        """Return the calls that wait; each returns the missing confirmation, or "" when all is confirmed."""
        replicas, milliseconds = self.replicas, max(1, round(self.timeout_s * 1000))
        waits = []
        if replicas and self.fsync != "replicas":
            waits.append(_wait("WAIT", (replicas, milliseconds), lambda count: _missing(count, replicas, "replica")))
        if self.fsync == "local":
            words, disk = (1, 0, milliseconds), "disk of the server"
            waits.append(_wait(DISK_COMMAND, words, lambda counts: _missing(counts[0], 1, disk)))
        if self.fsync == "replicas":
            words = (0, replicas, milliseconds)
            waits.append(_wait(DISK_COMMAND, words, lambda counts: _missing(counts[1], replicas, "disk of a replica")))
        return waits


def most_wait_s(timeout_s: float) -> float:
    """Return the longest possible wait for confirmations on a connection with this timeout."""
    return round(timeout_s * SHARE_OF_TIMEOUT, 3)


def why_not_confirmed(answers: Sequence[str | RsmqError]) -> str:
    """Return why writes are not confirmed, from the results of waits(); "" when they are."""
    reasons = []
    for answer in answers:
        if isinstance(answer, RsmqError):
            cause = str(answer.__cause__ or answer).rstrip(".")
            if "unknown command" in cause.lower():
                cause = f"{cause} (WAITAOF needs Redis 7.2 or Valkey)"
            reasons.append(f"the server refused to wait: {cause}")
        elif answer:
            reasons.append(answer)
    return " and ".join(reasons)


class DurableClient(Client):
    """Runs calls like another client, on the same sockets, and returns when replicas or disks have their writes.

    Otherwise it raises NotConfirmed, with the results of the calls.
    """

    def __init__(self, client: Client, durability: Durability) -> None:
        durability.check_fits(client.connection.timeout_s)
        super().__init__(client.connection, namespace=client.namespace)
        self.durability = durability
        self._waits: list[Call[Any]] = [*durability.waits()]
        self._wait_commands = [by_digest(wait) for wait in self._waits]

    def run(self, call: Call[T]) -> T:
        """See Client.run(). Raises NotConfirmed, too."""
        return raise_or_return(self.run_many([call])[0])

    async def arun(self, call: Call[T]) -> T:
        """See run()."""
        return raise_or_return((await self.arun_many([call]))[0])

    def run_prepared(self, prepared: PreparedCall[T], keys: Sequence[bytes], args: Sequence[bytes]) -> T:
        """See Client.run_prepared(). Raises NotConfirmed, too."""
        request: list[Request] = [prepared.request(keys, args), *self._wait_commands]
        reply, *answers = self._exchange(request, prepared.call.repeatable)
        if isinstance(reply, redis.RedisError):
            return raise_or_return(self._results([prepared.whole(keys, args)], [reply, *answers])[0])
        result = prepared.call.read(reply)
        self._check([result], self.read_many(self._waits, answers))
        return result

    def run_many(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        """See Client.run_many(). Raises NotConfirmed, too, unless all calls were refused."""
        results: list[Any] = super().run_many([*calls, *self._waits])
        return self._checked(results, len(calls))

    async def arun_many(self, calls: Sequence[Call[T]]) -> list[T | RsmqError]:
        """See run_many()."""
        results: list[Any] = await super().arun_many([*calls, *self._waits])
        return self._checked(results, len(calls))

    def _exchange(self, commands: Sequence[Request], repeatable: bool) -> list[Reply]:
        # Never repeated after a lost reply: the repeat may write nothing, so that its socket waits for nothing.
        return super()._exchange(commands, False)

    async def _aexchange(self, commands: list[Command], repeatable: bool) -> list[Reply]:
        return await super()._aexchange(commands, False)

    def confirm(self) -> None:
        """Wait until everything that any client wrote to this server before is confirmed. Raises NotConfirmed."""
        with self._confirming():
            self.run(self._covering_write())

    async def aconfirm(self) -> None:
        """See confirm()."""
        with self._confirming():
            await self.arun(self._covering_write())

    @contextmanager
    def _confirming(self) -> Iterator[None]:
        """Raise NotConfirmed for each error, also one that says that nothing was done: the writes came before."""
        try:
            yield
        except NotConfirmed:
            raise
        except RsmqError as error:
            raise NotConfirmed(
                f"earlier writes on {self.connection!r} are not confirmed, a failover may have lost them: "
                f"{without_claims(error)}"
            ) from error

    def _covering_write(self) -> Call[object]:
        # A server waits for the writes of the socket; replicas get all writes in order, so this one is the last.
        args = (b"", "PX", CONFIRM_TTL_MS)
        return Call("SET", (confirm_key(self.namespace),), args, lambda reply: reply, repeatable=True)

    def _results(self, calls: Sequence[Call[T]], replies: list[Reply]) -> list[T | RsmqError]:
        return self._checked(self.read_many([*calls, *self._waits], replies), len(calls))

    def _checked(self, results: list[Any], count: int) -> list[Any]:
        self._check(results[:count], results[count:])
        return results[:count]

    def _check(self, results: Sequence[Any], answers: Sequence[Any]) -> None:
        missing = why_not_confirmed(answers)
        if missing and not all(isinstance(result, RsmqError) for result in results):
            raise NotConfirmed(
                f"stored on {self.connection!r}, but not confirmed within {self.durability.timeout_s:g} s: {missing}; "
                "a failover may lose it",
                results=results,
                message_ids=list(_texts(results)),
            )


def _texts(results: Sequence[Any]) -> Iterator[str]:
    """Yield the ids among results: calls that send return an id, or a list of ids."""
    for result in results:
        ids = [result] if isinstance(result, str) else result
        if isinstance(ids, list):
            yield from (each for each in ids if isinstance(each, str))


def _wait(command: str, args: tuple[int, ...], read: Any) -> Call[str]:
    return Call(command, (), args, read, repeatable=True)


def _missing(count: int, needed: int, what: str) -> str:
    return "" if int(count) >= needed else f"{count} of {needed} {what if needed == 1 else _plural(what)}"


def _plural(what: str) -> str:
    first, _, rest = what.partition(" ")
    return f"{first}s {rest}".rstrip()
