"""The queues of the settings, as the doctor and the admin expect them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..conf.settings import QueueSettings, Settings, aliases_of, get_settings
from ..core.doctor import ExpectedQueue
from ..core.doctor.finding import DEFAULT_TARGET_S

#: Of the settings that were used last, by alias: thousands of queues are not collected again for each page.
_last: tuple[Settings | None, dict[str, dict[str, ExpectedQueue]]] = (None, {})


def expected_queues(alias: str) -> Mapping[str, ExpectedQueue]:
    """Return the queues and dead-letter queues of a connection according to the settings."""
    global _last
    settings = get_settings()
    known, by_alias = _last
    if known is not settings:
        _last = known, by_alias = settings, {}
    if alias not in by_alias:
        by_alias[alias] = _read(settings, alias)
    return by_alias[alias]


def _read(settings: Settings, alias: str) -> dict[str, ExpectedQueue]:
    targets = settings.pipeline.wait_targets_s
    every: Iterable[QueueSettings] = [*settings.queues.values(), *settings.dead_letters.values()]
    return {
        queue.name: ExpectedQueue(
            visibility_timeout_s=queue.visibility_timeout_s,
            delay_s=queue.delay_s,
            max_size_bytes=queue.max_size_bytes,
            vt_unit=queue.vt_unit,
            is_worked_on=queue.name in settings.queues and not queue.for_others,
            dead_letter=(queue.dead_letter or "") if queue.name in settings.queues else "",
            target_s=targets.get(queue.name, targets.get("*", DEFAULT_TARGET_S)),
        )
        for queue in every
        if alias in aliases_of(queue)
    }
