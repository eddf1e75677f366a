"""The supervisor against everything that can happen to its processes: deaths, stops, pauses, lost servers.

Real processes of `manage.py rsmq_worker` on a real server. Whatever happens, no message is lost, and one runs twice
only when the process that ran it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.fetch.wakeup import Wakeup
from rsmq_django.worker.lease.inflight import InflightEntry, read_inflight
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.supervise.maintenance import Maintenance, make_maintenance, run_due
from rsmq_django.worker.supervise.recovery import Death
from rsmq_django.worker.supervise.supervisor import Supervisor, SupervisorOptions
from rsmq_django.worker.worker import WorkerOptions
from tests.chaos.fleet import (
    ONE,
    assert_done_once,
    children_of,
    is_there,
    names_of,
    pids_by_name,
    records_of_workers,
    usage,
)
from tests.chaos.project import tasks
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters, declare, queue_source, working

pytestmark = pytest.mark.slow

# -- Tasks that end their process --------------------------------------------------------------------------------------


def test_crashing_tasks_among_good_ones_are_dead_lettered_alone(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    names = names_of(2000)
    tasks.good.enqueue_many([[name] for name in names[:1000]])
    tasks.die.enqueue_many([[how, how] for how in tasks.DEATHS])
    tasks.good.enqueue_many([[name] for name in names[1000:]])

    worker = start("--processes", "2", "--threads", "4", "--burst")

    assert worker.wait() == 0
    buried = {json.loads(message.body)["args"][0]: record for message, record in dead_letters()}
    assert set(buried) == set(tasks.DEATHS)
    assert {record["reason"] for record in buried.values()} == {"crashed"}
    assert "signal 11 (SIGSEGV)" in buried["segfault"]["message"]
    assert "exit status 3" in buried["exit"]["message"]
    starts = Counter(journal.names("start"))
    assert all(1 <= starts[pill] <= 3 for pill in tasks.DEATHS)
    assert set(journal.names("end")) == set(names)
    assert get_queue("default").attributes().messages == 0
    assert records_of_workers(server) == []


@pytest.mark.parametrize("how", ["exit-as-if-done", "exit-as-if-misconfigured"])
def test_task_cannot_end_the_worker_by_its_exit_status(
    project: Configure, start: StartWorker, journal: Journal, how: str
):
    tasks.die.enqueue("pill", how)
    tasks.good.enqueue_many([[name] for name in names_of(20)])

    worker = start("--burst", *ONE)

    assert worker.wait() == 0
    ((_, record),) = dead_letters()
    assert record["reason"] == "crashed"
    assert_done_once(journal, names_of(20))


def test_children_killed_at_random_lose_nothing_and_repeat_only_their_leased_messages(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    names = names_of(4800)
    killed: set[int] = set()
    worker = start("--processes", "2", "--threads", "4")

    for kill in range(6):
        tasks.nap.enqueue_many([[name, 0.001] for name in names[800 * kill : 800 * (kill + 1)]])
        wait_until(lambda: len(journal.names("end")) >= 800 * kill + 200)  # noqa: B023
        # Children that die young are started again more and more slowly.
        victim = wait_until(lambda: set(children_of(worker)) - killed).pop()
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)

    wait_until(lambda: get_queue("default").attributes().messages == 0)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert set(journal.names("end")) == set(names)
    repeated = {name: pids for name, pids in pids_by_name(journal, "start").items() if len(pids) > 1}
    assert all(set(pids[:-1]) <= killed for pids in repeated.values()), repeated
    assert dead_letters() == []
    assert get_queue("default").attributes().messages == 0
    assert records_of_workers(server) == []


# -- The supervisor dies -----------------------------------------------------------------------------------------------


def test_children_end_after_their_supervisor_and_nothing_is_lost(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    names = names_of(200)
    tasks.nap.enqueue_many([[name, 0.01] for name in names])
    worker = start("--processes", "2", "--threads", "2")
    wait_until(lambda: len(journal.names("end")) > 20)
    children = wait_until(lambda: len(found := children_of(worker)) == 2 and found)

    worker.send(signal.SIGKILL)
    worker.wait()

    wait_until(lambda: not any(map(is_there, children)))
    assert get_queue("default").attributes().hidden_messages == 0
    assert start("--burst", *ONE).wait() == 0
    assert_done_once(journal, names)


def test_closed_lifeline_ends_one_sleep_and_no_more():
    wakeup, calls = Wakeup(), []
    reader, writer = os.pipe()
    wakeup.watch(reader, lambda: calls.append("the supervisor is gone"))

    os.close(writer)
    for _ in range(3):
        wakeup.sleep(lambda: None, at_most_s=0.01)

    assert calls == ["the supervisor is gone"]  # a reader that stays ready would keep an orphan from ever sleeping
    wakeup.close()
    os.close(reader)


@pytest.mark.parametrize("is_open_again", [False, True])
def test_lifeline_that_a_task_has_closed_does_not_mean_that_the_supervisor_has_ended(is_open_again: bool):
    wakeup, calls = Wakeup(), []
    reader, writer = os.pipe()
    wakeup.watch(reader, lambda: calls.append("the supervisor is gone"))

    os.close(reader)
    other, other_writer = os.pipe()  # gets the number of the one that was closed
    os.write(other_writer, b"what somebody else reads")
    if not is_open_again:
        os.close(other)

    with pytest.raises(OSError):
        wakeup.sleep(lambda: None, at_most_s=60)
    assert calls == []
    wakeup.close()
    for descriptor in (other, other_writer, writer) if is_open_again else (other_writer, writer):
        os.close(descriptor)


# -- Stops -------------------------------------------------------------------------------------------------------------


def test_stop_under_load_loses_and_repeats_nothing_and_releases_waiting_messages(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    naps, gates = names_of(1000), [f"gate-{number}" for number in range(8)]
    tasks.nap.enqueue_many([[name, 0.01] for name in naps[:600]])
    tasks.gate.enqueue_many([[name] for name in gates])  # beyond which nobody gets before the stop
    tasks.nap.enqueue_many([[name, 0.01] for name in naps[600:]])
    worker = start("--processes", "2", "--threads", "4")
    wait_until(lambda: len(journal.names("end")) > 50)

    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.output.count("finishing running tasks") == 2)
    journal.open_gate()

    assert worker.wait() == 0
    left = get_queue("default").attributes()
    assert (left.hidden_messages, left.messages) == (0, 1008 - len(journal.names("end")))
    assert left.messages > 0
    assert records_of_workers(server) == []
    assert start("--burst", "--processes", "1", "--threads", "8").wait() == 0
    assert_done_once(journal, [*naps, *gates])
    assert dead_letters() == []


def test_sigterm_to_every_process_of_the_service_lets_tasks_end(
    project: Configure, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    worker = start(*ONE)
    wait_until(lambda: journal.names("start"))

    worker.send_to_all(signal.SIGTERM)  # what systemd does

    wait_until(lambda: "tasks may run for" in worker.output and "finishing running tasks" in worker.output)
    journal.open_gate()
    assert worker.wait() == 0
    assert journal.names("end") == ["slow"]


def test_second_stop_releases_running_messages_although_no_thread_can_be_interrupted(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue_many([[name] for name in names_of(3)])
    worker = start("--processes", "1", "--threads", "3")
    wait_until(lambda: len(journal.names("start")) == 3)
    worker.send(signal.SIGTERM)
    wait_until(lambda: "tasks may run for" in worker.output)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1
    left = get_queue("default").attributes()
    assert (left.messages, left.hidden_messages) == (3, 0)
    assert server.redis.hvals("rsmq::released:default") == [b"1"] * 3
    assert records_of_workers(server) == []


def test_task_that_cannot_be_stopped_is_killed_and_not_blamed(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.hold_interpreter.enqueue("stubborn", 60)
    worker = start(*ONE, "--shutdown-timeout", "0")
    wait_until(lambda: journal.names("start"))

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1
    (message_id,) = server.redis.zrange("rsmq:default", 0, -1)
    assert server.redis.hgetall("rsmq::released:default") == {message_id: b"1"}  # and no crash
    assert get_queue("default").attributes().hidden_messages == 0


# -- Pauses and lost servers -------------------------------------------------------------------------------------------


def test_lease_of_a_task_that_holds_the_interpreter_lock_is_renewed_while_another_server_is_down(
    project: Configure, start: StartWorker, journal: Journal, tmp_path: Path
):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 12}, "far": {"CONNECTION": "far"}}
    project(default={"VISIBILITY_TIMEOUT_S": 12})
    tasks.hold_interpreter.enqueue("greedy", 15)

    worker = start(
        *("--processes", "2", "--threads", "1"),
        queues=queues,
        connections={"far": {"URL": f"unix://{tmp_path}/nobody"}},
    )

    wait_until(lambda: journal.names("end"))
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert journal.names("start") == ["greedy"]


def test_paused_worker_repeats_one_task_and_its_late_outcome_is_refused(
    project: Configure, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    paused = start(*ONE)
    wait_until(lambda: journal.names("start"))
    paused.send_to_all(signal.SIGSTOP)
    pass_time(get_queue("default"), seconds=1000)
    other = start(*ONE)
    wait_until(lambda: len(journal.names("start")) == 2)

    other.send_to_all(signal.SIGSTOP)  # so that the late one ends first
    paused.send_to_all(signal.SIGCONT)
    journal.open_gate()
    wait_until(lambda: "the result is discarded" in paused.output)

    assert get_queue("default").attributes().messages == 1
    other.send_to_all(signal.SIGCONT)
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    for worker in (paused, other):
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert journal.names("end") == ["slow", "slow"]


def test_server_that_restarts_in_mid_run_loses_nothing(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    names = names_of(600)
    tasks.nap.enqueue_many([[name, 0.005] for name in names])
    worker = start("--processes", "2", "--threads", "4", "--burst")

    for target in (100, 300):
        wait_until(lambda: len(journal.names("end")) >= target)  # noqa: B023
        server.restart()

    assert worker.wait() == 0
    assert set(journal.names("end")) == set(names)
    assert dead_letters() == []
    assert get_queue("default").attributes().messages == 0


def test_stop_works_during_an_outage_of_the_server(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    worker = start(*ONE, "--shutdown-timeout", "1")
    wait_until(lambda: journal.names("start"))
    server.kill()
    wait_until(lambda: "Trying again until it works" in worker.output)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1
    assert "become visible when their leases expire" in worker.output


def test_death_during_an_outage_is_recovered_after_it(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    worker = start(*ONE)
    wait_until(lambda: journal.names("start"))
    (child,) = children_of(worker)
    server.kill()

    os.kill(child, signal.SIGKILL)
    wait_until(lambda: "ended with signal 9 (SIGKILL)" in worker.output)
    server.start()

    journal.open_gate()
    wait_until(lambda: journal.names("end"))  # long before its lease of 30 s would have ended
    wait_until(lambda: "1 of 3 times; retry in 1 s" in worker.output)


def test_records_of_a_lost_machine_are_processed_with_any_content(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.good.enqueue("orphan")
    orphan = get_queue("default").receive(visibility_timeout_s=1000)
    long_ago = {"ghost": 0, "phantom": 0, "wreck": 0, b"\xff\xfe": 0}
    server.redis.zadd("rsmq::workers", long_ago)
    garbage: dict[Any, Any] = {
        "1 a": "no line",
        b"2 \xff": b"\n\xff \xff\n\xff 1",
        "b" * 32: "1 default",
        "": "\n1 1\n\n 1\n1\n",
        "c no-such-queue": "\n" + "c" * 32 + " 1",
    }
    server.redis.hset("rsmq::worker:ghost", mapping={**garbage, "1 default": f"\nno number\n{orphan.id} 1\n"})
    server.redis.set("rsmq::worker:wreck", "not a hash")

    worker = start("--burst", *ONE)

    assert worker.wait() == 0
    assert journal.names("end") == ["orphan"]
    assert "worker ghost is stale: recovered" in worker.output
    wait_until(lambda: records_of_workers(server) == [])


# -- Maintenance -------------------------------------------------------------------------------------------------------


@pytest.fixture
def maintenance(project: Configure) -> Iterator[Maintenance]:
    """The maintenance of a supervisor on the only connection."""
    (maintenance,) = make_maintenance(queue_settings([]), max_crashes=3)
    yield maintenance
    maintenance.close()


def hold(server: PrivateServer, worker_id: str, *, for_s: float = 1000) -> Message:
    """Let a worker of this name hold a message, as its fetch would have left it in Redis."""
    message_id = ensure_queue("default").send("{}", delay_s=for_s)  # delayed, so that no other worker can take it
    server.redis.hset("rsmq:default:Q", f"{message_id}:rc", 1)
    server.redis.hset(f"rsmq::worker:{worker_id}", f"{int(message_id[:10], 36)} default", f"\n{message_id} 1")
    return Message(message_id, b"{}", 1, None)


def test_task_whose_outcome_died_with_its_process_is_a_suspect(maintenance: Maintenance, server: PrivateServer):
    finished, waiting = hold(server, "dead"), hold(server, "dead")
    shared_state = SharedState(2)
    shared_state.enter(finished.id, began_at=0.0)

    maintenance.note_death(Death(worker_id="dead", how="exit status 3", running=shared_state.running()))
    run_due([maintenance], [])

    counts = server.redis.hgetall("rsmq::released:default")
    assert counts == {f"{finished.id}:crashes".encode(): b"1", waiting.id.encode(): b"1"}
    assert get_queue("default").attributes().ready_messages == 1


def test_last_fetch_of_a_killed_process_is_found_although_it_was_carried_out_late(
    maintenance: Maintenance, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    def read_early(*args: Any) -> list[InflightEntry]:
        holds = read_inflight(*args)
        monkeypatch.undo()
        hold(server, "dead")  # the server gets to the fetch only after the record was read
        return holds

    def is_found() -> bool:
        run_due([maintenance], [])
        return get_queue("default").attributes().ready_messages == 1

    monkeypatch.setattr("rsmq_django.worker.supervise.recovery.read_inflight", read_early)
    maintenance.note_death(Death(worker_id="dead", how="signal 9 (SIGKILL)", running=frozenset()))
    run_due([maintenance], [])
    assert get_queue("default").attributes().hidden_messages == 1

    wait_until(is_found)

    assert (
        maintenance.next_check_at(has_children=False) is not None
    )  # once more after a while, for a server that is slow


def test_supervisor_that_was_cut_off_declares_no_worker_dead(maintenance: Maintenance, server: PrivateServer):
    hold(server, "other")
    server.redis.zadd("rsmq::workers", {"other": (server.redis.time()[0] - 60) * 1000})
    maintenance._last_beat_ms = (server.redis.time()[0] - 40) * 1000  # the server was down for both of them

    run_due([maintenance], ["mine"])

    assert get_queue("default").attributes().hidden_messages == 1
    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"other", b"mine"]


def test_maintenance_of_reliable_queues_removes_dead_workers_without_messages_from_the_list(
    project: Configure, server: PrivateServer, settings: Any
):
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"orders": {}}}
    hold(server, "holder")
    server.redis.zadd("rsmq::workers", {"holder": 1000, "idle": 1000})
    (maintenance,) = make_maintenance([], max_crashes=3, reliable=["orders"])

    run_due([maintenance], ["mine"])

    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"holder", b"mine"]
    assert server.redis.exists("rsmq::worker:holder")
    maintenance.close()


def test_workers_say_that_they_live_although_the_server_is_full(maintenance: Maintenance, server: PrivateServer):
    ensure_queue("default")
    server.redis.config_set("maxmemory", 1)
    try:
        run_due([maintenance], ["mine"])
    finally:
        server.redis.config_set("maxmemory", 0)

    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"mine"]


@pytest.mark.parametrize("key", ["rsmq:broken:Q", "rsmq:QUEUES"])
def test_damaged_queue_does_not_prevent_heartbeats_and_renewals(project: Configure, server: PrivateServer, key: str):
    project(default={}, broken={})
    message = hold(server, "mine", for_s=5)
    server.redis.delete(key)
    server.redis.set(key, "of another program")
    (maintenance,) = make_maintenance(queue_settings([]), max_crashes=3)

    run_due([maintenance], ["mine"])

    hidden_ms = server.redis.zscore("rsmq:default", message.id) - server.redis.time()[0] * 1000
    assert hidden_ms > 20_000
    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"mine"]


def test_messages_of_a_late_fetch_are_released(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.lease.inflight.UNDELIVERED_EVERY_S", 0.1)
    project()

    with working() as worker:
        wait_until(lambda: queue_source(worker).is_empty)
        ghost = hold(server, worker.options.worker_id)

        wait_until(lambda: get_queue("default-dead").attributes().messages)  # it was given back, taken, and is no task

    assert server.redis.hgetall("rsmq::released:default") == {}
    assert server.redis.zrange("rsmq:default-dead", 0, -1) == [ghost.id.encode()]


@pytest.mark.parametrize("damaged", ["rsmq:default-dead", "rsmq:default-dead:Q", "rsmq::dead:default-dead"])
def test_damaged_dead_letter_queue_blocks_nothing_and_loses_nothing(
    project: Configure, server: PrivateServer, damaged: str
):
    ensure_queue("default")
    ensure_queue("default-dead")
    kept = server.redis.dump(damaged)
    server.redis.set(damaged, "not what it was")
    get_queue("default").send("no task")
    done: list[str] = []
    good = declare(lambda name: done.append(name))

    with working() as worker:
        source = queue_source(worker)
        wait_until(lambda: source.pending.refused)
        good.enqueue("good")
        wait_until(lambda: done)
        wait_until(lambda: len(source.leases) == 1)
        assert not source.backoff.is_on

        server.redis.delete(damaged)
        if kept is not None:
            server.redis.restore(damaged, 0, kept)
        wait_until(lambda: source.is_idle)

    assert get_queue("default").attributes().messages == 0
    ((message, record),) = dead_letters()
    assert (message.body, record["reason"]) == (b"no task", "undecodable")


def test_supervisor_without_children_sleeps_until_it_may_start_one(project: Configure):
    options = WorkerOptions(threads=1, async_tasks=1, poll_interval_s=1, shutdown_timeout_s=1)
    supervisor = Supervisor(queue_settings([]), SupervisorOptions(processes=1, worker=options, max_crashes=3))
    supervisor._start_at = time.monotonic() + 5

    assert supervisor._next_check_at() == supervisor._start_at


# -- Resources ---------------------------------------------------------------------------------------------------------


def test_process_that_uses_too_much_memory_is_replaced_when_its_tasks_have_ended(
    project: Configure, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    tasks.grow.enqueue("hungry", 300)
    worker = start("--processes", "1", "--threads", "2", "--max-memory", "250", "--shutdown-timeout", "0")
    wait_until(lambda: "it is replaced when its tasks have ended" in worker.output)
    (big,) = children_of(worker)

    tasks.good.enqueue("next")
    journal.open_gate()

    wait_until(lambda: "next" in journal.names("end"))
    ended = pids_by_name(journal, "end")
    assert ended["slow"] == ended["hungry"] == [big]
    assert ended["next"] != [big] and not is_there(big)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what another process has open")
def test_twenty_thousand_tasks_leave_nothing_behind_in_the_worker(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    worker = start("--processes", "1", "--threads", "4")
    run(4000, server, journal)
    pids = (worker.process.pid, *children_of(worker))
    before = {pid: usage(pid) for pid in pids}
    connections = server.redis.info("clients")["connected_clients"]

    run(20_000, server, journal)

    assert len(before) == 2 and set(pids) == {worker.process.pid, *children_of(worker)}
    for pid in pids:
        # A process opens a file for a moment now and then.
        wait_until(lambda: all(now <= then for now, then in zip(usage(pid)[1:], before[pid][1:], strict=True)))  # noqa: B023
        assert usage(pid)[0] - before[pid][0] < 8 << 20
    assert server.redis.info("clients")["connected_clients"] <= connections + 1  # our own may come and go


def run(count: int, server: PrivateServer, journal: Journal) -> None:
    """Have so many tasks done, and wait until nothing is left of them."""
    tasks.silent.enqueue_many([[]] * count)
    wait_until(lambda: server.redis.zcard("rsmq:default") == 0)


# -- What goes on without a supervisor, and what cannot ----------------------------------------------------------------


def test_orphan_sends_its_own_heartbeat_until_its_tasks_have_ended(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    tasks.gate.enqueue("slow")
    worker = start(*ONE, "--shutdown-timeout", "60")
    wait_until(lambda: journal.names("start") and server.redis.zcard("rsmq::workers") == 1)

    worker.send(signal.SIGKILL)
    worker.wait()
    server.redis.delete("rsmq::workers")

    wait_until(lambda: server.redis.zcard("rsmq::workers") == 1)  # nobody else can have said so
    journal.open_gate()
    wait_until(lambda: journal.names("end") == ["slow"] and records_of_workers(server) == [])
    assert get_queue("default").attributes().messages == 0


def test_damaged_dead_letter_queue_does_not_prevent_the_end_of_a_burst(
    project: Configure, server: PrivateServer, start: StartWorker, journal: Journal
):
    ensure_queue("default")
    server.redis.set("rsmq:default-dead", "not what it was")
    get_queue("default").send("no task")
    tasks.good.enqueue_many([[name] for name in names_of(10)])

    worker = start("--burst", *ONE)

    assert worker.wait() == 1
    assert "outcomes refused by a damaged queue are dropped" in worker.output
    assert_done_once(journal, names_of(10))
    assert get_queue("default").attributes().messages == 1
