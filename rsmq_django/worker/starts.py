"""Which runs have gone on for so long that their result records should say that they began."""

from __future__ import annotations

from collections.abc import Iterable, Set

from .delivery import Delivery
from .endings import Ending
from .outcomes import Released

#: Runs shorter than this never show as RUNNING: noting the start would cost more than it tells.
NOTE_START_AFTER_S = 0.1


class Starts:
    """Knows when to look for such runs, on the monotonic clock."""

    def __init__(self) -> None:
        self._look_at = 0.0

    def is_time(self, now: float) -> bool:
        """Say whether to look now."""
        return now >= self._look_at

    def looked(self, now: float) -> None:
        """Take over that somebody has just looked."""
        self._look_at = now + NOTE_START_AFTER_S

    def next_look_at(self, now: float) -> float:
        """Return when to look again: nobody tells when a message begins to run, or that it waits for a thread."""
        return max(self._look_at, now + NOTE_START_AFTER_S / 2)


def starts_to_note(held: Iterable[Delivery], settled: Set[Delivery], *, now_ms: float) -> list[Ending]:
    """Return the runs whose start is to be noted, as endings of which the outcome is not used."""
    since_ms = now_ms - NOTE_START_AFTER_S * 1000
    unnoted = [each for each in held if each not in settled and _is_unnoted(each, since_ms)]
    endings = [Ending(each.execution, Released()) for each in unnoted if each.execution is not None]
    for ending in endings:
        ending.delivery.start_noted = not ending.result_keys  # without a result there is nothing to note
    return [ending for ending in endings if ending.result_keys]


def _is_unnoted(delivery: Delivery, since_ms: float) -> bool:
    return not delivery.start_noted and delivery.started_ms is not None and delivery.started_ms <= since_ms
