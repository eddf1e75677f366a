"""Senders of a project wait as DURABILITY says; a repeat of calls that were not confirmed is safe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from rsmq_django.core.errors import InvalidValue, NotConfirmed, PartlyDone
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.reliable_queues import get_reliable_queue
from rsmq_django.tasks import Durability, Unique, arepeat, call, chain, group, map_tasks, repeat
from rsmq_django.tasks.task import Task
from rsmq_django.topics import get_topic, publish
from tests.durability.conftest import PATIENT_S, SHORT_S, Use
from tests.replicated_server import ReplicatedServer
from tests.support import wait_until
from tests.worker.workshop import declare, work

WAITS = {"REPLICAS": 1, "TIMEOUT_S": PATIENT_S}
NO_TIME = {"REPLICAS": 1, "TIMEOUT_S": SHORT_S}

Counts = Callable[..., int]


@pytest.fixture
def messages(namespace: str) -> Counts:
    def count(server: ReplicatedServer, name: str = "default") -> int:
        return int(server.redis.zcard(f"{namespace}:{name}"))

    return count


@pytest.fixture
def greet() -> Task[..., Any]:
    def greeting(name: str) -> None: ...

    return declare(greeting)


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def record(seen: list[str]) -> Task[..., Any]:
    def recording(name: str) -> None:
        seen.append(name)

    return declare(recording)


def lose(server: ReplicatedServer, namespace: str, task_id: str) -> None:
    """Remove a message and its record, as a failover to a replica without them does."""
    for message in server.redis.zrange(f"{namespace}:default", 0, -1):
        if message.decode().endswith(task_id):
            server.redis.zrem(f"{namespace}:default", message)
            server.redis.hdel(f"{namespace}:default:Q", message)
    server.redis.delete(f"{namespace}::result:{task_id}")


# -- Waiting ----------------------------------------------------------------------------------------------------------


def test_call_is_on_the_replica_when_enqueue_returns(
    use: Use, greet: Task, replica: ReplicatedServer, messages: Counts
):
    use(WAITS)
    greet.enqueue("Ada")  # creates the queue, too
    assert messages(replica) == 1
    asyncio.run(greet.aenqueue("Grace"))
    assert messages(replica) == 2
    greet.enqueue_many([["Jean"]] * 30)
    assert messages(replica) == 32
    get_queue("default").send("raw")
    assert messages(replica) == 33


def test_bulk_send_waits_once(use: Use, greet: Task, primary: ReplicatedServer, replica: ReplicatedServer):
    use(WAITS)
    greet.enqueue("Ada")
    primary.redis.config_resetstat()

    greet.enqueue_many([["Jean"]] * 100)

    assert primary.redis.info("commandstats")["cmdstat_wait"]["calls"] == 1


@pytest.mark.usefixtures("replica")
def test_plain_call_and_its_wait_are_one_round_trip(
    use: Use, greet: Task, monkeypatch: pytest.MonkeyPatch, primary: ReplicatedServer
):
    use(WAITS)
    greet.enqueue("Ada")
    connection = get_queue("default").client.connection
    exchange, sent = connection.exchange, []

    def noting(commands: Any) -> Any:
        sent.append(len(commands))
        return exchange(commands)

    monkeypatch.setattr(connection, "exchange", noting)
    greet.enqueue("Grace")
    assert sent == [2]


def test_queue_and_call_override_the_connection(use: Use, replica: ReplicatedServer, greet: Task):
    use(NO_TIME, queues={"default": {}, "fast": {"DURABILITY": None}, "slow": {"DURABILITY": WAITS}})
    for name in ("default", "fast", "slow"):
        ensure_queue(name)
    replica.stand_still()

    with pytest.raises(NotConfirmed):
        greet.enqueue("Ada")
    greet.using(queue_name="fast").enqueue("Ada")
    greet.using(durability=False).enqueue("Ada")
    with pytest.raises(NotConfirmed):
        greet.using(queue_name="fast", durability=Durability(1, timeout_s=SHORT_S)).enqueue("Ada")
    replica.go_on()
    greet.using(queue_name="slow").enqueue("Ada")


def test_task_declares_what_its_senders_wait_for(use: Use, replica: ReplicatedServer):
    use()
    careful = declare(lambda: None, durability=Durability(1, timeout_s=SHORT_S))
    ensure_queue("default")
    replica.stand_still()

    with pytest.raises(NotConfirmed):
        careful.enqueue()
    with pytest.raises(ValueError, match=r"durability is \{'REPLICAS': 1\}; it must be a Durability\(...\)"):
        declare(lambda: None, durability={"REPLICAS": 1})


def test_wait_of_a_call_that_the_connection_would_not_survive_is_refused(use: Use, greet: Task, settings: Any):
    use()
    settings.RSMQ["CONNECTIONS"]["default"]["TIMEOUT_S"] = 1
    settings.RSMQ = dict(settings.RSMQ)

    with pytest.raises(InvalidValue, match="may wait for 0.8 s at most"):
        greet.using(durability=Durability(1, timeout_s=5)).enqueue("Ada")


def test_topics_and_reliable_queues_wait_as_their_connection_says(use: Use, replica: ReplicatedServer, namespace: str):
    use(NO_TIME, RELIABLE={"jobs": {}})
    replica.stand_still()

    with pytest.raises(NotConfirmed):
        publish(f"topic-{namespace}", "hello")
    with pytest.raises(NotConfirmed):
        get_topic(f"topic-{namespace}").publish("hello")
    with pytest.raises(NotConfirmed):
        get_reliable_queue("jobs").push("hello")


# -- Not confirmed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_call_that_is_not_confirmed_is_stored_and_the_error_has_its_ids(
    use: Use, greet: Task, primary: ReplicatedServer, replica: ReplicatedServer, messages: Counts, is_async: bool
):
    use(NO_TIME)
    ensure_queue("default")
    replica.stand_still()

    with pytest.raises(NotConfirmed, match="^task .*: stored on .* but not confirmed within 0.05 s") as caught:
        asyncio.run(greet.aenqueue("Ada")) if is_async else greet.enqueue("Ada")

    (stored,) = primary.redis.zrange(caught.value.queue_name and f"{get_queue('default').keys.messages}", 0, -1)
    assert caught.value.message_ids == [stored.decode()]
    assert stored.decode().endswith(caught.value.task_ids[0])


@pytest.mark.parametrize("is_async", [False, True])
def test_repeat_leaves_calls_that_the_server_has_and_sends_those_that_it_lost(
    use: Use,
    record: Task,
    seen: list[str],
    primary: ReplicatedServer,
    replica: ReplicatedServer,
    namespace: str,
    messages: Counts,
    is_async: bool,
):
    use(NO_TIME)
    ensure_queue("default")
    replica.stand_still()
    with pytest.raises(NotConfirmed) as caught:
        record.enqueue_many([["Ada"], ["Grace"], ["Jean"]])
    lose(primary, namespace, caught.value.task_ids[1])

    with pytest.raises(NotConfirmed) as again:  # a repeat writes in any case, so that it has something to wait for
        asyncio.run(arepeat(caught.value)) if is_async else repeat(caught.value)
    assert again.value.task_ids == caught.value.task_ids
    replica.go_on()
    assert messages(primary) == 3
    work()
    assert sorted(seen) == ["Ada", "Grace", "Jean"]


@pytest.mark.usefixtures("replica")
def test_repeat_of_calls_that_have_run_does_not_run_them_again(
    use: Use, record: Task, seen: list[str], replica: ReplicatedServer
):
    use(NO_TIME)
    ensure_queue("default")
    replica.stand_still()
    with pytest.raises(NotConfirmed) as caught:
        record.enqueue("Ada")
    replica.go_on()
    work()

    ids = _repeated(caught.value)
    work()

    assert ids == caught.value.task_ids
    assert seen == ["Ada"]


def _repeated(error: BaseException) -> list[str]:
    """Repeat until it is confirmed: the wait is short."""

    def is_confirmed() -> list[str] | None:
        try:
            return repeat(error)
        except NotConfirmed:
            return None

    return wait_until(is_confirmed) or []


def test_repeat_of_a_unique_call_sends_it_once(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, messages: Counts
):
    use(NO_TIME)
    ensure_queue("default")
    once = declare(lambda name: None, unique=Unique())
    replica.stand_still()
    with pytest.raises(NotConfirmed) as caught:
        once.enqueue("Ada")
    with pytest.raises(NotConfirmed):
        repeat(caught.value)
    replica.go_on()

    assert _repeated(caught.value) == caught.value.task_ids
    assert messages(primary) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_repeat_of_the_same_error_sends_a_lost_call_without_a_result_once(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, namespace: str, messages: Counts, is_async: bool
):
    use(NO_TIME)
    ensure_queue("default")
    forgotten = declare(lambda name: None, result_ttl_s=0)
    replica.stand_still()
    with pytest.raises(NotConfirmed) as caught:
        forgotten.enqueue("Ada")
    lose(primary, namespace, caught.value.task_ids[0])

    for _ in range(3):
        with pytest.raises(NotConfirmed):
            asyncio.run(arepeat(caught.value)) if is_async else repeat(caught.value)

    assert messages(primary) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_calls_in_several_lanes_that_are_not_confirmed_are_in_one_error_and_in_that_of_its_repeat(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, messages: Counts, is_async: bool
):
    use(NO_TIME, queues={"default": {"FAIR_LANES": 8}})
    ensure_queue("default")
    fair = declare(lambda name: None, fair_by=["name"])
    replica.stand_still()
    with pytest.raises(NotConfirmed) as caught:
        fair.enqueue_many([["Ada"], ["Grace"], ["Jean"], ["Joan"]])

    error = caught.value
    assert len(error.task_ids) == len(set(error.message_ids)) == 4
    for _ in range(2):
        with pytest.raises(NotConfirmed, match="^4 tasks: stored on .*repeat") as again:
            asyncio.run(arepeat(error)) if is_async else repeat(error)
        assert sorted(again.value.task_ids) == sorted(caught.value.task_ids)
        assert sorted(again.value.message_ids) == sorted(caught.value.message_ids)
        error = again.value
    replica.go_on()
    assert sorted(_repeated(error)) == sorted(caught.value.task_ids)


@pytest.mark.parametrize("result_ttl_s", [0, 60])
def test_duplicate_of_a_call_that_no_replica_has_is_not_confirmed(
    use: Use, replica: ReplicatedServer, result_ttl_s: int
):
    use(NO_TIME)
    ensure_queue("default")
    once = declare(lambda name: None, unique=Unique(), result_ttl_s=result_ttl_s)
    replica.stand_still()
    first = once.using(durability=False).enqueue("Ada")
    get_queue("default").client.connection.close()  # another process has sockets of its own

    with pytest.raises(NotConfirmed) as caught:
        once.enqueue("Ada")

    assert caught.value.task_ids == [first.id]


def test_unique_call_beside_a_refused_one_does_not_count_as_done_when_it_is_not_confirmed(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, namespace: str
):
    use(NO_TIME)
    ensure_queue("default")
    once = declare(lambda name: None, unique=Unique())
    replica.stand_still()
    with pytest.raises(NotConfirmed):
        once.enqueue("Grace")
    (lock,) = primary.redis.keys(f"{namespace}::unique:*")
    primary.redis.set(lock, "of another program")

    with pytest.raises(PartlyDone, match="not a hash") as caught:
        once.enqueue_many([["Ada"], ["Grace"]])

    assert not caught.value.done and list(caught.value.unknown) == [0]


def test_only_errors_of_calls_can_be_repeated():
    with pytest.raises(TypeError, match="has no calls to repeat"):
        repeat(ValueError("another error"))


@pytest.mark.django_db(transaction=True)
def test_calls_of_a_transaction_wait_at_the_commit_and_the_log_says_what_is_not_confirmed(
    use: Use,
    greet: Task,
    primary: ReplicatedServer,
    replica: ReplicatedServer,
    messages: Counts,
    caplog: pytest.LogCaptureFixture,
):
    use(NO_TIME, on_commit=True, queues={"default": {}, "other": {}})
    ensure_queue("default")
    replica.stand_still()
    with transaction.atomic():
        greet.enqueue("Ada")
        greet.using(queue_name="other").enqueue("Grace")

    assert (messages(primary), messages(primary, "other")) == (1, 1)
    (told,) = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert "the transaction is committed, and each of 2 calls of" in told
    assert "was sent: " in told
    assert "not confirmed within 0.05 s: 0 of 1 replica" in told
    assert "not sent again" not in told


def test_calls_of_several_round_trips_end_with_the_first_that_is_not_confirmed(
    use: Use, greet: Task, primary: ReplicatedServer, replica: ReplicatedServer, messages: Counts
):
    use(NO_TIME)
    ensure_queue("default")
    replica.stand_still()

    with pytest.raises(PartlyDone) as caught:
        greet.enqueue_many([["Ada"]] * 1001)

    assert messages(primary) == 1000
    assert not caught.value.done
    assert len(caught.value.unknown) == 1000
    replica.go_on()
    assert _repeated(caught.value) == list(caught.value.unknown.values())
    assert messages(primary) == 1000


# -- Workflows --------------------------------------------------------------------------------------------------------


def test_workflow_waits_when_all_of_it_is_sent(use: Use, greet: Task, replica: ReplicatedServer, messages: Counts):
    use(WAITS)
    thank = declare(lambda greeting: None)
    ensure_queue("default")
    group([call(greet, "Ada"), call(greet, "Grace")]).enqueue()
    assert messages(replica) == 2
    asyncio.run(chain(call(greet, "Ada"), call(thank)).aenqueue())
    assert messages(replica) == 3


def test_workflow_that_is_not_confirmed_is_complete(
    use: Use, record: Task, seen: list[str], primary: ReplicatedServer, replica: ReplicatedServer
):
    use(NO_TIME)
    ensure_queue("default")
    replica.stand_still()

    with pytest.raises(NotConfirmed, match="^workflow .* not confirmed"):
        map_tasks(record, ["Ada", "Grace"])
    replica.go_on()
    work()

    assert sorted(seen) == ["Ada", "Grace"]
