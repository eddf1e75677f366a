"""The registered tasks as rows, with the totals of their counters; and tasks that have only counters."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..conf.settings import aliases_of, get_settings
from ..core import Client
from ..core.log_lines import get_logger
from ..core.queue.queue import list_queues
from ..core.stats.history import Counts, read_totals
from .conditions import Selection
from .history import Past, past_of
from .places import QueueRef
from .queryset import Scan
from .scanned import ScannedSource, all_of
from .servers import from_each
from .texts import visible

logger = get_logger(__name__)


class TaskSource(ScannedSource):
    """Reads the totals of tasks, from one small hash each.

    There is one for each queue of the settings, priority band and consumed topic.
    """

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        # Imported here, because a model may be imported before the tasks framework can be.
        from ..tasks.catalogue import known_functions, known_tasks

        tasks, functions, counted = known_tasks(), known_functions(), self._counted()
        rows = [self._row(path, tasks.get(path), counted.get(path, {})) for path in sorted({*tasks, *counted} - {""})]
        for row in rows:
            row.is_registered |= row.path in functions
        return all_of(rows, selection, "path", "queue")

    def _counted(self) -> dict[str, dict[str, Counts]]:
        """Return the counters: path of the task -> queue -> counts."""
        found: dict[str, dict[str, Counts]] = {}
        known = known_names()
        for totals in from_each(lambda alias, client: _totals_of(alias, client, known), self.notes):
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
            sent=total.sent,
            succeeded=total.succeeded,
            failed=total.failed,
            dead=total.dead,
            run_median_s=None if median_us is None else median_us / 1e6,
            run_p95_s=None if p95_us is None else p95_us / 1e6,
        )
        row.task, row.queue_names = task, list(dict.fromkeys([*by_queue, *([task.queue_name] if task else [])]))
        return row


def _totals_of(alias: str, client: Client, known: Container[str]) -> dict[str, dict[str, Counts]]:
    settings = get_settings()
    names = {queue.name for queue in settings.queues.values() if alias in aliases_of(queue)}
    # A call that was sent with a priority is counted in its priority band.
    bands = [name for name in list_queues(client) if settings.base_name(name) in names] if names else []
    others = [name for name, home in _other_homes().items() if home == alias]
    return read_totals(client, sorted({*names, *bands, *others}), known=known)


def known_names() -> set[str]:
    """Return the names under which attempts of this project are counted; without those of a broken module."""
    # Imported here, because a model may be imported before the tasks framework can be.
    from ..tasks.catalogue import known_functions, known_tasks
    from ..tasks.task import registered_tasks

    try:
        return {*known_tasks(), *known_functions()}
    except Exception as error:  # of a module of the project, which concerns no queue
        logger.error("the project's tasks cannot be imported: %r", error)
        return set(registered_tasks())


def _other_homes() -> dict[str, str]:
    from ..tasks.catalogue import other_homes

    return other_homes()


def queue_place(name: str) -> QueueRef | None:
    """Return the ordinary queue of this name; None for a reliable queue and for a group of a topic."""
    settings = get_settings()
    queue = None if name in _other_homes() else settings.queues.get(settings.base_name(name))
    return None if queue is None else QueueRef(queue.connection, name)


def past_of_task(path: str, queue_names: list[str], span: str) -> Past:
    """Read the last hour, day or week of one task."""
    homes = _other_homes()
    found = [place for name in queue_names for place in _places(name, homes)]
    return past_of(found, span, task=path)


def _places(name: str, homes: dict[str, str]) -> list[QueueRef]:
    """Return the queue of this name, or its shards."""
    if name in homes:
        return [QueueRef(homes[name], name)]
    place, settings = queue_place(name), get_settings()
    return [] if place is None else [QueueRef(alias, name) for alias in aliases_of(settings.queue(name))]
