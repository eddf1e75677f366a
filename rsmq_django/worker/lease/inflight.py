"""The in-flight record of a worker in Redis: others read it to renew the worker's leases and to release its messages.

The record is advisory. Every action that follows from it uses the receipt, so a stale record does no harm.

It also reveals undelivered messages, which Redis counts as held by this worker and which never arrived here: the reply
to a fetch was lost, or the fetch was carried out much later, when a network failure was over. The supervisor would
renew their leases forever. So after a lost reply, and now and then, the record is compared with the messages that are
known here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from ...core import Client, Message, RsmqError, SettleResult
from ...core.errors import RedisFailure
from ...core.keys import worker_key, workers_key
from ...core.limits import batches
from ...core.log_lines import get_logger
from ...core.numbers import read_whole
from ...core.queue.replies import read_message_id, read_nothing
from ...core.tasks.processes import Slice, read_slice
from ...core.transport.call import Argument, Call
from ...core.transport.client import raise_or_return
from ...core.transport.shared_exchanges import MOST_SHARED
from ..delivery import SHORTEST_LEASE_S, Delivery, WorkQueue
from .settle import release, removals

logger = get_logger(__name__)
T = TypeVar("T")

#: A worker without a heartbeat for this time is dead: it and its supervisor have missed six.
DEAD_AFTER_S = 30.0
HEARTBEAT_EVERY_S = 5.0
#: Interval of checks for undelivered messages that no lost reply gave a reason for.
UNDELIVERED_EVERY_S = 30.0
#: Batches of messages whose leases are renewed in one step.
RENEWED_AT_A_TIME = 20
_SILENCE_MS = round(DEAD_AFTER_S * 1000)


@dataclass(frozen=True, slots=True)
class InflightEntry:
    """One message that a worker holds according to its in-flight record."""

    message_id: str
    receive_count: int
    #: The field of the record that contains it: the number of a fetch, and the name of the queue.
    batch: str

    @property
    def queue_name(self) -> str:
        """Return the name of the queue that it came from."""
        return self.batch.partition(" ")[2]

    def delivery(self, work_queue: WorkQueue) -> Delivery:
        """Return the message as a delivery of which only the receipt is known."""
        message = Message(self.message_id, b"", self.receive_count, None)
        return Delivery(work_queue, message, 1, time.monotonic(), self.batch)


def read_inflight(client: Client, inflight_key: str) -> list[InflightEntry]:
    """Return the messages in a worker's record; deleted ones are included until their whole batch is gone."""
    holds, cursor = [], b"0"
    while True:
        cursor, page = client.run(read_slice(inflight_key, cursor, _read_page))
        holds += page
        if cursor == b"0":
            return holds


def held_batches(inflight_key: str) -> Call[list[str]]:
    """Return the call that reads which batches of messages a worker holds: fields of its record."""
    return Call("tasks/worker/held_batches", (inflight_key,), (), _read_names, repeatable=True)


def queues_of(held: Iterable[str]) -> list[str]:
    """Return the names of the queues of batches, each once."""
    return list(dict.fromkeys(batch.partition(" ")[2] for batch in held))


def renew_inflight(client: Client, records: Sequence[tuple[str, Sequence[str], Sequence[WorkQueue]]]) -> float:
    """Renew the leases of these batches of each record, in as many round trips as the longest one has parts.

    Returns the shortest visibility timeout found, in seconds; infinite when there was none.
    """
    shortest_s = math.inf
    for parts in zip_longest(*(_renewals(*record) for record in records)):
        for reply in client.run_many([part for part in parts if part is not None]):
            shortest_s = min(shortest_s, raise_or_return(reply) / 1000)
    return shortest_s


