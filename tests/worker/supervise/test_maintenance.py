"""The periodic jobs of a supervisor."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rsmq_django import schedules
from rsmq_django.core import Connection
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.transport.call import load_script
from rsmq_django.core.transport.shared_exchanges import Exchanges
from rsmq_django.queues import ensure_queue, get_queue, shards_of_queue
from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.lease.inflight import DEAD_AFTER_S
from rsmq_django.worker.supervise.maintenance import Maintenance, PeriodicJob, make_maintenance, run_due
from rsmq_django.worker.supervise.recovery import Death
from tests.exchanges import note_connections
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw


def test_a_chore_that_raises_stops_no_other_and_is_tried_again(caplog: pytest.LogCaptureFixture):
    failures = [KeyError("ours"), KeyError("ours"), None]

    def do(_: Sequence[str]) -> Exchanges[float]:
        yield from ()
        if failure := failures.pop(0):
            raise failure
        return 10.0

    chore = PeriodicJob("schedules", do)

    for _ in range(3):
        list(chore.run(["w1"], 0.0))

    assert failures == []
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"], "told once, with its place"
    assert "schedules: 'ours'. Trying again" in caplog.text


def test_an_unreachable_server_is_logged_once_for_all_maintenance_jobs():
    def do(_: Sequence[str]) -> Exchanges[float]:
        yield from ()
        raise ConnectionFailed("away")

    with pytest.raises(ConnectionFailed):
        list(PeriodicJob("schedules", do).run(["w1"], 0.0))


# -- Many connections --------------------------------------------------------------------------------------------------

SHARDS = 4


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    return note_connections(monkeypatch)


@pytest.fixture
def of_shards(project: Configure) -> Iterator[list[Maintenance]]:
    """The maintenance of a queue with shards on one server."""
    project(default={"SHARDS": SHARDS})
    for shard in range(SHARDS):
        ensure_queue("default", shard=shard)
        ensure_queue("default-dead", shard=shard)
    every_maintenance = make_maintenance(queue_settings([]), max_crashes=3, fires_schedules=True)
    yield every_maintenance
    for maintenance in every_maintenance:
        maintenance.close()


def make_due(every_maintenance: Sequence[Maintenance]) -> None:
    """Let the time of all jobs come."""
    for maintenance in every_maintenance:
        maintenance._backoff.next_try_at = maintenance._renewal._read_at = 0.0
        for job in maintenance._jobs:
            job._due_at = job._backoff.next_try_at = 0.0


def beats(server: PrivateServer, every_maintenance: Sequence[Maintenance]) -> list[bool]:
    """Return for each connection whether a worker has sent a heartbeat, and forget it."""
    return [bool(server.redis.delete(f"{each.client.namespace}::workers")) for each in every_maintenance]


def hold_in_each_shard(server: PrivateServer, worker_id: str) -> None:
    """Let a worker have received a message from each shard."""
    for queue in shards_of_queue("default"):
        queue.send("{}")
        message = queue.receive(visibility_timeout_s=1000)
        assert message is not None
        record = f"{queue.client.namespace}::worker:{worker_id}"
        server.redis.hset(record, "1 default", f"\n{message.id} {message.receive_count}")


def ready() -> list[int]:
    return [queue.attributes().ready_messages for queue in shards_of_queue("default")]


def test_jobs_of_all_shards_are_requests_that_they_share(
    of_shards: list[Maintenance], server: PrivateServer, exchanged: list[Connection]
):
    run_due(of_shards, ["w1"])
    assert beats(server, of_shards) == [True] * SHARDS
    make_due(of_shards)
    exchanged.clear()

    run_due(of_shards, ["w1"])

    assert beats(server, of_shards) == [True] * SHARDS
    assert set(exchanged) == {of_shards[0].client.connection}
    # A heartbeat, two for the renewal of leases, one for schedules, which only the first shard has, and the lengths.
    assert len(exchanged) == 5
    assert len({job.due_at for maintenance in of_shards for job in maintenance._jobs[:2]}) == 2, "due together again"


def test_messages_of_a_process_that_died_are_released_in_each_shard(
    of_shards: list[Maintenance], server: PrivateServer
):
    hold_in_each_shard(server, "w7")
    for maintenance in of_shards:
        maintenance.note_death(Death(worker_id="w7", how="status 0", running=frozenset()))

    run_due(of_shards, [])

    assert ready() == [1] * SHARDS


def test_messages_of_a_stale_worker_are_released_in_each_shard(of_shards: list[Maintenance], server: PrivateServer):
    hold_in_each_shard(server, "w7")
    stale_ms = (server.redis.time()[0] - DEAD_AFTER_S - 1) * 1000
    for maintenance in of_shards:
        server.redis.zadd(f"{maintenance.client.namespace}::workers", {"w7": stale_ms})

    run_due(of_shards, ["w1"])

    assert ready() == [1] * SHARDS


def test_leases_are_renewed_in_each_shard(of_shards: list[Maintenance], server: PrivateServer):
    hold_in_each_shard(server, "w1")
    for queue in shards_of_queue("default"):
        server.redis.zadd(queue.keys.messages, dict.fromkeys(server.redis.zrange(queue.keys.messages, 0, -1), 1))
    assert ready() == [1] * SHARDS

    run_due(of_shards, ["w1"])

    assert ready() == [0] * SHARDS


def test_ticks_of_a_queue_with_shards_fire(of_shards: list[Maintenance]):
    declared = declare(lambda: None)
    schedules.add("often", declared, every_s=1)

    def is_fired() -> bool:
        make_due(of_shards)
        run_due(of_shards, ["w1"])
        return get_queue("default", shard=0).attributes().ready_messages > 0

    wait_until(is_fired)


def test_damaged_shard_keeps_no_other_from_its_jobs(of_shards: list[Maintenance], server: PrivateServer):
    server.redis.set("rsmq-2::workers", "of another program")

    run_due(of_shards, ["w1"])

    assert [server.redis.type(f"{each.client.namespace}::workers") for each in of_shards].count(b"zset") == SHARDS - 1
    assert not any(maintenance._backoff.is_on for maintenance in of_shards)
    assert [maintenance._jobs[0]._backoff.is_on for maintenance in of_shards] == [False, False, True, False]


def test_server_that_does_not_answer_is_waited_for_once_and_others_are_maintained(
    settings: Any, server: PrivateServer, exchanged: list[Connection]
):
    with FaultProxy(server.url) as silent:
        settings.RSMQ = {
            "CONNECTIONS": {
                "a": {"URL": silent.url, "NAMESPACE": "a", "TIMEOUT_S": 1, "SHARDS": SHARDS},
                "b": {"URL": server.url, "NAMESPACE": "b", "TIMEOUT_S": 15, "SHARDS": SHARDS},
            },
            "QUEUES": {"first": {"CONNECTION": "a"}, "second": {"CONNECTION": "b"}},
        }
        every_maintenance = make_maintenance(queue_settings([]), max_crashes=3)

        def are_beating() -> bool:
            make_due(every_maintenance)
            run_due(every_maintenance, ["w1"])
            return all(beats(server, every_maintenance))

        wait_until(are_beating)
        silent.black_hole()
        make_due(every_maintenance)
        exchanged.clear()

        run_due(every_maintenance, ["w1"])

        assert beats(server, every_maintenance) == [False] * SHARDS + [True] * SHARDS
        of_silent = [maintenance.client.connection for maintenance in every_maintenance[:SHARDS]]
        assert len([each for each in exchanged if each in of_silent]) == 1
        assert all(maintenance._backoff.is_on for maintenance in every_maintenance[:SHARDS])
        silent.release()
        for maintenance in every_maintenance:
            maintenance.close()


# -- What it says at the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held_nothing", [True, False])
def test_only_possibly_leased_messages_are_reported_as_recoverable(
    project: Configure, caplog: pytest.LogCaptureFixture, held_nothing: bool
):
    (maintenance,) = make_maintenance(queue_settings([]), max_crashes=3)
    maintenance.note_death(Death(worker_id="w7", how="status 0", running=frozenset(), held_nothing=held_nothing))

    maintenance.close()

    assert ("messages leased by w7 become visible" in caplog.text) is not held_nothing


def test_idle_worker_has_no_leased_messages_when_the_server_fails(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker = new_worker()
        assert queue_source(worker).exchange(1) == []

    queue_source(worker).fetch_now()
    queue_source(worker).exchange(1)

    assert queue_source(worker).backoff.is_on
    assert worker.holds_nothing


def test_worker_whose_fetch_was_not_answered_may_have_leased_messages(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker = new_worker()
        source = queue_source(worker)
        assert source.exchange(1) == []
        send_raw(b"hello")

        proxy.lose_reply_to(load_script("tasks/worker/fetch").sha1.encode())
        source.fetch_now()
        assert source.exchange(1) == []
        assert not worker.holds_nothing

        wait_until(lambda: source.exchange(0) == [] and worker.holds_nothing)
