"""What random histories (test_stateful.py) have found, each as short as it can be."""

from __future__ import annotations

import asyncio

from rsmq_django.core import Client, Connection, Queue
from tests.redis_server import PrivateServer


def test_async_call_after_a_restart_works_although_its_loop_stood_still_meanwhile(server: PrivateServer, queue: Queue):
    ours = Queue("jobs", Client(Connection(server.url, timeout_s=10)))
    with asyncio.Runner() as loop:
        loop.run(ours.apop())

        server.restart()

        assert loop.run(ours.apop()) is None
