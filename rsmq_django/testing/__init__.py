"""Test support for projects: real queues on a private server, with tasks run in the thread of the test.

Nothing is faked: calls are sent, retried and dead-lettered as in production. Nothing here needs pytest: the
fixture is in `pytest_plugin.py`. The tests of this project are not part of the package (`tests/`).
"""

from .enqueued import DeadLetter, Enqueued, get_client_of
from .kit import Kit, private_kit, private_queues
from .running import Run
from .server import private_server_url, settings_on_private_server
from .topics import TopicRun

__all__ = [
    "DeadLetter",
    "Enqueued",
    "Kit",
    "Run",
    "TopicRun",
    "get_client_of",
    "private_kit",
    "private_queues",
    "private_server_url",
    "settings_on_private_server",
]
