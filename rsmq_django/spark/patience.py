"""Retries around Spark's fixed timeouts, for busy machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..core.log_lines import get_logger

T = TypeVar("T")

logger = get_logger(__name__)

#: Maximum number of starts of a query.
STARTS = 6


def started_patiently(run: Callable[[], T]) -> T:
    """Run a query that is safe to repeat; retry if Spark did not wait long enough for its Python process.

    Spark waits ten seconds for the start of the process that plans a stream, without a setting for it; on a busy
    machine that is sometimes too short.
    """
    for left in reversed(range(STARTS)):
        try:
            return run()
        except Exception as error:
            if not left or "Python worker failed to connect back" not in str(error):
                raise
            logger.warning("Spark's Python process did not start within ten seconds; starting it again")
    raise AssertionError("the last start returns or raises")
