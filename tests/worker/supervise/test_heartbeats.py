"""Heartbeats say that a worker lives: only messages of one that has been silent for long are freed by others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rsmq_django.core import Connection, Message
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.worker.delivery import SHORTEST_LEASE_S, WorkQueue
from rsmq_django.worker.fetch.queues import queue_settings, work_queues_by_client
from rsmq_django.worker.lease.inflight import (
    DEAD_AFTER_S,
    expire_inflight,
    forget,
    forget_dead,
    heartbeat_call,
    read_inflight,
    renew_inflight,
)
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.supervise import maintenance as maintenance_module
from rsmq_django.worker.supervise.maintenance import SAMPLED_AT_A_TIME, Maintenance, make_maintenance, run_due
from rsmq_django.worker.supervise.process import Child, ProcessSlot
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, declare, new_worker, queue_source, run_exchanges

MANY = 3 * SAMPLED_AT_A_TIME


def now_ms(server: PrivateServer) -> float:
    seconds, microseconds = server.redis.time()
    return float(seconds) * 1000 + float(microseconds) / 1000


def heartbeat_ms(server: PrivateServer, worker_id: str) -> float:
    return float(server.redis.zscore("rsmq::workers", worker_id) or 0)


def maintenance_of(*queue_names: str, fires_schedules: bool = False) -> Maintenance:
    (maintenance,) = make_maintenance(queue_settings(queue_names), max_crashes=3, fires_schedules=fires_schedules)
    return maintenance


def held_by(worker_id: str, server: PrivateServer, queue_name: str = "default", *, batch: int = 1) -> Message:
    """Let a worker have received a message, and its record list it."""
    queue = ensure_queue(queue_name)
    queue.send(b"x")
    message = queue.receive(visibility_timeout_s=1000)
    assert message is not None
    server.redis.hset(f"rsmq::worker:{worker_id}", f"{batch} {queue_name}", f"\n{message.id} {message.receive_count}")
    return message


# -- Who is dead -------------------------------------------------------------------------------------------------------


def test_worker_process_sends_its_own_heartbeat(project: Configure, server: PrivateServer):
    options = replace(new_worker().options, worker_id="w1")
    worker = Worker(queue_settings([]), options, shared_state=SharedState(1))
    source = queue_source(worker)
    source.exchange(1)
    server.redis.zadd("rsmq::workers", {"w1": 1})

    source.exchange(0)
    assert heartbeat_ms(server, "w1") == 1, "not with every exchange"
    source.heartbeat.next_at = 0.0
    assert source.next_exchange_at(0) == 0.0
    source.exchange(0)

    assert heartbeat_ms(server, "w1") > now_ms(server) - DEAD_AFTER_S * 1000
    worker.wakeup.close()


def test_list_of_workers_that_another_program_uses_stops_no_worker(project: Configure, server: PrivateServer):
    server.redis.set("rsmq::workers", "foreign")
    declare(lambda: None).enqueue()
    worker = Worker(queue_settings([]), replace(new_worker().options, worker_id="w1"), shared_state=SharedState(1))
    source = queue_source(worker)

    assert len(source.exchange(1)) == 1
    assert not source.backoff.is_on
    worker.wakeup.close()


def test_worker_that_has_sent_a_heartbeat_since_it_seemed_dead_keeps_its_messages(
    project: Configure, server: PrivateServer
):
    message = held_by("w1", server)
    server.redis.zadd("rsmq::workers", {"w1": now_ms(server)})

    maintenance_of()._recover_stale_worker("w1")

    assert get_queue("default").receive() is None
    assert server.redis.exists("rsmq::worker:w1") and server.redis.zscore("rsmq::workers", "w1")
    assert get_queue("default").delete(message)


def test_messages_of_a_dead_worker_are_released_and_its_record_is_deleted(project: Configure, server: PrivateServer):
    message = held_by("w1", server)
    server.redis.zadd("rsmq::workers", {"w1": now_ms(server) - DEAD_AFTER_S * 1000 - 1})

    run_due([maintenance_of()], ["w2"])

    again = get_queue("default").receive()
    assert again is not None and again.id == message.id
    assert not server.redis.exists("rsmq::worker:w1")
    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"w2"]


@pytest.mark.long
@pytest.mark.slow
def test_messages_of_a_worker_are_not_recovered_while_only_its_supervisor_hangs(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 3600}}
    project(**queues)
    tasks.wait_at_gate.enqueue("slow")
    stopped = start_worker("--processes", "1", "--threads", "1", queues=queues)
    wait_until(lambda: journal.names("start"))
    stopped.send(signal.SIGSTOP)
    since_ms = now_ms(server)

    other = start_worker("--processes", "1", "--threads", "1", queues=queues)
    wait_until(lambda: now_ms(server) > since_ms + (DEAD_AFTER_S + 10) * 1000)

    assert journal.names("start") == ["slow"]
    assert "recovered" not in other.output
    stopped.send(signal.SIGCONT)


# -- A process that stands still ---------------------------------------------------------------------------------------


def child_with(shared_state: SharedState) -> Child:
    return Child(os.getpid(), "w1", shared_state, ProcessSlot())


def test_running_main_loop_does_not_count_as_blocked():
    shared_state = SharedState(1)
    child = child_with(shared_state)

    still_s = []
    for _ in range(5):
        shared_state.note_turn()
        still_s.append(child.blocked_s(100.0))

    assert still_s == [0.0] * 5


def test_main_loop_counts_as_blocked_from_the_last_turn_that_the_supervisor_has_seen():
    child = child_with(SharedState(1))

    assert [child.blocked_s(2.0) for _ in range(3)] == [2.0, 4.0, 6.0]


@pytest.mark.slow
def test_hanging_process_is_replaced_and_its_messages_are_released(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 3600}}
    project(**queues)
    tasks.wait_at_gate.enqueue("slow")
    arguments = ("--processes", "1", "--threads", "1", "--health-max-age", "1")
    worker = start_worker(*arguments, queues=queues, timeout_s="1")
    wait_until(lambda: journal.names("start"))
    (first,) = journal.lines("start")

    os.kill(int(first[2]), signal.SIGSTOP)

    wait_until(lambda: len(journal.names("start")) == 2)
    assert journal.lines("start")[1][2] != first[2]
    assert "its main loop was blocked for 10 s; its messages are recovered" in worker.output
    wait_until(lambda: "because its main loop was blocked, 1 of 3 times" in worker.output)


@pytest.mark.slow
def test_process_that_waits_for_a_server_does_not_count_as_blocked(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 3600}}
    project(**queues)
    tasks.wait_at_gate.enqueue("slow")
    with FaultProxy(server.url) as proxy:
        arguments = ("--processes", "1", "--threads", "1", "--health-max-age", "1")
        worker = start_worker(*arguments, queues=queues, url=proxy.url)
        wait_until(lambda: journal.names("start"))

        proxy.black_hole()
        over_at = time.monotonic() + 25  # longer than the connection's TIMEOUT_S, which is longer than --health-max-age
        wait_until(lambda: time.monotonic() > over_at or "was blocked" in worker.output)
        proxy.release()
        journal.open_gate()
        wait_until(lambda: journal.names("end"))

    assert "was blocked" not in worker.output
    assert journal.names("start") == ["slow"]


# -- Very many queues --------------------------------------------------------------------------------------------------


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands each exchange had."""
    counts: list[int] = []
    exchange = Connection.exchange

    def count(connection: Connection, commands: Sequence[object]) -> list[object]:
        counts.append(len(commands))
        return exchange(connection, commands)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "exchange", count)
    return counts


