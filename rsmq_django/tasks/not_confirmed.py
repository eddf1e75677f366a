"""The error of calls that are stored, but not confirmed: with what it takes to repeat them under the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import RsmqError
from ..core.errors import NotConfirmed
from ..core.texts import counted
from .outgoing import Outgoing


class CallsNotConfirmed(NotConfirmed):
    """Calls of tasks are stored, but too few replicas or disks confirmed it in time. See `repeat()`."""

    #: Stored calls with the ids of their messages.
    stored: list[tuple[Outgoing, list[str]]]

    @classmethod
    def of(cls, error: NotConfirmed, outgoings: Sequence[Outgoing], task_ids: Sequence[str] = ()) -> CallsNotConfirmed:
        """Return the error for calls whose message ids are the results of another error."""
        stored = [
            (outgoing, [result] if isinstance(result, str) else list(result))
            for outgoing, result in zip(outgoings, error.results, strict=True)
            if not isinstance(result, RsmqError)
        ]
        ids = list(task_ids) or [task_id for outgoing, _ in stored for task_id in outgoing.ids]
        message_ids = [message_id for _, own in stored for message_id in own]
        queue_name = outgoings[0].queue.name if len(outgoings) == 1 else ""
        found = cls(
            _text(ids, error),
            results=error.results,
            task_ids=ids,
            message_ids=message_ids,
            queue_name=queue_name,
        )
        found.stored = stored
        found.__cause__ = error
        return found

    @classmethod
    def together(cls, errors: Sequence[CallsNotConfirmed]) -> CallsNotConfirmed:
        """Return one error for the calls of several."""
        if len(errors) == 1:
            return errors[0]
        ids = [task_id for each in errors for task_id in each.task_ids]
        found = cls(
            _text(ids, errors[0].__cause__),
            results=[result for each in errors for result in each.results],
            task_ids=ids,
            message_ids=[message_id for each in errors for message_id in each.message_ids],
        )
        found.stored = [each for error in errors for each in error.stored]
        found.__cause__ = errors[0].__cause__
        return found

    @classmethod
    def replies(cls, error: NotConfirmed, outgoings: Sequence[Outgoing]) -> list[Any]:
        """Return the outcomes of calls that were sent together: one error for the stored ones, and the others' own."""
        own = cls.of(error, outgoings)
        return [result if isinstance(result, RsmqError) else own for result in error.results]


def _text(ids: Sequence[str], error: BaseException | None) -> str:
    which = f"task {ids[0]}" if len(ids) == 1 else counted(len(ids), "task")
    return f"{which}: {error}; repeat() sends the same calls again under the same ids"
