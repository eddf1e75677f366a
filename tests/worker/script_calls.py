"""Counts the calls of a script at a server."""

from __future__ import annotations

import threading

import redis

from rsmq_django.core.transport.call import load_script
from tests.redis_server import PrivateServer

_LAST = "that-is-all"


class ScriptCalls:
    """Counts the calls of a script while its `with` block runs."""

    def __init__(self, server: PrivateServer, script: str) -> None:
        self._redis = server.redis
        self._monitor = redis.Redis.from_url(server.url, socket_timeout=None).monitor()
        self._calls = f"EVALSHA {load_script(script).sha1}"
        self._reader = threading.Thread(target=self._count)
        self.count = 0

    def __enter__(self) -> ScriptCalls:
        self._monitor.__enter__()
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._redis.echo(_LAST)
        self._reader.join()
        self._monitor.__exit__()

    def _count(self) -> None:
        for command in self._monitor.listen():
            if command["command"].endswith(_LAST):
                return
            self.count += command["command"].startswith(self._calls)
