"""A credential provider whose password changes on the servers, as tokens that expire do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis.credentials import CredentialProvider

USER = "rotating"


class Vault(CredentialProvider):
    """A store of passwords that changes the password of the servers' user."""

    def __init__(self, server: Callable[..., Any], *others: Callable[..., Any]) -> None:
        #: Functions that run a command, one for each server.
        self._servers: Sequence[Callable[..., Any]] = (server, *others)
        self.asked = 0
        self.rotate("first")

    def rotate(self, password: str) -> None:
        """Change the password; open sockets go on."""
        self.password = password
        for run in self._servers:
            run("ACL", "SETUSER", USER, "reset", "on", f">{password}", "~*", "&*", "+@all")

    def cut_sockets(self) -> None:
        """Close the sockets of the user, as servers do when a token has expired."""
        for run in self._servers:
            run("CLIENT", "KILL", "USER", USER)

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return USER, self.password
