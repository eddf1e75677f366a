"""The rules of a supervisor for its worker processes, on processes that exist only as records."""

from __future__ import annotations

import gc
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.supervise import process
from rsmq_django.worker.supervise import supervisor as module
from rsmq_django.worker.supervise.process import (
    BROKEN,
    ENDED,
    INTERRUPTED,
    MISCONFIGURED,
    UNFINISHED,
    UNKNOWN_END,
    USED_UP,
    Child,
    ProcessSlot,
    describe_exit,
)
from rsmq_django.worker.supervise.recovery import Death
from rsmq_django.worker.supervise.supervisor import Supervisor, SupervisorOptions
from rsmq_django.worker.worker import Worker, WorkerOptions
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, declare

#: Above the largest pid of any Linux: a signal to it finds no process.
NO_PID = 2**22 + 1
NOW = StillClock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    return StillClock(monkeypatch, module)


MakeSupervisor = Callable[..., Supervisor]


@pytest.fixture
def make_supervisor(project: Configure, clock: StillClock) -> Iterator[MakeSupervisor]:
    made = []

    def make(*, max_memory_bytes: int | None = None, **options: object) -> Supervisor:
        defaults = {"threads": 1, "async_tasks": 1, "poll_interval_s": 1.0, "shutdown_timeout_s": 7.0}
        worker = WorkerOptions(**(defaults | options))
        supervisor = Supervisor(
            queue_settings([]),
            SupervisorOptions(processes=3, worker=worker, max_crashes=3, max_memory_bytes=max_memory_bytes),
        )
        supervisor._free_slots.clear()  # as if all had been started
        for maintenance in supervisor._maintenance:
            maintenance.close()
        supervisor._maintenance.clear()  # which take care of messages, not of processes
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        supervisor._probes.close()
        supervisor._wakeup.close()
        os.close(supervisor._lifeline)
        os.close(supervisor._lifeline_writer)


def new_child(number: int = 0, *, started_at: float = NOW) -> Child:
    return Child(NO_PID, f"worker-{number}", SharedState(4), ProcessSlot(number), started_at=started_at)


def wait_after(supervisor: Supervisor, code: int, *, lived_s: float = 0.0, ended: bool = False) -> float:
    """Return how long the supervisor waits before it starts the next process after one that ended like this."""
    child = new_child(started_at=NOW - lived_s)
    if ended:
        child.shared_state.note_end()
    supervisor._on_death(child, code)
    return max(0.0, supervisor._start_at - NOW)


def test_wait_doubles_with_each_process_that_ends_at_once_up_to_five_seconds(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()

    waits = [wait_after(supervisor, BROKEN) for _ in range(8)]

    assert waits == pytest.approx([0, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("code", "ended", "waits"),
    [
        (BROKEN, True, True),
        (UNKNOWN_END, False, True),
        (UNKNOWN_END, True, True),
        (-9, False, True),
        (INTERRUPTED, True, False),
        (ENDED, True, False),
    ],
)
def test_only_a_process_that_failed_by_itself_or_nobody_knows_how_makes_the_next_one_wait(
    make_supervisor: MakeSupervisor, code: int, ended: bool, waits: bool
):
    supervisor = make_supervisor()

    seconds = [wait_after(supervisor, code, ended=ended) for _ in range(3)]

    assert seconds[0] == 0 and (seconds[2] > 0) == waits


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (ENDED, "exit status 0"),
        (BROKEN, f"exit status {BROKEN}"),
        (INTERRUPTED, "exit status 80 (a function was interrupted in it)"),
        (-9, "signal 9 (SIGKILL)"),
        (UNKNOWN_END, "an unknown exit status: other code has reaped it"),
    ],
)
def test_end_of_a_process_is_described_by_its_signal_or_exit_status(code: int, description: str):
    assert describe_exit(code) == description


