"""A workflow is confirmed in a round trip of its own: when that fails, the error says that the workflow was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from rsmq_django.core import DurableClient
from rsmq_django.core.errors import NotConfirmed
from rsmq_django.queues import ensure_queue, get_sender
from rsmq_django.tasks import Unique, Workflow, call, chain, group, map_tasks
from tests.acl_users import user_of
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, configure, declare, own_registries

__all__ = ["configure", "own_registries"]

WAITS = {"REPLICAS": 1, "TIMEOUT_S": 0.01}

Project = Callable[..., None]


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def project(configure: Configure, settings: Any) -> Project:
    """The function that writes the settings of a project whose connection waits for a replica."""

    def write(url: str, **options: Any) -> None:
        configure(url=url, **options)
        connection = {**settings.RSMQ["CONNECTIONS"]["default"], "DURABILITY": WAITS}
        settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}

    return write


def plain(number: int = 0) -> int:
    return number


def send_group() -> Workflow:
    sent = declare(plain)
    return group([call(sent, 1), call(sent, 2)]).enqueue()


def send_group_of_unique_calls() -> Workflow:
    sent = declare(plain, unique=Unique())
    return group([call(sent, 1), call(sent, 2)]).enqueue()


def send_chain() -> Workflow:
    sent = declare(plain)
    return chain(call(sent, 1), call(sent)).enqueue()


def send_map() -> Workflow:
    return map_tasks(declare(plain), [1, 2])


def send_group_by_a_coroutine() -> Workflow:
    sent = declare(plain)
    return asyncio.run(group([call(sent, 1), call(sent, 2)]).aenqueue())


FORMS = [send_group, send_group_of_unique_calls, send_chain, send_map, send_group_by_a_coroutine]


@pytest.fixture
def primary_that_dies_before_it_confirms(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server cannot be reached any more when the first confirmation begins."""
    covering_write = DurableClient._covering_write

    def after_the_end(client: DurableClient) -> Any:
        proxy.refuse()
        proxy.reset_connections()
        return covering_write(client)

    monkeypatch.setattr(DurableClient, "_covering_write", after_the_end)


@pytest.mark.usefixtures("primary_that_dies_before_it_confirms")
@pytest.mark.parametrize("send", FORMS)
def test_workflow_whose_server_dies_before_the_confirmation_is_named_as_sent(
    send: Callable[[], Workflow], proxy: FaultProxy, project: Project, server: PrivateServer
):
    project(proxy.url)
    ensure_queue("default")

    with pytest.raises(NotConfirmed, match="^workflow .* was sent: earlier writes .* are not confirmed") as caught:
        send()

    assert server.redis.exists(f"rsmq::workflow:{caught.value.workflow_id}")
    assert "nothing was sent" not in str(caught.value)


@pytest.mark.parametrize("send", FORMS)
def test_workflow_whose_reply_to_the_confirmation_is_lost_is_named_as_sent(
    send: Callable[[], Workflow], proxy: FaultProxy, project: Project
):
    project(proxy.url)
    ensure_queue("default")
    proxy.lose_reply_to(b"::confirm")

    with pytest.raises(NotConfirmed, match="^workflow .* was sent: ") as caught:
        send()

    assert caught.value.workflow_id in str(caught.value)


@pytest.mark.parametrize("send", FORMS)
def test_workflow_of_a_user_who_may_not_confirm_is_named_as_sent(
    send: Callable[[], Workflow], project: Project, server: PrivateServer
):
    with user_of(server, "sender", without="set") as url:
        project(url)
        with pytest.raises(NotConfirmed, match="^workflow .* was sent: .* may not run 'SET'") as caught:
            send()

    assert server.redis.exists(f"rsmq::workflow:{caught.value.workflow_id}")


@pytest.mark.usefixtures("primary_that_dies_before_it_confirms")
@pytest.mark.django_db(transaction=True)
def test_log_of_a_commit_says_that_a_workflow_without_confirmation_was_sent(
    proxy: FaultProxy, project: Project, caplog: pytest.LogCaptureFixture
):
    project(proxy.url, on_commit=True)
    ensure_queue("default")

    with transaction.atomic():
        workflow = send_group()

    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("rsmq_django")]
    assert line.startswith(f"the transaction is committed, and workflow {workflow.id} was sent: ")
    assert line.count(f"workflow {workflow.id} was sent") == 1
    assert "not sent" not in line and "nothing was sent" not in line


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.usefixtures("primary_that_dies_before_it_confirms")
def test_confirmation_that_fails_says_that_earlier_writes_are_not_confirmed(
    is_async: bool, proxy: FaultProxy, project: Project
):
    project(proxy.url)
    sender = get_sender()
    assert isinstance(sender, DurableClient)

    with pytest.raises(NotConfirmed, match="^earlier writes on .* are not confirmed, a failover may have lost them: "):
        asyncio.run(sender.aconfirm()) if is_async else sender.confirm()
