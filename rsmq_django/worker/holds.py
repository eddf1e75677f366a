"""The record in Redis of what a worker holds, read by others: to renew its leases, and to give its messages back.

The record is advisory. Whatever is done because of it goes through the receipt, so a stale record does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core import Client, Message, Settlement
from ..core.call import Argument, Call
from ..core.keys import worker_key, workers_key
from ..core.limits import batches
from ..core.replies import read_message_id, read_nothing
from .delivery import Delivery, WorkQueue
from .endings import release, unhold

#: A worker that has not been heard of for so long is dead: six beats are missing.
DEAD_AFTER_S = 30.0
BEAT_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Hold:
    """One message that a worker holds according to its record."""

    message_id: str
    receive_count: int
    #: The field of the record that lists it: the number of a fetch, and the queue's name.
    batch: str

    @property
    def queue_name(self) -> str:
        """Return the name of the queue that it came from."""
        return self.batch.partition(" ")[2]

    def delivery(self, work_queue: WorkQueue) -> Delivery:
        """Return the message as a delivery of which only the receipt is known."""
        message = Message(self.message_id, b"", self.receive_count, None)
        return Delivery(work_queue, message, 1, time.monotonic(), self.batch)


def read_holds(client: Client, holds_key: str) -> list[Hold]:
    """Return what a worker holds; and what it has deleted, as long as others of the same batch are held."""
    holds, cursor = [], b"0"
    while True:
        cursor, page = client.run(Call("worker/read_holds", (holds_key,), (cursor,), _read_page, repeatable=True))
        holds += page
        if cursor == b"0":
            return holds


def renew_holds(client: Client, queues: Sequence[WorkQueue], holds_key: str) -> int:
    """Renew all leases of a worker and return how many there were."""
    renewed = 0
    keys = (key for each in queues for key in (each.queue.keys.messages, each.queue.keys.settings))
    words: list[Argument] = []
    for each in queues:
        words += (each.name, round(each.lease_s * 1000))
    call_keys, cursor = (holds_key, *keys), b"0"
    while True:
        call = Call("worker/renew", call_keys, (cursor, *words), lambda reply: reply, repeatable=True)
        cursor, count = client.run(call)
        renewed += int(count)
        if cursor == b"0":
            return renewed


def release_unknown(client: Client, queues: Sequence[WorkQueue], holds_key: str, known: set[tuple[str, int]]) -> int:
    """Give back what the record says is held and the worker has never seen: its delivery was lost on the way.

    `known` are receipts, not ids: the lost delivery may be the next one of a message that the worker knows.
    """
    holds = read_holds(client, holds_key)
    unknown = [hold for hold in holds if (hold.message_id, hold.receive_count) not in known]
    return release_holds(client, queues, holds_key, unknown)


def release_holds(client: Client, queues: Sequence[WorkQueue], holds_key: str, holds: Sequence[Hold]) -> int:
    """Give messages back untouched, without counting an attempt. Returns how many there were."""
    verdicts: list[Settlement] = []
    for work_queue, deliveries in _by_queue(queues, holds):
        for batch in batches(deliveries):
            verdicts += client.run(release(work_queue, batch))
    return verdicts.count(Settlement.DONE)


def expire_holds(client: Client, queues: Sequence[WorkQueue], holds_key: str, holds: Sequence[Hold]) -> int:
    """Make messages visible that a dead worker held. Their deliveries count as attempts: it may have run them."""
    verdicts: list[Settlement] = []
    for work_queue, deliveries in _by_queue(queues, holds):
        for batch in batches(deliveries):
            verdicts += client.run(work_queue.queue.change_visibility_call([each.message for each in batch], 0))
            client.run(unhold(holds_key, batch))
    return verdicts.count(Settlement.DONE)


def beat(client: Client, worker_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Say that these workers live; return the server's time (ms) and others that have been silent for too long."""
    args: tuple[Argument, ...] = (round(DEAD_AFTER_S * 1000), *worker_ids)
    return client.run(Call("worker/beat", (workers_key(client.namespace),), args, _read_beat, repeatable=True))


def forget(client: Client, worker_id: str, *, with_record: bool) -> None:
    """Take a worker off the list, and delete the record of what it holds unless that may still grow."""
    keys = (workers_key(client.namespace), *([worker_key(client.namespace, worker_id)] if with_record else []))
    client.run(Call("worker/forget", keys, (worker_id,), read_nothing, repeatable=True))


def _by_queue(queues: Sequence[WorkQueue], holds: Sequence[Hold]) -> Iterator[tuple[WorkQueue, list[Delivery]]]:
    for work_queue in queues:
        deliveries = [hold.delivery(work_queue) for hold in holds if hold.queue_name == work_queue.name]
        if deliveries:
            yield work_queue, deliveries


def _read_page(reply: list[bytes]) -> tuple[bytes, list[Hold]]:
    cursor, *words = reply
    return cursor, [hold for at in range(0, len(words), 2) for hold in _read_batch(words[at], words[at + 1])]


def _read_batch(name: bytes, text: bytes) -> Iterator[Hold]:
    """Read a field of the record, without what no worker wrote."""
    for line in text.split(b"\n")[1:]:
        message_id, _, receive_count = line.rpartition(b" ")
        if message_id and receive_count.isdigit():
            yield Hold(read_message_id(message_id), int(receive_count), name.decode("utf-8", "surrogateescape"))


def _read_beat(reply: list[bytes]) -> tuple[int, list[str]]:
    server_ms, *worker_ids = reply
    return int(server_ms), [read_message_id(worker_id) for worker_id in worker_ids]
