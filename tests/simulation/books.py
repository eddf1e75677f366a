"""Looks at the messages of a queue after every exchange with the server, and says what must not have happened.

A message is taken when it is visible, and changed or removed by the process that took it last. Others may do so when
that process has ended, or has sent no heartbeat for half a minute. A sender removes what it cancels or replaces. It
knows keys and times, and no script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation.calls import Calls
from tests.simulation.scheduler import Process

SILENT_MS = 30_000


@dataclass(frozen=True, slots=True)
class State:
    """A message on the server."""

    visible_ms: float
    received: int
    #: The place of its queue: those with a lower number come first.
    rank: int = 0


class Books:
    """Who has which message."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.problems: list[str] = []
        self._states: Mapping[str, State] = {}
        self._holders: dict[str, Process] = {}
        #: Process -> its supervisor, which renews its leases.
        self.supervisors: dict[Process, Process] = {}
        #: Process -> the server's time of its latest heartbeat.
        self.beats_ms: dict[Process, float] = {}
        self._gone: set[str] = set()

    def compare(self, actor: Process, states: Mapping[str, State], now_ms: float) -> None:
        """Look at what an exchange of a process has changed."""
        before = self._states
        if states == before:
            return
        gone = before.keys() - states.keys()
        new = {each: state.visible_ms for each, state in states.items() if each not in before}
        removed = self.calls.compare(actor, new, sorted(gone), now_ms)
        self._check_priority(actor, states, now_ms)
        for message_id, state in states.items():
            earlier = before.get(message_id)
            if earlier is None and message_id in self._gone:
                self._found(actor, message_id, "is back after it was removed")
            elif earlier is None:
                if state.received:  # the step of a workflow, sent and taken in one exchange
                    self._taken(actor, message_id, State(0, 0), state, now_ms)
            elif state.received != earlier.received:
                self._taken(actor, message_id, earlier, state, now_ms)
            elif state.visible_ms != earlier.visible_ms:
                self._moved(actor, message_id, earlier, state, now_ms)
        self._gone |= gone
        for message_id in sorted(gone - removed):
            if not self._may_change(actor, message_id, now_ms):
                self._found(actor, message_id, f"was removed, and {self._holder(message_id)} has it")
        self._states = states

    def _check_priority(self, actor: Process, states: Mapping[str, State], now_ms: float) -> None:
        """See that no message was taken while one of a higher priority was ready, which lies there still."""
        before = self._states
        taken = [each for each, state in states.items() if each in before and state.received > before[each].received]
        lowest = max((states[each].rank for each in taken), default=0)
        for message_id, state in states.items():
            is_left = before.get(message_id) == state and state.visible_ms <= now_ms
            if is_left and state.rank < lowest:
                self._found(actor, message_id, "was left, and one of a lower priority taken")

    def _taken(self, actor: Process, message_id: str, earlier: State, state: State, now_ms: float) -> None:
        if state.received != earlier.received + 1:
            self._found(actor, message_id, f"was received {state.received} times, before {earlier.received} times")
        if earlier.visible_ms > now_ms:
            self._found(actor, message_id, f"was taken, and belonged to {self._holder(message_id)} for longer")
        if actor.role != "worker":
            self._found(actor, message_id, "was taken by a process that runs nothing")
        self._holders[message_id] = actor
        self.calls.taken(actor, message_id)

    def _moved(self, actor: Process, message_id: str, earlier: State, state: State, now_ms: float) -> None:
        is_renewal = state.visible_ms > earlier.visible_ms
        holder = self._holders.get(message_id)
        is_renewed = is_renewal and holder is not None and self.supervisors.get(holder) is actor
        if not (is_renewed or self._may_change(actor, message_id, now_ms)):
            self._found(actor, message_id, f"was moved, and {self._holder(message_id)} has it")

    def _may_change(self, actor: Process, message_id: str, now_ms: float) -> bool:
        holder = self._holders.get(message_id)
        if holder is None or actor is holder:
            return actor is holder
        is_silent = now_ms - self.beats_ms.get(holder, now_ms) >= SILENT_MS
        return actor.role == "supervisor" and (holder.is_dead or is_silent)

    def _holder(self, message_id: str) -> str:
        holder = self._holders.get(message_id)
        return "nobody" if holder is None else f"{holder.role} {holder.number}"

    def _found(self, actor: Process, message_id: str, what: str) -> None:
        self.problems.append(f"message {message_id[:12]} {what} ({actor.role} {actor.number})")
