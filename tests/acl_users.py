"""Users of the test server with exactly the rights of a role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rsmq_django.core.acl import rules
from tests.redis_server import PrivateServer

TOPICS = ("orders",)
UserOf = Callable[[str], str]


@contextmanager
def user_of(server: PrivateServer, role: str, *, without: str = "") -> Iterator[str]:
    """Yield the address of a user of the role, who lacks the commands `without`; no command may be refused."""
    words = [word for group in rules(role, topics=TOPICS) for word in group]
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
    """Make the user of a role and return its address; the test fails if the server refused it anything."""
    with ExitStack() as users:
        yield lambda role: users.enter_context(user_of(server, role))
