"""A lock for one run at a time. It avoids wasted work; correctness does not depend on it.

The lock of a crashed run expires after a minute.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from types import TracebackType

from ..core.errors import RedisFailure
from ..core.keys import run_lock_key
from ..core.transport.call import Call
from .errors import AlreadyRunning
from .server import Server

LOCK_TTL_S = 60.0
RENEW_EVERY_S = 20.0


class RunLock:
    """Held while the `with` block runs, renewed by a thread."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.key = run_lock_key(server.namespace, hashlib.sha256(name.encode()).hexdigest()[:16])
        self._server = server
        self._token = uuid.uuid4().hex
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True, name="pipeline-lock")

    def __enter__(self) -> RunLock:
        if not self._take():
            raise AlreadyRunning(f"another run of {self.name} is active; wait for it, or for a minute if it was killed")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        try:
            self._server.run(Call("queue/bulk/unlock", (self.key,), (self._token,), int, repeatable=True))
        except RedisFailure:
            pass  # the lock expires in a minute; an error here must not hide one in the block

    def _take(self) -> bool:
        args = (self._token, int(LOCK_TTL_S * 1000))
        return self._server.run(Call("queue/bulk/lock", (self.key,), args, bool, repeatable=True))

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_EVERY_S):
            try:
                self._take()
            except RedisFailure:
                continue  # the server is unavailable; a second run meanwhile does no harm
