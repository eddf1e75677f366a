"""A client of topics as one would write it after reading how they are stored, without this package.

Three kinds of keys, optimistic locking, no scripts: `{topic}:nextIndex` is the index of the last message,
`{topic}:messages:{n}` a message, `{topic}:{group}:nextIndex` the last index that a group was given.
"""

from __future__ import annotations

from typing import Any

import redis


class PlainClient:
    """Publishes to, reads from and replays one topic."""

    def __init__(self, server: redis.Redis, topic: str) -> None:
        self.server = server
        self.topic = topic

    def send(self, body: bytes | str) -> int:
        """Append a message and return its index."""
        with self.server.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(f"{self.topic}:nextIndex")
                    index = int(pipe.get(f"{self.topic}:nextIndex") or 0) + 1
                    pipe.multi()
                    pipe.incr(f"{self.topic}:nextIndex")
                    pipe.set(f"{self.topic}:messages:{index}", body)
                    pipe.execute()
                    return index
                except redis.WatchError:
                    continue

    def poll(self, group: str) -> bytes | None:
        """Return the group's next message, or None at the end; indexes without a message are passed over."""
        cursor_key = f"{self.topic}:{group}:nextIndex"
        with self.server.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(cursor_key)
                    cursor = int(pipe.get(cursor_key) or 0)
                    if int(pipe.get(f"{self.topic}:nextIndex") or 0) <= cursor:
                        return None
                    pipe.multi()
                    pipe.incr(cursor_key)
                    pipe.execute()
                    body: Any = self.server.get(f"{self.topic}:messages:{cursor + 1}")
                    if body is not None:
                        return body
                except redis.WatchError:
                    continue

    def poll_all(self, group: str) -> list[bytes]:
        """Return all messages up to the end."""
        return list(iter(lambda: self.poll(group), None))

    def unsubscribe(self, group: str) -> None:
        """Forget where the group is: its next poll replays."""
        self.server.delete(f"{self.topic}:{group}:nextIndex")
