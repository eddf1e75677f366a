"""Prepared calls on their way to Redis: as few round trips as possible, and the known outcomes when one of them fails.

Up to a thousand calls travel together, and those for other shards at the same time. Calls of a unique task whose lock
names another call need a second exchange; tags are stored in an exchange before.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product

from ..core import Client, RsmqError
from ..core.errors import NotConfirmed, PartlyDone, QueueNotFound
from ..core.limits import MAX_BATCH, MAX_TRIP_BYTES
from ..core.transport.call import Call
from ..core.transport.call_steps import is_unknown, partly_done
from ..core.transport.portions import portions
from ..core.transport.prepared_calls import ReadiedCalls
from ..queues import aensure_queue, ensure_queue
from .not_confirmed import CallsNotConfirmed
from .outgoing import Outgoing
from .tags import note_tags
from .tracing import sending
from .unique_sending import asend_unique, send_unique

#: What a round of parts for all shards aims at: less than may be under way, because calls differ in size.
ROUND_BYTES = MAX_TRIP_BYTES * 3 // 4


@dataclass(slots=True)
class Sent:
    """Calls that are stored in Redis."""

    #: Task ids of the calls: their own, unless a call is a duplicate of a unique task.
    ids: list[str] = field(default_factory=list)
    #: Ids of their messages; empty when a relay will send them.
    message_ids: list[str] = field(default_factory=list)


#: The outcome of a batch.
Outcome = Sent | RsmqError


def joined(outcomes: Sequence[Outcome | None]) -> Sent:
    """Return the merged results of batches."""
    if len(outcomes) == 1 and isinstance(outcomes[0], Sent):
        return outcomes[0]
    whole = Sent()
    for outcome in outcomes:
        if isinstance(outcome, Sent):
            whole.ids += outcome.ids
            whole.message_ids += outcome.message_ids
    return whole


def parted(outcome: Outcome, count: int) -> list[Outcome]:
    """Return the outcome of each of `count` single calls that were sent as one batch."""
    if count == 1 or isinstance(outcome, RsmqError):
        return [outcome] * count
    return [Sent([each], [own]) for each, own in zip(outcome.ids, outcome.message_ids, strict=True)]


# -- One batch --------------------------------------------------------------------------------------------------------


def send(outgoing: Outgoing) -> Sent:
    """Send prepared calls. A queue that does not exist yet is created as the settings say."""
    if outgoing.span is None:
        return _send_or_create(outgoing)
    with sending(outgoing.span):
        return _send_or_create(outgoing)


def _send_or_create(outgoing: Outgoing) -> Sent:
    try:
        return _send(outgoing)
    except QueueNotFound:  # nothing was stored
        ensure_queue(outgoing.queue.name, shard=outgoing.route.shard)
        return _send(outgoing)


def _send(outgoing: Outgoing) -> Sent:
    route, ids = outgoing.route, outgoing.ids
    try:
        if route.request is not None and len(ids) == 1:
            task_id = ids[0].encode()
            keys = (route.result_prefix + task_id,) if route.keeps_result else ()
            return Sent(ids, [route.client.run_prepared(route.request, keys, (task_id, outgoing.bodies[0]))])
        if route.task.options.tags:
            route.queue.client.run(_tagging(outgoing))
        if not outgoing.digests:
            return Sent(ids, route.client.run(outgoing.call()))
    except NotConfirmed as error:
        raise CallsNotConfirmed.of(error, [outgoing]) from error
    return Sent(*send_unique(outgoing))


async def asend(outgoing: Outgoing) -> Sent:
    """See send()."""
    with sending(outgoing.span):
        try:
            return await _asend(outgoing)
        except QueueNotFound:
            await aensure_queue(outgoing.queue.name, shard=outgoing.route.shard)
            return await _asend(outgoing)


async def _asend(outgoing: Outgoing) -> Sent:
    route = outgoing.route
    try:
        if route.task.options.tags:
            await route.queue.client.arun(_tagging(outgoing))
        if not outgoing.digests:
            return Sent(outgoing.ids, await route.client.arun(outgoing.call()))
    except NotConfirmed as error:
        raise CallsNotConfirmed.of(error, [outgoing]) from error
    return Sent(*await asend_unique(outgoing))


def tagging(batches: Iterable[Outgoing]) -> list[Call[int]]:
    """Return the calls that store the tags before the tasks are sent."""
    return [_tagging(each) for each in batches if each.task.options.tags]


def _tagging(outgoing: Outgoing) -> Call[int]:
    namespace, tags = outgoing.queue.client.namespace, outgoing.task.options.tags
    return note_tags(namespace, tags, outgoing.ids, due_in_s=_due_in_s(outgoing))


@contextmanager
def spans_of(batches: Iterable[Outgoing]) -> Iterator[None]:
    """End the spans of batches that are sent in this block, with the error if one is raised."""
    with ExitStack() as stack:
        for outgoing in batches:
            stack.enter_context(sending(outgoing.span, is_alone=False))
        yield


def _due_in_s(outgoing: Outgoing) -> float:
    delay = outgoing.route.delay_ms()
    return delay / 1000 if isinstance(delay, int) else outgoing.route.settings.delay_s


# -- Many batches -----------------------------------------------------------------------------------------------------


def send_all(batches: Sequence[Outgoing]) -> Sent:
    """Send batches until a round trip fails, those of a client in order. Raises PartlyDone when only some were sent."""
    if len(batches) == 1:
        return send(batches[0])
    account = Account()
    for trips in _overlapping(round_trips(batches)):
        account.note_trips(trips, _send_overlapping(trips) if len(trips) > 1 else [send_together(trips[0])])
        if account.error is not None:
            break
    return account.result(batches)


async def asend_all(batches: Sequence[Outgoing]) -> Sent:
    """See send_all()."""
    if len(batches) == 1:
        return await asend(batches[0])
    account = Account()
    for trips in _overlapping(round_trips(batches)):
        account.note_trips(trips, await asyncio.gather(*map(asend_together, trips)))
        if account.error is not None:
            break
    return account.result(batches)


def send_each(batches: Sequence[Outgoing]) -> Iterator[Outcome]:
    """Send batches in their order; yield the outcome of each. Stops sending when the caller stops iterating."""
    for part in round_trips(batches):
        yield from send_together(part)


async def asend_each(batches: Sequence[Outgoing]) -> AsyncIterator[Outcome]:
    """See send_each()."""
    for part in round_trips(batches):
        for outcome in await asend_together(part):
            yield outcome


def send_together(part: Sequence[Outgoing]) -> list[Outcome]:
    """Send batches of one round trip; return the outcome of each."""
    if len(part) == 1:
        try:
            return [send(part[0])]
        except RsmqError as error:
            return [error]
    return _outcomes(part, lambda: part[0].route.client.run_many([outgoing.call() for outgoing in part]))


def _outcomes(part: Sequence[Outgoing], ask: Callable[[], list[list[str] | RsmqError]]) -> list[Outcome]:
    """Return the outcome of each batch of a round trip for the replies to it; send those again that had no queue."""
    try:
        replies = ask()
    except NotConfirmed as error:
        replies = CallsNotConfirmed.replies(error, part)
    except RsmqError as error:
        return [_told(outgoing, error) for outgoing in part]
    return [
        _told(outgoing, _send_again(outgoing) if isinstance(reply, QueueNotFound) else _outcome(reply, outgoing))
        for outgoing, reply in zip(part, replies, strict=True)
    ]


async def asend_together(part: Sequence[Outgoing]) -> list[Outcome]:
    """See send_together()."""
    if len(part) == 1:
        try:
            return [await asend(part[0])]
        except RsmqError as error:
            return [error]
    try:
        replies = await part[0].route.client.arun_many([outgoing.call() for outgoing in part])
    except NotConfirmed as error:
        replies = CallsNotConfirmed.replies(error, part)
    except RsmqError as error:
        return [_told(outgoing, error) for outgoing in part]
    return [
        _told(outgoing, await _asend_again(outgoing) if isinstance(reply, QueueNotFound) else _outcome(reply, outgoing))
        for outgoing, reply in zip(part, replies, strict=True)
    ]


def as_stored(part: Sequence[Outgoing], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of a round trip for a caller that waits for confirmations at its end."""
    return [
        Sent(outcome.task_ids if len(part) == 1 else outgoing.ids) if isinstance(outcome, NotConfirmed) else outcome
        for outgoing, outcome in zip(part, outcomes, strict=True)
    ]


