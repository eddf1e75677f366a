"""A call that is packed before it is needed, and sent without waiting for its reply.

For those who are woken up to make one certain call: then nothing stands between the news and the question but a system
call, and what they do while the answer is on its way costs no time.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import redis

from .call import Call
from .client import Client, by_digest, read_reply
from .connection import packed
from .errors import RsmqError

T = TypeVar("T")


class ReadiedCall(Generic[T]):
    """One call, to be sent once. Not shared between threads."""

    def __init__(self, client: Client, call: Call[T]) -> None:
        self._client = client
        self._call = call
        self._request = packed([by_digest(call)])
        self._link: Any = None

    @property
    def is_under_way(self) -> bool:
        """Say whether it was sent and its reply not read."""
        return self._link is not None

    def send(self) -> bool:
        """Send it on a socket that is open; False when there is none, and nothing was sent.

        Raises OutcomeUnknown when the socket broke meanwhile.
        """
        self._link = self._client.connection.begin(self._request)
        return self._link is not None

    def reply(self) -> T | RsmqError:
        """Wait for the reply. Raises as Client.run_many() does."""
        link, self._link = self._link, None
        (reply,) = self._client.connection.finish(link, 1)
        if isinstance(reply, redis.exceptions.NoScriptError):  # nothing was carried out
            (result,) = self._client.run_many([self._call])
            return result
        return read_reply(self._call, reply)
