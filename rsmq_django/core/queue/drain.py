"""Drains: take messages out of a queue in batches that can be read again, by way of a journal.

Each function returns a `Call`. The journal is a stream of ours; a message enters it, body included, in the same step
as it leaves the queue (no lease) or is leased, so a reader of the journal sees every message exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..keys import checked_name, drain_keys, queue_keys
from ..limits import MAX_BATCH
from ..transport.call import Call


@dataclass(frozen=True, slots=True)
class Drain:
    """One consumer's drain of one queue. Two consumers share a queue safely; one consumer is one run at a time."""

    namespace: str
    consumer: str
    queue: str

    @property
    def journal(self) -> str:
        """Return the key of the journal."""
        return drain_keys(self.namespace, self.consumer, self.queue)[0]

    def claim(self, *, until_ms: int = 0, lease_ms: int = 0, most: int = MAX_BATCH) -> Call[int]:
        """Return the call that takes up to `most` messages, and returns their number.

        Messages that become visible after `until_ms` are left out (0: the server's time). With `lease_ms` the messages
        stay in the queue, in flight for that time. Safe to repeat: messages of the first try are in the journal.
        """
        keys, (journal, leases) = queue_keys(self.namespace, checked_name(self.queue)), self._own
        all_keys = (keys.messages, keys.settings, keys.phantoms, journal, leases)
        return Call("queue/bulk/claim", all_keys, (until_ms, lease_ms, most), int, repeatable=True, subject=self.queue)

    def acknowledge(self, finished_id: str, *, most: int = MAX_BATCH) -> Call[tuple[int, int]]:
        """Return the call that removes entries up to an id, and deletes the leased messages among them.

        It returns the numbers of removed entries and of messages left alone because another consumer received them.
        """
        keys = queue_keys(self.namespace, self.queue)
        all_keys, args = (keys.messages, keys.settings, *self._own), (finished_id, most)
        return Call("queue/bulk/acknowledge", all_keys, args, _read_pair, repeatable=True, subject=self.queue)

    @property
    def _own(self) -> tuple[str, str]:
        return drain_keys(self.namespace, self.consumer, self.queue)


def _read_pair(reply: list[Any]) -> tuple[int, int]:
    return reply[0], reply[1]
