"""The registered tasks as rows, with what workers counted of each in all; and those that are only counted."""

from __future__ import annotations

import time
from typing import Any

from ..conf import get_settings
from ..core import Client
from ..core.counters import Counts, Slot, read_series, read_totals
from ..core.past import Ends
from ..core.queue import list_queues
from ..queues import get_client
from .conditions import Selection
from .past import SPANS_S, Past
from .queryset import Scan
from .scanned import ScannedSource, all_of
from .servers import from_each
from .texts import visible


class TaskSource(ScannedSource):
    """Reads the totals of all queues of the settings and of their priority bands: one small hash each."""

    def scan(self, selection: Selection) -> Scan:
        """See Source."""
        # Here, because a model may be imported before the tasks framework can be.
        from ..tasks.catalogue import known_tasks

        tasks, counted = known_tasks(), self._counted()
        rows = [self._row(path, tasks.get(path), counted.get(path, {})) for path in sorted({*tasks, *counted} - {""})]
        return all_of(rows, selection, "path", "queue")

    def _counted(self) -> dict[str, dict[str, Counts]]:
        """Return what was counted: path of the task -> queue -> counts."""
        found: dict[str, dict[str, Counts]] = {}
        for totals in from_each(_totals_of, self.notes):
            for queue_name, tasks in totals.items():
                for path, counts in tasks.items():
                    found.setdefault(path, {})[queue_name] = counts
        return found

    def _row(self, path: str, task: Any, by_queue: dict[str, Counts]) -> Any:
        total = Counts()
        for counts in by_queue.values():
            total.add(counts)
        queues = [task.queue_name] if task else dict.fromkeys(map(get_settings().base_name, by_queue))
        median_us, p95_us = total.run.quantile_us(0.5), total.run.quantile_us(0.95)
        row: Any = self.model(
            path=visible(path),
            queue=visible(", ".join(queues)),
            is_registered=task is not None,
            succeeded=total.succeeded,
            failed=total.failed,
            dead=total.dead,
            run_median_s=None if median_us is None else median_us / 1e6,
            run_p95_s=None if p95_us is None else p95_us / 1e6,
        )
        row.task, row.queue_names = task, list(dict.fromkeys([*by_queue, *([task.queue_name] if task else [])]))
        return row


def _totals_of(alias: str, client: Client) -> dict[str, dict[str, Counts]]:
    settings = get_settings()
    names = {queue.name for queue in settings.queues.values() if queue.connection == alias}
    # A call that was sent with a priority is counted where it lay.
    bands = [name for name in list_queues(client) if settings.base_name(name) in names] if names else []
    return read_totals(client, sorted({*names, *bands}))


def past_of_task(path: str, queue_names: list[str], span: str) -> Past:
    """Read the last hour, day or week of one task; how many calls were sent, nobody counts."""
    settings, since_s = get_settings(), time.time() - SPANS_S[span]
    past = Past(step_s=1, begins_s=[], ends=[], sent=[], wait=[], run=[], by_place={})
    for name in queue_names:
        queue = settings.queues.get(settings.base_name(name))
        if queue is None:
            continue
        for at, slot in enumerate(read_series(get_client(queue.connection), [name], since_s=since_s, task=path)[name]):
            _add(past, at, slot)
    return past


def _add(past: Past, at: int, slot: Slot) -> None:
    counts = slot.counts
    if at == len(past.begins_s):
        past.step_s = slot.span_s
        past.begins_s.append(slot.begins_s)
        past.ends.append(Ends())
        past.sent.append(None)
        past.wait.append(counts.wait)
        past.run.append(counts.run)
    else:
        past.wait[at].add(counts.wait)
        past.run[at].add(counts.run)
    past.add_ends(at, counts)
