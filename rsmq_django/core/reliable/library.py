"""The scripts of reliable queues as a library of Redis functions, which any language can call by name.

The library is built from the files that `ReliableQueue` runs; a function accepts the keys and arguments listed at the
top of its file, and replies like the RedisRQ command. Needs Redis 7 or Valkey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis

from ..errors import PermissionDenied, ServerRefused
from ..transport.call import load_script
from ..transport.client import Client
from ..transport.packing import Reply

LIBRARY = "rsmq_reliable"


@dataclass(frozen=True, slots=True)
class Function:
    """A function: a script, and the format of its reply."""

    #: Name of the script below reliable/lua; the function has the prefix "rq_".
    script: str
    #: Reading functions run on replicas, too; deleting functions at the memory limit.
    flag: str = ""
    #: The rows of the reply, as arguments of rows() in parts/library.lua; None for an unchanged reply.
    rows: str | None = None

    @property
    def name(self) -> str:
        """Return the name for other programs."""
        return f"rq_{self.script}"


_INSPECTED = 'ARGV[1] == "undelivered" and 2 or 5'
FUNCTIONS = (
    Function("push"),
    Function("pop", "allow-oom", "5, 5, 3"),
    Function("ack", "allow-oom"),
    Function("recover", "allow-oom", "2, 4, 2"),
    Function("inspect", "no-writes", f"1, 7, {_INSPECTED}"),
    Function("info", "no-writes"),
    Function("nack", "allow-oom"),
    Function("extend", "allow-oom"),
    Function("bury", "allow-oom"),
    Function("configure", "allow-oom"),
    Function("redrive", "allow-oom"),
    Function("discard", "allow-oom"),
    Function("move", "allow-oom", "1, 2, 2"),
    Function("statistics", "no-writes"),
    Function("delete_queue", "allow-oom"),
)


def library_source() -> str:
    """Return the text for FUNCTION LOAD."""
    parts = [f"#!lua name={LIBRARY}\n", load_script("reliable/parts/library").source.decode()]
    return "\n".join([*parts, *map(_function_source, FUNCTIONS)])


def _function_source(function: Function) -> str:
    body = load_script(f"reliable/{function.script}").source.decode()
    answer = f"rows({function.name}(KEYS, ARGV), {function.rows})" if function.rows else f"{function.name}(KEYS, ARGV)"
    flags = f'"{function.flag}"' if function.flag else ""
    return (
        f"local function {function.name}(KEYS, ARGV)\n{body}\nend\n"
        f'redis.register_function{{function_name = "{function.name}", flags = {{{flags}}},\n'
        f"  callback = function(KEYS, ARGV) return {answer} end}}\n"
    )


def load_functions(client: Client) -> list[str]:
    """Load the library into the server, replacing an earlier release, and return the names of its functions.

    The server stores it like data: in its files and on its replicas. Raises ServerRefused before Redis 7,
    PermissionDenied.
    """
    return _read_loaded(client.connection.exchange([_load_command()]))


async def aload_functions(client: Client) -> list[str]:
    """See load_functions()."""
    return _read_loaded(await client.connection.aexchange([_load_command()]))


def _load_command() -> tuple[str, ...]:
    return ("FUNCTION", "LOAD", "REPLACE", library_source())


def _read_loaded(replies: Sequence[Reply]) -> list[str]:
    (reply,) = replies
    if isinstance(reply, redis.exceptions.NoPermissionError):
        raise PermissionDenied(f"the server's user may not load functions ({reply}); ask for +function|load") from reply
    if isinstance(reply, redis.RedisError) and "unknown command" in str(reply):
        raise ServerRefused(
            "Redis Functions need Redis 7 or Valkey: upgrade the server; ReliableQueue works without them"
        ) from reply
    if isinstance(reply, redis.RedisError):
        raise ServerRefused(f"the server did not load the functions ({reply}); it must be Redis 7 or Valkey") from reply
    return [function.name for function in FUNCTIONS]
