"""Backoff of reconnects while Redis cannot be reached, and one log line per minute about it.

Each of the connections of a process to a server has its own backoff. They share the log lines: one for the failure, and
one when the server works again for all of them: one that only reads works on a server that refuses all writes.
"""

from __future__ import annotations

import math
import os
import random
import time

from .. import Connection
from ..errors import ConnectionFailed, OutcomeUnknown, ServerRefused
from ..log_lines import get_logger

logger = get_logger(__name__)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
LOG_EVERY_S = 60.0

#: Errors that concern the server as a whole, and not a single call.
_OF_A_SERVER = (ConnectionFailed, OutcomeUnknown, ServerRefused)


class Outage:
    """The failure of a server, for all connections of the process."""

    def __init__(self, now: float) -> None:
        self.began = now
        #: Time of the last log line.
        self.said_at = -math.inf
        #: Connections that failed -> how long they count as failing if they are not tried again.
        self.failing: dict[ReconnectBackoff, float] = {}

    def is_over(self, now: float) -> bool:
        """Return whether no connection fails any more."""
        return all(until < now for until in list(self.failing.values()))


#: URL of each server that fails -> its outage.
_outages: dict[str, Outage] = {}
os.register_at_fork(after_in_child=_outages.clear)


class ReconnectBackoff:
    """The backoff of the connections to one server."""

    def __init__(self, where: str, *, server: Connection | None = None) -> None:
        self._where = where
        #: URL of the server, if all objects with this URL share their log lines.
        self._server = server.url if server is not None else ""
        self._is_of_server = False
        self._failures = 0
        self._began = 0.0
        self._logged = 0.0
        #: Monotonic time of the next attempt; 0 while the server works.
        self.next_try_at = 0.0

    @property
    def is_on(self) -> bool:
        """Return whether the last attempt failed."""
        return self._failures > 0

    @property
    def lasts_s(self) -> float:
        """Return how long the server has failed; 0 while it works."""
        return time.monotonic() - self._began if self.is_on else 0.0

    def note(self, error: Exception, *, at_most_s: float = LONGEST_WAIT_S) -> None:
        """Record a failure and choose the time of the next attempt, at most `at_most_s` seconds from now.

        Full jitter, so that workers do not reconnect in step.
        """
        now = time.monotonic()
        if not self.is_on:
            self._began = now
        longest_s = min(LONGEST_WAIT_S, at_most_s, FIRST_WAIT_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self.next_try_at = now + random.uniform(min(FIRST_WAIT_S, longest_s) / 2, longest_s)  # noqa: S311 - spreads load
        if self._is_news(error, now):
            self._logged = now
            text = str(error).rstrip(".")
            text = text if text.endswith("?") else f"{text}."
            logger.error(
                "%s: %s Trying again until it works, at least every %.0f s.", self._where, text, LONGEST_WAIT_S
            )

    def _is_news(self, error: Exception, now: float) -> bool:
        self._is_of_server = bool(self._server) and isinstance(error, _OF_A_SERVER)
        if not self._is_of_server:
            return self._failures == 1 or now - self._logged >= LOG_EVERY_S
        outage = _outages.setdefault(self._server, Outage(now))
        outage.failing[self] = self.next_try_at + LONGEST_WAIT_S
        if now - outage.said_at < LOG_EVERY_S:
            return False
        outage.said_at = now
        return True

    def over(self) -> None:
        """Record a success, which ends the backoff."""
        if self.is_on:
            if not self._is_of_server:
                logger.info("%s: works again after %.1f s", self._where, time.monotonic() - self._began)
            self._failures, self.next_try_at = 0, 0.0
        if _outages:
            self._end_outage()

    def _end_outage(self) -> None:
        """Log that the server works again if this was the last connection that failed."""
        outage, now = _outages.get(self._server), time.monotonic()
        if outage is None:
            return
        outage.failing.pop(self, None)
        if outage.is_over(now) and _outages.pop(self._server, None) is not None:
            logger.info("%s: works again after %.1f s", self._where, now - outage.began)
