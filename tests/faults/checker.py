"""The checker: reads a history and what is left on the server, and knows nothing of how the product works.

- Each call whose send returned has an end, or is a dead letter. A call whose outcome is unknown may run or not.
- A call whose send was refused never runs.
- A call runs again only after it failed, or where the scenario allows repeats: see `Rules`.
- No more calls of a limited task run at a time than its limit says, where processes keep their leases.
- A kept result is there, and is what the function returned. A tick runs under one id.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.faults.history import Entry

LIMIT = 2
#: Kinds of calls whose id tells the shard.
TASKS = frozenset(("plain", "flaky", "awaited", "kept"))
#: What is named in a problem, at most.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """What a scenario may cause."""

    #: Whether calls may run again that did not fail: a process died, a lease ended, a reply was lost.
    may_repeat: bool = True
    #: Whether each process keeps the leases of what it runs, so that limits hold at every moment.
    keeps_leases: bool = True
    #: Whether acknowledged calls may be lost: they are counted only.
    may_lose: bool = False


@dataclass
class Report:
    """What became of the calls of one run."""

    acknowledged: int = 0
    done: int = 0
    unknown: int = 0
    refused: int = 0
    dead: int = 0
    repeated: int = 0
    lost: list[str] = field(default_factory=list)
    #: Seconds from the end of the last fault to the first end of a call that began after it; None if there is none.
    #: After promotions the longest time from one to the first end of a call sent after it to the promoted server.
    resumed_s: float | None = None
    problems: list[str] = field(default_factory=list)


def check(entries: Iterable[Entry], rules: Rules, *, dead: set[str], results: Mapping[str, object]) -> Report:
    """Return what a history says. `dead` are names of dead letters, `results` the kept results by name."""
    entries = sorted(entries, key=lambda entry: entry.at_s)
    by_what: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_what[entry.what].append(entry)
    names = {what: {entry.name for entry in found} for what, found in by_what.items()}
    sent, ended = names.get("sent", set()), names.get("end", set())
    extra = _extra_runs(by_what)
    report = Report(
        acknowledged=len(sent),
        done=len(sent & ended),
        unknown=len(names.get("unknown", ())),
        refused=len(names.get("refused", ())),
        dead=len(sent & dead),
        repeated=sum(extra.values()),
        lost=sorted(sent - ended - dead),
        resumed_s=_resumed_s(by_what),
    )
    ran_in_spite = names.get("refused", set()) & (names.get("start", set()) | dead)
    wrong = [entry.name for entry in by_what["sent"] if entry.kind == "kept" and entry.name in ended]
    wrong = [name for name in wrong if results.get(name) != name and not (rules.may_lose and name not in results)]
    most = _most_at_a_time(entries)
    found = {
        "acknowledged and lost": report.lost if not rules.may_lose else [],
        "refused, and run": sorted(ran_in_spite),
        "repeated without a cause": sorted(extra) if not rules.may_repeat else [],
        "with a wrong result or none": wrong if not dead.issuperset(wrong) else [],
    }
    report.problems = [f"{len(each)} {what}: {_some(each)}" for what, each in found.items() if each]
    if rules.keeps_leases and most > LIMIT:
        report.problems.append(f"{most} calls of the limited task ran at a time; its limit is {LIMIT}")
    return report


def _extra_runs(by_what: Mapping[str, list[Entry]]) -> dict[str, int]:
    """Return how often each call ran again that had not failed."""
    starts = Counter(entry.name for entry in by_what.get("start", ()))
    failures = Counter(entry.name for entry in by_what.get("failed", ()))
    return {name: count - failures[name] - 1 for name, count in starts.items() if count - failures[name] > 1}


def _most_at_a_time(entries: Iterable[Entry]) -> int:
    """Return how many calls of the limited task ran at one moment.

    What a killed process ran ended with it. That it is killed is noted before, so that it may still begin a call.
    """
    running: dict[int, set[str]] = defaultdict(set)
    killed: set[int] = set()
    most = 0
    for entry in entries:
        if entry.what == "killed":
            killed.add(entry.pid)
            running.pop(entry.pid, None)
        elif entry.pid in killed:
            continue
        elif entry.kind == "limited" and entry.what == "start":
            running[entry.pid].add(entry.name)
        elif entry.kind == "limited" and entry.what == "end":
            running[entry.pid].discard(entry.name)
        most = max(most, sum(map(len, running.values())))
    return most


def _resumed_s(by_what: Mapping[str, list[Entry]]) -> float | None:
    if promotions := by_what.get("promoted"):
        return max(_served_s(each, by_what) for each in promotions)
    healed = by_what.get("healed", [])
    if not healed:
        return None
    last_s = healed[-1].at_s
    later = [entry for entry in by_what["end"] if entry.at_s > last_s]
    begun = {(entry.name, entry.pid) for entry in by_what["start"] if entry.at_s > last_s}
    return next((entry.at_s - last_s for entry in later if (entry.name, entry.pid) in begun), None)


def _served_s(promoted: Entry, by_what: Mapping[str, list[Entry]]) -> float:
    """Return the time from a promotion to the first end of a call that was sent after it, and is on that server."""
    begins = tuple(promoted.more.get("begins", [""]))
    there = [entry for entry in by_what["sent"] if entry.kind in TASKS and entry.more.get("id", "").startswith(begins)]
    sent = {entry.name for entry in there if entry.at_s > promoted.at_s}
    return next((entry.at_s - promoted.at_s for entry in by_what["end"] if entry.name in sent), math.inf)


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
