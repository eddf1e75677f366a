"""Failures while workflows are sent: all or nothing, or an error with the sent part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from rsmq_django.core import Connection
from rsmq_django.core.doctor import examine
from rsmq_django.core.doctor.repairs import repair
from rsmq_django.core.errors import (
    ConnectionFailed,
    MessageTooLong,
    PartlyDone,
    QueueFull,
    WorkflowInterrupted,
)
from rsmq_django.core.transport.packing import packed
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import (
    Unique,
    Workflow,
    amap_tasks,
    call,
    chain,
    get_workflow,
    group,
    map_tasks,
    newest_workflows,
    workflow_plan,
    workflow_sending,
)
from rsmq_django.tasks.backend import RSMQBackend
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.workflow_progress import WorkflowStopped
from tests.exchanges import Exchanges
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def double(project: Configure, exchanges: Exchanges) -> Any:
    """A task; the server knows the scripts that send workflows of it, and its queue."""

    def doubled(number: int) -> int:
        return 2 * number

    task = declare(doubled)
    group([call(task, 1)], then=call(report())).enqueue()
    work()
    seen.clear()
    exchanges.begin_again()
    return task


def report() -> Any:
    def reporting(results: list[Any]) -> None:
        seen.append(results)

    return declare(reporting)


@pytest.fixture
def in_several_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send every workflow as a large one: it is made, its members are counted, sent, and it is sealed."""
    monkeypatch.setattr(workflow_plan, "MOST_BYTES", 0)


def messages() -> int:
    return get_queue("default").attributes().messages


# -- In one step ------------------------------------------------------------------------------------------------------


def test_small_workflow_goes_out_in_one_exchange(double: Any, exchanges: Exchanges):
    started = group([chain(call(double, n), call(double)) for n in range(20)], then=call(report())).enqueue()

    assert exchanges.count == 1
    work()
    assert seen == [[4 * n for n in range(20)]]
    assert started.status().state == "succeeded"


async def test_small_workflow_of_a_coroutine_goes_out_in_one_exchange(double: Any, exchanges: Exchanges):
    await chain(call(double, 1), call(double)).aenqueue()

    assert exchanges.count == 1


def test_order_of_the_members_is_that_of_their_messages(double: Any):
    group([call(double, n) for n in range(50)]).enqueue()

    received = get_queue("default").receive_many(100)

    assert [message.body.split(b'"args":[')[1].split(b"]")[0] for message in received] == [b"%d" % n for n in range(50)]


def test_small_workflow_that_a_full_server_refuses_leaves_nothing_behind(
    double: Any, exchanges: Exchanges, server: PrivateServer
):
    before = sorted(server.redis.keys())
    exchanges.full_after = 0

    with pytest.raises(QueueFull, match="nothing was stored"):
        group([call(double, n) for n in range(3)], then=call(report())).enqueue()

    assert sorted(server.redis.keys()) == before


def test_queue_in_which_another_program_allows_no_bytes_takes_no_call_of_a_workflow(double: Any, server: PrivateServer):
    before = sorted(server.redis.keys())
    server.redis.hset("rsmq:default:Q", "maxsize", 0)

    with pytest.raises(MessageTooLong, match="queue 'default' allows 0"):
        group([call(double, 1), call(double, 2)]).enqueue()

    assert sorted(server.redis.keys()) == before


def test_small_workflow_with_a_call_that_is_too_long_leaves_nothing_behind(double: Any, server: PrivateServer):
    ensure_queue("default").set_attributes(max_size_bytes=1024)
    before = sorted(server.redis.keys())

    with pytest.raises(MessageTooLong, match="queue 'default' allows 1024"):
        chain(call(double, 10**1500), call(double)).enqueue()

    assert sorted(server.redis.keys()) == before


def test_small_workflow_whose_reply_is_lost_has_an_error_with_its_id(double: Any, exchanges: Exchanges):
    exchanges.lost_after = 0

    with pytest.raises(WorkflowInterrupted, match="may have been sent and be complete, see its status") as caught:
        group([call(double, n) for n in range(3)], then=call(report())).enqueue()

    exchanges.begin_again()
    assert not caught.value.is_cancelled
    work()
    assert seen == [[0, 2, 4]]
    assert get_workflow(caught.value.workflow_id).status().state == "succeeded"


# -- In several exchanges ---------------------------------------------------------------------------------------------

MADE, COUNTED = 1, 2


