"""The note in Redis that a process waits for messages of some queues: a sender wakes it alone.

The fetch script writes the note when it leaves nothing ready and the process has room. The script that sends a message
removes the note of one process, the one with the fewest messages, and publishes on its channel
(`core/lua/parts/wake.lua`). Without any note, all processes are woken on the channel of the queue.

The note is only a hint. A process that is woken and has no room wakes the others; a process that has ended has no
subscription, and the sender takes the next note; and after every other failure the message is found by polling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core import RsmqError
from ...core.keys import queue_keys, waiting_key, wake_channel
from ...core.transport.call import Argument, Call


class WaitingNote:
    """The notes of one process, for the queues of one connection."""

    def __init__(self, namespace: str, worker_id: str, queue_names: Sequence[str]) -> None:
        names = list(dict.fromkeys(queue_names))
        self.channel = wake_channel(namespace, worker_id)
        self._keys = tuple(waiting_key(namespace, name) for name in names)
        self._common_channels = [queue_keys(namespace, name).channel for name in names]
        #: Whether the process listens on its channel.
        self.is_wanted = False
        #: Whether Redis may have a note.
        self.is_noted = False
        #: A sender has removed a note and woken this process, which has not fetched since.
        self.was_chosen = False

    def keys(self) -> tuple[str, ...]:
        """Return the keys for the fetch script; none when no note is wanted."""
        return self._keys if self.is_wanted else ()

    def words(self, held: int) -> tuple[Argument, ...]:
        """Return the arguments for the fetch script; `held` is how many messages the process holds."""
        return len(self.keys()), self.channel, held, int(self.is_noted)

    def fetched(self, next_ms: float) -> None:
        """Note the effect of a fetch; `next_ms` is the time until the next message becomes visible."""
        self.is_noted = self.is_wanted and next_ms != 0

    def leave_call(self) -> Call[int]:
        """Return the call that removes the notes, and wakes the others where this process was woken."""
        args = (self.channel, *self._common_channels)
        return Call("tasks/worker/stop_waiting", self._keys, args, int, repeatable=True)

    def left(self) -> None:
        """Note that the call was carried out."""
        self.is_noted = self.was_chosen = False


@dataclass(slots=True)
class StopWaitingStep:
    """Removes the notes of a process without room."""

    waiting: WaitingNote
    call: Call[int] = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.waiting.leave_call()

    def done(self, _woken: int) -> None:
        """Wait again with the next fetch."""
        self.waiting.left()

    def failed(self, _error: RsmqError) -> None:
        """Leave the message to the polls of other processes: this one may have room again soon."""
        self.waiting.left()