def test_process_that_lived_for_a_second_ends_the_waiting(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()
    wait_after(supervisor, BROKEN)

    assert wait_after(supervisor, BROKEN, lived_s=1.0) == 0
    assert wait_after(supervisor, BROKEN) == 0
    assert wait_after(supervisor, BROKEN) > 0


def test_process_that_was_killed_by_its_message_makes_no_other_wait(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()

    for number in range(3):
        child = new_child(number)
        child.shared_state.enter("m" * 32, began_at=NOW)
        supervisor._on_death(child, -11)

    assert supervisor._start_at == 0
    assert [process_slot.replaced for process_slot in supervisor._free_slots] == [1, 1, 1]


def test_misconfigured_process_stops_the_others_with_an_exit_status_of_failure(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()
    other, child = new_child(1), new_child(2)
    supervisor.children.append(other)
    child.shared_state.note_end()

    supervisor._on_death(child, MISCONFIGURED)

    assert supervisor.exit_status == 1
    assert other.asked_to_stop and other.shared_state.stop_by == NOW + 7.0


def test_task_that_chooses_the_status_of_a_misconfigured_process_stops_no_other(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()
    other = new_child(1)
    supervisor.children.append(other)

    supervisor._on_death(new_child(2), MISCONFIGURED)

    assert not other.asked_to_stop and supervisor.exit_status == 0


@pytest.mark.parametrize(("code", "is_replaced"), [(ENDED, False), (UNFINISHED, False), (INTERRUPTED, True)])
def test_burst_replaces_only_processes_that_are_not_done(make_supervisor: MakeSupervisor, code: int, is_replaced: bool):
    supervisor = make_supervisor(until_empty=True)
    child = new_child()
    child.shared_state.note_end()

    supervisor._on_death(child, code)

    assert bool(supervisor._free_slots) == is_replaced


def test_second_signal_ends_the_grace_time_and_a_later_one_does_not_restore_it(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)

    supervisor._on_signal(15, None)
    first = child.shared_state.stop_by
    clock.now += 2
    supervisor._on_signal(15, None)
    second = child.shared_state.stop_by
    clock.now += 2
    supervisor._on_signal(15, None)

    assert (first, second, child.shared_state.stop_by) == (NOW + 7, NOW + 2, NOW + 2)


def test_process_that_does_not_end_is_killed_five_seconds_after_the_time_of_its_tasks(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    supervisor._enforce_end()
    assert not child.killed, "no stop was asked for"

    supervisor._on_signal(15, None)
    clock.now = NOW + 7 + 4.9
    supervisor._enforce_end()
    before = child.killed
    clock.now = NOW + 7 + 5
    supervisor._enforce_end()

    assert (before, child.killed) == (False, True)


def test_process_that_does_not_end_is_logged_once(
    make_supervisor: MakeSupervisor, clock: StillClock, caplog: pytest.LogCaptureFixture
):
    supervisor = make_supervisor()
    supervisor.children += [new_child(1), new_child(2)]
    supervisor._on_signal(15, None)
    clock.now = NOW + 7 + 5

    for _ in range(3):
        supervisor._enforce_end()

    assert caplog.text.count("does not end; it is killed") == 2


def test_task_is_ended_when_its_hard_limit_is_over_and_the_process_only_once(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    child.shared_state.enter("a", began_at=NOW, run_by=NOW + 3)
    child.shared_state.enter("b", began_at=NOW, run_by=NOW + 4)

    supervisor._limit_time()
    assert child.overdue == frozenset() and supervisor._next_check_at() == NOW + 3
    clock.now = NOW + 3
    supervisor._limit_time()
    clock.now = NOW + 5
    supervisor._limit_time()

    assert child.overdue == {"a"}, "the other one was not to blame when the process was killed"


def test_process_with_a_blocked_main_loop_is_replaced_but_not_when_the_supervisor_was_blocked(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    supervisor._looked_at = NOW
    supervisor._replace_frozen()

    clock.now += 10 * supervisor._freeze_s
    supervisor._replace_frozen()
    after_a_pause = child.is_frozen
    for _ in range(math.ceil(supervisor._freeze_s)):
        clock.now += 1
        supervisor._replace_frozen()

    assert (after_a_pause, child.is_frozen) == (False, True)


def test_process_in_which_a_function_was_interrupted_is_killed_when_it_does_not_end(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, child, other = make_supervisor(), new_child(), new_child(1)
    supervisor.children += [child, other]
    child.shared_state.note_interruption()
    interrupted_at = child.shared_state.interrupted_at
    assert interrupted_at is not None

    clock.now = interrupted_at + 7 + 4.9
    supervisor._replace_interrupted()
    before = child.killed
    clock.now = interrupted_at + 7 + 5
    supervisor._replace_interrupted()

    assert (before, child.killed, other.killed) == (False, True, False)


@pytest.mark.parametrize(("used", "is_replaced"), [(100, False), (101, True), (None, False)])
def test_process_is_replaced_only_above_the_memory_limit(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch, used: int | None, is_replaced: bool
):
    monkeypatch.setattr(module, "resident_bytes", lambda pid: used)
    supervisor, child = make_supervisor(max_memory_bytes=100), new_child()
    supervisor.children.append(child)

    supervisor._limit_memory()

    assert child.asked_to_stop == is_replaced


def test_message_with_a_settled_outcome_is_not_shown_as_running(project: Configure):
    shared_state, shown = SharedState(1), list[frozenset[str]]()
    declare(lambda number: shown.append(shared_state.running())).enqueue_many([[number] for number in range(3)])
    options = WorkerOptions(threads=1, async_tasks=1, poll_interval_s=0.05, shutdown_timeout_s=5, until_empty=True)

    assert Worker(queue_settings([]), options, shared_state=shared_state).run()

    assert all(shown) and shared_state.running() == frozenset()
    assert len(shared_state._free) == 1 + 500, "the place of each message is free again"


def test_process_that_cannot_be_started_leaves_no_pipe_open(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch
):
    def fork() -> int:
        raise BlockingIOError("no more processes")

    supervisor = make_supervisor()
    gc.collect()  # what earlier tests left closes now, not while we count
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", fork)

    for number in range(3):
        supervisor._free_slots[:] = [ProcessSlot(number)]
        supervisor._start_at = 0.0
        supervisor._start_missing()

    assert len(os.listdir("/proc/self/fd")) == len(before)


# -- What the end of a process means -----------------------------------------------------------------------------------


class Deaths:
    """What the maintenance of a connection is told."""

    def __init__(self) -> None:
        self.told: list[Death] = []

    def note_death(self, death: Death) -> None:
        self.told.append(death)

    def next_check_at(self, *, has_children: bool) -> float | None:
        return None

    def close(self) -> None: ...


@pytest.fixture
def deaths(make_supervisor: MakeSupervisor) -> tuple[Supervisor, list[Death]]:
    supervisor, listener = make_supervisor(), Deaths()
    supervisor._maintenance.append(listener)  # type: ignore[arg-type]
    return supervisor, listener.told


def with_a_message() -> Child:
    child = new_child()
    child.shared_state.enter("m1", began_at=NOW)
    return child


@pytest.mark.parametrize(
    ("code", "by_itself", "is_to_blame", "exit_status", "level"),
    [
        (ENDED, True, False, 0, logging.INFO),
        (ENDED, False, True, 0, logging.ERROR),
        (UNFINISHED, True, False, 1, logging.INFO),
        (UNFINISHED, False, True, 0, logging.ERROR),
        (USED_UP, True, False, 0, logging.INFO),
        (INTERRUPTED, True, False, 0, logging.INFO),
        (UNKNOWN_END, True, False, 0, logging.INFO),
        (UNKNOWN_END, False, True, 0, logging.ERROR),
        (BROKEN, True, True, 0, logging.ERROR),
        (MISCONFIGURED, True, True, 1, logging.ERROR),
        (-9, True, True, 0, logging.ERROR),
        (-9, False, True, 0, logging.ERROR),
    ],
)
def test_running_messages_are_to_blame_for_an_end_that_was_not_planned(
    deaths: tuple[Supervisor, list[Death]],
    caplog: pytest.LogCaptureFixture,
    code: int,
    by_itself: bool,
    is_to_blame: bool,
    exit_status: int,
    level: int,
):
    (supervisor, told), child = deaths, with_a_message()
    if by_itself:
        child.shared_state.note_end()

    with caplog.at_level(logging.INFO, "rsmq_django"):
        supervisor._on_death(child, code)

    (death,) = told
    assert death.worker_id == "worker-0" and not death.held_nothing
    assert death.running == (frozenset({"m1"}) if is_to_blame else frozenset())
    assert death.was_sudden == (not by_itself or code < 0)
    assert supervisor.exit_status == exit_status
    (record,) = [record for record in caplog.records if "ended with" in record.getMessage()]
    assert record.levelno == level


def test_messages_of_a_process_that_the_supervisor_killed_are_not_to_blame(deaths: tuple[Supervisor, list[Death]]):
    (supervisor, told), child = deaths, with_a_message()
    child.kill()

    supervisor._on_death(child, -9)

    assert told[0].running == frozenset()
    assert supervisor.exit_status == 1


def test_only_the_overdue_message_is_to_blame_when_its_process_was_killed_for_it(
    deaths: tuple[Supervisor, list[Death]], caplog: pytest.LogCaptureFixture
):
    (supervisor, told), child = deaths, with_a_message()
    child.kill_for(frozenset({"m2"}))

    supervisor._on_death(child, -9)

    assert (told[0].running, told[0].overdue) == (frozenset(), frozenset({"m2"}))
    assert supervisor.exit_status == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [], "that it was killed has been logged"


def test_process_with_a_blocked_main_loop_reports_it_and_its_messages_count_a_crash(
    deaths: tuple[Supervisor, list[Death]],
):
    (supervisor, told), child = deaths, with_a_message()
    child.kill_frozen()

    supervisor._on_death(child, -9)

    assert told[0].how == "signal 9 (SIGKILL), because its main loop was blocked"
    assert told[0].running == frozenset({"m1"})


@pytest.mark.parametrize(("code", "holds_nothing"), [(ENDED, True), (ENDED, False), (-9, True)])
def test_process_without_messages_at_its_end_needs_no_recovery(
    deaths: tuple[Supervisor, list[Death]], code: int, holds_nothing: bool
):
    (supervisor, told), child = deaths, new_child()
    child.shared_state.note_end(holds_nothing=holds_nothing)

    supervisor._on_death(child, code)

    assert told[0].held_nothing == (holds_nothing and code == ENDED)


def test_process_that_was_dismissed_is_not_replaced(make_supervisor: MakeSupervisor):
    supervisor, child = make_supervisor(), new_child()
    child.is_dismissed = True

    supervisor._on_death(child, ENDED)

    assert supervisor._free_slots == []


@pytest.mark.parametrize("code", [ENDED, UNFINISHED])
@pytest.mark.parametrize(("asked", "is_replaced"), [(True, True), (False, False)])
def test_process_of_a_burst_is_replaced_if_it_was_stopped_by_a_command_or_for_its_memory(
    make_supervisor: MakeSupervisor, code: int, asked: bool, is_replaced: bool
):
    supervisor, child = make_supervisor(until_drained=True), new_child()
    child.asked_to_stop = asked
    child.shared_state.note_end()

    supervisor._on_death(child, code)

    assert bool(supervisor._free_slots) == is_replaced


def test_process_without_a_burst_is_replaced_when_it_has_ended(make_supervisor: MakeSupervisor):
    supervisor, child = make_supervisor(), new_child(2)
    child.shared_state.note_end()

    supervisor._on_death(child, ENDED)

    (slot,) = supervisor._free_slots
    assert (slot.number, slot.replaced) == (2, 1)


def test_misconfigured_process_gives_no_more_time_to_a_supervisor_that_is_stopping(
    make_supervisor: MakeSupervisor, clock: StillClock
):
    supervisor, other, child = make_supervisor(), new_child(1), new_child(2)
    supervisor.children.append(other)
    supervisor._on_signal(15, None)
    child.shared_state.note_end()
    clock.now += 5

    supervisor._on_death(child, MISCONFIGURED)

    assert other.shared_state.stop_by == NOW + 7
    assert supervisor.exit_status == 1


# -- When it looks again -----------------------------------------------------------------------------------------------


def test_supervisor_checks_again_when_the_next_process_may_be_started(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()
    assert supervisor._next_check_at() is None
    supervisor._start_at = NOW + 3
    assert supervisor._next_check_at() is None, "none is missing"

    supervisor._free_slots.append(ProcessSlot(0))
    assert supervisor._next_check_at() == NOW + 3
    supervisor._on_signal(15, None)
    assert supervisor._next_check_at() is None, "it starts none while it stops"


def test_limit_of_a_process_that_was_killed_for_it_is_not_waited_for(make_supervisor: MakeSupervisor):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    child.shared_state.enter("a", began_at=NOW, run_by=NOW + 3)
    assert supervisor._next_check_at() == NOW + 3

    child.kill_for(frozenset({"a"}))

    assert supervisor._next_check_at() is None


def test_process_waits_to_be_started_until_its_time_and_not_when_the_supervisor_stops(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch, clock: StillClock
):
    supervisor = make_supervisor()
    monkeypatch.setattr(supervisor, "_fork", lambda process_slot: new_child(process_slot.number))
    supervisor._free_slots[:] = [ProcessSlot(0), ProcessSlot(1)]
    supervisor._start_at = NOW + 1

    supervisor._start_missing()
    assert supervisor.children == []
    clock.now = NOW + 1
    supervisor._start_missing()
    assert [child.process_slot.number for child in supervisor.children] == [0, 1]
    assert supervisor._free_slots == []

    supervisor._on_signal(15, None)
    supervisor._free_slots.append(ProcessSlot(2))
    supervisor._start_missing()
    assert len(supervisor.children) == 2


def test_start_that_failed_is_tried_again_after_five_seconds(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch
):
    def fork(process_slot: ProcessSlot) -> Child:
        raise BlockingIOError("no more processes")

    supervisor = make_supervisor()
    monkeypatch.setattr(supervisor, "_fork", fork)
    supervisor._free_slots[:] = [ProcessSlot(0), ProcessSlot(1)]

    supervisor._start_missing()

    assert supervisor._start_at == NOW + 5
    assert len(supervisor._free_slots) == 2


def test_earliest_of_all_limits_is_waited_for(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor()
    for number, seconds in enumerate((5, 3, 4)):
        child = new_child(number)
        child.shared_state.enter("a", began_at=NOW, run_by=NOW + seconds)
        supervisor.children.append(child)

    assert supervisor._next_check_at() == NOW + 3


# -- What is done once -------------------------------------------------------------------------------------------------


def test_process_that_has_ended_leaves_the_list_and_its_slot_is_free(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch
):
    supervisor, ended, running = make_supervisor(), new_child(0), new_child(1)
    reader, ended.requests = os.pipe()
    os.close(reader)
    supervisor.children += [ended, running]
    monkeypatch.setattr(Child, "reap", lambda child: ENDED if child is ended else None)

    supervisor._reap_children()

    assert supervisor.children == [running]
    assert [slot.number for slot in supervisor._free_slots] == [0]
    assert ended.requests is None


def test_process_whose_main_loop_is_blocked_is_killed_once(
    make_supervisor: MakeSupervisor, clock: StillClock, caplog: pytest.LogCaptureFixture
):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    supervisor._looked_at = NOW

    for _ in range(3 * math.ceil(supervisor._freeze_s)):
        clock.now += 1
        supervisor._replace_frozen()

    assert caplog.text.count("is killed and replaced: its main loop was blocked") == 1


def test_process_above_the_memory_limit_is_asked_to_stop_once(
    make_supervisor: MakeSupervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "resident_bytes", lambda pid: 101)
    supervisor, child = make_supervisor(max_memory_bytes=100), new_child()
    supervisor.children.append(child)

    with caplog.at_level(logging.INFO, "rsmq_django"):
        for _ in range(3):
            supervisor._limit_memory()

    assert caplog.text.count("it is replaced when its tasks have ended") == 1
    assert child.shared_state.stop_by == math.inf


# -- Its health --------------------------------------------------------------------------------------------------------


def test_process_that_is_missing_counts_with_the_last_poll_of_its_slot(make_supervisor: MakeSupervisor):
    supervisor, child = make_supervisor(), new_child()
    supervisor.children.append(child)
    supervisor._free_slots.append(ProcessSlot(1, last_poll=-1e9))

    report = supervisor.report()

    assert [process["pid"] for process in report["processes"]] == [NO_PID, None]
    assert report["processes"][1]["last_poll_age_s"] > report["max_age_s"] and report["status"] == "failing"
    supervisor._free_slots.clear()
    supervisor._on_signal(15, None)
    assert supervisor.report()["status"] == "stopping"


def test_a_number_of_messages_more_is_given_to_each_process_by_chance(make_supervisor: MakeSupervisor):
    supervisor = make_supervisor(max_tasks=100, worker_id="w")
    assert {supervisor._options_of_a_child().max_tasks for _ in range(50)} == {100}
    supervisor.options = replace(supervisor.options, max_tasks_jitter=3)

    found = [supervisor._options_of_a_child() for _ in range(200)]

    assert {options.max_tasks for options in found} == {100, 101, 102, 103}
    assert {options.worker_id[:2] for options in found} == {"w-"}
    assert make_supervisor()._options_of_a_child().max_tasks is None


def test_last_output_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    flushed: list[bool] = []

    def flush_slowly() -> None:
        flushed.append(threading.Event().wait(0.2))

    monkeypatch.setattr(process, "_flush", flush_slowly)
    monkeypatch.setattr(process, "FLUSH_WITHIN_S", 60)

    process.flush_output(may_hang=True)

    assert len(flushed) == 1


def test_output_that_hangs_does_not_keep_a_process(monkeypatch: pytest.MonkeyPatch):
    is_over = threading.Event()
    monkeypatch.setattr(process, "_flush", is_over.wait)
    monkeypatch.setattr(process, "FLUSH_WITHIN_S", 0.01)

    process.flush_output(may_hang=True)

    is_over.set()
