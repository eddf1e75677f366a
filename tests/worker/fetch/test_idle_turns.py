"""One message wakes one of many idle processes, and never none."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.worker.fetch.polling import MAX_CONNECTIONS, TURN_S, IdleTurns
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker, hold_still
from tests.worker.script_calls import ScriptCalls
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

# -- Whose turn it is ------------------------------------------------------------------------------------------------


def test_the_first_idle_process_fetches_at_once_and_the_others_in_turn():
    idle_turns = IdleTurns(3)
    members = [idle_turns.member(process_slot) for process_slot in range(3)]
    for member in members:
        member.note_idle(True)

    assert [member.turn_s() for member in members] == pytest.approx([0, TURN_S, 2 * TURN_S])


@pytest.mark.parametrize("why", ["busy", "gone"])
def test_busy_or_ended_process_is_not_waited_for(why: str):
    idle_turns = IdleTurns(2)
    first, second = idle_turns.member(0), idle_turns.member(1)
    first.note_idle(True)
    if why == "busy":
        first.note_idle(False)
    else:
        idle_turns.leave(0)

    assert second.turn_s() == 0


def test_process_that_has_not_polled_for_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    idle_turns = IdleTurns(2)
    first, second = idle_turns.member(0), idle_turns.member(1)
    first.note_idle(True)
    now = time.monotonic()
    monkeypatch.setattr("rsmq_django.worker.fetch.polling.time.monotonic", lambda: now + 11)

    assert second.turn_s() == 0


def test_only_a_fetch_that_began_after_the_publish_counts():
    idle_turns = IdleTurns(2)
    first, second = idle_turns.member(0), idle_turns.member(1)
    first.note_drained(0, 100.0)

    assert second.is_drained_since(0, 99.9)
    assert not second.is_drained_since(0, 100.0)
    assert not second.is_drained_since(1, 99.9), "another connection"


def test_a_connection_without_space_in_shared_memory_is_read_each_time():
    member = IdleTurns(1).member(0)
    member.note_drained(MAX_CONNECTIONS, 100.0)

    assert not member.is_drained_since(MAX_CONNECTIONS, 0.0)


# -- With real processes ---------------------------------------------------------------------------------------------

PROCESSES = 6


@pytest.mark.slow
def test_one_message_is_fetched_by_about_one_of_many_idle_processes(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    tasks.write.enqueue("first")
    start_worker("--processes", str(PROCESSES), "--poll-interval", "600", turn_s="20")
    wait_until(lambda: journal.names("end") == ["first"])
    wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:default")[0][1] == PROCESSES)

    with ScriptCalls(server, "tasks/worker/fetch") as fetches:
        for number in range(20):
            tasks.write.enqueue(f"m{number}")
            wait_until(lambda: len(journal.names("end")) == number + 2)  # noqa: B023

    assert fetches.count < 20 * 2  # one each; all processes together would have made 6


@pytest.mark.slow
def test_a_message_is_fetched_although_the_first_process_in_turn_hangs(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    tasks.wait_at_gate.enqueue_many([[f"warm-{number}"] for number in range(4)])
    start_worker("--processes", "2", "--threads", "2", "--poll-interval", "60")
    wait_until(lambda: len(journal.names("start")) == 4)  # so each of them has two
    pids = {int(line[2]) for line in journal.lines("start")}
    journal.open_gate()
    wait_until(lambda: len(journal.names("end")) == 4)
    assert len(pids) == 2

    for pid in pids:
        hold_still(pid)
        server.redis.ping()  # after its answer, the server has carried out what the process sent before it stood still
        name = f"while {pid} stands still".replace(" ", "-")
        get_queue("default").send(json.dumps({"task": tasks.write.module_path, "args": [name]}))
        wait_until(lambda: name in journal.names("end"))  # noqa: B023
        os.kill(pid, signal.SIGCONT)