@pytest.mark.usefixtures("in_several_exchanges")
def test_server_that_is_full_in_the_middle_cancels_the_workflow_and_reports_the_sent_members(
    double: Any, exchanges: Exchanges
):
    exchanges.full_after = COUNTED + 1

    with pytest.raises(WorkflowInterrupted, match="1000 of 2500 members were sent; it is cancelled: .*limit") as caught:
        group([call(double, n) for n in range(2500)], then=call(report())).enqueue()

    error = caught.value
    assert isinstance(error.__cause__, QueueFull)
    assert isinstance(error, PartlyDone)
    assert "nothing was stored" not in str(error)
    assert (list(error.done), error.unknown, error.is_cancelled) == (list(range(1000)), {}, True)
    exchanges.begin_again()
    assert messages() == 1000
    assert get_workflow(error.workflow_id).status().state == "cancelled"
    work()
    assert seen == []


@pytest.mark.usefixtures("in_several_exchanges")
async def test_async_workflow_that_is_interrupted_reports_the_same(double: Any, exchanges: Exchanges):
    exchanges.full_after = COUNTED + 1

    with pytest.raises(WorkflowInterrupted) as caught:
        await group([call(double, n) for n in range(2500)]).aenqueue()

    assert (len(caught.value.done), caught.value.is_cancelled) == (1000, True)


@pytest.mark.usefixtures("in_several_exchanges")
def test_lost_reply_in_the_middle_reports_which_members_may_have_been_sent(double: Any, exchanges: Exchanges):
    exchanges.lost_after, exchanges.lost = COUNTED + 1, 1

    with pytest.raises(WorkflowInterrupted, match="1000 of 2500 members were sent, 1000 may have been") as caught:
        group([call(double, n) for n in range(2500)]).enqueue()

    assert list(caught.value.unknown) == list(range(1000, 2000))
    assert caught.value.is_cancelled
    assert messages() == 2000


@pytest.mark.usefixtures("in_several_exchanges")
def test_server_that_cannot_be_reached_from_the_beginning_leaves_nothing_behind(double: Any, exchanges: Exchanges):
    exchanges.gone_after = 0

    with pytest.raises(ConnectionFailed, match="nothing was sent"):
        group([call(double, 1)]).enqueue()


@pytest.mark.usefixtures("in_several_exchanges")
def test_workflow_that_could_not_be_cancelled_is_found_within_minutes(
    double: Any, exchanges: Exchanges, server: PrivateServer
):
    exchanges.gone_after = COUNTED + 1
    with pytest.raises(WorkflowInterrupted, match="could not be cancelled; cancel it, or run rsmq_doctor") as caught:
        group([call(double, n) for n in range(2500)]).enqueue()
    exchanges.begin_again()
    assert not caught.value.is_cancelled
    key = f"rsmq::workflow:{caught.value.workflow_id}"
    server.redis.pexpire(key, server.redis.pttl(key) - 6 * 60_000)

    findings = [finding for finding in examine(get_client()) if finding.id == "stuck-workflow"]
    repair(get_client(), findings)

    assert [finding.subject for finding in findings] == [key]
    assert get_workflow(caught.value.workflow_id).status().state == "cancelled"


def test_large_workflow_goes_out_in_portions_by_bytes(double: Any, monkeypatch: pytest.MonkeyPatch):
    sizes, arrived = list[int](), set[int]()
    exchange = Connection.exchange

    def measured(connection: Connection, commands: Any) -> Any:
        sizes.append(len(packed(commands)))
        return exchange(connection, commands)

    def arrive(number: int, text: str) -> None:
        assert len(text) == 60_000
        arrived.add(number)

    monkeypatch.setattr(Connection, "exchange", measured)
    task = declare(arrive)
    group([call(task, number, "x" * 60_000) for number in range(50)]).enqueue()
    assert sum(sizes) > 3_000_000
    assert max(sizes) < 1_100_000

    work()

    assert arrived == set(range(50))


@pytest.mark.usefixtures("in_several_exchanges")
def test_sealing_is_repeated_after_its_reply_was_lost(double: Any, exchanges: Exchanges):
    exchanges.lost_after, exchanges.lost = COUNTED + 1, 1

    started = group([call(double, n) for n in range(3)], then=call(report())).enqueue()

    assert exchanges.count == COUNTED + 3
    work()
    assert seen == [[0, 2, 4]]
    assert started.status().is_sealed


