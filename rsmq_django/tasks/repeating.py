"""Repeating calls that were stored but not confirmed, under the same ids, unless the server still has them.

The server has a call while its message is in the queue, or its result record exists. A failover that lost the message
has lost the record, too. So a repeat runs a call twice only if its task keeps no result and has already run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import NotConfirmed
from ..core.queue.replies import read_ids
from ..core.transport.call import Argument, Call
from .not_confirmed import CallsNotConfirmed
from .outgoing import Outgoing
from .unique_sending import asend_unique, send_unique


def repeat(error: BaseException) -> list[str]:
    """Send the calls of a NotConfirmed again under the same ids, and return the ids; waits as the first time.

    Calls that the server still has are left as they are. Takes the error of a larger call that a NotConfirmed has
    ended, too. Raises NotConfirmed, ConnectionFailed or OutcomeUnknown, after which it may be repeated again.
    """
    repeated = _Repeated()
    for outgoing, message_ids in _stored(error):
        with repeated.noting(outgoing, message_ids):
            if outgoing.digests:
                repeated.task_ids += send_unique(outgoing)[0]
            else:
                message_ids[:] = outgoing.route.client.run(_again(outgoing, message_ids))
                repeated.task_ids += outgoing.ids
    return repeated.result()


async def arepeat(error: BaseException) -> list[str]:
    """See repeat()."""
    repeated = _Repeated()
    for outgoing, message_ids in _stored(error):
        with repeated.noting(outgoing, message_ids):
            if outgoing.digests:
                repeated.task_ids += (await asend_unique(outgoing))[0]
            else:
                message_ids[:] = await outgoing.route.client.arun(_again(outgoing, message_ids))
                repeated.task_ids += outgoing.ids
    return repeated.result()


class _Repeated:
    """The outcome of a repeat."""

    def __init__(self) -> None:
        self.task_ids: list[str] = []
        self._errors: list[CallsNotConfirmed] = []

    @contextmanager
    def noting(self, outgoing: Outgoing, message_ids: list[str]) -> Iterator[None]:
        """Note calls that are not confirmed this time either, so that the others are repeated, too.

        Also where they are now: the same error may be repeated several times.
        """
        try:
            yield
        except CallsNotConfirmed as again:
            self._errors.append(again)
        except NotConfirmed as again:
            message_ids[:] = again.results[0]
            self._errors.append(CallsNotConfirmed.of(again, [outgoing]))

    def result(self) -> list[str]:
        """Return the ids of the tasks, or raise NotConfirmed."""
        if self._errors:
            raise CallsNotConfirmed.together(self._errors)
        return self.task_ids


def _stored(error: BaseException) -> Iterator[tuple[Outgoing, list[str]]]:
    found = error if isinstance(error, CallsNotConfirmed) else error.__cause__
    if not isinstance(found, CallsNotConfirmed):
        raise TypeError(f"{error!r} has no calls to repeat; give a NotConfirmed of enqueue() or enqueue_many()")
    yield from found.stored


def _again(outgoing: Outgoing, message_ids: list[str]) -> Call[list[str]]:
    first = outgoing.call()
    head, calls = first.args[:4], first.args[4:]
    args: list[Argument] = [*head]
    for number, message_id in enumerate(message_ids):
        args += (*calls[2 * number : 2 * number + 2], message_id)
    return Call("tasks/enqueue_again", first.keys, tuple(args), read_ids, True, outgoing.queue.name)
