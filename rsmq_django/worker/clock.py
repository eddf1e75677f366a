"""The server's time in this process, so that times in results and events agree between hosts."""

from __future__ import annotations

import time


class ServerClock:
    """Epoch milliseconds of the Redis server, kept going by this process's monotonic clock between two replies."""

    def __init__(self) -> None:
        #: What lies between the two clocks.
        self.offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def set(self, server_ms: float) -> None:
        """Learn the server's time from a reply that has just arrived."""
        self.offset_ms = server_ms - time.monotonic() * 1000

    def now_ms(self) -> float:
        """Return the server's time now."""
        return time.monotonic() * 1000 + self.offset_ms
