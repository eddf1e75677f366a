"""The server's time in this process, so that times in results and events agree between hosts."""

from __future__ import annotations

import time


class ServerClock:
    """Epoch milliseconds of the Redis server, kept going by this process's monotonic clock between two replies."""

    def __init__(self) -> None:
        #: The difference of the two clocks.
        self.offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def set(self, server_ms: float, *, asked_at: float) -> None:
        """Set the clock from a reply with the server's time at some moment since `asked_at` (monotonic clock).

        The reply may have waited to be read, so the known offset is kept as long as it can be right.
        """
        least, most = server_ms - time.monotonic() * 1000, server_ms - asked_at * 1000
        self.offset_ms = min(max(self.offset_ms, least), most)

    def now_ms(self) -> float:
        """Return the server's time now."""
        return time.monotonic() * 1000 + self.offset_ms
