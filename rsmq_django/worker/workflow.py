"""Tasks of a workflow in a worker: what they get as first argument, and how their ends let the workflow get on.

The end of a member is counted by the script that ends its message, so there is no moment between the two in which a
process could die. Messages of no workflow are ended as ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import Client, RsmqError
from ..core.call import Call
from ..core.workflows import WorkflowStatus, finishing, outcomes, read_statuses
from ..tasks.membership import META, Membership, failure_record, membership_of
from ..tasks.retry import Postpone
from ..tasks.workflow_state import Failure, read_outcome, slices
from .error_text import dotted_path, text_of
from .outcomes import Dead, Succeeded

if TYPE_CHECKING:
    from .endings import Ending

T = TypeVar("T")

#: After so long a call is tried again that could not be given its results, because Redis could not be asked.
ASK_AGAIN_S = 1.0


class WorkflowGone(Exception):
    """The workflow of a call has expired, and with it what the call should have got."""


# -- Before it runs ---------------------------------------------------------------------------------------------------


def argument_of(membership: Membership, client: Client) -> Any:
    """Return the first argument of a call: a result, a list of results, or a list of failures.

    Raises WorkflowGone, and Postpone when Redis cannot be asked: that is no failure of the task.
    """
    try:
        (status,) = client.run(_status(membership, client))
        pairs = [pair for part in _parts(membership, status) for pair in client.run(_read(membership, client, part))]
    except RsmqError as error:
        raise _later(error) from error
    return _argument(membership, pairs)


async def aargument_of(membership: Membership, client: Client) -> Any:
    """See argument_of()."""
    try:
        (status,) = await client.arun(_status(membership, client))
        parts = _parts(membership, status)
        pairs = [pair for part in parts for pair in await client.arun(_read(membership, client, part))]
    except RsmqError as error:
        raise _later(error) from error
    return _argument(membership, pairs)


def _status(membership: Membership, client: Client) -> Call[list[WorkflowStatus | None]]:
    return read_statuses(client.namespace, [membership.workflow_id])


def _read(membership: Membership, client: Client, part: tuple[int, int]) -> Call[list[tuple[bytes, bytes]]]:
    return outcomes(client.namespace, membership.workflow_id, *part)


def _parts(membership: Membership, status: WorkflowStatus | None) -> Iterable[tuple[int, int]]:
    """Return the first and last numbers of the members to read together. Raises WorkflowGone."""
    if status is None:
        raise WorkflowGone(
            f"workflow {membership.workflow_id} has expired, and with it what this call should get; enqueue it again"
        )
    if membership.takes == "result":
        return [(membership.member or 0, membership.member or 0)]
    return slices(status.members)


def _later(error: RsmqError) -> Postpone:
    return Postpone(ASK_AGAIN_S, f"the results that it takes cannot be read: {error}")


def _argument(membership: Membership, pairs: list[tuple[bytes, bytes]]) -> Any:
    if membership.takes == "result":
        return json.loads(pairs[0][0] or b"null")
    found = [read_outcome(member, *pair) for member, pair in enumerate(pairs)]
    if membership.takes == "failures":
        return [each for each in found if isinstance(each, Failure)]
    return found


# -- When it has ended ------------------------------------------------------------------------------------------------


def is_member(ending: Ending) -> bool:
    """Say whether a workflow waits for the end of this message."""
    return _waits_for(ending) is not None


def counted(ending: Ending, call: Call[T]) -> Call[T]:
    """Return the call that ends a member's message, as one that also lets its workflow get on."""
    membership = _waits_for(ending)
    if membership is None:
        return call
    namespace, task_id = ending.delivery.work_queue.queue.client.namespace, ending.execution.task_id
    outcome = ending.outcome
    if isinstance(outcome, Succeeded):
        return finishing(call, "succeed", membership.end(namespace, task_id=task_id, said=outcome.value))
    if isinstance(outcome, Dead):
        said = _failure(ending, outcome)
        return finishing(call, "bury", membership.end(namespace, task_id=task_id, said=said))
    return call


def _waits_for(ending: Ending) -> Membership | None:
    envelope = ending.envelope
    if envelope is None or envelope.meta is None or META not in envelope.meta:
        return None
    membership = membership_of(envelope.meta)
    return membership if membership is not None and membership.member is not None else None


def _failure(ending: Ending, outcome: Dead) -> str:
    envelope = ending.envelope
    return failure_record(
        task_id=ending.execution.task_id,
        task=envelope.task if envelope is not None else "",
        reason=outcome.reason,
        error=dotted_path(type(outcome.error)),
        message=text_of(outcome.error),
    )
