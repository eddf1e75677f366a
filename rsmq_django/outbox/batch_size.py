"""Number of outbox rows per round trip: smaller after a timeout, larger after a success.

After a timeout it is unknown whether the rows were too large or the server is unavailable. So the next try sends half
of them. A single row that does not fit gets more time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.limits import MAX_TRIP_BYTES
from ..core.transport.portions import portions

#: Rows that are sent in one round trip and noted in one transaction.
MAX_ROWS = 500
MIN_BYTES = 16 * 1024
#: Time after a timeout in which the batch size does not grow.
STAY_SMALL_S = 60.0
#: A row that is sent alone gets up to this multiple of its connection's timeout.
MAX_PATIENCE = 64


class BatchSize:
    """The limits of the next round trip for one queue."""

    def __init__(self) -> None:
        self.rows = MAX_ROWS
        self.size_bytes = MAX_TRIP_BYTES
        #: Multiple of the connection's timeout to wait.
        self.patience = 1
        #: Whether rows were left for the next round trip.
        self.leaves_some = False
        self._grow_at = 0.0

    def choose(self, sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the keys of the rows that go out together, of up to `rows` keys with the sizes of their bodies."""
        first = next(portions(sizes, lambda row: row[1], count=self.rows, size=self.size_bytes), [])
        self.leaves_some = len(first) < len(sizes) or len(first) == self.rows
        return [key for key, _ in first]

    def halve(self, rows_sent: int) -> None:
        """Reduce the batch size after a timeout with a number of rows."""
        if rows_sent <= 1:
            self.patience = min(MAX_PATIENCE, self.patience * 2)
        self.rows = max(1, min(self.rows, rows_sent) // 2)
        self.size_bytes = max(MIN_BYTES, self.size_bytes // 2)
        self._grow_at = time.monotonic() + STAY_SMALL_S

    def grow(self) -> None:
        """Increase the batch size after a success, unless the last timeout was a moment ago."""
        if time.monotonic() < self._grow_at:
            return
        self.rows = min(MAX_ROWS, self.rows * 2)
        self.size_bytes = min(MAX_TRIP_BYTES, self.size_bytes * 2)
        self.patience = max(1, self.patience // 2)
