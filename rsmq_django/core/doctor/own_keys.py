"""What is wrong with keys of ours that belong to no queue: another program wrote them, or a sender died at its work."""

from __future__ import annotations

from collections.abc import Iterator

from ..keys import (
    cancelled_key,
    events_key,
    paused_key,
    relayed_key,
    reliable_queues_key,
    schedule_keys,
    successful_tasks_key,
    workers_key,
    workflow_keys,
    workflows_key,
)
from ..limits import batches
from ..replies import read_message_id
from ..workflows import MAX_LISTED, newest
from . import calls
from .catalogue import found
from .finding import Finding
from .probe import Probe


def examine_own_keys(probe: Probe) -> Iterator[Finding]:
    """Yield what is wrong with keys that are there once for all queues, and with workflows."""
    broken = list(_check_types(probe))
    yield from broken
    if workflows_key(probe.client.namespace) not in {finding.subject for finding in broken}:
        yield from _check_workflows(probe)


def _check_types(probe: Probe) -> Iterator[Finding]:
    namespace = probe.client.namespace
    planned, entries, state = schedule_keys(namespace)
    types = {
        paused_key(namespace): "set",
        reliable_queues_key(namespace): "set",
        workers_key(namespace): "zset",
        workflows_key(namespace): "zset",
        cancelled_key(namespace): "zset",
        relayed_key(namespace): "zset",
        planned: "zset",
        entries: "hash",
        state: "hash",
        events_key(namespace): "stream",
        successful_tasks_key(namespace): "zset",
    }
    for key, wanted in types.items():
        reply = probe.ask("TYPE", key, about="keys of this package")
        kind = read_message_id(reply or b"none")
        if kind not in ("none", wanted):
            yield found("wrong-type", key, f"it is a {kind}, it should be a {wanted}")


def _check_workflows(probe: Probe) -> Iterator[Finding]:
    namespace = probe.client.namespace
    ids = probe.run(newest(namespace, MAX_LISTED), about="workflows") or []
    for part in batches(ids):
        for running in probe.run(calls.running_workflows(namespace, part), about="workflows") or []:
            state, hours = workflow_keys(namespace, running.id)[0], f"{running.idle_ms / 3_600_000:.0f} h"
            if running.is_sealed and running.idle_ms >= calls.QUIET_AFTER_S * 1000:
                yield found("quiet-workflow", state, f"none of its members has begun or ended for {hours}")
            elif running.is_stuck:
                minutes = f"{running.idle_ms / 60_000:.0f} min"
                said = f"its sender has added {running.members} members and no more for {minutes}"
                yield found("stuck-workflow", state, said)
