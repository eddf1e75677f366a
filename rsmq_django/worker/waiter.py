"""Where the worker's main thread sleeps: until a time, a finished task, a published message, or a signal."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis

from ..core import Client, RsmqError
from ..core.errors import ConnectionFailed
from .outage import Outage

logger = logging.getLogger(__name__)


class Waiter:
    """Sleeps on a pipe that any thread, and the arrival of any signal, can write to."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._is_asleep = False
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, descriptor: int, on_ready: Callable[[], None]) -> None:
        """Let a file descriptor that can be read end one sleep, and call `on_ready` then."""
        self._watched[descriptor] = on_ready

    def watch_signals(self) -> None:
        """Let signals end a sleep. Only the main thread may ask for it."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wake(self) -> None:
        """End the current sleep; free when nobody sleeps."""
        if self._is_asleep:
            self._is_asleep = False
            with contextlib.suppress(BlockingIOError):  # the pipe is full of reasons to wake up
                os.write(self._writer, b".")

    def sleep(self, until: Callable[[], float | None], *, at_most_s: float) -> None:
        """Sleep until a monotonic time. `until` is asked after falling asleep, so that no wake-up can be missed."""
        self._is_asleep = True
        try:
            when = until()
            seconds = at_most_s if when is None else min(at_most_s, when - time.monotonic())
            ready = select.select([self._reader, *self._watched], [], [], seconds)[0] if seconds > 0 else []
        finally:
            self._is_asleep = False
        if self._reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
        for descriptor in ready:
            if descriptor in self._watched:
                self._watched.pop(descriptor)()  # once: a pipe without a writer stays readable, and nobody could sleep

    def close(self) -> None:
        """Close the pipe."""
        with contextlib.suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)


class Subscription:
    """Listens on the realtime channels of some queues, on a thread and a socket of its own.

    Publishing is only a hint: RSMQ publishes nothing when a delay or a lease runs out, and not every sender publishes.
    So the worker polls as well, and when this socket breaks nothing is lost, only later.
    """

    def __init__(self, client: Client, channels: Sequence[str], *, on_publish: Callable[[], None]) -> None:
        self._client = client
        self._channels = list(channels)
        self._on_publish = on_publish
        self._stopping = threading.Event()
        self._outage = Outage(f"wake-ups from {client.connection!r}")
        self._thread = threading.Thread(target=self._listen, name="rsmq-wake-up", daemon=True)

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; returns when the thread has ended or after two seconds."""
        self._stopping.set()
        self._thread.join(2)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._client.connection.subscriber(self._channels) as subscriber:
                    self._outage.over()
                    self._on_publish()  # what was published while nobody listened
                    self._read(subscriber)
            except (redis.RedisError, OSError) as error:
                self._outage.note(ConnectionFailed(str(error)))
            except RsmqError as error:
                self._outage.note(error)
            self._stopping.wait(max(0.0, self._outage.next_try_at - time.monotonic()))

    def _read(self, subscriber: Any) -> None:
        while not self._stopping.is_set():
            # Short waits, so that the thread notices stop() soon.
            if subscriber.get_message(ignore_subscribe_messages=True, timeout=0.2) is not None:
                self._on_publish()
