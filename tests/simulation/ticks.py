"""The rules of schedules: each planned time has one message, which comes when it is due, and none is missed.

When the server's clock is set back, planned times come again, and with them the messages, under the same ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.simulation.calls import Calls

NAME, EVERY_S = "ticks", 20
#: A tick that is due this long before the schedule is paused has fired, where no fault lasts longer.
FIRED_WITHIN_S = 30


def judge(
    calls: Calls, slots: Mapping[str, int], began_ms: int, paused_ms: int, *, clock_jumps: bool, knows_causes: bool
) -> list[str]:
    """Return what is wrong. `slots` are planned times (ms) by the id of a tick."""
    ticks = [stored for stored in calls.all() if stored.kind == "tick"]
    fired = Counter(slots.get(tick.task_id, 0) for tick in ticks)
    problems = [
        f"tick {at_ms} was fired {count} times" for at_ms, count in fired.items() if count > 1 and not clock_jumps
    ]
    problems += [f"tick {tick.task_id} has no planned time" for tick in ticks if tick.task_id not in slots]
    problems += [f"tick {tick.task_id} came early" for tick in ticks if tick.came_ms < slots.get(tick.task_id, 0)]
    if knows_causes:
        last_ms = paused_ms - FIRED_WITHIN_S * 1000
        missed = [at_ms for at_ms in slots.values() if began_ms < at_ms < last_ms and not fired[at_ms]]
        problems += [f"tick {at_ms} was missed" for at_ms in missed]
    return problems
