"""Sending waits for the commit of the surrounding transaction, and is dropped when that is rolled back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.dispatch import Signal
from django.utils.connection import ConnectionDoesNotExist

from rsmq_django.core.errors import MessageTooLong, PartlyDone, QueueFull
from rsmq_django.core.keys import queue_keys
from rsmq_django.core.transport.connection import Connection
from rsmq_django.core.transport.packing import Command, Reply, packed
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, amap_tasks, call, chain, map_tasks
from rsmq_django.tasks.compat import task_enqueued
from rsmq_django.topics import apublish, get_topic, publish
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare


@pytest.fixture
def greet(configure: Configure) -> Task[..., Any]:
    configure(on_commit=True)

    def greeting(name: str) -> None: ...

    declared: Task[..., Any] = declare(greeting)
    return declared


@pytest.fixture
def sent(server: PrivateServer) -> Any:
    """Return the function that counts the messages in the queue."""
    return lambda: server.redis.zcard(queue_keys("rsmq", "default").messages)


# -- Real transactions ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_call_is_sent_at_the_commit_and_its_id_is_known_before(greet: Task, sent):
    with transaction.atomic():
        result = greet.enqueue("Ada")
        assert sent() == 0

    assert sent() == 1
    assert greet.get_result(result.id).args == ["Ada"]


@pytest.mark.django_db(transaction=True)
def test_call_of_a_rolled_back_transaction_is_dropped(greet: Task, sent):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Group.objects.create(name="team")
        greet.enqueue("Ada")
        greet.enqueue_many([["Grace"], ["Joan"]])
        raise ZeroDivisionError

    assert sent() == 0
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_call_of_a_rolled_back_savepoint_is_dropped_alone(greet: Task, sent):
    with transaction.atomic():
        kept = greet.enqueue("Ada")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            greet.enqueue("Grace")
            raise ZeroDivisionError

    assert sent() == 1
    assert greet.get_result(kept.id).args == ["Ada"]


@pytest.mark.django_db(transaction=True)
def test_calls_of_one_transaction_go_out_in_one_round_trip_and_in_order(greet: Task, sent, server: PrivateServer):
    greet.enqueue("nobody")  # the queue exists
    before = server.redis.info("commandstats")["cmdstat_evalsha"]["calls"]

    with transaction.atomic():
        results = [greet.enqueue(str(number)) for number in range(20)]

    assert server.redis.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1
    messages = get_queue("default").receive_many(100)
    assert [json.loads(message.body)["args"] for message in messages[1:]] == [[str(n)] for n in range(20)]
    assert [json.loads(message.body)["id"] for message in messages[1:]] == [result.id for result in results]


@pytest.mark.django_db(transaction=True)
def test_calls_around_a_rolled_back_savepoint_keep_their_order(greet: Task):
    with transaction.atomic():
        greet.enqueue("first")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            greet.enqueue("dropped")
            greet.enqueue("dropped too")
            raise ZeroDivisionError
        greet.enqueue("second")
        with transaction.atomic():
            greet.enqueue("third")
        greet.enqueue("fourth")

    bodies = [json.loads(message.body) for message in get_queue("default").receive_many(100)]
    assert [body["args"][0] for body in bodies] == ["first", "second", "third", "fourth"]


@pytest.mark.django_db(transaction=True)
def test_hooks_between_two_calls_of_a_transaction_run_between_them(greet: Task, sent):
    seen: list[int] = []

    with transaction.atomic():
        greet.enqueue("before")
        transaction.on_commit(lambda: seen.append(sent()))
        greet.enqueue("after")

    assert (seen, sent()) == ([1], 2)


def logged_error(caplog: pytest.LogCaptureFixture) -> BaseException | None:
    """Return the error of the one log record."""
    (record,) = caplog.records
    assert record.levelname == "ERROR" and record.exc_info
    return record.exc_info[1]


@pytest.mark.django_db(transaction=True)
def test_call_that_turns_out_too_long_at_the_commit_does_not_drop_the_others(
    greet: Task, sent, caplog: pytest.LogCaptureFixture
):
    greet.enqueue("nobody")
    get_queue("default").set_attributes(max_size_bytes=1024)

    with transaction.atomic():
        first = greet.enqueue("Ada")
        too_long = greet.enqueue("x" * 2000)
        last = greet.enqueue("Eve")

    assert sent() == 3
    (record,) = caplog.records
    assert f"a call of {greet.module_path} ({too_long.id}) was not sent" in record.message
    error = logged_error(caplog)
    assert isinstance(error, PartlyDone) and isinstance(error.__cause__, MessageTooLong)
    assert error.done == {0: first.id, 2: last.id}
    assert greet.get_result(last.id) == last


@pytest.mark.django_db(transaction=True)
def test_full_server_in_the_middle_of_a_commit_is_not_reported_as_if_nothing_was_stored(
    greet: Task, sent, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    exchange = Connection.exchange

    def fill_up(connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        replies = exchange(connection, commands)
        server.redis.config_set("maxmemory", 1)
        return replies

    greet.enqueue("nobody")
    heard: list[str] = []
    listen = lambda task_result, **_: heard.append(task_result.id)  # noqa: E731
    task_enqueued.connect(listen)
    try:
        with transaction.atomic():
            results = [greet.enqueue(str(number)) for number in range(1500)]
            monkeypatch.setattr(Connection, "exchange", fill_up)
    finally:
        task_enqueued.disconnect(listen)
        server.redis.config_set("maxmemory", 0)

    error = logged_error(caplog)
    assert "1000 were carried out, the others were not" in caplog.text and "each of 500 calls" in caplog.text
    assert isinstance(error, PartlyDone) and isinstance(error.__cause__, QueueFull)
    assert list(error.done.values()) == heard == [result.id for result in results[:1000]]
    assert sent() == 1001


@pytest.mark.django_db(transaction=True)
def test_time_of_sending_is_known_when_the_call_is_sent(greet: Task):
    with transaction.atomic():
        result = greet.enqueue("Ada")
        before = result.enqueued_at

    assert before is None
    assert isinstance(result.enqueued_at, datetime)
    assert result == greet.get_result(result.id)


@pytest.mark.django_db(transaction=True)
def test_call_outside_a_transaction_is_sent_at_once(greet: Task, sent):
    Group.objects.create(name="team")  # a connection is open, a transaction is not

    greet.enqueue("Ada")

    assert sent() == 1


def test_call_without_a_database_connection_opens_none(greet: Task, sent):
    # pytest-django fails every test without its mark that connects to the database.
    greet.enqueue("Ada")

    assert sent() == 1


@pytest.mark.django_db(transaction=True)
def test_many_calls_wait_for_the_commit_too(greet: Task, sent):
    with transaction.atomic():
        ids = greet.enqueue_many([[str(number)] for number in range(1200)])
        assert sent() == 0

    assert sent() == len(ids) == 1200


@pytest.mark.django_db(transaction=True)
def test_listeners_are_called_when_a_call_is_sent(greet: Task):
    heard = []

    def listen(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(listen)
    with transaction.atomic():
        result = greet.enqueue("Ada")
        assert heard == []

    task_enqueued.disconnect(listen)
    assert heard == [result.id]


@pytest.mark.django_db(transaction=True)
def test_mistakes_surface_where_the_call_is_made_and_not_at_the_commit(greet: Task, sent):
    with transaction.atomic():
        with pytest.raises(TypeError):
            greet.enqueue(object())
        with pytest.raises(MessageTooLong):
            greet.enqueue("x" * 70_000)
        Group.objects.create(name="team")

    assert Group.objects.exists()
    assert sent() == 0


@pytest.mark.django_db(transaction=True)
def test_server_that_is_down_at_the_commit_is_logged_with_the_lost_calls_and_no_hook_is_dropped(
    configure: Configure, greet: Task, caplog: pytest.LogCaptureFixture
):
    configure(on_commit=True, url="unix:///nowhere/at/all")
    called: list[str] = []

    with transaction.atomic():
        Group.objects.create(name="team")
        first, second = greet.enqueue("Ada"), greet.enqueue("Grace")
        transaction.on_commit(lambda: called.append("between"))
        chained = chain(call(greet, "Joan")).enqueue()
        publish("orders", "one")
        transaction.on_commit(lambda: called.append("behind"))

    assert called == ["between", "behind"]
    assert Group.objects.exists()
    lost = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(lost) == 3
    assert "the transaction is committed, but each of 2 calls of" in lost[0].message
    assert first.id in lost[0].message and second.id in lost[0].message
    assert "OUTBOX" in lost[0].message
    assert f"workflow {chained.id} was not sent" in lost[1].message
    assert "topic 'orders' was not sent" in lost[2].message


@pytest.mark.django_db(transaction=True)
def test_calls_that_a_process_without_memory_cannot_send_are_named(
    greet: Task, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def exchange(self: Connection, commands: Sequence[Command]) -> list[Reply]:
        raise MemoryError

    with transaction.atomic():
        result = greet.enqueue("Ada")
        monkeypatch.setattr(Connection, "exchange", exchange)

    assert f"the transaction is committed, but a call of {greet.module_path} ({result.id}) may not" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_receiver_that_raises_at_the_commit_does_not_prevent_other_announcements(greet: Task):
    told: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        told.append(task_result.args[0])
        raise ZeroDivisionError

    task_enqueued.connect(receive)
    try:
        with transaction.atomic():
            results = [greet.enqueue(name) for name in ("Ada", "Bob")]
    finally:
        task_enqueued.disconnect(receive)

    assert told == ["Ada", "Bob"]
    assert None not in [result.enqueued_at for result in results]


@pytest.mark.django_db(transaction=True)
def test_receiver_that_raises_at_the_commit_drops_no_hook(greet: Task, sent, caplog: pytest.LogCaptureFixture):
    def refuse(**_: Any) -> None:
        raise ZeroDivisionError

    called: list[str] = []
    task_enqueued.connect(refuse)
    try:
        with transaction.atomic():
            greet.enqueue("Ada")
            transaction.on_commit(lambda: called.append("behind"))
    finally:
        task_enqueued.disconnect(refuse)

    assert (called, sent()) == (["behind"], 1)


@pytest.mark.django_db(transaction=True)
def test_server_that_is_down_does_not_keep_calls_from_another_one(
    configure: Configure, greet: Task, sent, settings: Any, caplog: pytest.LogCaptureFixture
):
    rsmq = settings.RSMQ
    settings.RSMQ = {
        **rsmq,
        "CONNECTIONS": {**rsmq["CONNECTIONS"], "away": {"URL": "unix:///nowhere/at/all"}},
        "QUEUES": {**rsmq["QUEUES"], "away": {"CONNECTION": "away"}},
    }

    with transaction.atomic():
        greet.using(queue_name="away").enqueue("lost")
        greet.enqueue("Ada")

    assert sent() == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


@pytest.mark.django_db(transaction=True)
def test_large_calls_of_one_transaction_go_out_in_portions(
    configure: Configure, greet: Task, sent, monkeypatch: pytest.MonkeyPatch
):
    sizes: list[int] = []
    exchange = Connection.exchange

    def measured(self: Connection, commands: Any) -> Any:
        sizes.append(len(packed(commands)))
        return exchange(self, commands)

    monkeypatch.setattr(Connection, "exchange", measured)
    greet.enqueue("x")
    sizes.clear()

    with transaction.atomic():
        for _ in range(50):
            greet.enqueue("x" * 60_000)
        greet.enqueue_many([["y" * 60_000] for _ in range(50)])

    assert sent() == 101
    assert len(sizes) == 6
    assert max(sizes) < 1_100_000


# -- Which transaction ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_switched_off_a_call_is_sent_at_once(configure: Configure, greet: Task, sent):
    configure(on_commit=False)

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        greet.enqueue("Ada")
        raise ZeroDivisionError

    assert sent() == 1


@pytest.mark.django_db(transaction=True)
def test_named_database_is_the_one_that_is_waited_for(configure: Configure, greet: Task, sent):
    configure(on_commit="default")
    with transaction.atomic():
        greet.enqueue("Ada")
        assert sent() == 0

    configure(on_commit="no-such-database")
    with pytest.raises(ConnectionDoesNotExist):
        greet.enqueue("Grace")


# -- Tests of projects ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_test_case_sees_the_call_when_it_executes_the_callbacks(
    greet: Task, sent, django_capture_on_commit_callbacks: Any
):
    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        greet.enqueue("Ada")
        assert sent() == 0

    assert len(callbacks) == 1
    assert sent() == 1


@pytest.mark.django_db
def test_test_case_that_does_not_execute_the_callbacks_sends_nothing(
    greet: Task, sent, django_capture_on_commit_callbacks: Any
):
    with django_capture_on_commit_callbacks() as callbacks:
        greet.enqueue("Ada")
        greet.enqueue_many([["Grace"]])

    assert len(callbacks) == 2
    assert sent() == 0


# -- Coroutines that synchronous code runs ----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_async_call_in_a_transaction_of_synchronous_code_is_sent_at_its_commit(greet: Task, sent):
    heard: list[str] = []
    listen = lambda task_result, **_: heard.append(task_result.id)  # noqa: E731
    task_enqueued.connect(listen)

    with transaction.atomic():
        result = async_to_sync(greet.aenqueue)("Ada")
        ids = async_to_sync(greet.aenqueue_many)([["Eve"], ["Grace"]])
        assert (sent(), heard) == (0, [])

    task_enqueued.disconnect(listen)
    assert (sent(), heard) == (3, [result.id, *ids])
    assert greet.get_result(result.id) == result
    assert greet.get_result(ids[1]).args == ["Grace"]


@pytest.mark.django_db(transaction=True)
def test_async_call_of_a_transaction_that_is_rolled_back_is_dropped(greet: Task, sent):
    async def view() -> None:
        await asyncio.gather(greet.aenqueue("Ada"), greet.aenqueue("Eve"))
        await sync_to_async(async_to_sync(greet.aenqueue))("Grace")

    with transaction.atomic():
        async_to_sync(view)()
        transaction.set_rollback(True)

    assert sent() == 0


SEND: list[tuple[str, Callable[[Task], object]]] = [
    ("enqueue", lambda greet: greet.enqueue("Ada")),
    ("enqueue_many", lambda greet: greet.enqueue_many([["Ada"]])),
    ("workflow", lambda greet: chain(call(greet, "Ada")).enqueue()),
    ("publish", lambda greet: publish("orders", b"7")),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["committed", "rolled back"])
@pytest.mark.parametrize("send", [send for _, send in SEND], ids=[name for name, _ in SEND])
def test_coroutine_that_forgets_await_waits_for_the_commit_of_synchronous_code_too(
    greet: Task, sent, send: Callable[[Task], object], is_rolled_back: bool
):
    async def receiver(**_: Any) -> None:
        send(greet)

    def count() -> int:
        return int(sent()) + get_topic("orders").status().last

    saved = Signal()
    saved.connect(receiver)

    with transaction.atomic():
        saved.send(None)  # as Django runs asynchronous receivers of the signals of a model
        assert count() == 0
        transaction.set_rollback(is_rolled_back)

    assert count() == (0 if is_rolled_back else 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_coroutine_that_outlives_the_synchronous_code_sends_at_once(greet: Task, sent, is_async: bool):
    async def send_later(is_over: asyncio.Event) -> None:
        await is_over.wait()
        _ = await greet.aenqueue("Ada") if is_async else greet.enqueue("Ada")

    async def main() -> None:
        is_over, begun = asyncio.Event(), list[asyncio.Task[None]]()

        async def begin() -> None:
            begun.append(asyncio.create_task(send_later(is_over)))

        await sync_to_async(async_to_sync(begin))()
        is_over.set()
        await begun[0]

    asyncio.run(main())

    assert sent() == 1


@pytest.mark.django_db(transaction=True)
def test_coroutine_waits_a_limited_time_for_a_busy_thread(greet: Task, sent, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.tasks.sending.CALLER_ANSWERS_WITHIN_S", 0.05)
    begun, is_over = threading.Event(), threading.Event()

    def keep_busy() -> None:
        begun.set()
        is_over.wait(60)

    async def send() -> None:
        await asyncio.to_thread(begun.wait, 60)
        try:
            with pytest.raises(SynchronousOnlyOperation, match="nothing was sent. Use .*aenqueue"):
                greet.enqueue("Ada")
        finally:
            is_over.set()

    async def view() -> None:
        await asyncio.gather(sync_to_async(keep_busy)(), send())

    async_to_sync(view)()

    assert sent() == 0


@pytest.mark.django_db(transaction=True)
def test_async_call_without_a_transaction_is_sent_at_once_although_synchronous_code_waits(greet: Task, sent):
    async_to_sync(greet.aenqueue)("Ada")

    assert sent() == 1


@pytest.mark.django_db(transaction=True)
def test_workflow_of_a_coroutine_in_a_transaction_of_synchronous_code_is_sent_at_its_commit(greet: Task, sent):
    with transaction.atomic():
        workflow = async_to_sync(chain(call(greet, "Ada"), call(greet, "Eve").without_result()).aenqueue)()
        assert sent() == 0

    assert sent() == 1
    assert workflow.status().state == "running"


@pytest.mark.django_db(transaction=True)
def test_map_of_a_coroutine_refuses_to_send_in_a_transaction_of_synchronous_code(greet: Task, sent):
    async def receiver() -> None:
        map_tasks(greet, ["Ada"])

    for send in (lambda: async_to_sync(amap_tasks)(greet, ["Ada"]), async_to_sync(receiver)):
        with transaction.atomic(), pytest.raises(TransactionManagementError, match="map_tasks\\(\\) sends at once"):
            send()

    assert sent() == 0


@pytest.mark.django_db(transaction=True)
def test_topic_message_of_a_coroutine_in_a_transaction_of_synchronous_code_is_published_at_its_commit(greet: Task):
    with transaction.atomic():
        assert async_to_sync(apublish)("orders", b"7") is None
        assert get_topic("orders").status().last == 0

    assert get_topic("orders").status().last == 1
