"""Run any tests as the user of a role, to find what the role may not do.

    RSMQ_TEST_ROLE=worker python -m pytest -p tests.as_role tests/worker/lease

The server of each test has a user with the commands of the role, on all keys and channels, and the tests get its
address. A test during which the server refused that user a command fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rsmq_django.core.acl import commands_of
from tests import redis_server
from tests.redis_server import PrivateServer

ROLE = os.environ["RSMQ_TEST_ROLE"]
#: Without it, the role lacks the commands that only topics need.
HAS_TOPICS = "RSMQ_TEST_TOPICS" in os.environ
#: Commands for what the tests prepare as the same user.
MORE = os.environ.get("RSMQ_TEST_MORE_COMMANDS", "").split()

_begin_test, _init = PrivateServer.begin_test, PrivateServer.__init__


def _init_without_user(server: PrivateServer) -> None:
    _init(server)
    server.redis = redis.Redis.from_url(f"unix://{redis_server.SOCKET}", socket_timeout=60)


def _begin_test_with_user(server: PrivateServer) -> None:
    _begin_test(server)
    commands = [*commands_of(ROLE, has_topics=HAS_TOPICS), *MORE]
    rules = ("reset", "on", ">secret", "~*", "&*", *(f"+{command}" for command in commands))
    server.redis.execute_command("ACL", "SETUSER", ROLE, *rules)
    server.redis.execute_command("ACL", "LOG", "RESET")


def _url_of_the_user(server: PrivateServer) -> str:
    return f"unix://{ROLE}:secret@{server._address}"


PrivateServer.__init__ = _init_without_user  # type: ignore[method-assign,assignment]
PrivateServer.begin_test = _begin_test_with_user  # type: ignore[method-assign,assignment]
PrivateServer.url = property(_url_of_the_user)  # type: ignore[assignment,method-assign]
redis_server.URL = redis_server.URL.replace("unix://", f"unix://{ROLE}:secret@")


@pytest.fixture(autouse=True)
def _no_command_is_refused(server: PrivateServer) -> Iterator[None]:
    yield
    entries: list[dict[str, Any]] = server.redis.acl_log()
    refused = {entry["object"] for entry in entries if entry["username"] == ROLE}
    assert not refused, f"the role {ROLE} may not run {', '.join(sorted(refused))}"
