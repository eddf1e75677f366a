"""Tasks of a workflow in a worker: what they get as first argument, and how their ends let the workflow get on.

The end of a member is counted by the script that ends its message, so there is no moment between the two in which a
process could die. Messages of no workflow are ended as ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import Client, RsmqError
from ..core.call import Call
from ..core.workflows import WorkflowStatus, finishing, outcomes, read_statuses, without_proofs
from ..tasks.membership import META, Membership, failure_record, is_task_id, membership_of
from ..tasks.retry import Postpone
from ..tasks.workflow_proofs import FAILURE, VALUE, Receiver, proven
from ..tasks.workflow_state import Failure, read_outcome, slices
from .error_text import dotted_path, text_of
from .outcomes import Dead, Succeeded

if TYPE_CHECKING:
    from .endings import Ending
    from .execution import Execution

T = TypeVar("T")

#: After so long a call is tried again that could not be given its results, because Redis could not be asked.
ASK_AGAIN_S = 1.0


class WorkflowGone(Exception):
    """The workflow of a call has expired, and with it what the call should have got."""


# -- Before it runs ---------------------------------------------------------------------------------------------------


def argument_of(execution: Execution) -> Any:
    """Return the first argument of a call: a result, a list of results, or a list of failures.

    Raises WorkflowGone, ForgedArgument on a sealed queue for what carries no valid proof, and Postpone when Redis
    cannot be asked: that is no failure of the task.
    """
    source = _Source.of(execution)
    try:
        (status,) = source.client.run(source.status())
        pairs = [pair for part in source.parts(status) for pair in source.client.run(source.read(part))]
    except RsmqError as error:
        raise _later(error) from error
    return source.argument(pairs)


async def aargument_of(execution: Execution) -> Any:
    """See argument_of()."""
    source = _Source.of(execution)
    try:
        (status,) = await source.client.arun(source.status())
        pairs = [pair for part in source.parts(status) for pair in await source.client.arun(source.read(part))]
    except RsmqError as error:
        raise _later(error) from error
    return source.argument(pairs)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a call gets from its workflow, and how that is read."""

    membership: Membership
    client: Client
    #: None for a call on a queue without keys, which takes what it finds.
    receiver: Receiver | None

    @classmethod
    def of(cls, execution: Execution) -> _Source:
        membership, work_queue = execution.takes_from, execution.delivery.work_queue
        assert membership is not None
        client = work_queue.queue.client
        receiver = Receiver.of(
            work_queue.settings,
            name=work_queue.base_name,
            namespace=client.namespace,
            membership=membership,
            task_id=execution.task_id,
        )
        return cls(membership, client, receiver)

    def status(self) -> Call[list[WorkflowStatus | None]]:
        return read_statuses(self.client.namespace, [self.membership.workflow_id])

    def read(self, part: tuple[int, int]) -> Call[list[tuple[bytes, bytes]]]:
        return outcomes(self.client.namespace, self.membership.workflow_id, *part)

    def parts(self, status: WorkflowStatus | None) -> Iterable[tuple[int, int]]:
        """Return the first and last numbers of the members to read together."""
        if status is None:
            raise WorkflowGone(
                f"workflow {self.membership.workflow_id} has expired, and with it what this call should get; enqueue "
                "it again"
            )
        if self.membership.takes == "result":
            return [(self.membership.member or 0, self.membership.member or 0)]
        if self.receiver is not None:
            self.receiver.check_members(status.members, status.member_proofs)
        return slices(status.members)

    def argument(self, pairs: list[tuple[bytes, bytes]]) -> Any:
        """Return what was read."""
        membership, receiver = self.membership, self.receiver
        if membership.takes == "result":
            value = pairs[0][0]
            if receiver is not None:
                value = receiver.check(membership.member or 0, VALUE, value)
            return json.loads(without_proofs(value) or b"null")
        if membership.takes == "failures":
            pairs = [(b"", failure) for _, failure in pairs]
        if receiver is not None:
            pairs = [self._checked(receiver, member, *pair) for member, pair in enumerate(pairs)]
        found = [read_outcome(member, *pair) for member, pair in enumerate(pairs)]
        if membership.takes != "failures":
            return found
        failures = [each for each in found if isinstance(each, Failure)]
        if receiver is not None and not failures:
            raise receiver.no_failures()
        return failures

    def _checked(self, receiver: Receiver, member: int, value: bytes, failure: bytes) -> tuple[bytes, bytes]:
        if failure:
            return b"", receiver.check(member, FAILURE, failure)
        if self.membership.takes == "failures":
            return b"", b""
        return receiver.check(member, VALUE, value), b""


def _later(error: RsmqError) -> Postpone:
    return Postpone(ASK_AGAIN_S, f"the results that it takes cannot be read: {error}")


# -- When it has ended ------------------------------------------------------------------------------------------------


def is_member(ending: Ending) -> bool:
    """Say whether a workflow waits for the end of this message."""
    return _waits_for(ending) is not None


def counted(ending: Ending, call: Call[T]) -> Call[T]:
    """Return the call that ends a member's message, as one that also lets its workflow get on."""
    membership = _waits_for(ending)
    if membership is None:
        return call
    work_queue, task_id, outcome = ending.delivery.work_queue, ending.execution.task_id, ending.outcome
    script, kind, said = "succeed", VALUE, ""
    if isinstance(outcome, Succeeded):
        said = outcome.value
    elif isinstance(outcome, Dead):
        script, kind, said = "bury", FAILURE, _failure(ending, outcome)
    else:
        return call
    if work_queue.is_sealed:  # else any program may have sent the message, and what it returns proves nothing
        task_id, said = f"{task_id}@{work_queue.base_name}", proven(said, membership, kind)
    return finishing(call, script, membership.end(work_queue.queue.client.namespace, task_id=task_id, said=said))


def _waits_for(ending: Ending) -> Membership | None:
    envelope = ending.envelope
    if envelope is None or envelope.meta is None or META not in envelope.meta:
        return None
    membership = membership_of(envelope.meta)
    if membership is None or membership.member is None or not is_task_id(envelope.id):
        return None
    return membership


def _failure(ending: Ending, outcome: Dead) -> str:
    envelope = ending.envelope
    return failure_record(
        task_id=ending.execution.task_id,
        task=envelope.task if envelope is not None else "",
        reason=outcome.reason,
        error=dotted_path(type(outcome.error)),
        message=text_of(outcome.error),
    )
