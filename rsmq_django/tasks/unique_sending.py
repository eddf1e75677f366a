"""Sends calls of a unique task together, in as many exchanges as their locks require.

The script may touch only keys that it was given. So a call whose lock names another one has to be sent again, with the
keys of that one. Of equal calls in one batch, each is told from the start which one will hold the lock by then: two or
three exchanges for a thousand calls, with any outcomes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from ..core import RsmqError
from ..core.errors import NotConfirmed
from ..core.transport.call import Call
from ..core.transport.call_steps import is_unknown, partly_done
from .not_confirmed import CallsNotConfirmed
from .outgoing import Outgoing
from .tags import tags_of, untag
from .unique import Accepted, Holder


def send_unique(outgoing: Outgoing) -> tuple[list[str], list[str]]:
    """Send calls of a unique task; return the ids of the tasks and their messages. Raises PartlyDone, NotConfirmed."""
    rounds, client = UniqueRounds(outgoing), outgoing.route.client
    while calls := rounds.calls():
        try:
            rounds.take(client.run_many(calls))
        except NotConfirmed as error:
            rounds.take_unconfirmed(error)
        except RsmqError as error:
            rounds.fail(error)
    for tag, ids in rounds.gone.items():
        with suppress(RsmqError):  # the calls are sent, and an unused id in a tag does no harm
            outgoing.queue.client.run(untag(client.namespace, tag, ids))
    return rounds.result()


async def asend_unique(outgoing: Outgoing) -> tuple[list[str], list[str]]:
    """See send_unique()."""
    rounds, client = UniqueRounds(outgoing), outgoing.route.client
    while calls := rounds.calls():
        try:
            rounds.take(await client.arun_many(calls))
        except NotConfirmed as error:
            rounds.take_unconfirmed(error)
        except RsmqError as error:
            rounds.fail(error)
    for tag, ids in rounds.gone.items():
        with suppress(RsmqError):
            await outgoing.queue.client.arun(untag(client.namespace, tag, ids))
    return rounds.result()


class UniqueRounds:
    """The exchanges of one batch of calls."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        unique = outgoing.task.options.unique
        self._rejects = unique is not None and unique.mode == "reject"
        self._open = list(range(len(outgoing.ids)))
        self._accepted: dict[int, Accepted] = {}
        #: Digest -> the holder of its lock, from the server.
        self._holders: dict[str, Holder] = {}
        #: Digests with a dropped call: the holder of their lock does not change for further calls.
        self._settled: set[str] = set()
        self._error: RsmqError | None = None
        #: Of the last exchange whose writes were not confirmed.
        self._unconfirmed: NotConfirmed | None = None
        self._unknown: list[int] = []
        #: By tag, the ids of tasks that will never run: dropped and replaced calls.
        self.gone: dict[str, list[str]] = {}

    def calls(self) -> list[Call[Accepted | Holder]]:
        """Return the Redis calls of the next exchange; empty when all are sent or an exchange has failed."""
        outgoing, holders = self._outgoing, dict(self._holders)
        calls = []
        for number in self._open:
            digest = outgoing.digests[number]
            holder = holders.get(digest)
            calls.append(outgoing.unique_call(number).call(holder))
            if holder is None or not (self._rejects or digest in self._settled):
                holders[digest] = Holder(outgoing.ids[number], outgoing.queue.name)
        return calls

    def take(self, answers: Sequence[Accepted | Holder | RsmqError]) -> None:
        """Record the results of calls()."""
        still_open = []
        for number, answer in zip(self._open, answers, strict=True):
            digest = self._outgoing.digests[number]
            if isinstance(answer, Holder):
                still_open.append(number)
                self._holders[digest] = answer
            elif isinstance(answer, RsmqError):
                self._error = self._error or answer
                self._unknown += [number] if is_unknown(answer) else []
            else:
                self._note(number, digest, answer)
        self._open = [] if self._error else still_open

    def take_unconfirmed(self, error: NotConfirmed) -> None:
        """Record the results of calls() that are stored, but not confirmed."""
        self._unconfirmed = error
        self.take(error.results)

    def _note(self, number: int, digest: str, answer: Accepted) -> None:
        self._accepted[number] = answer
        if answer.is_duplicate:
            self._settled.add(digest)
            self._note_gone(self._outgoing.task.options.tags, self._outgoing.ids[number])
        elif answer.replaced:
            self._note_gone(_tags_in(answer.replaced_tags), answer.replaced)

    def _note_gone(self, tags: Sequence[str], task_id: str) -> None:
        for tag in tags:
            self.gone.setdefault(tag, []).append(task_id)

    def fail(self, error: RsmqError) -> None:
        """Record that the exchange failed as a whole."""
        self.take([error] * len(self._open))

    def result(self) -> tuple[list[str], list[str]]:
        """Return the task ids of the calls, and the ids of their messages. Raises PartlyDone, NotConfirmed."""
        accepted = [self._accepted[number] for number in sorted(self._accepted)]
        if self._error is None:
            ids, message_ids = [each.task_id for each in accepted], [each.message_id for each in accepted]
            if self._unconfirmed is not None:
                self._unconfirmed.results = [message_ids]
                raise CallsNotConfirmed.of(self._unconfirmed, [self._outgoing], ids) from self._unconfirmed
            return ids, message_ids
        if not accepted and len(self._unknown) in (0, len(self._outgoing.ids)):
            raise self._error
        done = {number: answer.task_id for number, answer in self._accepted.items()}
        unknown = {number: self._outgoing.ids[number] for number in self._unknown}
        if self._unconfirmed is not None:
            done, unknown = {}, {**unknown, **done}
        raise partly_done(done, unknown, self._error) from self._error


def _tags_in(text: str) -> list[str]:
    """Return the tags in a lock; none for an unreadable text, which another program wrote."""
    try:
        return tags_of({"tags": json.loads(text or "[]")})
    except (ValueError, RecursionError):
        return []
