"""What becomes of the messages of a process that died, whose record in Redis may be out of date."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connections

from rsmq_django.core import Client, Connection, Message
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Concurrency, fixed
from rsmq_django.tasks.limits import keys_of_limit
from rsmq_django.tasks.tags import note_tags, tagged
from rsmq_django.worker.delivery import WorkQueue
from rsmq_django.worker.fetch.queues import queue_settings, work_queues_by_client
from rsmq_django.worker.lease.inflight import (
    expire_inflight,
    held_batches,
    queues_of,
    read_inflight,
    release_unknown,
    renew_inflight,
)
from rsmq_django.worker.report.statistics import Statistics
from rsmq_django.worker.supervise.recovery import Death, _read_held, recover
from tests.exchanges import Exchanges
from tests.redis_server import PrivateServer
from tests.support import pass_time
from tests.worker.workshop import Configure, declare, the_dead_letter

NEVER_S = 1000


@dataclass
class DeadWorker:
    """A worker that held messages when its process died."""

    server: PrivateServer
    client: Client
    queues: list[WorkQueue]
    running: set[str] = field(default_factory=set)
    overdue: set[str] = field(default_factory=set)
    batches: list[str] = field(default_factory=list)

    def holds(self, body: bytes, *, is_running: bool) -> Message:
        """Let the worker have received a message, and perhaps run it."""
        queue = get_queue("default")
        queue.send(body)
        message = queue.receive(visibility_timeout_s=NEVER_S)
        assert message is not None
        noted(self.server, message, batch=f"{len(self.batches)} default")
        self.batches.append(message.id)
        if is_running:
            self.running.add(message.id)
        return message

    def is_recovered(self, *, max_crashes: int = 3, statistics: Statistics | None = None) -> None:
        """Free what it held, as its supervisor does."""
        death = Death(
            worker_id="dead", how="signal 9 (SIGKILL)", running=frozenset(self.running), overdue=frozenset(self.overdue)
        )
        recover(self.client, self.queues, death, max_crashes=max_crashes, statistics=statistics)


def noted(server: PrivateServer, message: Message, *, batch: str) -> None:
    """Let the record of the dead worker list a message, as its fetch would have left it."""
    server.redis.hset("rsmq::worker:dead", batch, f"\n{message.id} {message.receive_count}")


@pytest.fixture
def worker(project: Configure, server: PrivateServer) -> DeadWorker:
    ensure_queue("default")
    ensure_queue("default-dead")
    server.redis.zadd("rsmq::workers", {"dead": 1})
    ((_, queues),) = work_queues_by_client(queue_settings(["default"]), "dead")
    return DeadWorker(server, get_client(), queues)


@pytest.mark.parametrize("end", ["crash", "last crash", "hard timeout"])
@pytest.mark.parametrize(
    "by", [None, ["number"], lambda number: number], ids=["all calls", "an argument", "a function"]
)
def test_places_in_limits_are_free_at_once(
    worker: DeadWorker, server: PrivateServer, end: str, by: Any, monkeypatch: pytest.MonkeyPatch
):
    closed = list[bool]()
    monkeypatch.setattr(connections, "close_all", lambda: closed.append(True))

    def pay(number: int) -> None: ...

    declare(limits=[Concurrency(1, by=by)], backoff=fixed(3600))(pay)
    limit, body = Concurrency(1, by=by), json.dumps({"task": f"{__name__}.pay", "args": [7]})
    key, _ = keys_of_limit(limit, "rsmq", f"{__name__}.pay", pay, [7], {}, takes_context=False)
    message = worker.holds(body.encode(), is_running=end != "hard timeout")
    if end == "hard timeout":
        worker.overdue.add(message.id)
    server.redis.hset(key, message.id, f"1 {9 * 10**12} default")

    worker.is_recovered(max_crashes=1 if end == "last crash" else 3)

    assert not server.redis.exists(key)
    assert get_queue("default").attributes().messages == (0 if end == "last crash" else 1)
    assert any(closed) == callable(by), "a function of the project may use a database, and a supervisor forks"


def counted(server: PrivateServer) -> dict[bytes, bytes]:
    return dict(server.redis.hgetall("rsmq::released:default"))


def test_queues_of_leased_messages_are_named_once_and_other_fields_are_left_out(client: Client, server: PrivateServer):
    server.redis.hset("rsmq::worker:w", mapping={"1 jobs": "a 1", "2 jobs": "b 1", "3 mail": "c 1", "not a batch": "x"})

    held = client.run(held_batches("rsmq::worker:w"))

    assert sorted(held) == ["1 jobs", "2 jobs", "3 mail"]
    assert sorted(queues_of(held)) == ["jobs", "mail"]


def test_running_message_becomes_ready_later_and_counts_a_crash(
    worker: DeadWorker, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.supervise.recovery.CRASH_WAIT_S", 100)
    message = worker.holds(b"crash", is_running=True)

    worker.is_recovered()

    assert get_queue("default").receive() is None
    pass_time(get_queue("default"), seconds=101)
    again = get_queue("default").receive()
    assert again is not None and (again.id, again.receive_count) == (message.id, 2)
    assert counted(server) == {f"{message.id}:crashes".encode(): b"1"}


def test_delay_of_a_message_grows_with_each_process_that_it_crashes(
    worker: DeadWorker, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.supervise.recovery.CRASH_WAIT_S", 100)
    message = worker.holds(b"crash", is_running=True)
    server.redis.hset("rsmq::released:default", f"{message.id}:crashes", 1)

    worker.is_recovered()

    pass_time(get_queue("default"), seconds=150)
    assert get_queue("default").receive() is None
    pass_time(get_queue("default"), seconds=51)
    assert get_queue("default").receive() is not None
    assert counted(server) == {f"{message.id}:crashes".encode(): b"2"}


@pytest.mark.parametrize("key", ["rsmq:default-dead", "rsmq:default-dead:Q", "rsmq::dead:default-dead"])
def test_message_stays_in_its_queue_when_its_dead_letter_queue_is_damaged(
    worker: DeadWorker, server: PrivateServer, caplog: pytest.LogCaptureFixture, key: str
):
    message = worker.holds(b"crash", is_running=True)
    server.redis.delete(key)
    server.redis.set(key, "of another program")

    worker.is_recovered(max_crashes=1)

    assert f"message {message.id} stays in queue default for another attempt" in caplog.text
    pass_time(get_queue("default"), seconds=NEVER_S)
    again = get_queue("default").receive()
    assert again is not None and again.body == b"crash"


def test_message_that_only_waited_is_released_at_once_without_an_attempt(worker: DeadWorker, server: PrivateServer):
    message = worker.holds(b"innocent", is_running=False)

    worker.is_recovered()

    again = get_queue("default").receive()
    assert again is not None and again.id == message.id
    assert counted(server) == {message.id.encode(): b"1"}


def test_invalid_counts_of_another_program_do_not_delay_messages(worker: DeadWorker, server: PrivateServer):
    running, waiting = worker.holds(b"x", is_running=True), worker.holds(b"y", is_running=False)
    server.redis.hset("rsmq::released:default", mapping={f"{running.id}:crashes": "many", waiting.id: "1e20"})

    worker.is_recovered()

    assert counted(server) == {f"{running.id}:crashes".encode(): b"1", waiting.id.encode(): b"1"}
    pass_time(get_queue("default"), seconds=2)
    assert {message.id for message in get_queue("default").receive_many(5)} == {running.id, waiting.id}


@pytest.mark.parametrize("is_running", [True, False])
def test_message_with_a_new_lease_of_another_worker_is_left_alone(
    worker: DeadWorker, server: PrivateServer, is_running: bool
):
    worker.holds(b"x", is_running=is_running)
    pass_time(get_queue("default"), seconds=NEVER_S + 1)
    holder = get_queue("default").receive(visibility_timeout_s=NEVER_S)
    before = server.redis.zrange("rsmq:default", 0, -1, withscores=True)

    worker.is_recovered(max_crashes=1)

    assert server.redis.zrange("rsmq:default", 0, -1, withscores=True) == before
    assert counted(server) == {}
    assert holder is not None and get_queue("default").delete(holder)


def test_message_that_had_ended_stays_ended(worker: DeadWorker):
    message = worker.holds(b"x", is_running=True)
    get_queue("default").delete(message)

    worker.is_recovered(max_crashes=1)

    assert get_queue("default").attributes().messages == get_queue("default-dead").attributes().messages == 0


def test_message_whose_processes_die_too_often_is_dead_with_the_reason(worker: DeadWorker):
    worker.holds(b'{"task": "shop.tasks.ship", "id": "pLq0"}', is_running=True)

    worker.is_recovered(max_crashes=1)

    message, record = the_dead_letter()
    assert message.body == b'{"task": "shop.tasks.ship", "id": "pLq0"}'
    assert (record["reason"], record["attempts"], record["worker"]) == ("crashed", 1, "dead")
    assert record["message"].startswith("the process that ran it ended with signal 9 (SIGKILL), 1 times in all")


def test_log_has_the_task_whose_processes_die_too_often(worker: DeadWorker, caplog: pytest.LogCaptureFixture):
    def ship() -> None: ...

    declare(ship)
    message = worker.holds(json.dumps({"task": f"{__name__}.ship"}).encode(), is_running=True)

    worker.is_recovered(max_crashes=1)

    assert f"{__name__}.ship failed for good (crashed) on attempt 1, moved to its dead-letter queue" in caplog.text
    assert f"[{message.id}]" in caplog.text


def test_dead_letter_of_a_crash_is_not_found_by_its_tags(worker: DeadWorker, client: Client):
    client.run(note_tags("rsmq", ["tour"], ["pLq0"], due_in_s=0))
    worker.holds(b'{"task": "shop.tasks.ship", "id": "pLq0", "meta": {"tags": ["tour"]}}', is_running=True)

    worker.is_recovered(max_crashes=1)

    assert tagged("tour") == []


def test_worker_is_off_the_list_when_everything_of_it_is_free(worker: DeadWorker, server: PrivateServer):
    worker.holds(b"x", is_running=False)

    worker.is_recovered()

    assert not server.redis.exists("rsmq::worker:dead", "rsmq::workers")


@pytest.mark.parametrize("counts", [False, True])
def test_log_has_the_number_of_recovered_messages_of_a_dead_worker(
    worker: DeadWorker, caplog: pytest.LogCaptureFixture, counts: bool
):
    for body in (b"1", b"2", b"3"):
        worker.holds(body, is_running=body == b"1")

    worker.is_recovered(statistics=Statistics("rsmq", "supervisor", now_ms=lambda: 0.0) if counts else None)

    assert "dead held 3 messages, 1 running; recovered all" in caplog.text


def test_lost_delivery_is_distinguished_from_an_earlier_delivery_of_the_same_message(
    worker: DeadWorker, server: PrivateServer
):
    first = worker.holds(b"x", is_running=False)
    get_queue("default").change_visibility(first, 0)
    lost = get_queue("default").receive(visibility_timeout_s=NEVER_S)
    assert lost is not None and lost.id == first.id
    noted(server, lost, batch="9 default")

    released = release_unknown(
        worker.client, worker.queues, "rsmq::worker:dead", known={(first.id, first.receive_count)}
    )

    assert released == 1
    assert get_queue("default").attributes().ready_messages == 1


def test_known_deliveries_are_kept(worker: DeadWorker):
    message = worker.holds(b"x", is_running=False)

    known = {(message.id, message.receive_count)}

    assert release_unknown(worker.client, worker.queues, "rsmq::worker:dead", known) == 0
    assert get_queue("default").receive() is None


def test_renewal_by_the_supervisor_skips_messages_leased_by_another_worker(worker: DeadWorker, server: PrivateServer):
    ours = worker.holds(b"ours", is_running=True)
    lost = worker.holds(b"lost", is_running=True)
    gone = worker.holds(b"gone", is_running=True)
    get_queue("default").delete(gone)
    get_queue("default").change_visibility(lost, 0)
    assert get_queue("default").receive(visibility_timeout_s=NEVER_S) is not None
    server.redis.zadd("rsmq:default", {ours.id: (server.redis.time()[0] + 2) * 1000})  # a renewal shortens no lease
    before = dict(server.redis.zrange("rsmq:default", 0, -1, withscores=True))

    held = worker.client.run(held_batches("rsmq::worker:dead"))
    assert renew_inflight(worker.client, [("rsmq::worker:dead", held, worker.queues)]) == 30.0

    after = dict(server.redis.zrange("rsmq:default", 0, -1, withscores=True))
    assert gone.id.encode() not in after
    assert after[lost.id.encode()] == before[lost.id.encode()]
    assert after[ours.id.encode()] != before[ours.id.encode()]


def test_messages_of_a_worker_on_a_lost_machine_count_as_attempts(worker: DeadWorker, server: PrivateServer):
    message = worker.holds(b"x", is_running=False)

    holds = read_inflight(worker.client, "rsmq::worker:dead")

    assert expire_inflight(worker.client, worker.queues, "dead", holds) == 1

    again = get_queue("default").receive()
    assert again is not None and again.id == message.id
    assert counted(server) == {}  # nobody knows whether it ran


@pytest.mark.parametrize("is_running", [True, False])
def test_message_without_a_time_of_first_receive_becomes_ready_again(
    worker: DeadWorker, server: PrivateServer, is_running: bool
):
    message = worker.holds(b"x", is_running=is_running)
    server.redis.hdel("rsmq:default:Q", f"{message.id}:fr")

    worker.is_recovered(statistics=Statistics("rsmq", "supervisor", now_ms=lambda: 0.0))

    field = f"{message.id}:crashes" if is_running else message.id
    assert counted(server) == {field.encode(): b"1"}
    pass_time(get_queue("default"), seconds=2)
    again = get_queue("default").receive()
    assert again is not None and again.id == message.id


def test_message_leased_by_another_worker_is_not_read(worker: DeadWorker):
    message = worker.holds(b"x", is_running=False)
    (entry,) = read_inflight(worker.client, "rsmq::worker:dead")
    reads = _read_held(entry, worker.queues[0])
    assert worker.client.run(reads)[0] == b"x"

    get_queue("default").change_visibility(message, 0)
    assert get_queue("default").receive(visibility_timeout_s=NEVER_S) is not None

    assert worker.client.run(reads) == []


def test_task_of_a_process_that_died_too_often_finished_just_now(worker: DeadWorker):
    task = declare(_ship)
    result = task.enqueue()
    message = get_queue("default").receive(visibility_timeout_s=NEVER_S)
    assert message is not None
    noted(worker.server, message, batch="0 default")
    worker.running.add(message.id)
    before = time.time()

    worker.is_recovered(max_crashes=1)

    result.refresh()
    assert result.finished_at is not None
    assert before <= result.finished_at.timestamp() <= time.time()
    assert before * 1000 - 1 <= the_dead_letter()[1]["died_ms"] <= time.time() * 1000 + 1


def _ship() -> None: ...


def test_record_of_leases_outlives_recovery_because_a_late_fetch_may_add_to_it(
    worker: DeadWorker, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "rsmq_django.worker.supervise.recovery.read_inflight", lambda *_: []
    )  # the fetch is carried out after it
    worker.holds(b"x", is_running=False)

    worker.is_recovered()

    assert not server.redis.exists("rsmq::workers")
    assert server.redis.exists("rsmq::worker:dead")


@pytest.mark.parametrize("is_stale", [False, True])
def test_messages_of_many_queues_are_recovered_in_few_round_trips(
    configure: Configure,
    server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_stale: bool,
):
    names = [f"q{number}" for number in range(100)]
    configure(**{name: {} for name in names})
    for number, name in enumerate(names):
        ensure_queue(name).send(b"x")
        message = get_queue(name).receive(visibility_timeout_s=NEVER_S)
        assert message is not None
        noted(server, message, batch=f"{number} {name}")
    server.redis.zadd("rsmq::workers", {"dead": 1})
    ((client, queues),) = work_queues_by_client(queue_settings([]), "dead")
    server.redis.delete("rsmq:q7")
    server.redis.set("rsmq:q7", "of another program")
    exchanges = Exchanges(server)
    monkeypatch.setattr(Connection, "exchange", lambda *words: exchanges.exchange(*words))

    if is_stale:
        assert expire_inflight(client, queues, "dead", read_inflight(client, "rsmq::worker:dead")) == 99
    else:
        recover(client, queues, Death(worker_id="dead", how="signal 9", running=frozenset()), max_crashes=3)

    assert exchanges.count < 10, "one for each queue would be a hundred"
    assert all(get_queue(name).attributes().ready_messages == 1 for name in names if name != "q7")
    assert "messages of queue q7 become visible when their leases expire" in caplog.text
