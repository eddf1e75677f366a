"""The rules of chains, groups and maps, judged by the messages that were on the server and what their calls noted.

- A chain or group is sent whole or not at all. Each step and each callback is sent once at most.
- A step is sent when the call before it has succeeded, a callback when all members have ended: `then` when all have
  succeeded, `on_failure` when some are dead letters or cancelled, with `then_always` both.
- They get what the calls before them have returned, in the order of the members.
- After a workflow was cancelled, nothing of it is sent.
- A workflow that was sent ends, and its state says how.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.faults.checker import MEMBERS
from tests.faults.history import Entry
from tests.simulation.calls import Calls, Stored

#: The number of members.
SIZES = {"chain": 1, "group": MEMBERS, "map": MEMBERS}
FIRST, STEPS, CALLBACKS = ("member", "mapped"), ("follow", "last_step"), ("together", "complain")


def judge(calls: Calls, history: Sequence[Entry], states: Mapping[str, str], dead: set[str]) -> list[str]:
    """Return what is wrong. `states` are those of workflows by name; the history has a note before each is sent."""
    messages, notes = defaultdict[str, list[Stored]](list), defaultdict[str, list[Entry]](list)
    for stored in calls.all():
        if stored.kind in (*FIRST, *STEPS, *CALLBACKS):
            messages[stored.root].append(stored)
    for entry in history:
        notes[entry.name.partition(".")[0]].append(entry)
    return [
        f"{plan.kind} {plan.name} {found}"
        for plan in [entry for entry in history if entry.what == "workflow"]
        for found in _Sent(plan, messages[plan.name], notes[plan.name], states.get(plan.name, "absent"), dead).wrong()
    ]


class _Sent:
    """One workflow."""

    def __init__(self, plan: Entry, messages: list[Stored], notes: list[Entry], state: str, dead: set[str]) -> None:
        self.kind, self.is_always = plan.kind, plan.more["always"]
        self.messages, self.notes, self.state = messages, notes, state
        self.told = {entry.what for entry in notes if entry.kind == plan.kind}
        self.asked = [entry for entry in notes if entry.what == "cancel all"]
        self.members = defaultdict[str, list[Stored]](list)
        for stored in messages:
            if stored.kind not in CALLBACKS:
                self.members[stored.name.rstrip("+")].append(stored)
        self.failed = {
            name for name, own in self.members.items() if any(each.name in dead or each.cancelled_s for each in own)
        }

    def wrong(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        sent = [(each.kind, each.name) for each in self.messages]
        yield from (f"sent {each} twice" for each in sorted(set(sent)) if sent.count(each) > 1)
        yield from self._first_calls()
        for stored in self.messages:
            if stored.kind in STEPS:
                yield from self._step(stored)
            if stored.kind in CALLBACKS:
                yield from self._callback(stored)
        yield from self._arguments()
        yield from self._end()

    def _first_calls(self) -> Iterator[str]:
        came = sorted(each.came_s for each in self.messages if each.kind in FIRST)
        is_whole = len(came) == SIZES[self.kind] and came[0] == came[-1]
        if self.kind == "map":
            if "sent" in self.told and len(came) != SIZES["map"]:
                yield f"sent {len(came)} members"
        elif ("sent" in self.told or came) and not is_whole:
            yield f"was not sent whole, but {len(came)} members"

    def _step(self, step: Stored) -> Iterator[str]:
        before = [each for each in self.members[step.name.rstrip("+")] if each is not step]
        if not before or any(each.gone_s != step.came_s or each.cancelled_s for each in before):
            yield f"sent step {step.name} before the end of the call before it"

    def _callback(self, callback: Stored) -> Iterator[str]:
        gone = [each.gone_s for own in self.members.values() for each in own]
        if any(gone_s is None or gone_s > callback.came_s for gone_s in gone):
            yield f"sent {callback.kind} before all members had ended"
        if callback.kind == ("complain" if not self.failed else "together" if not self.is_always else ""):
            yield f"sent {callback.kind}, and {len(self.failed)} members have failed"
        if any(entry.more["answer"] is True and entry.at_s < callback.came_s for entry in self.asked):
            yield f"was cancelled, and sent {callback.kind}"

    def _arguments(self) -> Iterator[str]:
        """Look at what steps and callbacks got; a failure is noted as its number."""
        for entry in self.notes:
            got = entry.more.get("got")
            if entry.what != "start" or got is None:
                continue
            expected: object = entry.more.get("expected")
            if entry.kind == "together":
                expected = [number if name in self.failed else name for number, name in enumerate(sorted(self.members))]
            elif entry.kind == "complain":
                expected = [number for number, name in enumerate(sorted(self.members)) if name in self.failed]
            if got != expected:
                yield f"gave {entry.kind} {got}, not {expected}"

    def _end(self) -> Iterator[str]:
        if self.state == "cancelled":
            if not self.asked and "unknown" not in self.told:
                yield "is cancelled, and nobody asked for it"
        elif "sent" in self.told or (self.messages and self.kind != "map"):
            expected = "failed" if self.failed else "succeeded"
            if self.state != expected:
                yield f"is {self.state}, and not {expected}"
            wanted = {"complain"} if self.failed else set()
            wanted |= {"together"} if self.kind != "chain" and (not self.failed or self.is_always) else set()
            if missing := wanted - {each.kind for each in self.messages}:
                yield f"never sent {sorted(missing)}"
        if any(entry.more["answer"] is True for entry in self.asked) and self.state != "cancelled":
            yield f"was cancelled, and is {self.state}"
