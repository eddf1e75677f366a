"""Spark gives the process that plans a stream ten seconds to start, without a setting: too short on a busy machine."""

from collections.abc import Callable

STARTS = 6


def started_patiently(run: Callable[[], object]) -> None:
    """Run a query that is safe to repeat, again if its process did not start in time."""
    for left in reversed(range(STARTS)):
        try:
            run()
            return
        except Exception as error:
            if not left or "Python worker failed to connect back" not in str(error):
                raise