def _renewals(inflight_key: str, held: Sequence[str], queues: Sequence[WorkQueue]) -> Iterator[Call[int]]:
    """Return calls that renew a few batches each, as they may have many messages, and name only the queues of those."""
    by_name = {each.name: each for each in queues}
    known = [batch for batch in held if batch.partition(" ")[2] in by_name]
    for at in range(0, len(known), RENEWED_AT_A_TIME):
        part = known[at : at + RENEWED_AT_A_TIME]
        own = [by_name[name] for name in queues_of(part)]
        keys = (key for each in own for key in (each.queue.keys.messages, each.queue.keys.settings))
        words: list[Argument] = [len(own), round(SHORTEST_LEASE_S * 1000)]
        for each in own:
            words += (each.name, each.queue.vt_unit, round(each.lease_s * 1000))
        yield Call("tasks/worker/renew", (inflight_key, *keys), (*words, *part), int, repeatable=True)


def _read_names(reply: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in reply]


def release_unknown(client: Client, queues: Sequence[WorkQueue], inflight_key: str, known: set[tuple[str, int]]) -> int:
    """Release the messages in the record that this worker has never seen, and return their number.

    `known` are receipts, not ids: the lost delivery may be the next one of a message that the worker knows.
    """
    holds = read_inflight(client, inflight_key)
    unknown = [entry for entry in holds if (entry.message_id, entry.receive_count) not in known]
    return release_inflight(client, queues, inflight_key, unknown)


def release_inflight(
    client: Client, queues: Sequence[WorkQueue], inflight_key: str, holds: Sequence[InflightEntry]
) -> int:
    """Release messages without counting an attempt. Returns how many there were."""
    by_queue = _by_queue(queues, holds)
    calls = [release(work_queue, batch) for work_queue, deliveries in by_queue for batch in batches(deliveries)]
    return sum(verdicts.count(SettleResult.DONE) for verdicts in run_each(client, calls) if verdicts is not None)


def run_each(client: Client, calls: Sequence[Call[T]]) -> list[T | None]:
    """Run the calls that recover the messages of many queues, in few round trips, and return their results.

    A damaged queue has None in the list, and is logged: the others must not wait for it. Each call compares receipts
    and leases itself, so it does no harm that other calls come between them. Raises the errors of the server.
    """
    results: list[T | None] = []
    for first in range(0, len(calls), MOST_SHARED):
        part = calls[first : first + MOST_SHARED]
        for call, result in zip(part, client.run_many(part), strict=True):
            if isinstance(result, RedisFailure):
                raise result
            if isinstance(result, RsmqError):
                logger.error("messages of queue %s become visible when their leases expire: %s", call.subject, result)
            results.append(None if isinstance(result, RsmqError) else result)
    return results


class StillAlive(Exception):
    """A worker that seemed dead has sent a heartbeat meanwhile: nothing was changed."""


def expire_inflight(client: Client, queues: Sequence[WorkQueue], worker_id: str, holds: Sequence[InflightEntry]) -> int:
    """Make messages of a dead worker visible. Their deliveries count as attempts, because they may have run.

    Raises StillAlive.
    """
    calls = []
    for work_queue, deliveries in _by_queue(queues, holds):
        for batch in batches(deliveries):
            own = work_queue.queue.keys
            keys = (workers_key(client.namespace), worker_key(client.namespace, worker_id), own.messages, own.settings)
            receipts = [word for delivery in batch for word in delivery.receipt]
            args = (worker_id, _SILENCE_MS, *removals((), batch), *receipts)
            calls.append(Call("tasks/worker/expire", keys, args, int, True, work_queue.name))
    counts = [count for count in run_each(client, calls) if count is not None]
    if any(count < 0 for count in counts):
        raise StillAlive(worker_id)
    return sum(counts)


def heartbeat_call(client: Client, worker_ids: Sequence[str]) -> Call[tuple[int, list[str]]]:
    """Return the call that sends heartbeats of these workers.

    It returns the server's time (ms) and the ids of other workers that are stale.
    """
    return Call(
        "tasks/worker/beat", (workers_key(client.namespace),), (_SILENCE_MS, *worker_ids), _read_beat, repeatable=True
    )


