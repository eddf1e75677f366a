"""The tasks that a worker process runs now: arguments, progress, run time, and where each of them is in its code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from ..core.queue.browse import StoredMessage, pick
from ..core.tasks.processes import Running, held_in
from ..core.tasks.stacks import read_stacks
from ..live.envelopes import task_name
from ..live.places import QueueRef
from ..live.servers import answers_that_came
from ..models import Worker
from ..queues import get_client
from ..tasks.envelope import Unreadable, decode
from .formats import as_duration, as_number, one_line, visible
from .redaction import redact, seal_of
from .workflow_graph import call_text

#: Arguments of longer calls are not shown here; the page of the message has them.
BODY_BYTES = 16_384
#: Progress beyond this is shown without a share: a float of it is not exact.
MAX_SHOWN = 10**15


@dataclass(frozen=True, slots=True)
class RunningRow:
    """A message that a process runs, as the page shows it."""

    message_id: str
    #: "" when the process does not note from where it has the message.
    message_key: str
    queue: str
    task: str
    runs_for: str
    #: "" for users who may not see bodies.
    arguments: str
    progress: str
    #: Where it is in its code; "" when that was not asked for, or is not known yet.
    stack: str


@dataclass(frozen=True, slots=True)
class _RunningMessage:
    """The known details of a running message."""

    place: QueueRef
    message: StoredMessage | None
    progress: str = ""


def running_rows(worker: Worker, *, sees_bodies: bool) -> list[RunningRow]:
    """Return what a process runs, the longest first, as far as it is known from where it has its messages."""
    if worker.record is None or not worker.record.running:
        return []
    client, known = get_client(worker.connection), _known_messages(worker)
    stacks = client.run(read_stacks(client.namespace, worker.beat.worker_id)) if sees_bodies else {}
    return [_row(each, known.get(each.message_id), sees_bodies, stacks) for each in worker.record.running]


def _known_messages(worker: Worker) -> dict[str, _RunningMessage]:
    assert worker.record is not None
    client = get_client(worker.connection)
    held = client.run(held_in(client.namespace, worker.beat.worker_id))
    running = [each.message_id for each in worker.record.running if each.message_id in held]
    known = {each: _RunningMessage(QueueRef(worker.connection, held[each]), None) for each in running}
    for queue in dict.fromkeys(held[each] for each in running):
        ids = [each for each in running if held[each] == queue]
        (page,) = answers_that_came(client, [pick(client.namespace, queue, ids, body_bytes=BODY_BYTES)])
        for message in page.messages if page is not None else ():
            known[message.id] = _RunningMessage(known[message.id].place, message)
    return known | _with_progress(worker, known)


def _with_progress(worker: Worker, known: dict[str, _RunningMessage]) -> dict[str, _RunningMessage]:
    from ..tasks.results import read_record  # it imports the tasks framework

    client = get_client(worker.connection)
    calls = {each: envelope.id for each, one in known.items() if (envelope := _envelope(one.message)) is not None}
    records = answers_that_came(client, [read_record(client.namespace, task_id) for task_id in calls.values()])
    found = {}
    for message_id, record in zip(calls, records, strict=True):
        one = known[message_id]
        found[message_id] = _RunningMessage(one.place, one.message, _progress((record or {}).get("progress", "")))
    return found


def _progress(text: str) -> str:
    """Return "30 of 120 (25 %), reading page 31" for the progress that a task has noted."""
    try:
        said = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(said, dict) or not isinstance(said.get("done"), int | float):
        return ""
    done, total, note = said["done"], said.get("total"), said.get("note")
    shown = as_number(done)
    if isinstance(total, int | float) and 0 < total < MAX_SHOWN and 0 <= done < MAX_SHOWN:
        words = {"done": as_number(done), "total": as_number(total), "share": f"{100 * done / total:.0f}"}
        shown = _("%(done)s of %(total)s (%(share)s %%)") % words
    return f"{shown}, {one_line(redact(str(note)), 80)}" if note else shown


def _envelope(message: StoredMessage | None) -> Any:
    if message is None:
        return None
    try:
        return decode(seal_of(message.body).body, message_id=message.id)
    except Unreadable:
        return None


def _row(running: Running, known: _RunningMessage | None, sees_bodies: bool, stacks: dict[str, str]) -> RunningRow:
    message_id, message = running.message_id, known.message if known else None
    envelope = _envelope(message) if sees_bodies else None
    return RunningRow(
        message_id=visible(message_id),
        message_key=known.place.message_key(message_id.encode("utf-8", "surrogateescape")) if known else "",
        queue=visible(known.place.name) if known else "",
        task=visible(task_name(message.body)) if message else "",
        runs_for=as_duration(running.run_ms / 1000),
        arguments=call_text(envelope) if envelope is not None else "",
        progress=known.progress if known and sees_bodies else "",
        stack=visible(redact(stacks.get(message_id, ""))),
    )
