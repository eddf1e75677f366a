"""Repairs of findings. Each step is one script that checks again before it changes anything.

A repair never changes data that a client may be writing at this moment: a client that sends in two steps is between
them for milliseconds, so most repairs look twice, five seconds apart, and act on unchanged entries only. All repairs
share this delay: each is a generator that yields where it has to wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from ..errors import RsmqError
from ..keys import MAX_NAME_LENGTH, queue_keys, workflow_keys
from ..limits import batches
from ..tasks.workflow_records import newest
from ..tasks.workflows import MAX_LISTED
from ..transport.call import Call
from ..transport.client import Client
from . import calls
from .calls import GRACE_S, REPAIRED_AT_A_TIME
from .examination import Settings
from .finding import ExpectedQueue, Finding, Repair
from .messages import S, following
from .queues import broken_attributes, fractional_attributes

T = TypeVar("T")
#: Yields where it must wait, returns the number of changes.
Steps = Generator[None, None, int]

#: How many suspects are kept in memory from the first look to the second.
SUSPECTS_AT_A_TIME = 100_000
ORPHANS_SUFFIX = "-orphans"


def repair(
    client: Client,
    findings: Iterable[Finding],
    *,
    settings: Settings | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> list[Repair]:
    """Repair all findings that can be repaired, and return the result of each.

    Safe to repeat and to interrupt. Broken queues get the attributes of `settings`, or without it RSMQ's defaults. A
    repair that fails is reported with its reason; it does not prevent the others.
    """
    patients = {
        finding: Patient(client, finding.subject, (settings or {}).get(finding.subject, ExpectedQueue()))
        for finding in findings
        if finding.repair is not None and finding.id in _REPAIRS
    }
    running = {finding: _REPAIRS[finding.id](patient) for finding, patient in patients.items()}
    done: dict[Finding, Repair] = {}
    while running:
        for finding, steps in list(running.items()):
            result = _advance(finding, steps)
            if result is not None:
                done[finding] = result
                del running[finding]
        if running:
            wait(GRACE_S)
    return [done[finding] for finding in patients]


def _advance(finding: Finding, steps: Steps) -> Repair | None:
    """Run a repair to its next pause. Return its result when it has ended, None when it waits."""
    try:
        next(steps)
    except StopIteration as end:
        return Repair(finding, end.value)
    except RsmqError as error:
        return Repair(finding, 0, str(error))
    return None


def orphans_queue(name: str) -> str:
    """Return the name of the queue for the orphaned bodies of a queue. For such a queue itself it is the same name."""
    return name if name.endswith(ORPHANS_SUFFIX) else name[: MAX_NAME_LENGTH - len(ORPHANS_SUFFIX)] + ORPHANS_SUFFIX


class Patient:
    """A queue under repair."""

    def __init__(self, client: Client, name: str, expected: ExpectedQueue) -> None:
        self.client = client
        self.name = name
        self.expected = expected
        self.keys = queue_keys(client.namespace, name)

    # -- Messages -----------------------------------------------------------------------------------------------------

    def remove_phantoms(self) -> Steps:
        """Remove ids that have no body."""
        slices = self._walk(lambda cursor: calls.scan_messages(self.keys, cursor, grace_s=0))
        return (
            yield from self._in_two_looks(
                (phantom for piece in slices for phantom in piece.phantoms),
                lambda some: self.client.run(calls.remove_phantoms(self.keys, some)),
            )
        )

    def move_orphans(self) -> Steps:
        """Move bodies that have no id to a separate queue."""
        name = orphans_queue(self.name)
        target = queue_keys(self.client.namespace, name)
        return (
            yield from self._in_two_looks(
                (body for piece in self._fields() for body in piece.bodies),
                lambda some: self.client.run(calls.move_orphans(self.keys, target, name, some)),
            )
        )

    def remove_counters(self) -> Steps:
        """Remove counters that belong to no message."""
        return (
            yield from self._in_two_looks(
                (counter for piece in self._fields() for counter in piece.counters),
                lambda some: self.client.run(calls.remove_counters(self.keys, some)),
            )
        )

    def _fields(self) -> Iterable[calls.FieldSlice]:
        return self._walk(lambda cursor: calls.scan_fields(self.keys, cursor, grace_s=0))

    def _walk(self, scan: Callable[[str], Call[S]]) -> Iterator[S]:
        cursor: str | None = "0"
        while cursor is not None:
            piece = self.client.run(scan(cursor))
            yield piece
            cursor = following(piece)

    @staticmethod
    def _in_two_looks(suspects: Iterable[T], act: Callable[[Sequence[T]], int]) -> Steps:
        """Call `act` with the suspects after the pause; its script acts on unchanged ones only."""
        rest, changed = iter(suspects), 0
        while noted := list(islice(rest, SUSPECTS_AT_A_TIME)):
            yield
            for first in range(0, len(noted), REPAIRED_AT_A_TIME):
                changed += act(noted[first : first + REPAIRED_AT_A_TIME])
        return changed

    # -- The queue itself ---------------------------------------------------------------------------------------------

    def complete(self) -> Steps:
        """Add the missing attributes of the queue and list it."""
        yield  # a client that creates it may be between its two steps
        return self.client.run(calls.complete(self.keys, self.name, self.expected))

    def unlist(self) -> Steps:
        """Remove the name of a missing queue from the list."""
        yield
        return self.client.run(calls.unlist(self.keys, self.name))

    def remove_stray_index(self) -> Steps:
        """Remove the ids of a deleted queue, and the records of their removal."""
        changed = yield from self.remove_phantoms()
        self.client.run(calls.remove_side_data(self.keys))
        return changed

    def remove_reserved(self) -> Steps:
        """Save the bodies, then remove the queue."""
        moved = yield from self.move_orphans()
        return moved + self.client.run(calls.remove_reserved(self.keys, self.name))

    def stop_expiry(self) -> Steps:
        """Remove the expiry from the keys of the queue."""
        yield from ()
        return self.client.run(calls.stop_expiry(self.keys))

    # -- Attributes ---------------------------------------------------------------------------------------------------

    def repair_attributes(self) -> Steps:
        """Replace attributes that are not numbers; a counter starts from 0."""
        yield from ()
        defaults = {**self.expected.stored, "totalrecv": 0, "totalsent": 0}
        broken = broken_attributes(self.client.run(calls.read_facts(self.keys)))
        return sum(self._set(field, text, defaults[field]) for field, text in broken.items())

    def round_attributes(self) -> Steps:
        """Round visibility timeout and delay up to whole numbers."""
        yield from ()
        fractions = fractional_attributes(self.client.run(calls.read_facts(self.keys)))
        return sum(self._set(field, text, math.ceil(float(text))) for field, text in fractions.items())

    def _set(self, field: str, text: str, value: int) -> int:
        return self.client.run(calls.repair_attribute(self.keys, field, text, value))

    def cancel_workflows(self) -> Steps:
        """Cancel a workflow, or all stuck workflows: they accept no more members and send nothing more."""
        yield from ()
        namespace, states = self.client.namespace, [self.name]
        if self.name == calls.ALL_WORKFLOWS:
            listed = batches(self.client.run(newest(namespace, MAX_LISTED)))
            running = (each for ids in listed for each in self.client.run(calls.running_workflows(namespace, ids)))
            states = [workflow_keys(namespace, each.id)[0] for each in running if each.is_stuck]
        return sum(self.client.run(calls.cancel_workflow(namespace, state)) for state in states)

    # -- Our own side data --------------------------------------------------------------------------------------------

    def remove_side_data(self) -> Steps:
        """Remove our records of messages that no longer exist, or all records if the queue does not exist."""
        yield from ()
        changed = self.client.run(calls.remove_side_data(self.keys))
        for side in (self.keys.failures, self.keys.releases):
            slices = self._walk(partial(calls.scan_side, self.keys, side))
            for stale in batches(entry for piece in slices for entry in piece.stale):
                changed += self.client.run(calls.remove_side_entries(self.keys, side, stale))
        return changed


_REPAIRS: dict[str, Callable[[Patient], Steps]] = {
    "unlisted": Patient.complete,
    "half-created": Patient.complete,
    "ghost": Patient.complete,
    "missing-queue": Patient.unlist,
    "stray-index": Patient.remove_stray_index,
    "reserved-name": Patient.remove_reserved,
    "expiring": Patient.stop_expiry,
    "broken-attribute": Patient.repair_attributes,
    "fractional-attribute": Patient.round_attributes,
    "phantoms": Patient.remove_phantoms,
    "orphan-bodies": Patient.move_orphans,
    "orphan-counters": Patient.remove_counters,
    "stale-side-data": Patient.remove_side_data,
    "stuck-workflow": Patient.cancel_workflows,
}
