"""Wakes an idle worker when messages are published: one thread waits for all topics of a connection.

A publish replaces the only entry of a stream, whose id is the last index of the topic. The thread waits for ids after
the last index that a group has read, so a publish between a read and the wait is not missed. On a cluster one command
may only name keys of one slot, so topics with another hash tag have a thread of their own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence

import redis

from ...core import RsmqError
from ...core.errors import ConnectionFailed
from ...core.log_lines import get_logger
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.connection import Connection
from ...core.transport.packing import Command, Reply

#: Maximum time of one blocking command; stop() waits for its end.
SLICE_S = 1.0
#: The same while some topics are left out because they are busy, and may have to be waited for soon.
SHORT_SLICE_S = 0.05
CALL_TIMEOUT_S = 5.0
#: A key that the server refuses to wait for is left out for this time; its groups are read every second anyway.
LEAVE_OUT_S = 10.0
logger = get_logger(__name__)

_TAG = re.compile(r"\{([^}]+)\}")


class TopicWakeUp:
    """The thread for topics of one hash tag."""

    def __init__(self, connection: Connection, *, on_news: Callable[[Sequence[str]], None]) -> None:
        self._connection = connection.with_timeout(SLICE_S + CALL_TIMEOUT_S)
        self._on_news = on_news
        self._lock = threading.Lock()
        #: The last known index by key.
        self._known: dict[str, int] = {}
        #: Keys with unread news.
        self._news: set[str] = set()
        #: Keys of them with more news: they are not waited for until they are read.
        self._busy: set[str] = set()
        #: Keys that the server refused, and until when they are left out.
        self._left_out: dict[str, float] = {}
        self._is_expected = threading.Event()
        self._is_stopping = False
        self._backoff = ReconnectBackoff(f"wake-ups from {self._connection!r}", server=self._connection)
        self._thread = threading.Thread(target=self._wait, name="rsmq-topic-wake-up", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits after expect() was called."""
        self._thread.start()

    def expect(self, wake_key: str, last: int) -> bool:
        """Wait for a publish after index `last`: a group has read all messages up to it.

        Returns whether a later one is known already: the thread may be waiting for those after that.
        """
        with self._lock:
            is_known = self._known.get(wake_key, 0) > last
            self._known[wake_key] = last
            self._news.discard(wake_key)
            self._busy.discard(wake_key)
        self._is_expected.set()
        return is_known

    def stop_soon(self) -> None:
        """Stop waiting."""
        self._is_stopping = True
        self._is_expected.set()

    def join(self) -> None:
        """Return when the thread has ended, or after two seconds."""
        if self._thread.ident is not None:
            self._thread.join(2 * SLICE_S)

    def _wait(self) -> None:
        while not self._is_stopping:
            self._is_expected.wait()
            command = self._command()
            if not self._is_stopping and command is not None:
                self._try(command)
        self._connection.close()

    def _command(self) -> Command | None:
        with self._lock:
            now = time.monotonic()
            free = {key: last for key, last in self._known.items() if key not in self._busy}
            waited = {key: last for key, last in free.items() if self._left_out.get(key, 0.0) <= now}
            if not waited:
                self._is_expected.clear()
                return None
            slice_s = SHORT_SLICE_S if self._busy else SLICE_S
        ids = [f"{last}-0" for last in waited.values()]
        return "XREAD", "BLOCK", round(slice_s * 1000), "STREAMS", *waited, *ids

    def _try(self, command: Command) -> None:
        try:
            (reply,) = self._connection.exchange([command])
            if isinstance(reply, redis.RedisError):
                if not self._leave_out_refused():
                    raise ConnectionFailed(str(reply))
                return
        except RsmqError as error:
            self._backoff.note(error)
            time.sleep(max(0.0, min(SLICE_S, self._backoff.next_try_at - time.monotonic())))
            return
        self._backoff.over()
        if reply:
            self._note(reply)

    def _leave_out_refused(self) -> bool:
        """Leave out the keys that the server refuses, so that the other topics are waited for; return whether any is.

        Another program has a value of another type there, or the user has no rights on it.
        """
        with self._lock:
            keys = list(self._known)
        replies = self._connection.exchange([("XREAD", "STREAMS", key, "$") for key in keys])
        refused = {key: reply for key, reply in zip(keys, replies, strict=True) if isinstance(reply, redis.RedisError)}
        for key, error in refused.items():
            if key not in self._left_out:
                text = "cannot wait for the key %s: %s; its topic is read every second instead"
                logger.warning(text, key, error)
        self._left_out = dict.fromkeys(refused, time.monotonic() + LEAVE_OUT_S)
        return bool(refused)

    def _note(self, reply: Reply) -> None:
        found = {key.decode(): int(entries[-1][0].partition(b"-")[0]) for key, entries in reply}
        with self._lock:
            self._busy |= self._news & found.keys()
            self._news |= found.keys()
            self._known.update((key, last) for key, last in found.items() if key in self._known)
        self._on_news(list(found))


class TopicWakeUps:
    """The threads for the topics of one connection: one, unless topics have hash tags."""

    def __init__(
        self, connection: Connection, wake_keys: Sequence[str], *, on_news: Callable[[Sequence[str]], None]
    ) -> None:
        tags = dict.fromkeys(map(_tag, wake_keys))
        self._by_tag = {tag: TopicWakeUp(connection, on_news=on_news) for tag in tags}

    def start(self) -> None:
        """Start the threads."""
        for each in self._by_tag.values():
            each.start()

    def expect(self, wake_key: str, last: int) -> bool:
        """Wait for a publish after index `last`; returns whether a later one is known already."""
        return self._by_tag[_tag(wake_key)].expect(wake_key, last)

    def stop_soon(self) -> None:
        """Stop waiting."""
        for each in self._by_tag.values():
            each.stop_soon()

    def stop(self) -> None:
        """Stop waiting; returns when the threads have ended or after two seconds."""
        self.stop_soon()
        for each in self._by_tag.values():
            each.join()


def _tag(wake_key: str) -> str:
    found = _TAG.search(wake_key)
    return found[1] if found else ""
