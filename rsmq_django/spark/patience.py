"""Patience with Spark's own limits, on machines that are busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..log_lines import get_logger

T = TypeVar("T")

logger = get_logger(__name__)

#: How often a query is started before we give up.
STARTS = 6


def started_patiently(run: Callable[[], T]) -> T:
    """Run a query that is safe to repeat; again when Spark did not wait for its Python process.

    Spark gives the process that plans a stream ten seconds to come up, and has no setting for it; on a busy machine
    that is too short now and then.
    """
    for left in reversed(range(STARTS)):
        try:
            return run()
        except Exception as error:
            if not left or "Python worker failed to connect back" not in str(error):
                raise
            logger.warning("Spark's Python process was not up in the ten seconds that it gets; it is started again")
    raise AssertionError("the last start returns or raises")
