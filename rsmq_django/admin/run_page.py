"""Everything about one run, gathered for its page: arguments, result, error, other attempts, workflow, trace."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

from ..conf.settings import get_settings
from ..core.errors import QueueNotFound
from ..core.queue.browse import FailureRecord, pick
from ..core.stats.events import Event
from ..core.stats.run_filter import group_of
from ..core.stats.runs import RunPage, attempts_of
from ..live.places import QueueRef
from ..live.runs import RunSource, dead_letters_of
from ..models import Run
from ..tasks.membership import META as WORKFLOW
from ..tasks.membership import membership_of
from ..tasks.results import read_record
from ..tasks.tracing import META as TRACE
from .bodies import ShownBody, shown
from .message_page import Attempt, as_safe_text
from .message_page import attempts_of as attempts_in
from .recorded_calls import RecordedCall, call_of_run

#: Other attempts that a page shows, and entries that are looked at for them.
MAX_ATTEMPTS, LOOKED_AT = 50, 20_000
LONGEST_CHARACTERS = 1024 * 1024
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.ASCII | re.DOTALL)


class PageOfRun:
    """See the module. What only those may see who may see bodies is read when it is asked for."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.event: Event = run.event
        self.place = QueueRef(run.connection, self.event.queue)
        self.client = self.place.client

    @cached_property
    def call(self) -> RecordedCall | None:
        """Return the call, wherever it is still kept."""
        return call_of_run(self.place, self.event.message_id, self.event.task_id)

    @property
    def is_encrypted(self) -> bool:
        """Return whether the queue keeps its arguments from being read."""
        settings = get_settings()
        return settings.knows_queue(self.place.name) and bool(settings.queue(self.place.name).encryption_keys)

    @cached_property
    def arguments(self) -> ShownBody | None:
        """Return the arguments as they may be seen; None when they are not kept any more, or encrypted."""
        if self.call is None or self.is_encrypted:
            return None
        envelope = self.call.envelope
        text = json.dumps({"args": envelope.args, "kwargs": envelope.kwargs}, ensure_ascii=False)
        return shown(text.encode("utf-8", "surrogatepass"), task=envelope.task)

    @cached_property
    def record(self) -> dict[str, str]:
        """Return the result record of the task; empty when there is none."""
        task_id = self.event.task_id
        if not task_id or not task_id.isprintable():
            return {}
        return self.client.run(read_record(self.client.namespace, task_id))

    @cached_property
    def value(self) -> ShownBody | None:
        """Return the return value of the function if this run succeeded and its result is stored."""
        text = self.record.get("value")
        if text is None or self.event.kind != "succeeded":
            return None
        return shown(text[:LONGEST_CHARACTERS].encode("utf-8", "surrogateescape"))

    @property
    def error_text(self) -> str:
        """Return the exception's own text, as it may be seen."""
        return as_safe_text(self.event.error)

    @cached_property
    def traceback(self) -> str:
        """Return the traceback of this attempt from the result record or the dead letter; "" when there is none."""
        found: list[Attempt] = [each for each in attempts_in(self.record) if each.number == self.event.attempt]
        if found and found[0].traceback:
            return found[0].traceback
        failure = self._failure
        return as_safe_text(failure.traceback) if failure is not None and self.event.kind == "dead" else ""

    @cached_property
    def message_place(self) -> QueueRef | None:
        """Return the queue that still has the message; None when it is gone."""
        names = [self.place.name, dead_letters_of(self.place.alias, self.event)]
        for place in [QueueRef(self.place.alias, name) for name in names if name]:
            if self._stored(place) is not None:
                return place
        return None

    @property
    def message_id(self) -> bytes:
        """Return the id as it is stored."""
        return self.event.message_id.encode("utf-8", "surrogateescape")

    def _stored(self, place: QueueRef) -> Any:
        try:
            found = self.client.run(pick(self.client.namespace, place.name, [self.message_id])).messages
        except QueueNotFound:  # nothing has died in it yet, or it is a topic
            return None
        return found[0] if found else None

    @property
    def _failure(self) -> FailureRecord | None:
        place = self.message_place
        stored = self._stored(place) if place is not None else None
        return stored.failure() if stored is not None else None

    @cached_property
    def others(self) -> RunPage:
        """Return the attempts of the call, newest first, this one among them."""
        return attempts_of(self.client, self.event, most_looked_at=LOOKED_AT)

    @property
    def other_runs(self) -> list[Run]:
        """Return the other attempts as rows."""
        source = RunSource(Run)
        others = [event for event in self.others.runs if event != self.event]
        return [source.row(self.place.alias, event) for event in others[:MAX_ATTEMPTS]]

    @property
    def _meta(self) -> dict[str, Any]:
        return (self.call.envelope.meta or {}) if self.call is not None else {}

    @property
    def workflow_id(self) -> str:
        """Return the workflow that the call belongs to, or ""."""
        membership = membership_of(self._meta) if WORKFLOW in self._meta else None
        return membership.workflow_id if membership is not None else ""

    @property
    def trace_id(self) -> str:
        """Return the id of its trace, or ""."""
        context = self._meta.get(TRACE)
        found = _TRACE.fullmatch(context) if isinstance(context, str) else None
        return found[1] if found is not None else ""

    @property
    def trace_url(self) -> str:
        """Return where the trace is shown, or ""."""
        pattern = get_settings().admin.trace_url
        return pattern.replace("{trace_id}", self.trace_id) if pattern and self.trace_id else ""

    @property
    def group(self) -> str:
        """Return the error group, or ""."""
        return group_of(self.event) or ""
