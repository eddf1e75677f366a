"""Wakes an idle worker when a message is pushed to a reliable queue: takes the queue's token, on its own thread.

Only while the worker has room: a worker that takes a token must fetch, or put the token back by fetching nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import redis

from ...core import RsmqError
from ...core.backoff import ReconnectBackoff
from ...core.errors import ConnectionFailed
from ...core.reliable import ReliableQueue
from ...core.reliable.waiting import take_token, wake_keys

#: Maximum time of one blocking call; stop() waits for its end.
SLICE_S = 1.0
CALL_TIMEOUT_S = 5.0


class ReliableWakeUp:
    """Waits for a token of some queues of one connection after expect() was called."""

    def __init__(self, queues: Sequence[ReliableQueue], *, on_token: Callable[[], None]) -> None:
        self._first, *self._others = queues
        self._connection = self._first.client.connection.with_timeout(SLICE_S + CALL_TIMEOUT_S)
        self._command = take_token(wake_keys(self._first.pop_call(0, self._others).keys), SLICE_S)
        self._on_token = on_token
        self._is_expected = threading.Event()
        self._is_stopping = False
        self._backoff = ReconnectBackoff(f"wake-ups from {self._connection!r}", server=self._connection)
        self._thread = threading.Thread(target=self._wait, name="rsmq-reliable-wake-up", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits after expect() was called."""
        self._thread.start()

    def expect(self) -> None:
        """Wait for the next token: the worker has found no more messages, and has room."""
        self._is_expected.set()

    def stop(self) -> None:
        """Stop waiting; returns when the thread has ended or after two seconds."""
        self._is_stopping = True
        self._is_expected.set()
        self._thread.join(2 * SLICE_S)

    def _wait(self) -> None:
        while not self._is_stopping:
            self._is_expected.wait()
            if not self._is_stopping:
                self._try()
        self._connection.close()

    def _try(self) -> None:
        try:
            (reply,) = self._connection.exchange([self._command])
            if isinstance(reply, redis.RedisError):
                raise ConnectionFailed(str(reply))
        except RsmqError as error:
            self._backoff.note(error)
            time.sleep(max(0.0, min(SLICE_S, self._backoff.next_try_at - time.monotonic())))
            return
        self._backoff.over()
        if reply is None:
            return
        self._is_expected.clear()
        if self._is_stopping:
            self._put_back()
        else:
            self._on_token()

    def _put_back(self) -> None:
        try:
            self._first.client.run(self._first.pop_call(0, self._others))
        except RsmqError as error:  # other workers fetch within their poll interval anyway
            self._backoff.note(error)
