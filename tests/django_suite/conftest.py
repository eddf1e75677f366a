"""The project that Django's own tests run in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.redis_server import PrivateServer


@pytest.fixture(autouse=True)
def _project_of_the_suite(settings: Any, server: PrivateServer) -> None:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {name: {} for name in ("default", "queue_1", "queue-2", "unknown_queue")},
        # Django's tests have no transactions and no retries.
        "TASKS": {"ENQUEUE_ON_COMMIT": False, "MAX_ATTEMPTS": 1},
    }
