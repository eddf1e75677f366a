"""The checker of the scenarios finds what it is there for."""

from __future__ import annotations

import math
import os
from itertools import count
from pathlib import Path

import pytest

from tests.faults.checker import Report, Rules, check
from tests.faults.history import VARIABLE, Entry, History, note
from tests.faults.scenarios import FAULTS, SCENARIOS
from tests.faults.world import World

RULES = Rules()
FOUND = ["1 repeated without a cause: a"]


def history(*lines: str) -> list[Entry]:
    """Return entries of lines such as "start a plain 7": what, name, kind, pid."""
    clock = count(1)
    words = [(*line.split(), *("plain", "1")[len(line.split()) - 2 :]) for line in lines]
    return [Entry(next(clock), what, name, kind, int(pid)) for what, name, kind, pid in words]


def cut_off(at_s: float, *, since_s: float, lasted_s: float = 3, pids: tuple[int, ...] = ()) -> Entry:
    return Entry(at_s, "cut off", "some", more={"pids": pids, "since_s": since_s, "lasted_s": lasted_s})


def checked(
    *lines: str,
    cuts: tuple[Entry, ...] = (),
    rules: Rules = RULES,
    dead: str = "",
    results: dict[str, object] | None = None,
    slots: dict[str, int] | None = None,
) -> Report:
    return check([*history(*lines), *cuts], rules, dead=set(dead.split()), results=results or {}, slots=slots)


def test_calls_that_were_sent_and_ended_are_no_problem():
    report = checked("sent a", "start a", "end a")

    assert (report.acknowledged, report.done, report.repeated, report.problems) == (1, 1, 0, [])


def test_call_that_was_sent_and_has_no_end_is_lost():
    report = checked("sent a", "sent b", "start b", "end a")

    assert report.lost == ["b"]
    assert report.problems == ["1 acknowledged and lost: b"]


def test_dead_letter_is_not_lost():
    report = checked("sent a expiring", "failed a expiring", dead="a")

    assert (report.dead, report.lost, report.problems) == (1, [], [])


def test_call_of_unknown_outcome_may_run_or_not():
    assert checked("unknown a", "unknown b", "start b", "end b").problems == []


@pytest.mark.parametrize("what", ["start", "dead"])
def test_call_that_was_refused_must_not_exist(what: str):
    report = checked("refused a", *(["start a"] if what == "start" else []), dead="a" if what == "dead" else "")

    assert report.problems == ["1 refused, and run: a"]


def test_run_after_a_failure_is_no_repeat():
    assert checked("sent a", "start a", "failed a", "start a", "end a").repeated == 0


def test_run_without_a_failure_before_it_is_a_repeat():
    lines = ("sent a", "start a", "end a", "start a", "end a")

    assert checked(*lines).repeated == 1
    assert checked(*lines).problems == FOUND


def test_call_that_begins_before_its_first_run_has_ended_is_a_problem():
    twice = ("start a plain 1", "start a plain 2", "end a plain 1", "end a plain 2")

    assert "1 run twice at a time: a" in checked(*twice).problems
    assert checked(*twice, cuts=(cut_off(2, since_s=1, pids=(1,)),)).problems == []
    assert checked(*twice, rules=Rules(knows_causes=False)).problems == []
    assert "1 run twice at a time: a" not in checked("start a plain 1", "end a plain 1", *twice[1::2]).problems
    assert checked("start a plain 1", "killed x kill 1", "start a plain 2", "end a plain 2").problems == []


def test_repeat_of_a_call_that_no_killed_process_had_is_a_problem():
    again = ("start a plain 2", "end a plain 2")

    assert checked("start a", "killed x kill 1", *again).problems == []
    assert checked("start a", "end a", "killed x kill 1", *again).problems == []
    assert checked("killed x kill 1", "start a", "end a", *again).problems == []
    assert checked("start a", "end a", "killed x kill 3", *again).problems == FOUND
    assert checked("start a", "end a", *["sent b", "start b", "end b"] * 2, "killed x kill 1", *again).problems == FOUND
    assert checked("start a", "killed x kill 1", *again, "start a plain 3").problems == FOUND


