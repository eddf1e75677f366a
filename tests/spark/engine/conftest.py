"""One Spark session for all tests that start the engine."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.spark.session import start_session
from tests.redis_server import URL, PrivateServer
from tests.spark.engine.quick import QUICK


@pytest.fixture(scope="session")
def _session(_server_of_this_process: PrivateServer) -> Iterator[Any]:
    os.environ["RSMQ_REDIS_URL"] = URL
    session = start_session("local[2]", conf=QUICK)
    yield session
    session.stop()


@pytest.fixture
def spark(_session: Any, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session, and an empty server behind it."""
    # A pipeline that runs in this process sets it to the address of that test.
    monkeypatch.setenv("RSMQ_REDIS_URL", URL)
    return _session
