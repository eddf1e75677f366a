"""How a worker behaves while Redis cannot be reached: it waits, longer each time, and says so once a minute."""

from __future__ import annotations

import logging
import random
import time

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
LOG_EVERY_S = 60.0


class Outage:
    """The trouble with one server, or none."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._failures = 0
        self._began = 0.0
        self._logged = 0.0
        #: Monotonic time before which nothing should be tried; 0 when all is well.
        self.next_try_at = 0.0

    @property
    def is_on(self) -> bool:
        """Say whether the last attempt failed."""
        return self._failures > 0

    @property
    def lasts_s(self) -> float:
        """Return for how long nothing has worked; 0 when all is well."""
        return time.monotonic() - self._began if self.is_on else 0.0

    def note(self, error: Exception, *, at_most_s: float = LONGEST_WAIT_S) -> None:
        """Note a failure and choose when to try again, in `at_most_s` seconds.

        Full jitter, so that workers do not reconnect in step.
        """
        now = time.monotonic()
        if not self.is_on:
            self._began = now
        longest_s = min(LONGEST_WAIT_S, at_most_s, FIRST_WAIT_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self.next_try_at = now + random.uniform(min(FIRST_WAIT_S, longest_s) / 2, longest_s)  # noqa: S311 - spreads load
        if self._failures == 1 or now - self._logged >= LOG_EVERY_S:
            self._logged = now
            text = str(error).rstrip(".")
            logger.error("%s: %s Trying again until it works.", self._where, text if text.endswith("?") else f"{text}.")

    def over(self) -> None:
        """Note a success."""
        if self.is_on:
            logger.info("%s: works again after %.1f s", self._where, time.monotonic() - self._began)
            self._failures, self.next_try_at = 0, 0.0
