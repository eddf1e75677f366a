"""What a workflow is made of, call by call or, when it is large, equal members together."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core import Client, RsmqError
from ..core.keys import queue_keys
from ..core.numbers import read_epoch_ms
from ..core.queue.browse import read_failure
from ..core.tasks.workflow_records import MemberRecord, Unfinished, read_later, read_members, read_unfinished
from ..live.envelopes import task_name
from ..models import Workflow
from ..queues import get_client
from ..tasks.envelope import Envelope, Unreadable, decode
from ..tasks.results import read_body, read_record
from ..tasks.workflow_shape import MemberRun, Shape, read_shape
from .formats import as_duration, as_number, one_line, visible
from .redaction import redacted_call, seal_of

#: Members and steps that are read to count the states of each step; beyond that only the whole is counted.
MAX_COUNTED = 20_000
#: Of a body, for its arguments.
BODY_BYTES = 4096

DONE, FAILED, RUNNING, READY, LATER, CANCELLED = "done", "failed", "running", "ready", "later", "cancelled"
STATES: Mapping[str, Any] = {
    DONE: gettext_lazy("done"),
    FAILED: gettext_lazy("failed"),
    RUNNING: gettext_lazy("running"),
    READY: gettext_lazy("ready"),
    LATER: gettext_lazy("not sent yet"),
    CANCELLED: gettext_lazy("not run"),
}
OF_STATUS = {"SUCCESSFUL": DONE, "FAILED": FAILED, "RUNNING": RUNNING, "READY": READY}


@dataclass(frozen=True, slots=True)
class Node:
    """One call, or the same call of many members."""

    label: str
    task: str
    state: str
    arguments: str = ""
    run_time: str = ""
    task_id: str = ""
    #: The number of its calls, and how many are in each state, as far as that was counted.
    calls: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def state_text(self) -> str:
        """Return the state in words, or how many calls are in which: "9,120 done, 12 failed"."""
        if self.calls == 1:
            return str(STATES[self.state])
        return ", ".join(f"{as_number(count)} {STATES[state]}" for state, count in self.counts.items() if count)


@dataclass(frozen=True, slots=True)
class Graph:
    """Branches side by side, of which each is calls that follow each other, and the callbacks."""

    branches: list[list[Node]]
    then: Node | None
    on_failure: Node | None
    #: What it is, in one sentence.
    summary: str

    @property
    def nodes(self) -> list[Node]:
        """Return everything that is drawn, in order."""
        return [node for branch in self.branches for node in branch] + [
            node for node in (self.then, self.on_failure) if node
        ]


def graph_of(workflow: Workflow, *, may_view_body: bool) -> Graph | None:
    """Return the graph; None when its sender was of a version that did not write one."""
    shape = read_shape(workflow.status.shape)
    if not shape.runs:
        return None
    reader = _CallReader(workflow, shape, get_client(workflow.connection), may_view_body)
    branches = reader.calls() if shape.ids else reader.counted()
    then = reader.callback(shape.then, workflow.status.then_id, _("success callback"), "then")
    on_failure = reader.callback(shape.on_failure, workflow.status.on_failure_id, _("failure callback"), "on_failure")
    return Graph(branches, then, on_failure, _summary(workflow))


def _summary(workflow: Workflow) -> str:
    members = ngettext("%(count)s member", "%(count)s members", workflow.members)
    parts = [f"{workflow.get_kind_display()}: {members % {'count': as_number(workflow.members)}}"]
    parts += [
        _("%(done)s of %(all)s calls done") % {"done": as_number(workflow.done), "all": as_number(workflow.total)}
    ]
    if workflow.failed:
        parts.append(f"{as_number(workflow.failed)} {STATES[FAILED]}")
    return ", ".join(parts)


class _CallReader:
    """Reads the known details of the calls of one workflow."""

    def __init__(self, workflow: Workflow, shape: Shape, client: Client, may_view_body: bool) -> None:
        self.workflow, self.shape, self.client, self.may_view_body = workflow, shape, client, may_view_body
        self.is_over = workflow.status.is_over

    # -- A small one, call by call ------------------------------------------------------------------------------------

    def calls(self) -> list[list[Node]]:
        """Return a branch for each member."""
        ids, last = self.shape.ids, len(self.shape.ids) - 1
        members = self.client.run(
            read_members(self.client.namespace, self.workflow.status.id, 0, last, value_bytes=0),
        )
        records = self._records([task_id for each in ids for task_id in each])
        tasks = [_tasks(run) for run in self.shape.runs for _number in range(run.count)]
        later = self._later([(n, step) for n, each in enumerate(ids) for step in range(1, len(each))])
        branches: list[list[Node]] = []
        for n, own in enumerate(ids):
            states = self._states(own, members[n], records)
            branches.append(
                [
                    self._node(
                        _at(tasks[n], step),
                        own[step],
                        state,
                        records[own[step]],
                        later.get((n, step), b""),
                        self._label_of_call(n, step),
                    )
                    for step, state in enumerate(states)
                ]
            )
        return branches

    def _states(self, ids: Sequence[str], member: MemberRecord, records: Mapping[str, Any]) -> Iterator[str]:
        """Return the state of each step of a member, derived from its current or failed step."""
        current = member.task_id or member.failed_task_id
        known = ids.index(current) if current in ids else len(ids) - 1
        place = known if current else len(ids)
        for step, task_id in enumerate(ids):
            if step < place:
                yield DONE
            elif step > place:
                yield CANCELLED if self.is_over or not member.task_id else LATER
            elif not member.task_id:
                failure = read_failure(member.failure)
                yield CANCELLED if failure is not None and failure.reason == "cancelled" else FAILED
            else:
                status = OF_STATUS.get(records[task_id].get("status", ""), READY)
                yield CANCELLED if self.workflow.state == "cancelled" and status == READY else status

    def callback(self, task: str, task_id: str, label: str, name: str) -> Node | None:
        """Return the node of a callback."""
        if not task_id:
            return None
        record = self._records([task_id])[task_id]
        state = OF_STATUS.get(record.get("status", ""), CANCELLED if self.is_over else LATER)
        fields = [name] if self.may_view_body and not record else []
        body = self._prepared(fields)[0] if fields else b""
        return self._node(task, task_id, state, record, body, label)

    def _label_of_call(self, member: int, step: int) -> str:
        if self.workflow.kind == "chain":
            return _("step %(step)d") % {"step": step + 1}
        if len(self.shape.ids[member]) > 1:
            return _("member %(member)d, step %(step)d") % {"member": member, "step": step + 1}
        return _("member %(member)d") % {"member": member}

    def _node(self, task: str, task_id: str, state: str, record: Mapping[str, str], body: bytes, label: str) -> Node:
        body = body or (b"" if task and not self.may_view_body else self._body(record))
        task = task or task_name(body)
        arguments = arguments_of(body) if self.may_view_body else ""
        return Node(label, visible(task) or _("unknown"), state, arguments, _run_time(record, state), task_id)

    def _records(self, task_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        found = self.client.run_many([read_record(self.client.namespace, each) for each in task_ids])
        return {
            task_id: {} if isinstance(record, RsmqError) else record
            for task_id, record in zip(task_ids, found, strict=True)
        }

    def _body(self, record: Mapping[str, str]) -> bytes:
        if record.get("body"):
            return record["body"].encode("utf-8", "surrogateescape")
        queue, message_id = record.get("queue", ""), record.get("message", "")
        if not queue or not message_id:
            return b""
        return self.client.run(read_body(queue_keys(self.client.namespace, queue), message_id)) or b""

    def _later(self, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        if not places or not self.may_view_body:
            return {}
        bodies = self._prepared([f"{member}.{step}" for member, step in places])
        return dict(zip(places, bodies, strict=True))

    def _prepared(self, fields: Sequence[str]) -> list[bytes]:
        call = read_later(self.client.namespace, self.workflow.status.id, fields, body_bytes=BODY_BYTES)
        return self.client.run(call)

    # -- A large one, equal members together --------------------------------------------------------------------------

    def counted(self) -> list[list[Node]]:
        """Return a branch for each run of equal members."""
        runs = [_with_count(run, self.workflow.members) for run in self.shape.runs]
        counts = self._counts(runs)
        return [
            [
                Node(
                    self._label(run),
                    visible(steps.task) or _("several tasks"),
                    _state_of(numbers),
                    calls=max(2, run.count * steps.count),
                    counts=numbers,
                )
                for steps, numbers in zip(run.steps, counts[n], strict=True)
            ]
            for n, run in enumerate(runs)
        ]

    def _label(self, run: MemberRun) -> str:
        if self.workflow.kind == "chain":
            return str(self.workflow.get_kind_display())
        return _("%(kind)s of %(count)s") % {"kind": self.workflow.get_kind_display(), "count": as_number(run.count)}

    def _counts(self, runs: Sequence[MemberRun]) -> list[list[dict[str, int]]]:
        """Return how many calls are in which state, for the steps of each run."""
        status = self.workflow.status
        if len(runs) == 1 and runs[0].calls == 1:
            done = status.members - status.waiting - status.failed
            waiting = CANCELLED if status.state == "cancelled" else READY
            return [[{DONE: done, FAILED: status.failed, waiting: status.waiting}]]
        unfinished = self.client.run(read_unfinished(self.client.namespace, status.id, most=MAX_COUNTED))
        if status.state == "cancelled" or unfinished.members is None:
            return [[{} for _steps in run.steps] for run in runs]
        return _count(runs, unfinished)


def _count(runs: Sequence[MemberRun], unfinished: Unfinished) -> list[list[dict[str, int]]]:
    first_later: dict[int, int] = {}
    for member, step in unfinished.steps or ():
        first_later[member] = min(step, first_later.get(member, step))
    open_members, failed = set(unfinished.members or ()), set(unfinished.failed or ())
    counts: list[list[dict[str, int]]] = []
    begin = 0
    for run in runs:
        end = begin + run.count
        stuck = [(m, m in failed) for m in open_members | failed if begin <= m < end]
        current = [(first_later.get(m, run.calls) - 1, is_failed) for m, is_failed in stuck]
        at, of_run = 0, []
        for steps in run.steps:
            numbers = {DONE: 0, FAILED: 0, READY: 0, LATER: 0}
            numbers[DONE] = (run.count - len(stuck)) * steps.count
            for place, is_failed in current:
                numbers[DONE] += min(max(place - at, 0), steps.count)
                numbers[LATER] += min(max(at + steps.count - place - 1, 0), steps.count)
                if at <= place < at + steps.count:
                    numbers[FAILED if is_failed else READY] += 1
            of_run.append(numbers)
            at += steps.count
        counts.append(of_run)
        begin = end
    return counts


def _state_of(counts: Mapping[str, int]) -> str:
    order: tuple[tuple[str, Callable[[], bool]], ...] = (
        (FAILED, lambda: counts.get(FAILED, 0) > 0),
        (READY, lambda: counts.get(READY, 0) > 0),
        (CANCELLED, lambda: counts.get(CANCELLED, 0) > 0),
        (DONE, lambda: counts.get(DONE, 0) > 0 and not counts.get(LATER, 0)),
    )
    return next((state for state, fits in order if fits()), LATER)


def _with_count(run: MemberRun, members: int) -> MemberRun:
    return MemberRun(members, run.steps) if run.count == 0 else run


def _tasks(run: MemberRun) -> list[str]:
    return [steps.task for steps in run.steps for _number in range(steps.count)]


def _at(tasks: Sequence[str], step: int) -> str:
    """Return the task of a step; "" where the shape does not tell it: its members are of several kinds."""
    return tasks[step] if step < len(tasks) else ""


def _run_time(record: Mapping[str, str], state: str) -> str:
    """Return how long the latest attempt took, or has been running."""
    begun, ended = read_epoch_ms(record.get("attempted_ms")), read_epoch_ms(record.get("finished_ms"))
    if begun is None or state not in (DONE, FAILED, RUNNING):
        return ""
    if state == RUNNING:
        ended = time.time() * 1000
    return as_duration(max(0.0, ended - begun) / 1000) if ended is not None else ""


def arguments_of(body: bytes) -> str:
    """Return the arguments of a call on one line, with secrets hidden; "" when they cannot be read."""
    try:
        return call_text(decode(seal_of(body, is_cut=False).body, message_id=""))
    except Unreadable:
        return ""


def call_text(envelope: Envelope) -> str:
    """Return the arguments of a call on one line, with secrets hidden: 'order=7, currency="EUR"'."""
    call = redacted_call(envelope)
    named = [*call.args, *call.kwargs.items()]
    parts = [f"{name}={_as_json(value)}" if name else _as_json(value) for name, value in named]
    return one_line(", ".join(parts), 200)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
