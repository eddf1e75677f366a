"""A kit for the tests of a project: real queues on a private server, tasks run in the thread of the test.

With pytest, ask for the fixture `rsmq`; with unittest, write `self.rsmq = self.enterContext(private_queues())` in
`setUp`. Either way the settings' connections lead to an empty server of this process until the test ends, whatever
they say, and nothing is replaced by a fake: calls are sent, fetched, retried and buried as in production.

Knows nothing of pytest: `pytest_plugin.py` does. docs/testing.md teaches it. `kit.py` is what a test does, `running.py`
runs messages and `topics.py` those of topics, `waiting.py` looks at messages in queues, `commits.py` makes the commit
that a TestCase never makes, `server.py` is the private server, and `refusal.py` refuses the others.
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
