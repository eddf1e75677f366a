"""A message is ours while its lease is renewed; when it is not, whoever holds it now is not disturbed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.conf.settings import get_settings
from rsmq_django.core import Message, SettleResult
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.signals import lease_lost
from rsmq_django.tasks import fixed
from rsmq_django.worker.delivery import Delivery, WorkQueue
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.lease import pending as starts
from rsmq_django.worker.lease.inflight import Undelivered
from rsmq_django.worker.lease.leases import renewal_calls
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Dead, RetryIn
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import (
    Configure,
    declare,
    let_leases_be_renewed,
    new_worker,
    queue_source,
    send_raw,
    until,
    working,
)


@pytest.fixture
def lost() -> Iterator[list[dict[str, Any]]]:
    """What the signal lease_lost told."""
    told: list[dict[str, Any]] = []

    def listen(**arguments: Any) -> None:
        told.append(arguments)

    lease_lost.connect(listen)
    yield told
    lease_lost.disconnect(listen)


def leased_until_ms(server: PrivateServer) -> float:
    """Return when the first lease in the queue runs out."""
    ((_, score),) = server.redis.zrange("rsmq:default", 0, 0, withscores=True)
    return float(score)


def taken_by_somebody_else() -> Message:
    """Let the lease of the only message run out and receive it, as another worker would."""
    queue = get_queue("default")
    while True:
        pass_time(queue, seconds=1000)
        message = queue.receive(visibility_timeout_s=300)
        if message is not None:  # else the lease was renewed between the two, or the worker was quicker
            return message


# -- Renewal -------------------------------------------------------------------------------------------------------


def test_worker_sleeps_although_a_lease_is_due_whose_message_has_an_outcome(project: Configure, server: PrivateServer):
    project(default={"MAX_ATTEMPTS": 1})
    ensure_queue("default-dead")
    server.redis.delete("rsmq:default-dead:Q")
    server.redis.set("rsmq:default-dead:Q", "of another program")
    declare(lambda: 1 / 0).enqueue()

    with working() as worker:
        only = queue_source(worker)
        wait_until(lambda: only.pending.refused)
        (held,) = only.leases.held()
        held.renewed_at -= 10
        only.leases.add([held])  # as if it had been refused for a third of its lease

        wait_until(lambda: only.leases.next_renewal_at() is None)

        server.redis.delete("rsmq:default-dead:Q")
        wait_until(lambda: only.is_idle)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_task_longer_than_its_lease_runs_once(project: Configure, server: PrivateServer, is_async: bool):
    runs, release = [], threading.Event()

    def run() -> None:
        runs.append(1)
        release.wait(60)

    async def arun() -> None:
        runs.append(1)
        await until(release)

    result = declare(arun if is_async else run).enqueue()
    with working() as worker:
        wait_until(lambda: runs)
        for _ in range(3):
            before = leased_until_ms(server)
            let_leases_be_renewed(worker)
            assert leased_until_ms(server) > before
            assert get_queue("default").receive() is None
        release.set()
    result.refresh()

    assert (runs, result.status, result.attempts) == ([1], "SUCCESSFUL", 1)


def test_all_messages_of_a_worker_are_renewed_together(project: Configure, server: PrivateServer):
    runs, release = [], threading.Event()

    async def arun(number: int) -> None:
        runs.append(number)
        await until(release)

    declare(arun).enqueue_many([[number] for number in range(30)])
    with working(async_tasks=30) as worker:
        wait_until(lambda: len(runs) == 30)
        for _ in range(3):
            before = leased_until_ms(server)
            let_leases_be_renewed(worker)
            assert leased_until_ms(server) > before
        release.set()

    assert sorted(runs) == list(range(30))


def test_queue_without_a_visibility_timeout_is_worked_on_under_a_lease(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    for module in ("queues", "exchange"):  # a second may pass unnoticed on a busy machine
        monkeypatch.setattr(f"rsmq_django.worker.fetch.{module}.SHORTEST_LEASE_S", 30.0)
    project(default={"VISIBILITY_TIMEOUT_S": 0})
    runs, release = [], threading.Event()

    def run() -> None:
        runs.append(1)
        release.wait(60)

    declare(run).enqueue()
    with working():
        wait_until(lambda: runs)
        assert get_queue("default").receive() is None
        release.set()

    assert runs == [1]


def test_lease_from_a_queue_without_a_visibility_timeout_is_a_second_from_the_fetch_on(
    project: Configure, server: PrivateServer
):
    project(default={"VISIBILITY_TIMEOUT_S": 0})
    declare(lambda: None).enqueue()
    worker = new_worker()
    exchanging = queue_source(worker)

    (delivery,) = exchanging.exchange(1)

    received_ms = float(server.redis.hget("rsmq:default:Q", f"{delivery.message.id}:fr"))
    assert leased_until_ms(server) == received_ms + 1000
    worker.wakeup.close()


def test_only_messages_that_are_missing_at_their_renewal_may_have_been_cancelled(
    project: Configure, server: PrivateServer
):
    declare(lambda number: None).enqueue_many([[1], [2]])
    worker = new_worker()
    exchanging = queue_source(worker)
    held = exchanging.exchange(2)
    gone = held[0].message.id
    server.redis.zrem("rsmq:default", gone)
    server.redis.hdel("rsmq:default:Q", gone, f"{gone}:rc", f"{gone}:fr")
    for delivery in held:
        delivery.renewed_at -= 25  # of 30 s: its renewal is due
    exchanging.leases.add(held)
    exchanging.leases._quiet_until = 0.0

    exchanging.exchange(0)

    question = exchanging.cancellations.question(lambda: held)
    assert question is not None and question[0] == [gone]
    worker.wakeup.close()


def test_renewals_of_very_many_messages_are_cut_into_pieces(project: Configure):
    queue = ensure_queue("default")
    queue.send_many([b"x"] * 2500)
    work_queue = WorkQueue(get_settings().queue("default"), queue, lease_s=30, inflight_key="rsmq::worker:w")
    held = [Delivery(work_queue, message, 1, 0.0) for _ in range(3) for message in queue.receive_many(1000)]

    calls = renewal_calls(held)

    assert [len(deliveries) for deliveries, _ in calls] == [1000, 1000, 500]
    assert all(verdict is SettleResult.DONE for _, call in calls for verdict in queue.client.run(call))


def test_renewal_does_not_hide_messages_released_at_the_same_time(project: Configure):
    declare(lambda: None).enqueue()
    worker = new_worker()
    exchanging = queue_source(worker)
    (delivery,) = exchanging.exchange(1)
    delivery.renewed_at -= 25  # of 30 s: its renewal is due
    exchanging.leases.add([delivery])

    exchanging.settle(Execution(delivery, sink=exchanging, notifier=worker.notifier), RetryIn(0.0, OSError(), ""))
    exchanging.exchange(0)

    assert get_queue("default").receive() is not None
    worker.wakeup.close()


def test_long_run_shows_as_running_from_outside(project: Configure):
    release = threading.Event()
    result = declare(lambda: release.wait(60)).enqueue()
    with working(worker_id="painter", threads=1, poll_interval_s=60):
        wait_until(lambda: status_now(result) == "RUNNING")
        result.refresh()
        release.set()

    assert (result.worker_ids, result.attempts, result.finished_at) == (["painter"], 1, None)
    assert result.started_at is not None


def test_second_attempt_shows_as_running_too(project: Configure):
    attempts, release = [], threading.Event()

    def run() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError
        release.wait(60)

    result = declare(backoff=fixed(0))(run).enqueue()
    with working(worker_id="w"):
        wait_until(lambda: status_now(result) == "RUNNING")
        result.refresh()
        release.set()

    assert (result.worker_ids, len(result.errors)) == (["w", "w"], 1)


def status_now(result: Any) -> str:
    result.refresh()
    return str(result.status)


# -- A lost lease --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settlement", ["returns", "fails", "dies"])
def test_late_outcome_is_discarded_and_logged(
    project: Configure, lost, caplog, monkeypatch: pytest.MonkeyPatch, settlement: str
):
    monkeypatch.setattr(starts, "NOTE_START_AFTER_S", 3600)  # it does not show as running as long as it is ours
    taken: list[Message] = []

    def run() -> None:
        taken.append(taken_by_somebody_else())
        if settlement != "returns":
            raise OSError

    result = declare(max_attempts=1 if settlement == "dies" else 5, backoff=fixed(0))(run).enqueue()

    new_worker(max_tasks=1).run()

    (message,), queue = taken, get_queue("default")
    (told,) = lost
    assert (told["queue_name"], told["message"].id) == ("default", message.id)
    assert f"message {message.id} of queue default was received by another worker" in caplog.text
    assert queue.attributes().messages == 1 and get_queue("default-dead").attributes().messages == 0
    assert queue.delete(message)  # its new holder is not disturbed
    result.refresh()
    assert result.status == "READY"


def test_renewal_notices_that_the_lease_is_lost(project: Configure, lost):
    held, release = [], threading.Event()

    def run() -> None:
        held.append(taken_by_somebody_else())
        release.wait(60)

    declare(run).enqueue()
    with working(threads=1) as worker:  # without room it cannot be the somebody else itself
        wait_until(lambda: held)
        (delivery,) = queue_source(worker).leases.held()
        let_leases_be_renewed(worker)
        wait_until(lambda: delivery.lease_lost)
        release.set()

    assert {told["message"].id for told in lost} == {held[-1].id}
    assert get_queue("default").delete(held[-1])


def test_run_whose_lease_is_lost_does_not_show_as_running(project: Configure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(starts, "NOTE_START_AFTER_S", 3600)
    taken, release = [], threading.Event()

    def run() -> None:
        taken.append(taken_by_somebody_else())
        release.wait(60)

    result = declare(run).enqueue()
    with working(threads=1) as worker:  # without room it cannot be the somebody else itself
        wait_until(lambda: taken)
        monkeypatch.setattr(starts, "NOTE_START_AFTER_S", 0.01)
        queue_source(worker)._start_notes = starts.StartNotes()  # only now may it say so
        worker.wakeup.wake()
        wait_until(lambda: [held for held in queue_source(worker).leases.held() if held.start_noted])
        status = status_now(result)
        release.set()

    assert (status, len(taken)) == ("READY", 1)


def test_expired_lease_is_valid_until_another_worker_receives_the_message(project: Configure, lost):
    def run() -> str:
        pass_time(get_queue("default"), seconds=1000)
        return "done"

    result = declare(run).enqueue()

    new_worker(max_tasks=1).run()

    result.refresh()
    assert (result.status, lost) == ("SUCCESSFUL", [])
    assert get_queue("default").attributes().messages == 0


def test_message_that_was_deleted_meanwhile_ends_without_an_error(project: Configure, lost):
    def run() -> None:
        get_queue("default").delete(taken_by_somebody_else())

    declare(run).enqueue()

    assert new_worker(max_tasks=1).run()

    assert get_queue("default").attributes().messages == 0


@pytest.mark.parametrize("began", [False, True])
def test_message_that_runs_while_its_queue_is_damaged_delays_no_work_on_the_others(
    project: Configure, server: PrivateServer, began: bool
):
    project(default={}, mail={})
    declare(lambda: None).enqueue()
    declare(lambda: None, queue_name="mail").enqueue()
    worker = new_worker()
    source = queue_source(worker)
    held = wait_until(lambda: source.exchange(2))
    assert [each.work_queue.name for each in held] == ["default", "mail"]
    if began:  # the start of a run that takes some time is noted
        source.began(Execution(held[1], sink=source, notifier=worker.notifier))
        held[1].started_ms = source.clock.now_ms() - 1000
    server.redis.rename("rsmq:mail:Q", "elsewhere")
    server.redis.set("rsmq:mail:Q", "of some other program")

    for each in held:
        each.renewed_at -= 10  # of 60 s: a tenth is due
    before = leased_until_ms(server)
    source.leases._quiet_until = 0.0
    source.exchange(0)

    assert not source.is_unavailable and leased_until_ms(server) > before
    assert source.next_exchange_at(0) > time.monotonic(), "the renewal is not tried again and again"
    server.redis.rename("elsewhere", "rsmq:mail:Q")
    wait_until(lambda: not source.leases.may_be_due(time.monotonic()) or source.exchange(0))
    assert not held[1].lease_lost


# -- An outage -----------------------------------------------------------------------------------------------------


def test_reconnect_wait_is_a_tenth_of_the_shortest_lease_while_messages_are_leased(
    configure: Configure, server: PrivateServer
):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url, default={"VISIBILITY_TIMEOUT_S": 10}, slow={"VISIBILITY_TIMEOUT_S": 600})
        send_raw(b"1", "default")
        send_raw(b"2", "slow")
        worker = new_worker()
        source = queue_source(worker)
        assert len(source.exchange(2)) == 2
    waits = []
    for _ in range(60):
        source.backoff.next_try_at = 0.0
        source.fetch_now()
        assert source.exchange(1) == []
        waits.append(source.backoff.next_try_at - time.monotonic())

    assert source.backoff.is_on
    assert max(waits) <= 1.0


def test_worker_without_messages_waits_longer_for_the_server(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url, default={"VISIBILITY_TIMEOUT_S": 1})
        worker = new_worker()
        source = queue_source(worker)
        source.exchange(1)
    waits = []
    for _ in range(60):
        source.backoff.next_try_at = 0.0
        source.fetch_now()
        source.exchange(1)
        waits.append(source.backoff.next_try_at - time.monotonic())

    assert 1.0 < max(waits) <= 5.0


def test_outcome_goes_out_soon_after_an_outage_however_long_that_was(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        send_raw(b"1")
        send_raw(b"2")
        worker = new_worker()
        source = queue_source(worker)
        ended, other = source.exchange(2)
        assert source.selector.is_settled or source.exchange(0) == []
        source.settle(Execution(ended, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
    for _ in range(10):
        source.pending.late.next_try_at = 0.0
        for _ in range(2):  # one with the outcome, one with a renewal
            source.backoff.next_try_at = source.leases._quiet_until = 0.0
            other.renewed_at = time.monotonic() - 10
            source.exchange(0)

    assert source.pending.late.settlements
    assert source.pending.late.next_try_at < time.monotonic() + 1


def test_last_outcomes_do_not_wait_behind_one_that_cannot_be_sent(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        for _ in range(2):
            send_raw(b"{}")
        worker = new_worker()
        source = queue_source(worker)
        cursed, other = wait_until(lambda: source.exchange(2))
        proxy.lose_reply_to(cursed.message.id.encode(), times=100)
        source.settle(Execution(cursed, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
        source.exchange(0)
        assert source.pending.late.settlements

        source.settle(Execution(other, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
        source.flush()

        assert [each.delivery for each in source.pending.all_settlements()] == [cursed]
        assert server.redis.zscore("rsmq:default", other.message.id) is None


def test_outcome_that_the_user_has_no_right_to_write_delays_no_other_work(configure: Configure, server: PrivateServer):
    server.redis.execute_command("ACL", "SETUSER", "narrow", "reset", "allchannels", "on", ">secret", "~*", "+@all")
    try:
        configure(url=server.url.replace("unix://", "unix://narrow:secret@"))
        send_raw(b"{}")
        worker = new_worker()
        source = queue_source(worker)
        (held,) = wait_until(lambda: source.exchange(1))
        own = ["~rsmq:QUEUES", "~rsmq:default", "~rsmq:default:Q", "~rsmq::*"]  # not those of its dead letters
        server.redis.execute_command("ACL", "SETUSER", "narrow", "resetkeys", *own)

        source.settle(Execution(held, sink=source, notifier=worker.notifier), Dead("gave_up", ValueError()))
        source.exchange(0)
        send_raw(b"{}")
        source.fetch_now()
        (other,) = source.exchange(1)

        assert [each.delivery for each in source.pending.all_settlements()] == [held] and not source.is_unavailable
        server.redis.execute_command("ACL", "SETUSER", "narrow", "allkeys")
        source.settle(Execution(other, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
        wait_until(lambda: source.exchange(0) or source.is_idle)
        assert get_queue("default-dead").attributes().messages == 1
    finally:
        server.redis.execute_command("ACL", "DELUSER", "narrow")


def test_leases_are_checked_again_when_the_first_of_them_is_due(project: Configure):
    for _ in range(3):
        send_raw(b"{}")
    source = queue_source(new_worker())
    held = wait_until(lambda: source.exchange(3))
    first_at = source.leases.next_renewal_at()
    assert len(held) == 3 and first_at is not None
    for number, delivery in enumerate(held):
        delivery.renewed_at += 1000 * number
    now = first_at - 1
    source.leases._quiet_until = now

    assert source.leases.due(now, set()) == []
    assert source.leases.next_renewal_at() == first_at


def test_new_worker_searches_no_messages_that_it_has_not_fetched(project: Configure):
    assert not Undelivered(get_client(), "a record").is_due()


def test_lease_is_lost_when_its_time_is_over_without_a_renewal_and_no_earlier(project: Configure):
    declare(lambda: None).enqueue()
    source = queue_source(new_worker())
    (held,) = source.exchange(1)
    ends_at = held.renewed_at + held.work_queue.lease_s

    source.leases.expire(ends_at - 0.001)
    assert not held.lease_lost

    source.leases.expire(ends_at)
    assert held.lease_lost


def test_start_is_noted_of_runs_that_have_lasted_for_a_while(project: Configure):
    declare(lambda: None).enqueue()
    source = queue_source(new_worker())
    (held,) = source.exchange(1)
    held.execution = Execution(held, sink=source, notifier=source.notifier)
    held.started_ms, enough_ms = 1_000_000.0, 1000 * starts.NOTE_START_AFTER_S

    assert starts.starts_to_note([held], set(), now_ms=held.started_ms + enough_ms - 1) == []
    (noted,) = starts.starts_to_note([held], set(), now_ms=held.started_ms + enough_ms)
    assert noted.delivery is held
