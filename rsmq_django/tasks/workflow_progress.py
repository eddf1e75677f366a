"""The progress of sending a workflow, and the errors for its sender.

A workflow of which only a part was sent is cancelled, so that no callback follows; the error contains its id in any
case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from ..core import RsmqError
from ..core.errors import OutcomeUnknown, PartlyDone, WorkflowInterrupted, without_claims
from ..core.tasks.workflows import stop
from ..core.transport.call import Call
from ..core.transport.call_steps import is_unknown
from .round_trips import Outcome, Sent
from .workflow_plan import Member, WorkflowPlan


class WorkflowStopped(RsmqError):
    """The workflow accepts no more members: it was cancelled while it was being sent."""


class WorkflowSending:
    """The progress of sending a workflow. Without a number of members it is a map, which may have millions."""

    def __init__(self, plan: WorkflowPlan, members: int | None = None) -> None:
        self._plan, self._members = plan, members
        #: One script creates, sends and seals it.
        self.is_whole = False
        #: The workflow exists in Redis.
        self.is_made = False
        #: All members are sent, and only sealing is left.
        self.is_sent = False
        self._count = 0
        self._done: dict[int, object] = {}
        self._unknown: dict[int, object] = {}

    def note(self, parts: Sequence[Sequence[Member]], outcomes: Sequence[Outcome]) -> list[Call[bool]]:
        """Record the outcomes of batches, and raise the error of an unsent one.

        Returns the calls for members that were dropped as duplicates.
        """
        skips: list[Call[bool]] = []
        failed: RsmqError | None = None
        for members, outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, Sent):
                self._note_done(members)
                pairs = zip(members, outcome.ids, strict=True)
                skips += [self._plan.skipping(member) for member, task_id in pairs if task_id != member.task_ids[0]]
            else:
                failed = failed or outcome
                self._note_failed(members, outcome)
        if failed is not None:
            raise failed
        return skips

    def _note_done(self, members: Sequence[Member]) -> None:
        self._count += len(members)
        if self._members is not None:
            self._done |= {member.number: member.task_ids[0] for member in members}

    def _note_failed(self, members: Sequence[Member], error: RsmqError) -> None:
        if isinstance(error, PartlyDone):
            self._note_done([members[position] for position in error.done])
            members = [members[position] for position in error.unknown]
        elif not is_unknown(error):
            members = []
        self._unknown |= {member.number: member.task_ids[0] for member in members}

    # -- Failures -----------------------------------------------------------------------------------------------------

    @contextmanager
    def reported(self, cancel: Callable[[WorkflowPlan], bool]) -> Iterator[None]:
        """Cancel the workflow when the block fails after it was made; raises WorkflowInterrupted with its id."""
        try:
            yield
        except BaseException as error:
            if not self._has_left_something(error):
                raise
            self._raise(error, is_cancelled=not self._may_be_complete(error) and cancel(self._plan))

    @asynccontextmanager
    async def areported(self) -> AsyncIterator[None]:
        """See reported()."""
        try:
            yield
        except BaseException as error:
            if not self._has_left_something(error):
                raise
            self._raise(error, is_cancelled=not self._may_be_complete(error) and await agive_up(self._plan))

    def _has_left_something(self, error: BaseException) -> bool:
        return (self.is_made or isinstance(error, OutcomeUnknown)) and not isinstance(error, WorkflowStopped)

    def _may_be_complete(self, error: BaseException) -> bool:
        return isinstance(error, OutcomeUnknown) and (self.is_sent or self.is_whole)

    def _raise(self, error: BaseException, *, is_cancelled: bool) -> None:
        text = f"workflow {self._plan.workflow.id}: {self._said(error, is_cancelled=is_cancelled)}"
        if not isinstance(error, RsmqError):
            error.add_note(text)
            raise error
        raise WorkflowInterrupted(
            f"{text}: {without_claims(error)}",
            workflow_id=self._plan.workflow.id,
            is_cancelled=is_cancelled,
            done=self._done,
            unknown=self._unknown,
            queue_name=error.queue_name,
        ) from error

    def _said(self, error: BaseException, *, is_cancelled: bool) -> str:
        if self._may_be_complete(error):
            return "it may have been sent and be complete, see its status"
        of = "" if self._members is None else f" of {self._members}"
        maybe = f", {len(self._unknown)} may have been" if self._unknown else ""
        end = "is cancelled" if is_cancelled else "could not be cancelled; cancel it, or run rsmq_doctor --repair"
        return f"{self._count}{of} members were sent{maybe}; it {end}"


def give_up(plan: WorkflowPlan) -> bool:
    """Cancel a workflow of which only a part was sent, so that no callback follows; return whether it succeeded."""
    try:
        return plan.client.run(stop(plan.client.namespace, plan.workflow.id))
    except RsmqError:
        return False


async def agive_up(plan: WorkflowPlan) -> bool:
    """See give_up()."""
    try:
        return await plan.client.arun(stop(plan.client.namespace, plan.workflow.id))
    except RsmqError:
        return False
