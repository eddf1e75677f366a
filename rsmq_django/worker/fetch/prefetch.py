"""How many messages to prefetch: as many as are a moment of work."""

from __future__ import annotations

#: At most about this much work is prefetched, so that no message waits here while another worker is idle.
PREFETCH_S = 0.05
MOST_PREFETCHED = 200
#: Weight of the latest run in the moving average of run times.
SMOOTHING = 0.05


class Prefetch:
    """Measures run times, and computes the number of messages to prefetch."""

    def __init__(self) -> None:
        self._seen = 0
        self._average_s = 0.0

    def note(self, run_s: float) -> None:
        """Learn from a run that has ended. From any thread: if two calls collide, one run has little weight."""
        self._seen += 1
        weight = SMOOTHING if self._seen * SMOOTHING > 1 else 1 / self._seen
        self._average_s += (run_s - self._average_s) * weight

    def ahead(self, threads: int) -> int:
        """Return how many messages are PREFETCH_S of work; at most as many as runs were seen: it doubles at first."""
        return min(MOST_PREFETCHED, self._seen, int(threads * PREFETCH_S / max(self._average_s, 1e-6)))
