"""How many rows a query has done so far."""

from __future__ import annotations

from collections.abc import Callable

#: Step, rows (or days) that are done, how many there will be: None where that is not known.
OnProgress = Callable[[str, int, int | None], None]
#: How often a running query is looked at.
POLL_S = 0.2


def say_nothing(_step: str, _done: int, _total: int | None) -> None:
    """Be the progress of those who are not watched."""