class Heartbeat:
    """The heartbeat that a worker sends itself, for the time in which its supervisor cannot."""

    def __init__(self, client: Client, worker_id: str, *, is_needed: bool) -> None:
        self._client = client
        self._worker_id = worker_id
        #: When to send the next one, on the monotonic clock.
        self.next_at = 0.0 if is_needed else math.inf

    def call(self) -> Call[tuple[int, list[str]]]:
        """Return the call that sends it."""
        return heartbeat_call(self._client, [self._worker_id])


def forget(client: Client, worker_id: str) -> None:
    """Remove a worker from the list. The record of its leases stays: it may still grow."""
    client.run(
        Call("tasks/worker/forget", (workers_key(client.namespace),), (worker_id,), read_nothing, repeatable=True)
    )


def forget_dead(client: Client, worker_id: str) -> None:
    """Remove a worker from the list, and delete the record of its leases, unless it sent a heartbeat meanwhile."""
    keys = (workers_key(client.namespace), worker_key(client.namespace, worker_id))
    client.run(Call("tasks/worker/forget", keys, (worker_id, _SILENCE_MS), read_nothing, repeatable=True))


def _by_queue(
    queues: Sequence[WorkQueue], holds: Sequence[InflightEntry]
) -> Iterator[tuple[WorkQueue, list[Delivery]]]:
    by_name: dict[str, list[InflightEntry]] = {}
    for entry in holds:
        by_name.setdefault(entry.queue_name, []).append(entry)
    for work_queue in queues:
        if work_queue.name in by_name:
            yield work_queue, [entry.delivery(work_queue) for entry in by_name[work_queue.name]]


def _read_page(reply: Slice) -> tuple[bytes, list[InflightEntry]]:
    cursor, words = reply
    return cursor, [entry for at in range(0, len(words), 2) for entry in _read_batch(words[at], words[at + 1])]


def _read_batch(name: bytes, text: bytes) -> Iterator[InflightEntry]:
    """Read a field of the record; lines that no worker can have written are skipped."""
    for line in text.split(b"\n")[1:]:
        message_id, _, receive_count = line.rpartition(b" ")
        if message_id and (number := read_whole(receive_count)) is not None:
            yield InflightEntry(read_message_id(message_id), number, name.decode("utf-8", "surrogateescape"))


def _read_beat(reply: list[bytes]) -> tuple[int, list[str]]:
    server_ms, *worker_ids = reply
    return int(server_ms), [read_message_id(worker_id) for worker_id in worker_ids]


class Undelivered:
    """Finds and releases the undelivered messages of one worker on one server."""

    def __init__(self, client: Client, inflight_key: str) -> None:
        self._client = client
        self._inflight_key = inflight_key
        #: The reply to a fetch was lost.
        self.may_be = False
        #: The same, without fetches that were certainly not sent.
        self.are_likely = False
        self._look_at = time.monotonic() + UNDELIVERED_EVERY_S

    def suspect(self, *, are_likely: bool) -> None:
        """Look for undelivered messages at the next exchange."""
        self.may_be = True
        self.are_likely |= are_likely

    def is_due(self) -> bool:
        """Return whether to look for undelivered messages now."""
        return self.may_be or time.monotonic() >= self._look_at

    def release(self, queues: Sequence[WorkQueue], held: Iterable[Delivery]) -> None:
        """Release the messages in the record that are not among the held ones."""
        release_unknown(self._client, queues, self._inflight_key, {delivery.receipt for delivery in held})
        self.may_be = self.are_likely = False
        self._look_at = time.monotonic() + UNDELIVERED_EVERY_S


def sign_off(clients: Iterable[Client], worker_id: str) -> None:
    """Remove a worker whose supervisor has ended from the list, when its tasks have ended, too.

    If that fails, another supervisor removes it after 30 s without a heartbeat.
    """
    for client in clients:
        try:
            forget(client, worker_id)
        except RsmqError as error:
            logger.warning("worker %s stays in the list until its heartbeat is stale: %s", worker_id, error)