def test_very_many_queues_are_provided_in_a_round_trip_per_slice(
    configure: Configure, server: PrivateServer, exchanges: list[int]
):
    configure(**{f"q{number}": {} for number in range(MANY)})
    worker = new_worker()

    wait_until(queue_source(worker).selector.provision)

    assert server.redis.scard("rsmq:QUEUES") == 2 * MANY, "with their dead-letter queues"
    assert len(exchanges) < 20
    assert get_queue(f"q{MANY - 1}-dead").attributes().visibility_timeout_s == 30
    worker.wakeup.close()


def test_schedules_do_not_wait_for_the_lengths_of_very_many_queues(
    configure: Configure, exchanges: list[int], monkeypatch: pytest.MonkeyPatch
):
    configure(**{f"q{number}": {} for number in range(MANY)})
    maintenance = maintenance_of(fires_schedules=True)
    clock = StillClock(monkeypatch, maintenance_module)

    run_due([maintenance], ["w1"])

    assert max(exchanges) <= SAMPLED_AT_A_TIME + 1  # and a script to load
    assert len(exchanges) < 20
    *others, lengths = maintenance._jobs
    assert clock.now < lengths.due_at < min(chore.due_at for chore in others), "the other slices come later"


def test_leases_are_renewed_for_any_number_of_queues_and_next_to_damaged_ones(
    configure: Configure, server: PrivateServer, exchanges: list[int]
):
    configure(**{f"q{number}": {} for number in range(MANY)})
    for batch, name in enumerate(("q7", "q8", "q9")):
        held_by("w1", server, name, batch=batch)
    server.redis.zadd("rsmq:q7", dict.fromkeys(server.redis.zrange("rsmq:q7", 0, -1), 1))
    server.redis.zadd("rsmq:q9", dict.fromkeys(server.redis.zrange("rsmq:q9", 0, -1), 1))
    server.redis.delete("rsmq:q8")
    server.redis.set("rsmq:q8", "of another program")
    exchanges.clear()

    maintenance = maintenance_of()
    wait_s = run_exchanges(maintenance.client, maintenance._renewal.renew(["w1"]))

    for name in ("q7", "q9"):
        ((_, until_ms),) = server.redis.zrange(f"rsmq:{name}", 0, -1, withscores=True)
        assert until_ms > now_ms(server) + 25_000
    assert wait_s == 3.0
    assert len(exchanges) <= 6  # half of them load scripts


