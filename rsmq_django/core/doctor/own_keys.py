"""Findings about our keys that belong to no queue: another program wrote them, or a sender died during a send."""

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
from ..queue.replies import read_message_id
from ..tasks.workflow_records import newest
from ..tasks.workflows import MAX_LISTED
from . import calls
from .catalogue import found
from .finding import Finding
from .probe import Probe


def examine_own_keys(probe: Probe) -> Iterator[Finding]:
    """Yield the findings about keys that all queues share, and about workflows."""
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
            yield found("wrong-type", key, f"it is a {kind}, but should be a {wanted}")


def _check_workflows(probe: Probe) -> Iterator[Finding]:
    namespace = probe.client.namespace
    ids = probe.run(newest(namespace, MAX_LISTED), about="workflows") or []
    quiet, stuck = list[calls.RunningWorkflow](), list[calls.RunningWorkflow]()
    for part in batches(ids):
        for running in probe.run(calls.running_workflows(namespace, part), about="workflows") or []:
            if running.is_sealed and running.idle_ms >= calls.QUIET_AFTER_S * 1000:
                quiet.append(running)
            elif running.is_stuck:
                stuck.append(running)
    for kind, group in (("quiet-workflow", quiet), ("stuck-workflow", stuck)):
        if len(group) == 1:
            yield found(kind, workflow_keys(namespace, group[0].id)[0], _about_workflow(group[0]))
        elif group:
            longest = max(group, key=lambda each: each.idle_ms)
            said = f"{len(group)} workflows; longest idle {longest.id}: {_about_workflow(longest)}"
            yield found(kind, calls.ALL_WORKFLOWS, said, examples=[each.id for each in group[:3]])


def _about_workflow(running: calls.RunningWorkflow) -> str:
    if running.is_sealed:
        return f"no member has started or ended for {running.idle_ms / 3_600_000:.0f} h"
    return f"its sender has added {running.members} members, and no other for {running.idle_ms / 60_000:.0f} min"
