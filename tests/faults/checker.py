"""The checker: reads a history and what is left on the server, and knows nothing of how the product works.

- Each call whose send returned has an end, or is a dead letter. A call whose outcome is unknown may run or not.
- Only calls that expire, or end their process, become dead letters.
- A call whose send was refused never runs.
- A call that was cancelled, or has expired, never runs.
- What follows a group begins after the end of all its members.
- A call runs again only after it failed, or after a run that a fault has struck: its process was killed, or cut off for
  longer than it keeps a lease. See `_is_struck()`.
- No call runs twice at a time, nor equal calls of a unique task, nor more calls of a limited task than its limit says,
  apart from runs that were struck.
- A kept result is there, and is what the function returned. A tick of a schedule runs under one id.
- Work resumes in time after the last fault, and on each promoted server.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from tests.faults.history import Entry

LIMIT = 2
#: How many calls a group or a map has.
MEMBERS = 3
#: A killed process may have ended a call this long before, and not yet have said so to the server.
UNSETTLED_S = 2.0
#: Three quarters of the visibility timeout: a process that is cut off for less keeps its leases (guarantees.md).
KEEPS_LEASES_S = 2.25
#: Kinds of calls whose id tells the shard.
TASKS = frozenset(("plain", "flaky", "awaited", "kept"))
#: Unique tasks of which equal calls do not run at a time.
SINGLE = frozenset(("single", "latest", "burst"))
#: What is named in a problem, at most.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """What a scenario may cause."""

    #: Whether the history has each fault after which a call may run again, or at a time with itself.
    knows_causes: bool = True
    #: Kinds of calls that may become dead letters; None: all.
    may_die: frozenset[str] | None = frozenset(("expiring", "deadly"))
    #: Whether acknowledged calls may be lost: they are counted only.
    may_lose: bool = False
    #: Whether a server may forget that a call was cancelled: nobody waits for replicas there.
    may_forget_cancellations: bool = False
    #: Seconds within which calls end again.
    resumes_within_s: float = 10.0


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
    #: Seconds from the end of the last fault to the first end of a call that began after it; None without a fault.
    #: After promotions the longest time from one to the first end of a call sent after it to the promoted server.
    resumed_s: float | None = None
    problems: list[str] = field(default_factory=list)


def check(
    entries: Iterable[Entry],
    rules: Rules,
    *,
    dead: set[str],
    results: Mapping[str, object],
    slots: Mapping[str, int] | None = None,
) -> Report:
    """Return what a history says.

    `dead` are names of dead letters, `results` the kept results by name, `slots` the planned times of ticks by id.
    """
    entries = sorted(entries, key=lambda entry: entry.at_s)
    by_what: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_what[entry.what].append(entry)
    names = {what: {entry.name for entry in found} for what, found in by_what.items()}
    unclear, cancelled = names.get("unclear", set()), names.get("cancelled", set())
    sent, ended = names.get("sent", set()) - unclear, names.get("end", set()) | cancelled
    extra = _extra_runs(by_what)
    report = Report(
        acknowledged=len(sent),
        done=len(sent & ended),
        unknown=len(names.get("unknown", ())) + len(unclear),
        refused=len(names.get("refused", ())),
        dead=len(sent & dead),
        repeated=sum(extra.values()),
        lost=sorted(sent - ended - dead),
        resumed_s=_resumed_s(by_what),
    )
    ran_in_spite = names.get("refused", set()) & (names.get("start", set()) | dead)
    kept = {entry.name for entry in by_what["sent"] if entry.kind == "kept"}
    wrong = sorted(kept & ended - cancelled)
    wrong = [name for name in wrong if results.get(name) != name and not (rules.may_lose and name not in results)]
    runs = _runs(entries)
    struck = {id(run) for run in runs if _is_struck(run, by_what["cut off"])}
    others = [run for run in runs if id(run) not in struck]
    found = {
        "acknowledged and lost": report.lost if not rules.may_lose else [],
        "dead letters that should have run": sorted(sent & dead & _must_run(by_what["sent"], rules)),
        "refused, and run": sorted(ran_in_spite),
        "cancelled, and run": _began_late(by_what["cancelled"], others, rules),
        "expired, and run": _expired_and_run(others, dead) if rules.knows_causes else [],
        "begun before the end of all members": _too_early(entries),
        "repeated without a cause": _without_cause(extra, runs, struck) if rules.knows_causes else [],
        "run twice at a time": _overlapping(others) if rules.knows_causes else [],
        "equal calls run at a time": _equal_calls(others) if rules.knows_causes else [],
        "run as ticks of no time of their own": _wrong_ticks(by_what["start"], slots or {}),
        "with a wrong result or none": wrong if not dead.issuperset(wrong) else [],
    }
    report.problems = [f"{len(each)} {what}: {_some(each)}" for what, each in found.items() if each]
    if rules.knows_causes and (most := _most_at_a_time(others)) > LIMIT:
        report.problems.append(f"{most} calls of the limited task ran at a time; its limit is {LIMIT}")
    if report.resumed_s is not None and report.resumed_s > rules.resumes_within_s:
        report.problems.append(f"work resumed after {report.resumed_s:.1f} s; allowed are {rules.resumes_within_s:g} s")
    return report


def _must_run(sent: Iterable[Entry], rules: Rules) -> set[str]:
    """Return the calls that never become dead letters."""
    return {entry.name for entry in sent if rules.may_die is not None and entry.kind not in rules.may_die}


def _extra_runs(by_what: Mapping[str, list[Entry]]) -> dict[str, int]:
    """Return how often each call ran again that had not failed."""
    starts = Counter(entry.name for entry in by_what.get("start", ()))
    failures = Counter(entry.name for entry in by_what.get("failed", ()))
    return {name: count - failures[name] - 1 for name, count in starts.items() if count - failures[name] > 1}


@dataclass(slots=True)
class Run:
    """One execution of a call; without an end `ended_s` is infinite, or the moment at which its process was killed."""

    name: str
    kind: str
    #: Equal calls of a unique task have the same.
    key: object
    began_s: float
    ended_s: float = math.inf
    #: When its process was killed; infinite if it was not.
    killed_s: float = math.inf
    pid: int = 0


def _runs(entries: Iterable[Entry]) -> list[Run]:
    """Return the executions, in the order of their begin.

    That a process is killed is noted before, so that it may still begin a call: one that takes no time. So does a call
    that begins after it was cancelled, and what is left of one that is running then: no other call waits for it.
    """
    runs: list[Run] = []
    of_process: dict[int, list[Run]] = defaultdict(list)
    killed: set[int] = set()
    cancelled: set[str] = set()
    for entry in entries:
        own = of_process[entry.pid]
        if entry.what == "killed":
            killed.add(entry.pid)
            for run in own:
                run.killed_s, run.ended_s = entry.at_s, min(run.ended_s, entry.at_s)
        elif entry.what == "start":
            runs.append(Run(entry.name, entry.kind, entry.more.get("key", 0), entry.at_s, pid=entry.pid))
            own.append(runs[-1])
            if entry.pid in killed:
                runs[-1].ended_s = runs[-1].killed_s = entry.at_s
            elif entry.name in cancelled:
                runs[-1].ended_s = entry.at_s
        elif entry.what == "cancelled":
            cancelled.add(entry.name)
            for run in runs:
                if run.name == entry.name:
                    run.ended_s = min(run.ended_s, entry.at_s)
        elif entry.what in ("end", "failed", "stopped"):
            open_run = next((run for run in own if run.name == entry.name and run.ended_s == math.inf), None)
            if open_run is not None:
                open_run.ended_s = entry.at_s
    return runs


def _overlapping(runs: Iterable[Run]) -> list[str]:
    """Return the calls that began before an earlier run of them had ended."""
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    return sorted(name for name, own in by_name.items() if _at_a_time(own) > 1)


def _equal_calls(runs: Iterable[Run]) -> list[str]:
    """Return the keys of the unique task of which several calls ran at a time."""
    by_key: dict[tuple[str, object], list[Run]] = defaultdict(list)
    for run in runs:
        if run.kind in SINGLE:
            by_key[run.kind, run.key].append(run)
    return sorted(f"key {key}" for (_, key), own in by_key.items() if _at_a_time(own) > 1)


def _most_at_a_time(runs: Iterable[Run]) -> int:
    """Return how many calls of the limited task ran at one moment."""
    return _at_a_time([run for run in runs if run.kind == "limited"])


def _at_a_time(runs: Iterable[Run]) -> int:
    """Return how many of these ran at one moment."""
    changes = sorted([(run.began_s, 1) for run in runs] + [(run.ended_s, -1) for run in runs])
    return max(accumulate(change for _, change in changes), default=0)


def _is_struck(run: Run, cuts: Iterable[Entry]) -> bool:
    """Return whether this run may have another one after it, or beside it.

    Its process was killed before the server knew the outcome, or was cut off for too long while it had the call. It may
    have a call a moment before it begins.
    """
    if run.killed_s - run.ended_s < UNSETTLED_S:
        return True
    return any(
        cut.more["lasted_s"] > KEEPS_LEASES_S
        and run.pid in (cut.more["pids"] or (run.pid,))
        and run.began_s < cut.at_s + UNSETTLED_S
        and run.ended_s > cut.more["since_s"] - UNSETTLED_S
        for cut in cuts
    )


def _without_cause(extra: Mapping[str, int], runs: Iterable[Run], struck: set[int]) -> list[str]:
    """Return the calls that ran more often than their failures, and their runs that were struck, explain."""
    causes = Counter(run.name for run in runs if id(run) in struck)
    return sorted(name for name, count in extra.items() if count > causes[name])


def _began_late(cancelled: Iterable[Entry], runs: Iterable[Run], rules: Rules) -> list[str]:
    """Return the calls that began only after they were cancelled.

    Where the server's clock goes forward they are due at once, and may begin at the moment of their cancellation.
    """
    if rules.may_forget_cancellations or rules.may_lose:
        return []
    began: dict[str, float] = {}
    for run in runs:
        began.setdefault(run.name, run.began_s)
    return sorted(each.name for each in cancelled if began.get(each.name, -math.inf) > each.at_s)


def _expired_and_run(runs: Iterable[Run], dead: set[str]) -> list[str]:
    return sorted({run.name for run in runs if run.kind == "expiring"} & dead)


def _too_early(entries: Iterable[Entry]) -> list[str]:
    """Return the groups whose callback began before the end of each member."""
    ended: dict[str, set[str]] = defaultdict(set)
    found = set()
    for entry in entries:
        if entry.kind == "member" and entry.what == "end":
            ended[entry.name.partition(".")[0]].add(entry.name)
        elif entry.kind == "group" and entry.what == "start" and len(ended[entry.name]) < MEMBERS:
            found.add(entry.name)
    return sorted(found)


def _wrong_ticks(starts: Iterable[Entry], slots: Mapping[str, int]) -> list[str]:
    """Return the ids of ticks that no planned time has, and those of planned times with several ids."""
    ids = {entry.name for entry in starts if entry.kind == "tick"}
    times = Counter(slots[each] for each in ids if each in slots)
    return sorted(each for each in ids if times[slots.get(each, 0)] != 1)


def _resumed_s(by_what: Mapping[str, list[Entry]]) -> float | None:
    if promotions := by_what.get("promoted"):
        return max(_served_s(each, by_what) for each in promotions)
    healed = by_what.get("healed", [])
    if not healed:
        return None
    last_s = healed[-1].at_s
    later = [entry for entry in by_what["end"] if entry.at_s > last_s]
    begun = {(entry.name, entry.pid) for entry in by_what["start"] if entry.at_s > last_s}
    return next((entry.at_s - last_s for entry in later if (entry.name, entry.pid) in begun), math.inf)


def _served_s(promoted: Entry, by_what: Mapping[str, list[Entry]]) -> float:
    """Return the time from a promotion to the first end of a call that was sent after it, and is on that server."""
    begins = tuple(promoted.more.get("begins", [""]))
    there = [entry for entry in by_what["sent"] if entry.kind in TASKS and entry.more.get("id", "").startswith(begins)]
    sent = {entry.name for entry in there if entry.at_s > promoted.at_s}
    return next((entry.at_s - promoted.at_s for entry in by_what["end"] if entry.name in sent), math.inf)


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
