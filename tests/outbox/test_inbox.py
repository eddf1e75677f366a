"""A task with once=True has its effect once, with any number of deliveries of its message."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections
from django.utils import timezone

from rsmq_django.outbox.inbox import run_once
from rsmq_django.outbox.models import InboxEntry, OutboxMessage
from rsmq_django.outbox.relay import prune
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, Workflow, call, fixed, group
from tests.outbox.conftest import LEDGER
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, dead_letters, declare, the_dead_letter, work


@pytest.fixture
def called() -> list[str]:
    return []


@pytest.fixture
def add_group(configure: Configure, database: dict[str, Any], called: list[str]) -> Task[..., Any]:
    configure(on_commit=LEDGER)

    @declare(once=True, backoff=fixed(0), max_attempts=3)
    def add_group(name: str, fails: int = 0) -> int:
        called.append(name)
        group = Group.objects.using(LEDGER).create(name=name)
        if len(called) <= fails:
            raise RuntimeError("not yet")
        return group.pk

    return add_group  # type: ignore[no-any-return]


def groups() -> list[str]:
    return list(Group.objects.using(LEDGER).values_list("name", flat=True))


@pytest.fixture(autouse=True)
def close_connections_of_workers(database: dict[str, Any]) -> Any:
    yield
    connections.close_all()


def deliver_again(body: bytes) -> None:
    """Let the same message arrive once more, as after a worker died before it could acknowledge it."""
    get_queue("default").send(body)


def test_repeat_does_nothing_and_returns_the_result_of_the_first_run(add_group: Task, called: list[str]):
    result = add_group.enqueue("team")
    body = get_queue("default").receive(visibility_timeout_s=0).body
    work()
    first = add_group.get_result(result.id).return_value

    deliver_again(body)
    work()

    assert called == ["team"]
    assert groups() == ["team"]
    assert add_group.get_result(result.id).return_value == first
    assert InboxEntry.objects.using(LEDGER).get().task_id == result.id


@pytest.fixture
def add_group_after_others(configure: Configure, database: dict[str, Any], called: list[str]) -> Task[..., Any]:
    configure(on_commit=LEDGER)

    @declare(once=True)
    def add_group(results: list[int]) -> int:
        called.append("team")
        return Group.objects.using(LEDGER).create(name="team").pk

    return add_group  # type: ignore[no-any-return]


def forget_workflow(server: PrivateServer, workflow: Workflow) -> None:
    """Delete a workflow, as its expiry does."""
    server.redis.delete(*server.redis.keys(f"rsmq::workflow:{workflow.id}*"))


def test_repeat_of_a_callback_succeeds_after_its_workflow_has_expired(
    add_group_after_others: Task, called: list[str], server: PrivateServer
):
    workflow = group([], then=call(add_group_after_others)).enqueue()
    message = get_queue("default").receive(visibility_timeout_s=0)
    work()
    task_id = InboxEntry.objects.using(LEDGER).get().task_id
    first = add_group_after_others.get_result(task_id).return_value
    forget_workflow(server, workflow)

    deliver_again(message.body)
    work()

    result = add_group_after_others.get_result(task_id)
    assert (result.status, result.return_value) == ("SUCCESSFUL", first)
    assert called == ["team"] and dead_letters() == []


def test_callback_that_has_not_run_is_a_dead_letter_when_its_workflow_has_expired(
    add_group_after_others: Task, called: list[str], server: PrivateServer
):
    forget_workflow(server, group([], then=call(add_group_after_others)).enqueue())

    work()

    assert the_dead_letter()[1]["reason"] == "workflow_gone"
    assert called == [] and not InboxEntry.objects.using(LEDGER).exists()


def test_failed_attempt_leaves_nothing_behind_and_is_repeated(add_group: Task, called: list[str]):
    result = add_group.enqueue("team", fails=2)

    work()

    assert called == ["team"] * 3
    assert groups() == ["team"]
    assert add_group.get_result(result.id).status == "SUCCESSFUL"


def test_task_that_fails_for_good_has_no_effect(add_group: Task, called: list[str]):
    add_group.enqueue("team", fails=99)

    work()

    assert groups() == []
    assert not InboxEntry.objects.using(LEDGER).exists()
    assert the_dead_letter()[1]["reason"] == "attempts_used_up"


def test_other_calls_of_the_same_task_run(add_group: Task):
    add_group.enqueue_many([["a"], ["b"]])

    work()

    assert sorted(groups()) == ["a", "b"]


def test_second_run_at_the_same_time_waits_for_the_first(add_group: Task, called: list[str]):
    has_begun, go_on, values = threading.Event(), threading.Event(), []

    def slow() -> str:
        called.append("slow")
        Group.objects.using(LEDGER).create(name="slow")
        has_begun.set()
        assert go_on.wait(60)
        return "first"

    def run(function: Any) -> None:
        values.append(run_once("one-id", "a.task", function))
        connections.close_all()

    first = threading.Thread(target=run, args=(slow,))
    first.start()
    assert has_begun.wait(60)
    second = threading.Thread(target=run, args=(lambda: called.append("second"),))
    second.start()
    go_on.set()
    first.join(90)
    second.join(90)

    assert values == ["first", "first"]
    assert called == ["slow"]


def test_second_run_takes_over_when_the_first_is_rolled_back(add_group: Task, called: list[str]):
    with pytest.raises(ZeroDivisionError):
        run_once("one-id", "a.task", lambda: 1 / 0)

    assert run_once("one-id", "a.task", lambda: "second") == "second"


def test_return_value_that_json_cannot_represent_is_reported_and_the_work_stays(add_group: Task, server: PrivateServer):
    @declare(once=True)
    def bad() -> object:
        Group.objects.using(LEDGER).create(name="done")
        return object()

    bad.enqueue()
    work()

    assert the_dead_letter()[1]["reason"] == "bad_return_value"
    assert groups() == ["done"]


def test_notes_are_deleted_when_they_are_old(add_group: Task):
    add_group.enqueue_many([["a"], ["b"]])
    work()
    wait_until(lambda: InboxEntry.objects.using(LEDGER).count() == 2)
    old = timezone.now() - timedelta(days=40)
    InboxEntry.objects.using(LEDGER).filter(pk=InboxEntry.objects.using(LEDGER).first().pk).update(done_at=old)

    assert prune(keep_sent_s=0, keep_done_s=30 * 86_400) == (0, 1)
    assert InboxEntry.objects.using(LEDGER).count() == 1


def test_async_task_is_refused_where_it_is_declared(add_group: Task):
    with pytest.raises(ValueError, match="once=True needs a transaction"):

        @declare(once=True)
        async def never() -> None: ...


def test_once_without_its_table_is_refused_where_it_is_declared(add_group: Task, settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "rsmq_django.outbox"]

    with pytest.raises(ValueError, match="add 'rsmq_django.outbox' to INSTALLED_APPS"):

        @declare(once=True)
        def never() -> None: ...


def test_traceback_of_a_task_that_has_its_effect_once_begins_with_the_task(add_group: Task):
    add_group.enqueue("team", fails=99)

    work()

    first_frame = the_dead_letter()[1]["traceback"].splitlines()[1]
    assert (__file__ in first_frame, first_frame.endswith("in add_group")) == (True, True)


def test_rows_are_called_by_their_task_and_id():
    assert str(InboxEntry(task="shop.tasks.pack", task_id="7f")) == "shop.tasks.pack 7f"
    assert str(OutboxMessage(task="shop.tasks.pack", task_id="7f", queue_name="q")) == "shop.tasks.pack 7f for q"
