"""Reports of counters, as workers send them."""

import time

from rsmq_django.core.stats.counters import report
from rsmq_django.core.transport.call import Call


def a_report(
    number: int, *, at_s: float | None = None, queue: str = "jobs", reporter: str = "w1", **grown: int
) -> Call:
    fields = {name.replace("__", ":"): by for name, by in grown.items()}
    return report("rsmq", queue, reporter=reporter, number=number, at_s=at_s or time.time(), grown=fields)
