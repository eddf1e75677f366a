"""A test that hangs fails by a deadline, which names it and shows where all threads are.

The alarm interrupts the main thread, so fixtures are torn down and the run goes on. What cannot be interrupted (a call
into C that does not come back) ends the process a while later: `faulthandler_timeout` in pyproject.toml.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: By marker; each of fixtures, test and clean-up has that long. A busy machine is ten times slower than a quiet one.
DEADLINES_S = {"long": 1200, "spark_slow": 900, "spark": 600, "slow": 300}
DEADLINE_S = 120
#: No test of this run has longer: tools/mutate.py does not wait for the full deadline of a test that hangs.
MOST_S = float(os.environ.get("RSMQ_DEADLINE_S", "inf"))
#: What has caught the interruption is interrupted again.
AGAIN_S = 20


class DeadlinePassed(BaseException):
    """No Exception: what catches those would go on."""


def seconds_of(item: pytest.Item) -> float:
    """Return the deadline that the test names, or that of its kind."""
    own = item.get_closest_marker("deadline")
    if own is not None:
        return min(float(own.args[0]), MOST_S)
    kinds = (s for marker, s in DEADLINES_S.items() if item.get_closest_marker(marker))
    return min(next(kinds, DEADLINE_S), MOST_S)


@contextmanager
def of(item: pytest.Item, phase: str) -> Iterator[None]:
    """Fail the test unless the block ends within its deadline."""
    deadline_s = seconds_of(item)

    def pass_deadline(*_: object) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise DeadlinePassed(f"{item.nodeid}: {phase} took longer than {deadline_s} s")

    handler_before = signal.signal(signal.SIGALRM, pass_deadline)
    timer_before = signal.setitimer(signal.ITIMER_REAL, deadline_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer_before)
        signal.signal(signal.SIGALRM, handler_before)