def test_each_part_of_a_renewal_reads_only_the_queues_of_its_messages(configure: Configure, server: PrivateServer):
    names = [f"q{number}" for number in range(300)]
    configure(**{name: {} for name in names})
    for batch, name in enumerate(names):
        held_by("w1", server, name, batch=batch)
    server.redis.hset("rsmq::worker:w1", "1 long", "x" * 1000)  # the server makes it a hash that is read in pages
    maintenance = maintenance_of()
    server.redis.config_resetstat()

    run_exchanges(maintenance.client, maintenance._renewal.renew(["w1"]))

    commands = server.redis.info("commandstats")
    assert commands["cmdstat_zadd"]["calls"] == 300
    assert commands["cmdstat_hget"]["calls"] < 2000


# -- What is done about one that is dead -------------------------------------------------------------------------------


def work_queue(name: str = "default") -> WorkQueue:
    ((_, (found,)),) = work_queues_by_client(queue_settings([name]), "w1")
    return found


def test_dead_workers_are_returned_a_hundred_at_a_time_without_live_ones(server: PrivateServer):
    server.redis.zadd("rsmq::workers", {f"dead{number:03}": number for number in range(120)})
    server.redis.zadd("rsmq::workers", {"alive": now_ms(server) - 1000})
    before_ms = now_ms(server)

    told_ms, dead = get_client().run(heartbeat_call(get_client(), ["w1", "dead000"]))

    assert int(before_ms) <= told_ms <= now_ms(server)
    assert dead == [f"dead{number:03}" for number in range(1, 101)]
    assert heartbeat_ms(server, "w1") == heartbeat_ms(server, "dead000") == told_ms
    assert server.redis.zcard("rsmq::workers") == 122


def test_worker_is_off_the_list_when_it_is_forgotten_but_not_while_it_seems_to_live(server: PrivateServer):
    server.redis.zadd("rsmq::workers", {"w1": now_ms(server), "w2": 1, "w3": now_ms(server)})
    for worker_id in ("w1", "w2", "w3"):
        server.redis.hset(f"rsmq::worker:{worker_id}", "1 default", "\nx 1")

    forget_dead(get_client(), "w1")
    forget_dead(get_client(), "w2")
    forget_dead(get_client(), "unknown")
    forget(get_client(), "w3")

    assert server.redis.zrange("rsmq::workers", 0, -1) == [b"w1"]
    assert set(server.redis.keys("rsmq::worker:*")) == {b"rsmq::worker:w1", b"rsmq::worker:w3"}


def test_only_leased_messages_of_a_dead_worker_are_released_and_its_record_is_emptied(
    project: Configure, server: PrivateServer
):
    queue = ensure_queue("default")
    mine, taken, gone = (held_by("w1", server, batch=batch) for batch in range(3))
    queue.delete(gone)
    queue.change_visibility(taken, 0)
    assert queue.receive(visibility_timeout_s=1000) is not None
    holds = read_inflight(get_client(), "rsmq::worker:w1")
    until, before_ms = server.redis.zscore("rsmq:default", taken.id), now_ms(server)

    assert expire_inflight(get_client(), [work_queue()], "w1", holds) == 1, "a worker that is not on the list is dead"

    assert server.redis.zscore("rsmq:default", taken.id) == until
    assert int(before_ms) <= (server.redis.zscore("rsmq:default", mine.id) or 0) <= now_ms(server)
    assert not server.redis.exists("rsmq::worker:w1")


def test_record_of_leases_outlives_the_leases_and_a_renewal_shortens_none(project: Configure, server: PrivateServer):
    project(default={"VISIBILITY_TIMEOUT_S": 100}, mail={"VISIBILITY_TIMEOUT_S": 50}, fast={"VISIBILITY_TIMEOUT_S": 0})
    first, second, third = (held_by("w1", server, name, batch=5) for name in ("default", "mail", "fast"))
    long_ms = round(now_ms(server)) + 10_000_000
    server.redis.zadd("rsmq:default", {first.id: long_ms})
    server.redis.zadd("rsmq:mail", {second.id: 1})
    server.redis.zadd("rsmq:fast", {third.id: 1})
    queues = [work_queue(name) for name in ("default", "mail", "fast")]
    before_ms = now_ms(server)

    held = ["5 default", "5 mail", "5 fast"]
    assert renew_inflight(get_client(), [("rsmq::worker:w1", held, queues)]) == SHORTEST_LEASE_S

    after_ms = now_ms(server)
    assert server.redis.zscore("rsmq:default", first.id) == long_ms
    assert int(before_ms) <= (server.redis.zscore("rsmq:mail", second.id) or 0) - 50_000 <= after_ms
    assert int(before_ms) <= (server.redis.zscore("rsmq:fast", third.id) or 0) - 1000 <= after_ms
    assert 1_000_000 - 60_000 < server.redis.pttl("rsmq::worker:w1") - 60_000 <= 1_000_000
