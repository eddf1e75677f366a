"""Workflow members in a worker: their first argument, and how their end advances the workflow.

The script that settles a member's message also counts its end, so a process cannot die between the two. Messages that
belong to no workflow are settled as usual.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core import Client, RsmqError
from ...core.errors import BrokenQueue
from ...core.tasks.workflow_outcomes import Extent, find_numbers, outcomes, read_extent, read_outcomes
from ...core.tasks.workflow_records import without_proofs
from ...core.tasks.workflows import MAX_MEMBERS, advancing
from ...core.transport.call import Call
from ...core.transport.reading_steps import Reading, arun_reading, run_reading
from ...tasks.membership import META, Membership, failure_record, is_task_id, membership_of
from ...tasks.retry import Postpone
from ...tasks.workflow_proofs import FAILURE, VALUE, ForgedArgument, Receiver, proven
from ...tasks.workflow_state import Failure, read_outcome
from ..delivery import AttemptState
from ..outcomes import Dead, Settlement, Succeeded
from ..report.notifications import dotted_path, text_of

T = TypeVar("T")

#: A call whose argument could not be read, because Redis could not be asked, is tried again after this time.
ASK_AGAIN_S = 1.0
#: The same for a step of a chain, because another program uses a key of its workflow.
BROKEN_AGAIN_S = 60.0


class WorkflowGone(Exception):
    """The workflow of a call has expired, and with it the argument of the call."""


# -- Before it runs ---------------------------------------------------------------------------------------------------


def take_argument(attempt: AttemptState) -> None:
    """Read the first argument of a call: a result, a list of results, or a list of failures.

    Raises WorkflowGone; ForgedArgument for an argument that no worker can have stored, and on a sealed queue for one
    without a valid proof; and Postpone when Redis cannot be asked: this is not a failure of the task. Between two
    replies the reading ends when the call is interrupted or the worker is stopping.
    """
    source = _Predecessor.of(attempt)
    try:
        argument = run_reading(source.client, source.reading(), attempt.check_reading)
    except RsmqError as error:
        raise source.not_read(error) from error
    attempt.args = [argument, *attempt.args[1:]]


async def atake_argument(attempt: AttemptState) -> None:
    """See take_argument()."""
    source = _Predecessor.of(attempt)
    try:
        argument = await arun_reading(source.client, source.reading(), attempt.check_reading)
    except RsmqError as error:
        raise source.not_read(error) from error
    attempt.args = [argument, *attempt.args[1:]]


@dataclass(frozen=True, slots=True)
class _Predecessor:
    """The workflow from which a call takes its first argument.

    Numbers of its hash are checked before they decide how much is read.
    """

    membership: Membership
    client: Client
    #: None for a call on a queue without keys, which checks no proofs.
    receiver: Receiver | None

    @classmethod
    def of(cls, attempt: AttemptState) -> _Predecessor:
        membership, work_queue = attempt.takes_from, attempt.delivery.work_queue
        assert membership is not None
        client = work_queue.queue.client
        receiver = Receiver.of(
            work_queue.settings,
            name=work_queue.base_name,
            namespace=work_queue.signed_namespace,
            membership=membership,
            task_id=attempt.task_id,
        )
        return cls(membership, client, receiver)

    def reading(self) -> Reading[Any]:
        """Return the reading of the argument."""
        if self.membership.takes == "result":
            return self._read_result()
        return self._read_results() if self.membership.takes == "results" else self._read_failures()

    def _read_result(self) -> Reading[Any]:
        member = self.membership.member or 0
        pairs = yield outcomes(self.client.namespace, self.membership.workflow_id, [member])
        if not pairs:
            raise self._gone()
        value, _ = pairs[0]
        if self.receiver is not None:
            value = self.receiver.check(member, VALUE, value)
        if not value:
            return None
        try:
            return json.loads(without_proofs(value))
        except (ValueError, RecursionError) as error:
            raise self._forged(f"the result of member {member} is not readable: {error}") from error

    def _read_results(self) -> Reading[list[Any]]:
        extent = yield from self._read_extent()
        if not extent.is_plausible:
            raise self._forged(f"its hash says that it has {extent.members} members, and Redis has {extent.entries}")
        return (yield from self._read_outcomes(range(extent.members or 0)))

    def _read_failures(self) -> Reading[list[Failure]]:
        extent = yield from self._read_extent()
        namespace, workflow_id = self.client.namespace, self.membership.workflow_id
        numbers = yield from find_numbers(namespace, workflow_id, "failures", below=extent.members or 0)
        found = yield from self._read_outcomes(numbers, failures_only=True)
        failures = [each for each in found if isinstance(each, Failure)]
        if self.receiver is not None and not failures:
            raise self.receiver.no_failures()
        return failures

    def _read_extent(self) -> Reading[Extent]:
        extent: Extent | None = yield read_extent(self.client.namespace, self.membership.workflow_id)
        if extent is None:
            raise self._gone()
        if extent.members is None:
            raise self._forged(f"the number of members in its hash is not between 0 and {MAX_MEMBERS:,}")
        if self.receiver is not None:
            self.receiver.check_members(extent.members, extent.member_proofs)
        return extent

    def _read_outcomes(self, numbers: Sequence[int], *, failures_only: bool = False) -> Reading[list[Any]]:
        """Read and check the outcomes of members as they arrive."""
        found: list[Any] = []

        def take(member: int, value: bytes, failure: bytes) -> None:
            if self.receiver is not None and failure:
                failure = self.receiver.check(member, FAILURE, failure)
            elif self.receiver is not None and not failures_only:
                value = self.receiver.check(member, VALUE, value)
            found.append(read_outcome(member, value, failure))

        namespace, workflow_id = self.client.namespace, self.membership.workflow_id
        if not (yield from read_outcomes(namespace, workflow_id, numbers, take, failures_only=failures_only)):
            raise self._gone()
        return found

    def _gone(self) -> WorkflowGone:
        return WorkflowGone(
            f"workflow {self.membership.workflow_id} has expired, and with it what this call should get; enqueue it "
            "again"
        )

    def _forged(self, why: str) -> ForgedArgument:
        return ForgedArgument(
            f"the argument of this call cannot be what workflow {self.membership.workflow_id} stored: {why}; another "
            "program changed it, or the server has evicted a part of it"
        )

    def not_read(self, error: RsmqError) -> Exception:
        """Return what to raise when Redis gave no argument."""
        is_broken = isinstance(error, BrokenQueue)
        if is_broken and self.membership.member is None:
            return self._forged(str(error))
        # The end of a member needs the same keys, so it waits until they are repaired.
        after_s = BROKEN_AGAIN_S if is_broken else ASK_AGAIN_S
        return Postpone(after_s, f"the results that it takes cannot be read: {error}")


# -- When it has ended ------------------------------------------------------------------------------------------------


def is_member(settlement: Settlement) -> bool:
    """Return whether the message is a member of a workflow that counts its end."""
    return _waits_for(settlement) is not None


def counted(settlement: Settlement, call: Call[T]) -> Call[T]:
    """Return the call that settles a member's message, extended so that it also advances its workflow."""
    membership = _waits_for(settlement)
    if membership is None:
        return call
    work_queue, task_id, outcome = settlement.delivery.work_queue, settlement.execution.task_id, settlement.outcome
    kind, value = VALUE, ""
    if isinstance(outcome, Succeeded):
        value = outcome.value
    elif isinstance(outcome, Dead):
        kind, value = FAILURE, _failure(settlement, outcome)
    else:
        return call
    if work_queue.is_sealed:  # otherwise any program may have sent the message, and its return value proves nothing
        task_id, value = (
            f"{task_id}@{work_queue.base_name}",
            proven(value, membership, kind, queue_name=work_queue.name),
        )
    return advancing(call, membership.end(work_queue.queue.client.namespace, task_id=task_id, said=value))


def _waits_for(settlement: Settlement) -> Membership | None:
    envelope = settlement.envelope
    if envelope is None or envelope.meta is None or META not in envelope.meta:
        return None
    membership = membership_of(envelope.meta)
    if membership is None or membership.member is None or not is_task_id(envelope.id):
        return None
    return membership


def _failure(settlement: Settlement, outcome: Dead) -> str:
    envelope = settlement.envelope
    return failure_record(
        task_id=settlement.execution.task_id,
        task=envelope.task if envelope is not None else "",
        reason=outcome.reason,
        error=dotted_path(type(outcome.error)),
        message=text_of(outcome.error),
    )
