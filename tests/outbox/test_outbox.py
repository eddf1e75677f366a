"""Rows are written with the caller's transaction, and sent once and in order, after any failure."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models.signals import post_delete
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.tasks.outbox import Relayed, RelayItem, confirm, keep_back, relay
from rsmq_django.outbox import relay_process
from rsmq_django.outbox.batch_size import BatchSize
from rsmq_django.outbox.models import OutboxMessage
from rsmq_django.outbox.relay import Relay, prune
from rsmq_django.outbox.relay_process import StopRequest, relay_until
from rsmq_django.outbox.replicas import Replicas
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Task, TaskCancelled, acancel, cancel
from rsmq_django.tasks.compat import TaskResultDoesNotExist, task_enqueued
from rsmq_django.testing import private_queues
from tests.fault_proxy import FaultProxy
from tests.outbox.conftest import LEDGER
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, work


@pytest.fixture
def greet(with_outbox: Configure) -> Task[..., Any]:
    def greeting(name: str) -> None: ...

    declared: Task[..., Any] = declare(greeting)
    return declared


def rows() -> Any:
    return OutboxMessage.objects.using(LEDGER).order_by("pk")


def sent_names(server: PrivateServer, queue_name: str = "default") -> list[str]:
    """Return the first argument of each task in a queue, in the order in which they were sent."""
    ids = sorted(server.redis.zrange(f"rsmq:{queue_name}", 0, -1))
    bodies = server.redis.hmget(f"rsmq:{queue_name}:Q", ids) if ids else []
    return [json.loads(body)["args"][0] for body in bodies]


def test_rows_of_a_queue_that_has_got_shards_meanwhile_are_sent_to_its_first_one(
    greet: Task, with_outbox: Configure, configure: Configure, server: PrivateServer
):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, other={"OUTBOX": True})
    greet.enqueue("Ada")
    greet.using(priority=5).enqueue("Bob")
    greet.using(queue_name="other").enqueue("Cid")
    configure(on_commit=LEDGER, default={"SHARDS": 3}, other={"OUTBOX": True})

    assert Relay().relay_waiting() == 3

    assert [sent_names(server, name) for name in ("default", "default-p5", "other")] == [["Ada"], ["Bob"], ["Cid"]]


# -- Writing -------------------------------------------------------------------------------------------------------


def test_call_is_a_row_of_the_transaction_and_sent_by_the_relay(greet: Task, server: PrivateServer):
    with transaction.atomic(using=LEDGER):
        Group.objects.using(LEDGER).create(name="team")
        result = greet.enqueue("Ada")
        assert rows().get().task_id == result.id
        assert sent_names(server) == []

    assert Relay().relay_waiting() == 1

    assert sent_names(server) == ["Ada"]
    assert greet.get_result(result.id).status == "READY"
    assert rows().get().sent_at is not None


def test_row_of_a_rolled_back_transaction_is_not_sent(greet: Task, server: PrivateServer):
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=LEDGER):
        greet.enqueue("Ada")
        greet.enqueue_many([["Grace"], ["Joan"]])
        raise ZeroDivisionError

    assert Relay().relay_waiting() == 0
    assert sent_names(server) == []


def test_call_is_refused_and_no_row_where_a_commit_has_no_hooks(greet: Task):
    transaction.set_autocommit(False, using=LEDGER)
    try:
        with pytest.raises(TransactionManagementError, match="nothing was stored. Use transaction.atomic"):
            greet.enqueue("Ada")
        transaction.commit(using=LEDGER)
        with transaction.atomic(using=LEDGER):
            greet.enqueue("Bob")
        transaction.commit(using=LEDGER)
    finally:
        transaction.rollback(using=LEDGER)
        transaction.set_autocommit(True, using=LEDGER)

    assert [b"Bob" in bytes(row.body) for row in rows()] == [True]


def test_call_without_a_transaction_is_a_row_as_well(greet: Task, server: PrivateServer):
    greet.enqueue("Ada")

    assert sent_names(server) == []
    assert Relay().relay_waiting() == 1


def test_async_call_in_a_transaction_of_synchronous_code_is_a_row_of_it(greet: Task, server: PrivateServer):
    with transaction.atomic(using=LEDGER):
        async_to_sync(greet.aenqueue)("Ada")
        async_to_sync(greet.aenqueue_many)([["Grace"], ["Joan"]])
        assert rows().count() == 3
    with transaction.atomic(using=LEDGER):
        async_to_sync(greet.aenqueue)("Eve")
        transaction.set_rollback(True, using=LEDGER)

    assert (rows().count(), Relay().relay_waiting()) == (3, 3)
    assert sent_names(server) == ["Ada", "Grace", "Joan"]


async def test_async_enqueue_writes_rows_too(greet: Task, server: PrivateServer):
    await greet.aenqueue("Ada")
    await greet.aenqueue_many([["Grace"], ["Joan"]])

    await sync_to_async(Relay().relay_waiting)()

    assert sent_names(server) == ["Ada", "Grace", "Joan"]


def test_listeners_are_called_at_the_commit(greet: Task):
    heard = []

    def listen(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(listen)
    with transaction.atomic(using=LEDGER):
        result = greet.enqueue("Ada")
        assert heard == []
    task_enqueued.disconnect(listen)

    assert heard == [result.id]


def test_enqueue_needs_no_redis(greet: Task, server: PrivateServer):
    server.kill()
    greet.enqueue("Ada")

    server.start()
    Relay().relay_waiting()

    assert sent_names(server) == ["Ada"]


def test_queue_without_outbox_is_sent_to_directly(with_outbox: Configure, greet: Task, server: PrivateServer):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, fast={})

    greet.using(queue_name="fast").enqueue("Ada")

    assert sent_names(server, "fast") == ["Ada"]
    assert not rows().exists()


def test_result_is_found_before_the_relay_has_sent_it(greet: Task, server: PrivateServer):
    result = greet.enqueue("Ada")

    result.refresh()
    found = greet.get_result(result.id)

    assert (found.status, found.args, found.task.module_path) == ("READY", ["Ada"], greet.module_path)
    with pytest.raises(TaskResultDoesNotExist):
        greet.get_result("unknown")


# -- Relaying ------------------------------------------------------------------------------------------------------


def test_order_is_that_of_the_rows_also_over_several_batches(greet: Task, server: PrivateServer):
    names = [str(number) for number in range(1200)]
    greet.enqueue_many([[name] for name in names])

    assert Relay().relay_waiting() == 1200

    assert sent_names(server) == names


def test_delayed_call_is_due_when_it_would_have_been(greet: Task, server: PrivateServer):
    greet.using(run_after=timedelta(hours=1)).enqueue("later")
    rows().update(run_after=timezone.now() + timedelta(minutes=10))

    Relay().relay_waiting()

    ((message_id, visible_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    assert 590_000 < visible_ms - int(message_id[:10], 36) / 1000 <= 600_000


def test_own_delay_of_the_queue_applies(with_outbox: Configure, greet: Task, server: PrivateServer):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True, "DELAY_S": 100})
    greet.enqueue("Ada")

    Relay().relay_waiting()

    ((message_id, visible_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    assert 99_000 < visible_ms - int(message_id[:10], 36) / 1000 <= 100_001


def test_priority_goes_into_its_band(greet: Task, server: PrivateServer):
    greet.using(priority=50).enqueue("urgent")

    Relay().relay_waiting()

    assert sent_names(server, "default-p50") == ["urgent"]


def test_relay_that_died_before_its_note_sends_nothing_twice(
    greet: Task, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "rsmq_django")
    greet.enqueue_many([["1"], ["2"], ["3"]])
    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_note_sent", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Relay().relay_waiting()
    greet.enqueue("4")
    server.redis.delete("rsmq:default")  # those that were sent are done already

    Relay().relay_waiting()

    assert sent_names(server) == ["4"]
    assert "left out 3 messages sent before" in caplog.text
    assert not rows().filter(sent_at=None).exists()


def test_ids_are_remembered_for_a_minute_when_their_rows_are_marked_as_sent(greet: Task, server: PrivateServer):
    greet.enqueue_many([["1"], ["2"]])

    Relay().relay_waiting()

    remembered = server.redis.zrange("rsmq::relayed", 0, -1, withscores=True)
    assert len(remembered) == 2
    assert all(until_ms <= now_ms(server) + 60_000 for _, until_ms in remembered)


def test_many_relays_at_once_keep_the_order_and_send_once(greet: Task, server: PrivateServer):
    names = [str(number) for number in range(1500)]
    greet.enqueue_many([[name] for name in names])

    def relay_all() -> None:
        Relay().relay_waiting()
        connections[LEDGER].close()

    threads = [threading.Thread(target=relay_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Relay().relay_waiting()

    assert sent_names(server) == names
    assert get_queue("default").attributes().total_sent == len(names)


def test_unreachable_redis_only_delays(greet: Task, server: PrivateServer):
    greet.enqueue("Ada")
    relay = Relay()
    server.kill()
    assert relay.relay_waiting() == 0

    server.start()
    wait_until(relay.relay_waiting)

    assert sent_names(server) == ["Ada"]


def test_trouble_of_one_queue_does_not_stop_another(with_outbox: Configure, greet: Task, server: PrivateServer):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, broken={"OUTBOX": True})
    greet.using(queue_name="broken").enqueue("Ada")
    greet.enqueue("Grace")
    server.redis.set("rsmq:broken:Q", "what another program left")

    Relay().relay_waiting()

    assert sent_names(server) == ["Grace"]
    assert rows().get(sent_at=None).queue_name == "broken"


def test_very_many_rows_of_one_queue_do_not_hold_up_another(
    with_outbox: Configure, greet: Task, monkeypatch: pytest.MonkeyPatch
):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, other={"OUTBOX": True})
    greet.enqueue_many([[str(number)] for number in range(10)])
    greet.using(queue_name="other").enqueue("Ada")
    sent = in_batches_of_two(monkeypatch, then=lambda queue: None)

    assert Relay().relay_waiting() == 11

    assert sent == ["default", "other", *["default"] * 4]


@pytest.fixture
def end_of_relay() -> Iterator[tuple[StopRequest, Callable[[], object]]]:
    """A request that ends a relay, and the function that makes it: its supervisor is gone."""
    lifeline, held_by_the_supervisor = os.pipe()
    descriptor = signal.set_wakeup_fd(-1)
    yield StopRequest(lifeline), lambda: os.dup2(lifeline, held_by_the_supervisor)
    signal.set_wakeup_fd(descriptor)
    os.close(lifeline)
    os.close(held_by_the_supervisor)


def test_relay_that_is_told_to_stop_leaves_the_rest_of_very_many_rows(
    greet: Task, end_of_relay: tuple[StopRequest, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
):
    stop, end = end_of_relay
    greet.enqueue_many([[str(number)] for number in range(10)])
    in_batches_of_two(monkeypatch, then=lambda queue: end())

    relay_until(stop)

    assert rows().filter(sent_at=None).count() == 8


def test_a_queue_that_gets_rows_meanwhile_is_found_during_very_many(
    with_outbox: Configure,
    greet: Task,
    end_of_relay: tuple[StopRequest, Callable[[], object]],
    monkeypatch: pytest.MonkeyPatch,
):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, other={"OUTBOX": True})
    monkeypatch.setattr(relay_process, "LOOK_AGAIN_S", 0.0)
    stop, end = end_of_relay
    greet.enqueue_many([[str(number)] for number in range(10)])

    def go_on(queue: Queue) -> None:
        if len(sent) == 1:
            greet.using(queue_name="other").enqueue("Ada")
        if len(sent) == 6:
            end()

    sent = in_batches_of_two(monkeypatch, then=go_on)

    relay_until(stop)

    assert sent.index("other") < 5 and not rows().filter(sent_at=None).exists()


def test_relay_that_is_told_to_stop_leaves_the_rest_of_very_many_old_rows(
    greet: Task, end_of_relay: tuple[StopRequest, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
):
    stop, end = end_of_relay
    greet.enqueue_many([[str(number)] for number in range(5)])
    rows().update(sent_at=timezone.now() - timedelta(days=30))
    monkeypatch.setattr("rsmq_django.outbox.relay.PRUNE_BATCH", 2)

    def told(**_: object) -> None:
        end()

    post_delete.connect(told, sender=OutboxMessage)
    try:
        relay_until(stop)
    finally:
        post_delete.disconnect(told, sender=OutboxMessage)

    assert rows().count() == 3


def in_batches_of_two(monkeypatch: pytest.MonkeyPatch, *, then: Callable[[Queue], object]) -> list[str]:
    """Let relays send two rows at a time, and return the list of the queues to which they send them."""
    sent: list[str] = []
    send = Relay._send

    def sending(relay: Relay, queue: Queue, *given: Any) -> list[Relayed]:
        verdicts = send(relay, queue, *given)
        sent.append(queue.name)
        then(queue)
        return verdicts

    monkeypatch.setattr("rsmq_django.outbox.batch_size.MAX_ROWS", 2)
    monkeypatch.setattr(Relay, "_send", sending)
    return sent


def test_row_that_can_never_be_sent_is_set_aside_until_a_manual_retry(
    with_outbox: Configure, greet: Task, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    ensure_queue("default").set_attributes(max_size_bytes=1024)
    greet.enqueue("x" * 2000)
    greet.enqueue("short")
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, gone={"OUTBOX": True})
    greet.using(queue_name="gone").enqueue("lost")
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True})

    Relay().relay_waiting()
    assert Relay().relay_waiting() == 0

    assert sent_names(server) == ["short"]
    reasons = list(rows().exclude(refusal="").values_list("refusal", flat=True))
    assert "longer than queue 'default' allows" in reasons[0]
    assert "Queue 'gone' is not in RSMQ['QUEUES']" in reasons[1]
    told = rsmq_outbox("status", exit_status=1)
    assert "default: 0 messages unsent\n  1 message set aside, for example because the message is longer" in told

    get_queue("default").set_attributes(max_size_bytes=65536)
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True}, gone={"OUTBOX": True})
    assert rsmq_outbox("retry") == "2 messages will be sent again\n"
    assert rsmq_outbox("relay", "--once") == "sent 2 messages, 0 unsent\n"
    assert sent_names(server) == ["short", "x" * 2000]


def test_task_runs_with_its_result(with_outbox: Configure):
    @declare
    def double(number: int) -> int:
        return 2 * number

    result = double.enqueue(21)
    Relay().relay_waiting()
    work()

    result.refresh()
    assert result.return_value == 42


def test_testing_kit_relays_automatically(with_outbox: Configure):
    called = []

    @declare
    def note(name: str) -> None:
        called.append(name)
        if name == "first":
            note.enqueue("second")

    with private_queues() as kit:
        note.enqueue("first")
        kit.assert_enqueued(note, "first")
        kit.run()

    assert called == ["first", "second"]


# -- The script ----------------------------------------------------------------------------------------------------


def items(*names: str) -> list[RelayItem]:
    return [RelayItem(name.ljust(22, "x"), name.encode(), "s", keeps_result=False) for name in names]


def send(*names: str) -> list[Relayed]:
    queue, client = ensure_queue("default"), get_client()
    return client.run(relay("rsmq", queue.keys, "default", items(*names), channel=queue.keys.channel, record_ttl_s=60))


def test_id_is_remembered_for_a_week_and_a_minute_after_the_note(project: Configure, server: PrivateServer):
    assert send("a", "b") == [Relayed.SENT, Relayed.SENT]
    assert send("b", "c") == [Relayed.SENT_BEFORE, Relayed.SENT]

    get_client().run(confirm("rsmq", [item.task_id for item in items("a", "z")]))

    left_ms = {
        name[:1]: score - now_ms(server) for name, score in server.redis.zrange("rsmq::relayed", 0, -1, withscores=True)
    }
    assert 50_000 < left_ms[b"a"] <= 60_000
    assert left_ms[b"b"] > 6 * 86_400_000
    assert 6 * 86_400_000 < server.redis.pttl("rsmq::relayed") <= 7 * 86_400_000
    assert set(left_ms) == {b"a", b"b", b"c"}


def test_an_outbox_that_is_not_used_any_more_leaves_nothing_in_redis(project: Configure, server: PrivateServer):
    send("a")
    assert server.redis.persist("rsmq::relayed"), "it expires"

    get_client().run(keep_back("rsmq", "b" * 22, queue_name="default", error="[]", body=b"", keep_s=0))

    assert 6 * 86_400_000 < server.redis.pttl("rsmq::relayed") <= 7 * 86_400_000


@pytest.mark.parametrize("has_result", [False, True])
def test_row_whose_result_is_there_was_sent_before_although_nothing_remembers_it(
    project: Configure, server: PrivateServer, has_result: bool
):
    queue, client = ensure_queue("default"), get_client()
    kept = [RelayItem(name * 22, name.encode(), "s", keeps_result=True) for name in "ab"]
    if has_result:
        server.redis.hset(f"rsmq::result:{kept[1].task_id}", "status", "SUCCESSFUL")

    sent = client.run(
        relay("rsmq", queue.keys, "default", kept, channel=queue.keys.channel, record_ttl_s=60),
    )

    assert sent == [Relayed.SENT, Relayed.SENT_BEFORE if has_result else Relayed.SENT]
    assert queue.attributes().messages == (1 if has_result else 2)
    assert server.redis.zscore("rsmq::relayed", kept[1].task_id), "it is remembered from now on"


def test_unneeded_state_is_dropped(project: Configure, server: PrivateServer):
    send("a", "b")
    server.redis.zadd("rsmq::relayed", dict.fromkeys(server.redis.zrange("rsmq::relayed", 0, -1), 1))

    send("c")

    assert [name[:1] for name in server.redis.zrange("rsmq::relayed", 0, -1)] == [b"c"]


def now_ms(server: PrivateServer) -> float:
    seconds, microseconds = server.redis.time()
    return seconds * 1000 + microseconds / 1000


# -- Looking after it ----------------------------------------------------------------------------------------------


def rsmq_outbox(*words: str, exit_status: int = 0) -> str:
    out = StringIO()
    if exit_status:
        with pytest.raises(CommandError) as ended:
            call_command("rsmq_outbox", *words, stdout=out, no_color=True)
        assert ended.value.returncode == exit_status
    else:
        call_command("rsmq_outbox", *words, stdout=out, no_color=True)
    return out.getvalue()


def test_status_has_unarchived_events(greet: Task):
    assert rsmq_outbox("status").startswith("no unsent messages")
    greet.enqueue_many([["1"], ["2"]])
    rows().update(created_at=timezone.now() - timedelta(minutes=5, seconds=1))

    assert re.search(r"default: 2 messages unsent, the oldest for 3\d\d s", rsmq_outbox("status"))
    assert json.loads(rsmq_outbox("resend", "--since", "1h", "--dry-run", "--json")) == {"would_resend": 0}
    (queue,) = json.loads(rsmq_outbox("status", "--json"))["queues"]
    assert (queue["queue_name"], queue["waiting"], queue["refused"]) == ("default", 2, 0)


def test_old_rows_are_deleted_and_none_that_waits(greet: Task):
    greet.enqueue_many([[str(number)] for number in range(2500)])
    Relay().relay_waiting()
    greet.enqueue("new")
    rows().update(created_at=timezone.now() - timedelta(days=300))
    rows().filter(sent_at__isnull=False).update(sent_at=timezone.now() - timedelta(hours=2))

    assert prune(keep_sent_s=3 * 3600, keep_done_s=60) == (0, 0)
    assert prune(keep_sent_s=3600, keep_done_s=60) == (2500, 0)
    assert rows().count() == 1


def test_outbox_that_is_not_installed_is_found_by_check(with_outbox: Configure, settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "rsmq_django.outbox"]

    assert "rsmq.E034" in [error.id for error in checks.run_checks(tags=["rsmq"])]


# -- Cancelling -------------------------------------------------------------------------------------------------------


def test_call_that_waits_in_the_outbox_is_cancelled(greet: Task, server: PrivateServer):
    result = greet.enqueue("the-secret-word")

    assert cancel(result.id)

    assert not rows().exists()
    assert Relay().relay_waiting() == 0
    assert sent_names(server) == []
    found = greet.get_result(result.id)
    assert (found.status, found.args, found.task.module_path) == ("FAILED", [], greet.module_path)
    assert found.errors[0].exception_class is TaskCancelled
    assert not cancel(result.id)


def test_cancelled_row_of_a_signed_queue_has_an_authentic_result(with_outbox: Configure):
    with_outbox(on_commit=LEDGER, default={"OUTBOX": True, "SIGNING_KEYS": ["k" * 32]})
    task: Task[..., Any] = declare(lambda name: None)
    result = task.enqueue("the-secret-word")

    assert cancel(result.id)

    found: Any = task.get_result(result.id)
    assert (found.is_authentic, found.args, found.task.module_path) == (True, [], task.module_path)
    assert found.errors[0].exception_class is TaskCancelled


def test_row_of_a_queue_that_has_got_shards_meanwhile_is_cancelled(greet: Task, with_outbox: Configure):
    result = greet.enqueue("Ada")
    with_outbox(on_commit=LEDGER, default={"SHARDS": 3}, other={"OUTBOX": True})

    assert cancel(result.id)

    assert not rows().exists()
    assert greet.get_result(result.id).status == "FAILED"


async def test_call_that_waits_in_the_outbox_is_cancelled_from_a_coroutine(greet: Task, server: PrivateServer):
    result = await greet.aenqueue("Ada")

    assert await acancel(result.id)

    assert (await greet.aget_result(result.id)).status == "FAILED"


def test_row_that_a_relay_has_read_before_it_was_cancelled_is_not_sent(greet: Task, server: PrivateServer):
    result = greet.enqueue("Ada")
    greet.enqueue("Eve")
    relay_of_before = Relay()
    send = relay_of_before._send

    def send_after_the_cancellation(
        queue: Queue, rows: Sequence[OutboxMessage], batch_size: BatchSize
    ) -> list[Relayed]:
        assert cancel(result.id)
        return send(queue, rows, batch_size)

    relay_of_before._send = send_after_the_cancellation  # type: ignore[method-assign]
    relay_of_before.relay_waiting()

    assert sent_names(server) == ["Eve"]
    assert greet.get_result(result.id).status == "FAILED"


def test_call_that_a_relay_has_sent_but_not_noted_is_cancelled_in_its_queue(greet: Task, server: PrivateServer):
    result = greet.enqueue("Ada")
    Relay().relay_waiting()
    rows().update(sent_at=None)  # as if the relay had died before its note

    assert cancel(result.id)

    assert sent_names(server) == []
    assert greet.get_result(result.id).errors[0].exception_class is TaskCancelled


def test_call_of_the_outbox_without_a_result_is_cancelled_and_leaves_none(
    with_outbox: Configure, server: PrivateServer
):
    task: Task[..., Any] = declare(result_ttl_s=0)(lambda name: None)
    result = task.enqueue("Ada")

    assert cancel(result.id)

    assert not rows().exists()
    assert not server.redis.keys("rsmq::result:*")


def test_record_of_a_row_that_is_due_in_a_long_time_is_kept_until_then(greet: Task, server: PrivateServer):
    result = greet.using(run_after=timedelta(days=30)).enqueue("Ada")

    Relay().relay_waiting()

    assert server.redis.ttl(f"rsmq::result:{result.id}") > 36 * 86_400


# -- Slow networks -------------------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_into_the_timeout_are_sent_in_smaller_portions(
    with_outbox: Configure, greet: Task, server: PrivateServer
):
    names = [f"{number:03}" + "x" * 50_000 for number in range(40)]  # 2 MB
    greet.enqueue_many([[name] for name in names])
    with FaultProxy(server.url) as proxy:
        proxy.delay_s = 0.05  # for each 64 KB, so that 400 KB fit
        with_outbox(on_commit=LEDGER, url=proxy.url, timeout_s=0.5, default={"OUTBOX": True})
        relay = Relay()

        wait_until(lambda: relay.relay_waiting() and not rows().filter(sent_at=None).exists())

    assert sent_names(server) == names
    assert server.redis.hget("rsmq:default:Q", "totalsent") == b"40"


def test_single_row_that_does_not_fit_gets_more_time(with_outbox: Configure, greet: Task, server: PrivateServer):
    large = {"OUTBOX": True, "MAX_SIZE_BYTES": -1}
    with_outbox(on_commit=LEDGER, default=large)
    greet.enqueue("x" * 1_000_000)
    greet.enqueue("behind")
    with FaultProxy(server.url) as proxy:
        proxy.delay_s = 0.05
        with_outbox(on_commit=LEDGER, url=proxy.url, timeout_s=0.4, default=large)
        relay = Relay()

        wait_until(lambda: relay.relay_waiting() and not rows().filter(sent_at=None).exists())

    assert [len(name) for name in sent_names(server)] == [1_000_000, 6]


@pytest.mark.parametrize("patience", [1, 4])
def test_a_row_that_did_not_fit_alone_has_more_time_on_a_connection_of_its_own(
    greet: Task, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, patience: int
):
    greet.enqueue("Ada")
    relay, run, used = Relay(), Replicas.run, list[Connection]()
    batch_size = relay._portions["default"] = BatchSize()
    batch_size.rows, batch_size.patience, batch_size._grow_at = 1, patience, math.inf

    def run_and_note(replicas: Replicas, client: Client, call: Any) -> Any:
        used.append(client.connection)
        return run(replicas, client, call)

    monkeypatch.setattr(Replicas, "run", run_and_note)

    assert relay.relay_waiting() == 1

    own = get_client().connection
    assert {each.timeout_s for each in used} == {own.timeout_s * patience}
    assert [each is own for each in used] == [patience == 1] * len(used)
    assert sent_names(server) == ["Ada"]


def test_portions_follow_the_rows_and_what_the_network_carries():
    batch_size = BatchSize()
    assert (batch_size.choose([(1, 400_000), (2, 400_000), (3, 400_000)]), batch_size.leaves_some) == ([1, 2], True)
    assert batch_size.choose([(1, 5_000_000), (2, 10)]) == [1]
    assert (batch_size.choose([(1, 10), (2, 10)]), batch_size.leaves_some) == ([1, 2], False)

    batch_size.halve(2)
    assert batch_size.rows == 1
    batch_size.halve(1)
    assert (batch_size.rows, batch_size.patience) == (1, 2)
    batch_size.grow()
    assert batch_size.rows == 1  # not a moment later
    batch_size._grow_at = 0.0
    batch_size.grow()
    assert (batch_size.rows, batch_size.patience) == (2, 1)


def test_waiting_for_a_row_of_the_open_transaction_is_refused(greet: Task[..., Any], database: dict[str, Any]):
    with transaction.atomic(using=LEDGER):
        result: Any = greet.enqueue("ada")
        with pytest.raises(TransactionManagementError, match=rf"no call \[{result.id}\] .*wait after the block"):
            result.wait(60)
    with pytest.raises(TimeoutError, match="READY"):
        result.wait(0.1)