def ids_of(outcome: Outcome) -> list[str]:
    """Return the ids of a sent batch, or raise its error."""
    if isinstance(outcome, RsmqError):
        raise outcome
    return outcome.ids


def round_trips(batches: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Yield batches that can travel together; unique and tagged calls are sent by more than one script."""
    together: list[Outgoing] = []
    count, size = 0, 0
    for outgoing in batches:
        is_alone = bool(outgoing.digests or outgoing.task.options.tags)
        count, size = count + len(outgoing.ids), size + outgoing.size_bytes
        is_full = count > MAX_BATCH or size > MAX_TRIP_BYTES
        if together and (is_alone or is_full or together[0].route.client is not outgoing.route.client):
            yield together
            together, count, size = [], len(outgoing.ids), outgoing.size_bytes
        together.append(outgoing)
        if is_alone:
            yield together
            together, count, size = [], 0, 0
    if together:
        yield together


def _overlapping(trips: Iterable[list[Outgoing]]) -> Iterator[list[list[Outgoing]]]:
    """Yield successive round trips that may be under way at the same time: each to another shard.

    Together they are as long as one may be, because they share the network of the sender.
    """
    together: dict[Client, list[Outgoing]] = {}
    size = 0
    for trip in trips:
        client, own = trip[0].route.client, sum(outgoing.size_bytes for outgoing in trip)
        size += own
        if together and (client in together or size > MAX_TRIP_BYTES):
            yield list(together.values())
            together, size = {}, own
        together[client] = trip
    if together:
        yield list(together.values())


def _send_overlapping(trips: Sequence[Sequence[Outgoing]]) -> list[Sequence[Outcome | None]]:
    """Send round trips to several shards before the first reply is read; return the outcome of each of their batches.

    Those without an open socket, and those of several steps, follow one after the other. After an error nothing else is
    sent: those outcomes are None.
    """
    under_way: dict[int, ReadiedCalls] = {}
    outcomes: dict[int, list[Outcome]] = {}
    has_failed = False
    for number, trip in enumerate(trips):
        try:
            calls = _begun(trip)
        except RsmqError as error:
            outcomes[number] = [_told(outgoing, error) for outgoing in trip]
            break
        if calls is not None:
            under_way[number] = calls
    overdue_at = time.monotonic() + trips[0][0].route.client.connection.timeout_s
    for number, calls in under_way.items():
        outcomes[number] = _outcomes(trips[number], partial(calls.results, overdue_at=overdue_at))
    for number, trip in enumerate(trips):
        has_failed = has_failed or any(isinstance(each, RsmqError) for own in outcomes.values() for each in own)
        if number not in outcomes and not has_failed:
            outcomes[number] = send_together(trip)
    return [outcomes.get(number, [None] * len(trip)) for number, trip in enumerate(trips)]


def _begun(trip: Sequence[Outgoing]) -> ReadiedCalls | None:
    """Send the request of a round trip; None, with nothing sent, if it cannot be sent before others are answered."""
    client = trip[0].route.client
    if type(client) is not Client or trip[0].digests or trip[0].task.options.tags:
        return None
    calls = ReadiedCalls(client, [outgoing.call() for outgoing in trip], loads=True)
    return calls if calls.send() else None


def in_portions(outgoing: Outgoing) -> Iterator[Outgoing]:
    """Yield calls of one task in portions that a slow network carries within TIMEOUT_S; most are one already."""
    if len(outgoing.ids) == 1 or outgoing.size_bytes <= MAX_TRIP_BYTES:
        yield outgoing
        return
    first = 0
    for bodies in portions(outgoing.bodies, len):
        yield _portion(outgoing, first, first + len(bodies))
        first += len(bodies)


def in_rounds(batches: Sequence[Outgoing]) -> Iterator[Outgoing]:
    """Yield batches for several shards in parts, so that those of all shards can be under way at the same time."""
    rounds = math.ceil(sum(outgoing.size_bytes for outgoing in batches) / ROUND_BYTES)
    if rounds <= 1 or len({outgoing.route.shard for outgoing in batches}) == 1:
        yield from batches
        return
    for number, outgoing in product(range(rounds), batches):
        count = len(outgoing.ids)
        first, end = number * count // rounds, (number + 1) * count // rounds
        if first < end:
            yield _portion(outgoing, first, end)


def _portion(outgoing: Outgoing, first: int, end: int) -> Outgoing:
    return replace(
        outgoing,
        ids=outgoing.ids[first:end],
        written=outgoing.written[first:end],
        bodies=outgoing.bodies[first:end],
        digests=outgoing.digests[first:end],
        span=None if first else outgoing.span,  # a span ends once: with the first portion
    )


def _send_again(outgoing: Outgoing) -> Outcome:
    try:
        ensure_queue(outgoing.queue.name, shard=outgoing.route.shard)
        return _send(outgoing)
    except RsmqError as error:
        return error


async def _asend_again(outgoing: Outgoing) -> Outcome:
    try:
        await aensure_queue(outgoing.queue.name, shard=outgoing.route.shard)
        return await _asend(outgoing)
    except RsmqError as error:
        return error


def _outcome(reply: list[str] | RsmqError, outgoing: Outgoing) -> Outcome:
    return reply if isinstance(reply, RsmqError) else Sent(outgoing.ids, reply)


def _told(outgoing: Outgoing, outcome: Outcome) -> Outcome:
    """End the span of a batch, with the error if there was one."""
    with suppress(RsmqError), sending(outgoing.span, is_alone=False):
        ids_of(outcome)
    return outcome


# -- Errors -------------------------------------------------------------------------------------------


class Account:
    """The outcomes of the calls of several batches, in order."""

    def __init__(self) -> None:
        self.error: RsmqError | None = None
        self._sent: list[Sent] = []
        self._done: dict[int, object] = {}
        self._unknown: dict[int, object] = {}
        self._unconfirmed: list[CallsNotConfirmed] = []
        self._count = 0

    def note_trips(self, trips: Sequence[Sequence[Outgoing]], outcomes: Sequence[Sequence[Outcome | None]]) -> None:
        """Record the outcomes of the batches of the next round trips."""
        for outgoing, outcome in zip(chain(*trips), chain(*outcomes), strict=True):
            self.note(outgoing, outcome)

    def note(self, outgoing: Outgoing, outcome: Outcome | None) -> None:
        """Record the outcome of the next batch; None: it was not sent."""
        first = self._count
        self._count += len(outgoing.ids)
        if isinstance(outcome, Sent):
            self._sent.append(outcome)
            self._done |= enumerate(outcome.ids, first)
            return
        self.error = self.error or outcome
        if isinstance(outcome, CallsNotConfirmed) and outcome not in self._unconfirmed:
            self._unconfirmed.append(outcome)
        if isinstance(outcome, PartlyDone):
            self._done |= {first + position: task_id for position, task_id in outcome.done.items()}
            self._unknown |= {first + position: task_id for position, task_id in outcome.unknown.items()}
        elif outcome is not None and is_unknown(outcome):
            self._unknown |= enumerate(outgoing.ids, first)

    def result(self, batches: Sequence[Outgoing]) -> Sent:
        """Return all sent calls, or raise the error: with the sent calls, if a part of them was sent."""
        if self.error is None:
            return joined(self._sent)
        raise self.error_of(batches)

    def error_of(self, batches: Sequence[Outgoing]) -> RsmqError:
        """Return the error, with the sent calls if a part of them was sent."""
        assert self.error is not None
        cause = CallsNotConfirmed.together(self._unconfirmed) if self.error in self._unconfirmed else self.error
        count = sum(len(outgoing.ids) for outgoing in batches)
        if not self._done and len(self._unknown) in (0, count):
            return cause
        error = partly_done(self._done, self._unknown, cause)
        error.__cause__ = cause
        return error