@pytest.mark.usefixtures("in_several_exchanges")
def test_workflow_whose_sealing_is_unknown_is_not_cancelled_because_it_may_be_complete(
    double: Any, exchanges: Exchanges
):
    exchanges.lost_after, exchanges.lost = COUNTED + 1, 2

    with pytest.raises(WorkflowInterrupted, match="may have been sent and be complete") as caught:
        group([call(double, n) for n in range(3)], then=call(report())).enqueue()

    assert len(caught.value.done) == 3
    work()
    assert seen == [[0, 2, 4]]


@pytest.mark.usefixtures("in_several_exchanges")
def test_workflow_whose_server_fails_while_it_is_sealed_may_be_complete(double: Any, exchanges: Exchanges):
    exchanges.lost_after, exchanges.lost = COUNTED + 1, 1
    exchanges.gone_after = COUNTED + 2

    with pytest.raises(WorkflowInterrupted, match="may have been sent and be complete") as caught:
        group([call(double, n) for n in range(3)], then=call(report())).enqueue()

    exchanges.begin_again()
    assert get_workflow(caught.value.workflow_id).status().is_sealed


# -- Maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_several_exchanges")
def test_workflow_that_is_cancelled_while_it_is_sent_raises_an_error_in_its_sender(
    double: Any, monkeypatch: pytest.MonkeyPatch
):
    send = workflow_sending._send

    def send_and_cancel(plan: Any, *rest: Any) -> None:
        send(plan, *rest)
        plan.workflow.cancel()

    monkeypatch.setattr(workflow_sending, "_send", send_and_cancel)

    with pytest.raises(WorkflowStopped, match=r"was cancelled while its 3 members were sent"):
        group([call(double, n) for n in range(3)]).enqueue()


@pytest.mark.parametrize("cancel", [Workflow.cancel, async_to_sync(Workflow.acancel)])
def test_cancelling_a_workflow_leaves_the_call_of_which_a_member_is_a_duplicate(
    project: Configure, monkeypatch: pytest.MonkeyPatch, cancel: Any
):
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    task = declare(unique=Unique())(lambda number: number)
    other = task.enqueue(1)
    with monkeypatch.context() as sender:
        sender.setattr(workflow_plan.WorkflowPlan, "skipping", die)  # before it tells of the duplicate
        with pytest.raises(KeyboardInterrupt):
            group([call(task, 1), call(task, 2)]).enqueue()

    (status,) = newest_workflows()
    assert cancel(get_workflow(status.id))
    work()

    assert (task.get_result(other.id).return_value, messages()) == (1, 0)


def test_map_that_is_interrupted_has_an_error_with_its_id(double: Any, exchanges: Exchanges):
    def items() -> Iterator[int]:
        yield from range(250)
        exchanges.full_after = exchanges.count
        yield from range(250)

    with pytest.raises(WorkflowInterrupted, match="250 members were sent; it is cancelled") as caught:
        map_tasks(double, items())

    exchanges.begin_again()
    status = get_workflow(caught.value.workflow_id).status()
    assert (status.state, messages()) == ("cancelled", 250)


async def test_error_of_the_items_of_a_map_names_the_workflow(double: Any):
    def items() -> Iterator[int]:
        yield from range(250)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await amap_tasks(double, items())

    (note,) = caught.value.__notes__
    assert "250 members were sent; it is cancelled" in note


@pytest.mark.parametrize("ttl_s", [0, 60])
def test_calls_for_several_queues_of_a_workflow_arrive_with_and_without_results(
    configure: Configure, server: PrivateServer, ttl_s: int
):
    configure(default={}, mail={}, reports={})

    def note(name: str) -> None:
        seen.append(name)

    tasks = {name: declare(queue_name=name, result_ttl_s=ttl_s)(note) for name in ("default", "mail", "reports")}

    group([call(task, name) for name, task in tasks.items() for _ in range(2)]).enqueue()

    assert [get_queue(name).attributes().messages for name in tasks] == [2, 2, 2]
    assert len(server.redis.keys("rsmq::result:*")) == (6 if ttl_s else 0)


def test_a_task_that_its_backend_refuses_is_in_no_workflow(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    def refuse(backend: RSMQBackend, task: Any) -> None:
        raise InvalidTask("not here")

    task = declare(lambda: None)
    monkeypatch.setattr(RSMQBackend, "validate_task", refuse)

    with pytest.raises(InvalidTask, match="not here"):
        group([call(task)]).enqueue()

    assert server.redis.zcard("rsmq:default") == 0
