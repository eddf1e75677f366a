"""Progress of a query in rows."""

from __future__ import annotations

from collections.abc import Callable

#: Step, finished rows (or days), total: None if unknown.
OnProgress = Callable[[str, int, int | None], None]
#: Polling interval of a running query.
POLL_S = 0.2


def say_nothing(_step: str, _done: int, _total: int | None) -> None:
    """Ignore the progress."""
