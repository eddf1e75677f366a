"""How many messages to fetch ahead: as many as are a moment of work."""

from __future__ import annotations

#: Messages wait in this process for at most about this much work, so that none waits here while another worker is idle.
PREFETCH_S = 0.05
MOST_PREFETCHED = 200
#: Weight of the latest run in the moving average of run times.
SMOOTHING = 0.05


class Prefetch:
    """How long runs take, and so how many messages to fetch ahead."""

    def __init__(self) -> None:
        self._seen = 0
        self._average_s = 0.0

    def note(self, run_s: float) -> None:
        """Learn from a run that has ended. From any thread: should two meet, one run counts for little."""
        self._seen += 1
        weight = SMOOTHING if self._seen * SMOOTHING > 1 else 1 / self._seen
        self._average_s += (run_s - self._average_s) * weight

    def ahead(self, threads: int) -> int:
        """Return how many messages are PREFETCH_S of work; never more than runs were seen, so it doubles at first."""
        return min(MOST_PREFETCHED, self._seen, int(threads * PREFETCH_S / max(self._average_s, 1e-6)))