def test_call_may_run_again_whose_process_was_cut_off_for_longer_than_it_keeps_a_lease():
    lines = ("start a plain 1", "end a plain 1", "start a plain 2", "end a plain 2")

    assert checked(*lines, cuts=(cut_off(3, since_s=1, pids=(1, 7)),)).problems == []
    assert checked(*lines, cuts=(cut_off(3, since_s=1),)).problems == []
    assert checked(*lines, cuts=(cut_off(3, since_s=1, pids=(3,)),)).problems == FOUND, "another process"
    assert checked(*lines, cuts=(cut_off(3, since_s=1, lasted_s=2),)).problems == FOUND, "shorter than a lease"
    assert checked(*lines, cuts=(cut_off(11, since_s=9),)).problems == FOUND, "later"
    assert checked(*("pause a",) * 5, *lines, cuts=(cut_off(2, since_s=1),)).problems == FOUND, "earlier"
    assert checked(*lines, *lines[2:], cuts=(cut_off(2, since_s=1, pids=(1,)),)).problems == FOUND, "once more"


def test_dead_letter_of_a_call_that_should_have_run_is_a_problem():
    assert checked("sent a expiring", "sent b deadly", dead="a b").problems == []
    assert checked("sent a kept", dead="a").problems == ["1 dead letters that should have run: a"]


def test_cancelled_call_that_runs_is_a_problem():
    sent = ("sent a cancelled", "cancelled a cancelled")

    assert checked(*sent).problems == []
    assert checked(*sent).done == 1
    assert checked(*sent, "start a cancelled").problems == ["1 cancelled, and run: a"]
    assert checked(*sent, "start a cancelled", cuts=(cut_off(4, since_s=1),)).problems == []
    assert checked("start a cancelled", *sent).problems == []
    assert checked(*sent, "start a cancelled", rules=Rules(may_forget_cancellations=True)).problems == []


def test_call_that_may_be_cancelled_may_run_or_not():
    sent = ("sent a cancelled", "unclear a cancelled")

    assert checked(*sent).problems == []
    assert (checked(*sent).acknowledged, checked(*sent).unknown) == (0, 1)
    assert checked(*sent, "start a cancelled", "end a cancelled").problems == []


def test_expired_call_that_runs_is_a_problem():
    assert checked("sent a expiring", dead="a").problems == []
    assert checked("sent a expiring", "start a expiring", dead="a").problems == ["1 expired, and run: a"]


def test_callback_that_begins_before_all_members_have_ended_is_a_problem():
    members = [f"end a.{number} member" for number in range(3)]

    assert checked(*members, "start a group").problems == []
    assert checked(*members[1:], "start a group", members[0]).problems == ["1 begun before the end of all members: a"]


def test_equal_calls_that_run_at_a_time_are_a_problem():
    def began(name: str, at_s: float, pid: int) -> Entry:
        return Entry(at_s, "start", name, "single", pid, {"key": 7})

    first_ends, second_ends = Entry(3, "end", "a", "single", 1), Entry(4, "end", "b", "single", 2)

    report = check([began("a", 1, 1), began("b", 2, 2), first_ends, second_ends], RULES, dead=set(), results={})
    assert report.problems == ["1 equal calls run at a time: key 7"]
    report = check([began("a", 1, 1), first_ends, began("b", 3.5, 2), second_ends], RULES, dead=set(), results={})
    assert report.problems == []

    cancelled = Entry(1.5, "cancelled", "a", "cancelled")
    report = check(
        [began("a", 1, 1), cancelled, began("b", 2, 2), first_ends, second_ends], RULES, dead=set(), results={}
    )
    assert report.problems == []


def test_tick_has_one_id_which_follows_from_its_planned_time():
    ticks = ("start a tick", "start b tick")

    assert checked(*ticks, slots={"a": 1000, "b": 2000}).problems == []
    assert checked(*ticks, slots={"a": 1000, "b": 1000}).problems == ["2 run as ticks of no time of their own: a, b"]
    assert checked(*ticks, slots={"a": 1000}).problems == ["1 run as ticks of no time of their own: b"]


