"""Wake-ups of the worker's main thread: it sleeps until a time, a finished task, a published message, or a signal."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Sequence

from ...core import Client, RsmqError
from ...core.errors import PermissionDenied
from ...core.keys import cancellations_channel
from ...core.log_lines import get_logger
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.listener import Listener
from .primary_watch import PrimaryWatch

logger = get_logger(__name__)

#: A subscription whose wake-ups are not needed is still read this often.
DRAIN_EVERY_S = 1.0
#: Missing permissions are not granted a moment later; until then the worker polls.
WITHOUT_RIGHTS_S = 60.0
#: The longest wait for a subscription to connect.
CONNECT_WITHIN_S = 0.5
#: The shortest wait of poll().
STEP_ASIDE_MS = 1


class Wakeup:
    """Sleeps on a pipe that any thread, and the arrival of any signal, can write to."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        weakref.finalize(self, os.close, self._writer).atexit = False
        #: Created beforehand: step_aside() must be fast.
        self._aside = select.poll()
        self._aside.register(self._reader, select.POLLIN)
        self._is_asleep = False
        #: The file that a descriptor belonged to when it was registered, and the function to call.
        self._watched: dict[int, tuple[tuple[int, int], Callable[[], None]]] = {}
        self._subscriptions: list[Subscription | PrimaryWatch] = []

    def subscribe(self, subscription: Subscription | PrimaryWatch) -> None:
        """Let what a socket receives end a sleep."""
        self._subscriptions.append(subscription)

    def watch(self, descriptor: int, on_ready: Callable[[], None]) -> None:
        """Let a readable file descriptor end one sleep, and call `on_ready` then."""
        self._watched[descriptor] = _file_behind(descriptor), on_ready

    def watch_signals(self) -> None:
        """Let signals end a sleep. Only the main thread may call this."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wake(self) -> None:
        """End the current sleep; costs nothing while the main thread is awake."""
        if self._is_asleep:
            self._is_asleep = False
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the pipe is full, or close() was called
                os.write(self._writer, b".")

    def sleep(self, until: Callable[[], float | None], *, at_most_s: float) -> None:
        """Sleep until a monotonic time. `until` is called after the sleep is announced, so no wake-up is missed."""
        tries = [subscription.reconnect_if_due() for subscription in self._subscriptions]
        self._is_asleep = True
        try:
            wake_at = min((when for when in (until(), *tries) if when is not None), default=math.inf)
            seconds = min(at_most_s, wake_at - time.monotonic())
            listening = {each.descriptor: each for each in self._subscriptions}
            # Of several connections, one may always have something to do: what the others publish is read all the same.
            ready = self._wait(max(seconds, 0.0), listening) if seconds > 0 or len(listening) > 1 else []
        finally:
            self._is_asleep = False
        if self._reader in ready:
            self._empty_pipe()
        for descriptor in ready:
            if descriptor in self._watched:
                self._call_watcher(descriptor)
            if descriptor in listening:
                listening[descriptor].read_and_fetch()

    def _call_watcher(self, descriptor: int) -> None:
        """Call the function of a descriptor, once: a pipe without a writer stays readable, and would prevent sleep.

        Raises OSError when a task has closed the descriptor, which is not an event of the other end: this process is
        damaged.
        """
        file, on_ready = self._watched.pop(descriptor)
        if _file_behind(descriptor) != file:
            raise OSError(errno.EBADF, f"file descriptor {descriptor} of the worker was closed by a task")
        on_ready()

    def step_aside(self) -> None:
        """Yield the interpreter to the other threads until one of them calls wake(), for a short time at most.

        A task that was handed to a thread starts earlier: the thread needs the interpreter when it wakes up.
        """
        self._is_asleep = True
        if self._aside.poll(STEP_ASIDE_MS):
            self._empty_pipe()  # the reason for a wake-up is stored elsewhere; the turn continues and finds it
        self._is_asleep = False

    def _empty_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 65536)

    def _wait(self, seconds: float, listening: Iterable[int | None]) -> list[int]:
        # Not select(), which does not support descriptors above a thousand.
        poll = select.poll()
        for descriptor in (self._reader, *self._watched, *listening):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))]

    def close(self) -> None:
        """Close the pipe.

        Its writing end is closed with this object: a thread that has just ended a function may be about to write, and
        the number could belong to another file by then.
        """
        with contextlib.suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)
        os.close(self._reader)


def _file_behind(descriptor: int) -> tuple[int, int]:
    stat = os.fstat(descriptor)
    return stat.st_dev, stat.st_ino


class Subscription:
    """Listens on the realtime channels of some queues, and for cancellations; a publish ends the sleep of a waiter.

    A publish is only a hint: RSMQ publishes nothing when a delay or a lease expires, and not every sender publishes.
    So the worker polls as well, and a broken socket loses nothing, it only delays.
    """

    def __init__(
        self,
        client: Client,
        channels: Sequence[str],
        *,
        own_channel: str,
        fetch: Callable[[], bool],
        on_publish: Callable[[], None],
        on_chosen: Callable[[], None],
        on_cancellation: Callable[[], None],
        has_wakeup: Callable[[], bool],
    ) -> None:
        connection = client.connection
        # The worker must not wait long for a server that does not answer.
        self._connection = connection.with_timeout(min(connection.timeout_s, CONNECT_WITHIN_S))
        self._cancellations = cancellations_channel(client.namespace)
        #: Wakes this process only.
        self._own_channel = own_channel
        self._channels = [*channels, own_channel, self._cancellations]
        #: Sends the prepared fetch before the publish is read; False when it could not.
        self._fetch = fetch
        self._on_publish = on_publish
        self._on_chosen = on_chosen
        #: Called when a task may have been cancelled, also while the subscription was interrupted.
        self._on_cancellation = on_cancellation
        #: Returns whether a wake-up is pending already: the socket is not read then.
        self._has_wakeup = has_wakeup
        #: Returns whether the server answers: until then the worker would wait for it here.
        self.is_reachable: Callable[[], bool] = lambda: True
        self._namespace = client.namespace
        self._backoff = ReconnectBackoff(f"wake-ups from {client.connection!r}", server=client.connection)
        #: Monotonic time at which to try missing permissions again.
        self._refused_until = 0.0
        self._refusal_was_logged = False
        self._listener: Listener | None = None
        self._read_at = 0.0

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor to wait for; None when there is none at the moment."""
        return None if self._listener is None or self._has_wakeup() else self._listener.fileno()

    def reconnect_if_due(self) -> float | None:
        """Reconnect when it is time; return when to call this again, None while the subscription is being read."""
        now = time.monotonic()
        if self._listener is None and not self.is_reachable():
            return None  # the source tries to reach it
        if self._listener is None and now >= self._next_try_at:
            try:
                self._listener = self._connection.listener(
                    self._channels, markers=[self._own_channel, self._cancellations]
                )
            except RsmqError as error:  # also of a refused login: rights to channels are known from the reply only
                self._backoff.note(error)
        elif self._listener is not None and now - self._read_at >= DRAIN_EVERY_S:
            self.read()  # it was not read for a while, and unread messages fill the server's memory
        if self._listener is None:
            return self._next_try_at
        # A worker without room for more messages must still learn soon that one of its tasks was cancelled.
        return self._read_at + DRAIN_EVERY_S if self._has_wakeup() else None

    def read_and_fetch(self) -> None:
        """Read published messages, if possible while the server answers the prepared fetch."""
        self.read(answered=1 if self._fetch() else 0)

    def read(self, *, answered: int = 0) -> None:
        """Read published messages; `answered` wake-ups were acted on already."""
        assert self._listener is not None
        self._read_at = time.monotonic()
        try:
            published = self._listener.drain()
            if published:  # before the server's confirmation the permission to subscribe is not certain
                self._backoff.over()
            markers = self._listener.take_markers() if published else ()
            if self._cancellations.encode() in markers:
                self._on_cancellation()
            if published > answered:
                (self._on_chosen if self._own_channel.encode() in markers else self._on_publish)()
        except RsmqError as error:
            self.stop()
            self._failed(error)

    @property
    def _next_try_at(self) -> float:
        return max(self._backoff.next_try_at, self._refused_until)

    def _failed(self, error: RsmqError) -> None:
        if not isinstance(error, PermissionDenied):
            self._backoff.note(error)
            return
        self._refused_until = time.monotonic() + WITHOUT_RIGHTS_S
        if not self._refusal_was_logged:
            self._refusal_was_logged = True
            logger.warning(
                "%s. This worker looks for messages every POLL_INTERVAL_S instead, and finds out that a running task "
                "was cancelled when it renews the lease; the missing permission is for the %s",
                str(error).rstrip("."),
                f"channels &{self._namespace}:*" if "channel" in str(error) else "command SUBSCRIBE",
            )

    def stop(self) -> None:
        """Close the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
