"""Users of the test server with exactly the rights of a role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from rsmq_django.core.acl import rules
from tests.redis_server import PrivateServer

TOPICS = ("orders",)
UserOf = Callable[..., str]


def version_of(server: PrivateServer) -> tuple[int, int]:
    """Return the release of Redis that the server is compatible with."""
    major, minor, *_ = str(server.redis.info("server")["redis_version"]).split(".")
    return int(major), int(minor)


def rules_for(server: PrivateServer, role: str, **options: Any) -> list[str]:
    """Return the rules of the role that this server knows."""
    return [word for group in rules(role, server_version=version_of(server), **options) for word in group]


@contextmanager
def user_of(
    server: PrivateServer, role: str, *, without: str = "", topics: Sequence[str] = (), has_shards: bool = False
) -> Iterator[str]:
    """Yield the address of a user of the role, who lacks the commands `without`; no command may be refused.

    With shards, the rules have the namespaces of all shards, as docs/how-to/shards.md writes them.
    """
    words = rules_for(server, role, topics=topics)
    if has_shards:
        words = [re.sub(r"^([~&])rsmq:", r"\1rsmq*:", word) for word in words]
    lacking = [f"-{command}" for command in without.split()]
    server.redis.execute_command("ACL", "SETUSER", f"rsmq-{role}", "reset", ">secret", *words, *lacking)
    server.redis.execute_command("ACL", "LOG", "RESET")
    try:
        yield server.url.replace("unix://", f"unix://rsmq-{role}:secret@")
        refused = [(entry["reason"], entry["object"], entry["context"]) for entry in server.redis.acl_log()]
        assert bool(refused) == bool(without), f"{role} was refused {refused}"
    finally:
        server.redis.execute_command("ACL", "DELUSER", f"rsmq-{role}")


@pytest.fixture
def user_with_role(server: PrivateServer) -> Iterator[UserOf]:
    """Make the user of a role and return its address; the test fails if the server refused it anything.

    Only a user with `topics=TOPICS` has topics, and the commands that only topics need.
    """
    with ExitStack() as users:
        yield lambda role, **options: users.enter_context(user_of(server, role, **options))