def test_third_call_of_the_limited_task_at_a_time_is_a_problem():
    running = ("start a limited 1", "start b limited 1", "start c limited 2")
    over = "3 calls of the limited task ran at a time; its limit is 2"

    assert over in checked(*running).problems
    assert over not in checked("start a limited", "end a limited", *running[1:]).problems
    assert over not in checked(*running, cuts=(cut_off(3, since_s=2, pids=(2,)),)).problems


def test_what_a_killed_process_ran_has_ended():
    killed = ("start a limited 1", "start b limited 1", "killed x kill 1")

    report = checked(*killed, "start c limited 2", "start a limited 2")

    assert report.problems == []


def test_what_a_killed_process_ran_may_run_elsewhere_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "history"))

    def kill(pid: int, number: int) -> None:
        note("end", "a", "limited", pid=pid)
        note("start", "c", "limited", pid=pid)  # just before it ends
        for name in ("b", "c"):
            note("start", name, "limited", pid=pid + 1)

    for name in ("a", "b"):
        note("start", name, "limited", pid=1)
    monkeypatch.setattr(os, "kill", kill)
    World.__new__(World).kill(1)
    entries = History(tmp_path / "history")
    try:
        report = check(entries.read(), RULES, dead=set(), results={})
    finally:
        entries.close()

    assert report.problems == []


def test_kept_result_has_to_be_what_the_function_returned():
    ran = ("sent a kept", "start a kept", "end a kept")

    assert checked(*ran, results={"a": "a"}).problems == []
    assert checked(*ran).problems == ["1 with a wrong result or none: a"]
    assert checked(*ran, results={"a": "b"}).problems == ["1 with a wrong result or none: a"]


def test_time_to_resume_is_that_of_a_call_that_began_after_the_last_fault():
    lines = ("fault kill", "start a", "healed kill", "end a", "start b", "end b")

    assert checked(*lines).resumed_s == 3


def test_work_that_does_not_resume_in_time_is_a_problem():
    after_a_second = Rules(resumes_within_s=1)

    assert checked("healed kill", "start a", "end a", rules=after_a_second).problems == [
        "work resumed after 2.0 s; allowed are 1 s"
    ]
    assert checked("start a", "healed kill", "end a").problems == ["work resumed after inf s; allowed are 10 s"]
    assert checked("start a", "end a").resumed_s is None
    assert checked("promoted replica").problems == ["work resumed after inf s; allowed are 10 s"]


def test_time_to_resume_after_promotions_is_that_of_calls_sent_to_the_promoted_servers_afterwards():
    def sent(at_s: float, name: str, task_id: str) -> Entry:
        return Entry(at_s, "sent", name, "plain", 1, {"id": task_id})

    entries = [
        sent(0, "early", "03x"),
        Entry(1, "promoted", "replica", more={"begins": ["03", "05"]}),
        sent(2, "elsewhere", "01x"),
        sent(3, "there", "05x"),
        *(Entry(4 + at, "end", name, "plain") for at, name in enumerate(["early", "elsewhere", "there"])),
        Entry(8, "promoted", "replica", more={"begins": ["01"]}),
        sent(9, "later", "01y"),
        Entry(10, "end", "later", "plain"),
    ]

    assert check(entries, RULES, dead=set(), results={}).resumed_s == 5
    assert check(entries[:-1], RULES, dead=set(), results={}).resumed_s == math.inf


def test_losses_are_counted_and_no_problem_where_senders_wait_for_nothing():
    may_lose, ran = Rules(may_lose=True), ("sent a", "sent b kept", "start b kept", "end b kept")

    assert checked(*ran, rules=may_lose).lost == ["a"]
    assert checked(*ran, rules=may_lose).problems == []
    assert checked(*ran, rules=may_lose, results={"b": "a"}).problems == ["1 with a wrong result or none: b"]


def test_steps_of_a_seed_are_always_the_same():
    for scenario in SCENARIOS:
        assert scenario.steps("7") == scenario.steps("7")
        assert {step.fault for seed in range(50) for step in scenario.steps(str(seed))} == set(scenario.faults)
    assert {name for scenario in SCENARIOS for name in scenario.faults} == set(FAULTS)
