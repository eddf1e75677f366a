"""The private server of a test process, and settings with all connections on it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from django.conf import settings as django_settings

from ..embedded import EmbeddedServer

#: Long enough for a busy machine.
TIMEOUT_S = 15
#: Options that belong to the servers of the settings; the private one has no users, certificates or replicas.
OF_SERVERS = ("URL", "CACHE", "EMBEDDED", "OPTIONS", "CREDENTIAL_PROVIDER", "DURABILITY")


def started_url() -> str | None:
    """Return the URL of this process's server; None if it was not started."""
    return private_server_url() if private_server_url.cache_info().currsize else None


@cache
def private_server_url() -> str:
    """Start this process's server unless it is running, and return its URL. It stops when the process ends."""
    directory = tempfile.mkdtemp(prefix="rsmq-tests-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            server.release()
            shutil.rmtree(directory, ignore_errors=True)

    server = EmbeddedServer(directory)
    atexit.register(remove)
    return server.ensure()


def settings_on_private_server() -> dict[str, Any]:
    """Return settings.RSMQ with the connections on the private server, a database each.

    Senders wait for no replicas, and unknown tasks for no other worker; otherwise they are unchanged.
    """
    given: Mapping[str, Any] = getattr(django_settings, "RSMQ", {})
    connections = {}
    for number, (alias, options) in enumerate(given.get("CONNECTIONS", {"default": {}}).items()):
        url = f"{private_server_url()}?db={number}"
        connections[alias] = {**_without(OF_SERVERS, options), "URL": url, "TIMEOUT_S": TIMEOUT_S}
    # There are no other workers that could know an unknown task.
    tasks = {**given.get("TASKS", {}), "UNKNOWN_TASK_GRACE_S": 0}
    queues = given.get("QUEUES", {"default": {}})
    queues = {name: _without(OF_SERVERS, options) for name, options in queues.items()}
    return {**given, "CONNECTIONS": connections, "QUEUES": queues, "TASKS": tasks}


def _without(keys: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in keys}
