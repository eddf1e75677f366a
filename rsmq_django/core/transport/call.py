"""A Redis operation as data: which script or command, with what, and how to read the reply.

Nothing here talks to Redis, so one call serves the sync client, the async client and a batch of both kinds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)
Argument = str | bytes | int

_CORE = resources.files("rsmq_django.core")
#: Page with the rights that each role needs.
RULES_PAGE = "docs/how-to/acl.md"
_CALL = re.compile(r"redis\.p?call\(\s*[\"'](\w+)")
_COMMENT = re.compile(r"--[^\n]*")
#: Subcommands that scripts call.
_SUBCOMMANDS = {"memory": "memory|usage", "xgroup": "xgroup|create", "xinfo": "xinfo|stream"}
_INCLUDE = re.compile(r"^--#include (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Call(Generic[T_co]):
    """One call of a script or of a command.

    `repeatable` says that carrying it out twice has the same effect as once, so that a lost reply may be answered by
    sending it again.
    """

    #: The name of a script (script_path() says where it is), or a command in capitals, whose keys come first.
    script: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    #: Turns the raw reply (bytes, int, flat list) into one of our records.
    read: Callable[[Any], T_co]
    repeatable: bool = False
    #: Subject of the call for error messages: a queue's name.
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """The text of a script and the digest under which a server remembers it."""

    source: bytes
    sha1: str


def script_path(name: str) -> str:
    """Return the path of a script below core/: queue/lua/send.lua for "queue/send".

    What several structures include, such as "parts/clock", is in lua/parts.
    """
    folder, _, rest = name.partition("/")
    return f"lua/{name}.lua" if folder == "parts" else f"{folder}/lua/{rest}.lua"


@cache
def load_script(name: str) -> Script:
    """Read the Lua of one operation, with the files it includes put in place."""
    source = _lua(name)
    return Script(source.encode(), hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _lua(name: str) -> str:
    text = _CORE.joinpath(script_path(name)).read_text("utf-8")
    return _INCLUDE.sub(lambda match: _lua(match[1]), text)


@cache
def commands_of_script(name: str) -> tuple[str, ...]:
    """Return the commands in the text of a script with what it includes."""
    text = _COMMENT.sub("", load_script(name).source.decode())
    found = {command.lower() for command in _CALL.findall(text)}
    return tuple(sorted(_SUBCOMMANDS.get(command, command) for command in found))
