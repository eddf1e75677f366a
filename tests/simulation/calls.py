"""What became of each message on the server, and what must not have: the rules of unique calls and of cancelling.

- Equal calls of a unique task are one, as long as its scope says. A call is dropped only while there is an equal one.
- A call may be replaced by an equal one only before it was taken, and the new one comes at the same moment.
- A call that was cancelled before it was taken never begins. Otherwise it begins once more at most, in a process that
  had it, and ends soon. Its result says that it was cancelled. `cancel()` says whether it was in time.
- Cancelling by a tag leaves no call that had it before.
- A call expires when it is due for as long as it says, and does not begin for the first time then.
- Each stored call has run to its end, or is a dead letter, was cancelled or replaced.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.history import Entry
from tests.simulation.scheduler import Process

#: Kinds of unique tasks: equal calls ...
UNIQUE = frozenset(("single", "waiting", "windowed", "latest", "burst"))
#: ... of which a new one replaces the one that was not taken yet.
REPLACED = frozenset(("latest", "burst"))
WINDOW_S = 20.0
EXPIRES_IN_S = 3.0
#: A worker knows the server's clock about that well.
CLOCK_S = 1.0
#: A message comes this long after its tag was stored, at most.
TAG_S = 1.0
BURST_S = 5.0
LONGEST_BURST_S = 15.0
#: Where no lease is lost, a call that was cancelled does not run to its end later than this.
STOPS_WITHIN_S = 20.0
#: Kinds whose first argument is the name of the call in the history. Others get it by keyword; that of a unique call
#: and of a tick is its id.
NAMED = frozenset(("plain", "flaky", "hopeless", "limited", "kept", "expiring", "member", "mapped"))


@dataclass(frozen=True, slots=True)
class Body:
    """What the body of a message says."""

    task_id: str
    kind: str
    #: Of a unique call.
    key: object
    #: In the history.
    name: str
    tag: str = ""


def read_call(text: bytes) -> Body:
    """Read the body of a message."""
    call = json.loads(text)
    kind, args = call["task"].rpartition(".")[2], call.get("args") or [None]
    key = args[0] if kind in UNIQUE else None
    if kind in NAMED:
        return Body(call["id"], kind, key, str(args[0]), "".join(call.get("meta", {}).get("tags", [])))
    return Body(call["id"], kind, key, call["id"] if kind in UNIQUE else call.get("kwargs", {}).get("name", call["id"]))


@dataclass(eq=False, slots=True)
class Stored:
    """A message on the server."""

    body: Body
    came_s: float
    came_ms: float
    due_ms: float
    #: How often, and when for the first time.
    takes: int = 0
    taken_s: float | None = None
    gone_s: float | None = None
    gone_ms: float | None = None
    cancelled_s: float | None = None
    replaced_by: Stored | None = None
    takers: set[int] = field(default_factory=set)
    #: Its own id, and those of calls that it has replaced.
    stands_for: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.stands_for.add(self.task_id)

    @property
    def task_id(self) -> str:
        return self.body.task_id

    @property
    def kind(self) -> str:
        return self.body.kind

    @property
    def name(self) -> str:
        return self.body.name

    def is_equal(self, other: Stored) -> bool:
        return self.kind in UNIQUE and (self.kind, self.body.key) == (other.kind, other.body.key)

    @property
    def root(self) -> str:
        """The name of the workflow of a member, or its own."""
        return self.name.partition(".")[0]

    @property
    def is_there(self) -> bool:
        return self.gone_s is None

    @property
    def is_waiting(self) -> bool:
        return self.gone_s is None and self.taken_s is None


class Calls:
    """All calls that were on the server."""

    def __init__(self, read_body: Callable[[str], bytes], now: Callable[[], float]) -> None:
        self._read_body, self._now = read_body, now
        self._by_message: dict[str, Stored] = {}
        self._ids: set[str] = set()
        #: Ids of calls, names of workflows, and tags, that a sender asked to cancel.
        self.to_cancel: set[str] = set()
        self.problems: list[str] = []

    # -- Seen by the books --------------------------------------------------------------------------------------------

    def compare(self, actor: Process, new: Mapping[str, float], gone: Sequence[str], now_ms: float) -> set[str]:
        """Note which messages came, with the times at which they are due, and went.

        Returns those that a sender may have removed.
        """
        bodies = {message_id: read_call(self._read_body(message_id)) for message_id in new}
        came = [Stored(bodies[message_id], self._now(), now_ms, due_ms) for message_id, due_ms in new.items()]
        left = {message_id: self._by_message[message_id] for message_id in gone}
        for stored in left.values():
            stored.gone_s, stored.gone_ms = self._now(), now_ms
        removed = {message_id for message_id, each in left.items() if self._may_remove(actor, each, came)}
        for stored in came:
            self._check_equal(stored, now_ms)
        for message_id, stored in zip(new, came, strict=True):
            if stored.task_id in self._ids and stored.kind != "tick":
                self.problems.append(f"{stored.kind} call {stored.task_id} was stored twice")
            self._ids.add(stored.task_id)
            self._by_message[message_id] = stored
        return removed

    def taken(self, actor: Process, message_id: str) -> None:
        stored = self._by_message[message_id]
        stored.takers.add(actor.number)
        stored.takes += 1
        if stored.taken_s is None:
            stored.taken_s = self._now()

    def _may_remove(self, actor: Process, stored: Stored, came: Sequence[Stored]) -> bool:
        if actor.role != "sender":
            return False
        stored.replaced_by = next((each for each in came if each.is_equal(stored)), None)
        if stored.replaced_by is not None:
            stored.replaced_by.stands_for |= stored.stands_for
            return stored.kind in REPLACED and stored.taken_s is None
        if self.to_cancel.isdisjoint((*stored.stands_for, stored.root, stored.body.tag)):
            return False
        stored.cancelled_s = self._now()
        return True

    def _check_equal(self, new: Stored, now_ms: float) -> None:
        equal = [each for each in self._by_message.values() if each.is_equal(new)]
        if new.kind == "windowed":
            # The server's clock may have been set back since.
            latest_ms, now_s = max(now_ms, *(each.gone_ms or 0 for each in self.all()), 0), self._now()
            ended = [
                each for each in equal if each.came_ms <= latest_ms - WINDOW_S * 1000 or each.came_s <= now_s - WINDOW_S
            ]
        elif new.kind == "waiting":
            ended = [each for each in equal if not each.is_waiting]
        else:
            ended = [each for each in equal if not each.is_there]
        if len(ended) < len(equal):
            self.problems.append(f"{new.kind} call {new.task_id[:12]} was stored beside an equal one")

    # -- Judged at the end --------------------------------------------------------------------------------------------

    def all(self) -> list[Stored]:
        return list(self._by_message.values())

    def names(self, kind: str) -> set[str]:
        return {each.name for each in self._by_message.values() if each.kind == kind}

    def cancelled(self) -> list[Stored]:
        return [each for each in self._by_message.values() if each.cancelled_s is not None]

    def replaced(self) -> list[Stored]:
        return [each for each in self._by_message.values() if each.replaced_by is not None]

    def judge(
        self, history: Sequence[Entry], results: Mapping[str, object], dead: set[str], *, knows_causes: bool
    ) -> list[str]:
        """Return what must not have happened. `results` say how cancelled calls ended, by the id of the task."""
        runs = defaultdict[str, list[Entry]](list)
        for entry in history:
            runs[entry.name].append(entry)
        problems = list(self.problems)
        for stored in self._by_message.values():
            own, has_died = runs[stored.name], stored.name in dead
            words = [entry.what for entry in own]
            if stored.cancelled_s is not None:
                found = _wrong_after_cancelling(stored, own, results.get(stored.task_id), knows_causes=knows_causes)
                found += ["is a dead letter"] if has_died else []
                problems += [f"{stored.kind} call {stored.name} was cancelled and {each}" for each in found]
            elif stored.replaced_by is not None and "start" in words:
                problems.append(f"{stored.kind} call {stored.name} was replaced and has run")
            elif stored.replaced_by is None and "end" not in words and not has_died:
                problems.append(f"{stored.kind} call {stored.name} was stored, and has neither run nor died")
            if stored.kind == "expiring" and knows_causes:
                problems += [f"{stored.name} {each}" for each in _wrong_expiry(stored, own, has_died=has_died)]
        return problems + self._answers(history) + self._missed_by_tag(history)

    def _missed_by_tag(self, history: Sequence[Entry]) -> list[str]:
        """Return calls that were there all the time while calls with their tag were cancelled, and are there still.

        One that came in the middle of an earlier such cancellation may have lost its tag by it.
        """
        cancelled, problems = [entry for entry in history if entry.what == "cancel tagged"], []
        for stored in self._by_message.values():
            own = [entry for entry in cancelled if entry.name == stored.body.tag]
            if any(each.more["began_s"] <= stored.came_s <= each.at_s + TAG_S for each in own):
                continue
            gone_s = math.inf if stored.gone_s is None else stored.gone_s
            told = [each for each in own if each.more["count"] is not None]
            if any(stored.came_s < each.more["began_s"] and gone_s > each.at_s for each in told):
                problems.append(f"{stored.kind} call {stored.name} was missed when calls with its tag were cancelled")
        return problems

    def _answers(self, history: Sequence[Entry]) -> list[str]:
        """Return what senders were told, and was not so."""
        by_id = {each.task_id: each for each in self._by_message.values()}
        problems = []
        for entry in history:
            stored = by_id.get(entry.more.get("id", ""))
            if entry.what == "sent" and stored is None:
                if entry.kind not in ("chain", "group", "map"):  # the id is that of a workflow
                    problems.append(f"{entry.kind} call {entry.name} was acknowledged and not stored")
            elif entry.what == "sent" and entry.kind in UNIQUE and not _may_be_told(stored, entry):
                problems.append(f"{entry.kind} call {entry.name} was dropped without an equal one")
            elif entry.what == "cancel":
                while stored is not None and stored.replaced_by is not None:
                    stored = stored.replaced_by
                was_in_time = stored is not None and stored.cancelled_s is not None
                is_over = stored is not None and stored.gone_s is not None and stored.gone_s <= entry.at_s
                if not (was_in_time if entry.more["answer"] is True else is_over and entry.more["answer"] is False):
                    problems.append(f"{entry.kind} call {entry.name} was cancelled with {entry.more['answer']}")
        return problems


def _wrong_after_cancelling(stored: Stored, runs: Sequence[Entry], result: object, *, knows_causes: bool) -> list[str]:
    assert stored.cancelled_s is not None
    late = [entry for entry in runs if entry.at_s > stored.cancelled_s]
    began = Counter(entry.pid for entry in late if entry.what == "start")
    found = []
    if began.keys() - stored.takers or any(count > 1 for count in began.values()):
        found.append("began")
    if knows_causes and any(each.what == "end" and each.at_s > stored.cancelled_s + STOPS_WITHIN_S for each in late):
        found.append("ran on")
    return found + ([] if result == "TaskCancelled" else [f"ended as {result}"])


def _wrong_expiry(stored: Stored, runs: Sequence[Entry], *, has_died: bool) -> list[str]:
    """A call that was given back unused is due when it was first taken."""
    due_ms = max(stored.due_ms, 1000 * (stored.taken_s or 0) if stored.takes > 1 else 0)
    begun = [entry.at_s for entry in runs if entry.what == "start"]
    found = []
    if begun and 1000 * begun[0] > due_ms + 1000 * (EXPIRES_IN_S + CLOCK_S):
        found.append("began after it had expired")
    if has_died and (stored.gone_ms or 0) < stored.due_ms + 1000 * (EXPIRES_IN_S - CLOCK_S):
        found.append("has expired too early")
    return found


def _may_be_told(stored: Stored, entry: Entry) -> bool:
    """Return whether this is the call that was sent, or the sent one may have been dropped for it."""
    began_s, since_ms = entry.more["began_s"], min(entry.more["between_ms"]) - WINDOW_S * 1000
    is_there = stored.gone_s is None or stored.gone_s >= began_s
    return stored.came_s >= began_s or {
        "single": is_there,
        "waiting": stored.taken_s is None or stored.taken_s >= began_s,
        "windowed": stored.came_ms >= since_ms,
    }.get(stored.kind, is_there and stored.taken_s is not None and stored.taken_s <= entry.at_s)
