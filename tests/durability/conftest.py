"""A primary with one replica, shared by the tests of a module; each test has a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from tests.replicated_server import ReplicatedServer
from tests.support import wait_until
from tests.worker.workshop import own_registries, patient_workers  # noqa: F401

#: Longer than any pause of a busy machine: only a test that stops the replica waits for the end of a timeout.
PATIENT_S = 20.0
#: For waits that must fail.
SHORT_S = 0.05

_numbers = itertools.count(1)

Use = Callable[..., None]


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedServer]:
    server = ReplicatedServer(
        tmp_path_factory.mktemp("servers") / "primary", "--appendonly", "yes", "--appendfsync", "always"
    )
    yield server
    server.kill()


@pytest.fixture(scope="module")
def only_replica(tmp_path_factory: pytest.TempPathFactory, primary: ReplicatedServer) -> Iterator[ReplicatedServer]:
    server = ReplicatedServer(
        tmp_path_factory.mktemp("servers") / "replica", "--appendonly", "yes", "--appendfsync", "always"
    )
    server.follow(primary)
    yield server
    server.kill()


@pytest.fixture
def replica(only_replica: ReplicatedServer, primary: ReplicatedServer) -> Iterator[ReplicatedServer]:
    """The replica, which has all the data of the primary at the start and the end of each test."""
    _catch_up(primary)
    yield only_replica
    only_replica.go_on()
    _catch_up(primary)


def _catch_up(primary: ReplicatedServer) -> None:
    def is_level() -> bool:
        with primary.redis.client() as connection:
            connection.set("catching up", "")
            return bool(connection.wait(1, 100))

    wait_until(is_level)


@pytest.fixture
def namespace() -> str:
    return f"ns{next(_numbers)}"


@pytest.fixture
def client(primary: ReplicatedServer, namespace: str) -> Iterator[Client]:
    connection = Connection(primary.url, timeout_s=60)
    yield Client(connection, namespace=namespace)
    connection.close()


@pytest.fixture
def use(settings: Any, namespace: str, primary: ReplicatedServer) -> Use:
    """The function that writes the settings of a project on the primary, with a DURABILITY of its connection."""

    def write(
        durability: object = None,
        *,
        url: str = primary.url,
        queues: dict[str, Any] | None = None,
        on_commit: bool | str = False,
        **sections: Any,
    ) -> None:
        connection = {"URL": url, "TIMEOUT_S": 60, "NAMESPACE": namespace, "DURABILITY": durability}
        settings.RSMQ = {
            "CONNECTIONS": {"default": connection},
            "QUEUES": queues or {"default": {}},
            "TASKS": {"ENQUEUE_ON_COMMIT": on_commit, "UNKNOWN_TASK_GRACE_S": 0},
            **sections,
        }

    return write
