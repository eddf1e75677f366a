"""The first exchange of a new socket: credentials, then the names that `CLIENT LIST` shows.

redis-py authenticates and selects the database; a provider is asked for the credentials of each new socket. The names
take one round trip for each socket. A server or user without `CLIENT SETNAME` or `SETINFO` refuses them, which changes
nothing else.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import redis
from redis.credentials import CredentialProvider

from ..errors import InvalidValue

LIBRARY = "rsmq-django"
#: Not by an import statement: the core imports nothing outside of it, and this package is imported already.
_VERSION = str(import_module(__name__.partition(".")[0]).__version__)
#: Role of a process that runs another command than this package's: a web server or a shell.
APPLICATION = "app"
_LONGEST_HOST = 64

_process_role = APPLICATION

#: A function that packs commands, which connection.py has.
Pack = Callable[[list[tuple[str, ...]]], bytes]


def set_process_role(role: str) -> None:
    """Set the role in the names of all new sockets of this process, except those of connections with their own."""
    global _process_role
    _process_role = role


def connection_name(role: str | None) -> str:
    """Return the name of a socket: "rsmq:worker:web-3:4711". Spaces are not allowed in it."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:_LONGEST_HOST]
    return f"rsmq:{role or _process_role}:{host}:{os.getpid()}"


class CredentialsFailed(redis.ConnectionError):
    """A credential provider raised an error, or returned something else than credentials."""


class Credentials(CredentialProvider):
    """A credential provider whose errors are errors of the connection, so that they are handled as such."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return the password, or user and password, for a new socket. Raises CredentialsFailed."""
        try:
            found = self.provider.get_credentials()
        except Exception as error:
            raise self._failed(error) from error
        return self._checked(found)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """See get_credentials(). A provider without a coroutine of its own is called in a thread."""
        own = getattr(type(self.provider), "get_credentials_async", None)
        try:
            if own in (None, CredentialProvider.get_credentials_async):
                found = await asyncio.to_thread(self.provider.get_credentials)
            else:
                found = await self.provider.get_credentials_async()
        except Exception as error:
            raise self._failed(error) from error
        return self._checked(found)

    def _checked(self, found: Any) -> tuple[str] | tuple[str, str]:
        if isinstance(found, tuple) and len(found) in (1, 2) and all(isinstance(text, str) for text in found):
            return found
        raise CredentialsFailed(
            f"{_name(self.provider)} returned an object of type {type(found).__name__}; "
            "it must return (password,) or (user, password)"
        )

    def _failed(self, error: Exception) -> CredentialsFailed:
        return CredentialsFailed(f"{_name(self.provider)} failed: {type(error).__name__}: {error}")


def _name(provider: Any) -> str:
    return f"credential provider {type(provider).__module__}.{type(provider).__qualname__}"


def find_provider(given: Any) -> Any:
    """Return the credential provider for a dotted path, a class, a factory or an object. Raises InvalidValue."""
    try:
        found = given
        if isinstance(given, str):
            module, _, name = given.rpartition(".")
            found = getattr(import_module(module), name)
        if isinstance(found, type) or not hasattr(found, "get_credentials"):
            found = found()
    except Exception as error:  # code of the project is imported and called here
        raise InvalidValue(
            f"credential provider {given!r} cannot be created: {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(found, "get_credentials", None)):
        raise InvalidValue(f"credential provider {given!r} is an object without get_credentials()")
    return found


def greeting(pack: Pack, role: str | None) -> Callable[[Any], None]:
    """Return the function that redis-py calls with each new socket of a sync connection."""
    return partial(_greet, pack, role)


async def aintroduce(link: Any, pack: Pack, role: str | None) -> None:
    """Tell the server the name of a new socket of an async connection, which was prepared with leave_names_to_us().

    redis-py does not call this, as it does for sync ones: it asks asyncio whether it is given a coroutine function, and
    Python 3.14 answers with a DeprecationWarning.
    """
    names = _names(role)
    await link.send_packed_command([pack(names)], check_health=False)
    for _ in names:
        try:
            await link.read_response()
        except redis.ResponseError:
            pass  # refused: the socket stays without a name


def _greet(pack: Pack, role: str | None, link: Any) -> None:
    leave_names_to_us(link)
    link.on_connect()
    names = _names(role)
    link.send_packed_command([pack(names)], check_health=False)
    for _ in names:
        try:
            link.read_response()
        except redis.ResponseError:
            pass  # refused: the socket stays without a name


def _names(role: str | None) -> list[tuple[str, ...]]:
    return [
        ("CLIENT", "SETNAME", connection_name(role)),
        ("CLIENT", "SETINFO", "LIB-NAME", LIBRARY),
        ("CLIENT", "SETINFO", "LIB-VER", _VERSION),
    ]


def leave_names_to_us(link: Any) -> None:
    """Keep redis-py from sending its own name, in two more round trips. Releases differ in the attribute."""
    link.driver_info = link.lib_name = link.lib_version = None
