"""The private server of a test process, and the project's settings with all connections on it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.conf import settings as django_settings

from ..embedded import EmbeddedServer

#: A database server of a busy machine must not fail a test.
TIMEOUT_S = 15


def started_url() -> str | None:
    """Return the URL of the server of this process; None when it was not started."""
    return private_server_url() if private_server_url.cache_info().currsize else None


@cache
def private_server_url() -> str:
    """Start the server of this process, unless it runs, and return its URL. It stops when the process ends."""
    directory = tempfile.mkdtemp(prefix="rsmq-tests-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a child made by fork
            server.release()
            shutil.rmtree(directory, ignore_errors=True)

    server = EmbeddedServer(directory)
    atexit.register(remove)
    return server.ensure()


def settings_on_private_server() -> dict[str, Any]:
    """Return settings.RSMQ with the connections on the private server, a database each, all else as it is."""
    given: Mapping[str, Any] = getattr(django_settings, "RSMQ", {})
    connections = {}
    for number, (alias, options) in enumerate(given.get("CONNECTIONS", {"default": {}}).items()):
        kept = {key: value for key, value in options.items() if key not in ("URL", "CACHE", "EMBEDDED")}
        connections[alias] = {**kept, "URL": f"{private_server_url()}?db={number}", "TIMEOUT_S": TIMEOUT_S}
    # No other worker will ever know a task that this process does not know.
    tasks = {**given.get("TASKS", {}), "UNKNOWN_TASK_GRACE_S": 0}
    return {**given, "CONNECTIONS": connections, "TASKS": tasks}
