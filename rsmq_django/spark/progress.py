"""How many rows a query has done so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Step, rows (or days) that are done, how many there will be: None where that is not known.
OnProgress = Callable[[str, int, int | None], None]
#: How often a running query is looked at.
POLL_S = 0.2


def say_nothing(_step: str, _done: int, _total: int | None) -> None:
    """Be the progress of those who are not watched."""


@dataclass(slots=True)
class RowCount:
    """Counts while the query runs, because Spark remembers its last hundred batches only."""

    rows: int = 0
    batches: int = 0
    _newest: int = -1

    def look(self, query: Any) -> int:
        """Add the batches that ended since the last look, and return all rows."""
        for progress in query.recentProgress:
            if progress.batchId > self._newest and progress.numInputRows:
                self._newest = progress.batchId
                self.rows += progress.numInputRows
                self.batches += 1
        return self.rows
