"""The calls that end attempts: each once, whatever is repeated, and nothing where the lease is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.core import SettleResult
from rsmq_django.core.errors import BrokenQueue
from rsmq_django.core.stats.events import following
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import call, cancel, group, newest_workflows
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.lease.settle import settle_calls
from rsmq_django.worker.outcomes import (
    Cancelled,
    Dead,
    Discarded,
    Outcome,
    Postponed,
    Released,
    RetryIn,
    Settlement,
    Succeeded,
)
from rsmq_django.worker.sources.queues import QueueSource
from tests.redis_server import PrivateServer
from tests.support import pass_time
from tests.worker.workshop import Configure, declare, new_worker

ERROR = OSError("no disk")
OUTCOMES: dict[str, Outcome] = {
    "succeeded": Succeeded("7"),
    "retried": RetryIn(0.0, ERROR, ""),
    "postponed": Postponed(0.0),
    "not begun": Postponed(0.0, has_run=False),
    "released": Released(),
    "dead": Dead("gave_up", ERROR),
    "discarded": Discarded("gave_up", ERROR),
}
#: The kinds of its events where they are not called like the outcome.
KINDS = {"postponed": ["released"], "not begun": []}


@pytest.fixture(params=["single call", "without a result", "member of a group"])
def held(configure: Configure, settings: Any, request: pytest.FixtureRequest) -> Execution:
    """An attempt that a worker has just begun; every attempt is an event."""
    return begun(configure, settings, request.param)


@pytest.fixture
def member(configure: Configure, settings: Any) -> Execution:
    """An attempt at the only member of a group that has just begun."""
    return begun(configure, settings, "member of a group")


def begun(configure: Configure, settings: Any, what: str) -> Execution:
    configure()
    settings.RSMQ = {**settings.RSMQ, "EVENTS": {"RECORD": "all"}}
    ensure_queue("default-dead")
    task = declare(**{"result_ttl_s": 0} if what == "without a result" else {})(returns_seven)
    if what == "member of a group":
        after = call(task).without_result()
        group([call(task)], then=after, on_failure=after).enqueue()
    else:
        task.enqueue()
    worker = new_worker(worker_id="w-1")
    source = worker.sources[0]
    assert isinstance(source, QueueSource)
    (delivery,) = source.exchange(1)
    execution = Execution(delivery, sink=source, notifier=worker.notifier)
    execution.finished_ms = 1.0
    return execution


def returns_seven() -> int:
    return 7


def end(execution: Execution, outcome: Outcome) -> list[SettleResult]:
    """Send the call that ends the attempt."""
    source = execution.sink
    assert isinstance(source, QueueSource)
    (each,) = settle_calls([Settlement(execution, outcome)], event_log=source.event_log)
    return get_client().run(each.call)


def stored(server: PrivateServer) -> dict[str, Any]:
    """Return everything on the server, without the times at which messages become visible."""
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"hash": server.redis.hgetall,
        b"zset": lambda key: set(server.redis.zrange(key, 0, -1)),
        b"set": server.redis.smembers,
        b"string": server.redis.get,
        b"list": lambda key: server.redis.lrange(key, 0, -1),
        b"stream": lambda key: [fields for _, fields in server.redis.xrange(key)],
    }
    return {key.decode(): read[server.redis.type(key)](key) for key in server.redis.keys()}


def kinds() -> list[str]:
    return [event.kind for event in get_client().run(following("rsmq"))]


@pytest.mark.parametrize(
    ("values", "attempts"),
    [("777", (1, 1, 1)), ("789", (1, 1, 1)), ("777", (1, 2, 1))],
    ids=["all have everything in common", "other values", "other attempts"],
)
def test_results_that_are_kept_together_are_each_their_own(
    project: Configure, server: PrivateServer, values: str, attempts: tuple[int, ...]
):
    declare(returns_seven).enqueue_many([[]] * 3)
    worker = new_worker(worker_id="w-1")
    (source,) = worker.sources
    assert isinstance(source, QueueSource)
    settlements: list[Settlement] = []
    for value, attempt, delivery in zip(values, attempts, source.exchange(3), strict=True):
        execution = Execution(delivery, sink=source, notifier=worker.notifier)
        delivery.attempt, delivery.started_ms = attempt, float(len(settlements))
        execution.finished_ms, execution.keep_result_s = 10.0 + len(settlements), 1000 * attempt
        settlements.append(Settlement(execution, Succeeded(value)))

    (together,) = settle_calls(settlements)
    verdicts = get_client().run(together.call)

    assert verdicts == [SettleResult.DONE] * 3
    for number, (value, attempt, settlement) in enumerate(zip(values, attempts, settlements, strict=True)):
        (key,) = settlement.result_keys
        fields = {name.decode(): text.decode() for name, text in server.redis.hgetall(key).items()}
        assert (fields["value"], fields[f"worker:{attempt}"]) == (value, "w-1")
        assert (fields["attempted_ms"], fields["finished_ms"]) == (f"{number}.000", f"1{number}.000")
        assert server.redis.ttl(key) == pytest.approx(1000 * attempt, abs=60)
        assert fields["message"] == settlement.delivery.message.id


@pytest.mark.parametrize("name", OUTCOMES)
def test_call_that_is_repeated_after_a_lost_reply_has_no_second_effect(
    held: Execution, server: PrivateServer, name: str
):
    assert end(held, OUTCOMES[name]) == [SettleResult.DONE]
    after, found = stored(server), kinds()
    assert found == KINDS.get(name, [name])

    end(held, OUTCOMES[name])

    assert stored(server) == after


@pytest.mark.parametrize("name", OUTCOMES)
def test_nothing_is_written_about_a_message_that_was_deleted_meanwhile(
    held: Execution, server: PrivateServer, name: str
):
    assert get_queue("default").delete(held.delivery.message.id)
    server.redis.delete("rsmq::worker:w-1")
    before = stored(server)

    assert end(held, OUTCOMES[name]) == [SettleResult.MISSING]

    assert stored(server) == before


@pytest.mark.parametrize("name", OUTCOMES)
def test_message_that_another_worker_has_received_is_unchanged_and_the_loss_is_one_event(
    held: Execution, server: PrivateServer, name: str
):
    pass_time(get_queue("default"), seconds=1000)
    assert get_queue("default").receive(visibility_timeout_s=1000) is not None
    before = stored(server)

    assert end(held, OUTCOMES[name]) == [SettleResult.LEASE_LOST]
    if name != "succeeded":  # its record of leases stays until its batch has ended
        assert end(held, OUTCOMES[name]) == [SettleResult.LEASE_LOST]

    after = stored(server)
    assert kinds() == ([] if name in ("released", "not begun") else ["lost"])
    for changed in ("rsmq::worker:w-1", "rsmq::events"):
        before.pop(changed, None)
        after.pop(changed, None)
    assert after == before


@pytest.mark.parametrize(
    "key", ["rsmq:default-dead", "rsmq:default-dead:Q", "rsmq::dead:default-dead", "rsmq::released:default-dead"]
)
def test_nothing_is_written_when_the_dead_letter_queue_is_damaged(held: Execution, server: PrivateServer, key: str):
    server.redis.delete(key)
    server.redis.set(key, "of another program")
    before = stored(server)

    with pytest.raises(BrokenQueue):
        end(held, OUTCOMES["dead"])

    assert stored(server) == before


def test_cancelled_message_leaves_the_record_of_leases_and_is_one_event(held: Execution, server: PrivateServer):
    assert cancel(held.task_id)
    assert server.redis.exists("rsmq::worker:w-1")

    for _ in range(2):
        assert end(held, Cancelled()) == [SettleResult.MISSING]

    assert not server.redis.exists("rsmq::worker:w-1")
    assert kinds() == ["cancelled"]


def test_result_of_a_call_that_failed_for_good_has_the_failure(held: Execution, server: PrivateServer):
    end(held, OUTCOMES["dead"])

    status = server.redis.hget(f"rsmq::result:{held.task_id}", "status")
    assert status == (b"FAILED" if held.keep_result_s else None)


def workflow_key(part: str = "") -> str:
    (status,) = newest_workflows()
    return f"rsmq::workflow:{status.id}{part}"


@pytest.mark.parametrize("part", [":members", ":results", ":failures", ":steps", ":room"])
@pytest.mark.parametrize("name", ["succeeded", "dead"])
def test_member_does_not_end_while_a_part_of_its_workflow_is_damaged(
    member: Execution, server: PrivateServer, part: str, name: str
):
    key = workflow_key(part)
    server.redis.delete(key)
    server.redis.set(key, "of another program")
    before = stored(server)

    with pytest.raises(BrokenQueue):
        end(member, OUTCOMES[name])

    assert stored(server) == before


@pytest.mark.parametrize("name", ["dead", "discarded"])
def test_member_that_failed_for_good_is_counted_with_its_failure(member: Execution, server: PrivateServer, name: str):
    end(member, OUTCOMES[name])

    (status,) = newest_workflows()
    assert (status.state, status.failed, status.waiting, status.done) == ("failed", 1, 0, 0)
    assert not server.redis.exists(workflow_key(":members"))
    assert server.redis.hget(workflow_key(":failures"), 0).startswith(f"{member.task_id} {{".encode())
    assert server.redis.hkeys(workflow_key(":steps")) == [b"then"], "what follows a failure was sent"


def test_message_of_a_replaced_member_ends_without_being_counted(member: Execution, server: PrivateServer):
    server.redis.hset(workflow_key(":members"), 0, "another-task")

    end(member, OUTCOMES["dead"])

    (status,) = newest_workflows()
    assert (status.state, status.failed, status.waiting) == ("running", 0, 1)
    assert get_queue("default-dead").attributes().messages == 1


@pytest.mark.parametrize("name", ["succeeded", "dead"])
def test_member_of_a_workflow_that_has_expired_ends_as_any_other_call(
    member: Execution, server: PrivateServer, name: str
):
    state = workflow_key()
    server.redis.delete(state)

    assert end(member, OUTCOMES[name]) == [SettleResult.DONE]

    assert get_queue("default").attributes().messages == 0
    assert not server.redis.exists(state)


def test_member_that_is_in_another_queue_is_not_counted_as_cancelled(member: Execution, server: PrivateServer):
    queue = get_queue("default")
    server.redis.rename(queue.keys.messages, "elsewhere")

    assert not cancel(member.task_id)

    (status,) = newest_workflows()
    assert (status.state, status.failed, status.waiting) == ("running", 0, 1)


def test_member_that_was_cancelled_is_counted_once(member: Execution):
    assert cancel(member.task_id)
    assert not cancel(member.task_id)

    (status,) = newest_workflows()
    assert (status.state, status.failed, status.waiting) == ("failed", 1, 0)
