"""Test support for projects: real queues on a private server, with tasks run in the thread of the test.

With pytest, use the fixture `rsmq`; with unittest, write `self.rsmq = self.enterContext(private_queues())` in `setUp`.
Until the test ends, all connections of the settings use an empty server of this process. Nothing is faked: calls are
sent, fetched, retried and dead-lettered as in production.

Independent of pytest, which `pytest_plugin.py` supports. See docs/testing.md. `kit.py` has the methods for tests,
`running.py` runs messages of queues, `topics.py` those of topics, `waiting.py` reads messages in queues, `commits.py`
runs on_commit hooks in a TestCase, `server.py` is the private server, and `refusal.py` rejects other servers.
"""

from .kit import Kit, private_kit, private_queues
from .running import Run
from .server import private_server_url, settings_on_private_server
from .topics import TopicRun
from .waiting import DeadLetter, Enqueued, get_client_of

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
