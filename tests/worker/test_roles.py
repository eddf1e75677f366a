"""Every kind of sending, and workers of all sources, with exactly the rights of docs/how-to/acl.md."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import transaction
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.core import DurableClient
from rsmq_django.core.errors import NotConfirmed
from rsmq_django.core.topic import Topic
from rsmq_django.outbox.relay import Relay
from rsmq_django.queues import ensure_queue, get_client, get_queue, get_sender
from rsmq_django.reliable_queues import get_reliable_queue, task_body
from rsmq_django.tasks import Concurrency, Rate, Retry, Unique, call, chain, group, map_tasks, progress_of
from rsmq_django.topics import publish
from rsmq_django.views import status_address
from tests.acl_users import TOPICS, UserOf, user_with_role
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker, journal, start_worker
from tests.worker.site.journal import Journal
from tests.worker.site.tasks import write
from tests.worker.workshop import Configure, configure, declare, own_registries, patient_workers, work

__all__ = ["configure", "journal", "own_registries", "patient_workers", "start_worker", "user_with_role"]

LATER = dt.timedelta(minutes=5)


def plain(number: int = 0) -> int:
    return number


def summed(numbers: list[int]) -> int:
    return sum(numbers)


async def send_everything() -> None:
    """Send calls of all kinds by coroutines."""
    sent = declare(plain)
    await sent.aenqueue(1)
    await sent.using(run_after=LATER).aenqueue(1)
    await chain(call(sent, 1), call(sent)).aenqueue()


def test_sender_sends_everything(configure: Configure, user_with_role: UserOf, settings: Any):
    configure(url=user_with_role("sender"))
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"parcels": {}}}
    sent, added = declare(plain), declare(summed)
    strict = declare(plain, unique=Unique(), limits=[Concurrency(1), Rate(5, per_s=60)])

    result = sent.enqueue(1)
    sent.using(run_after=LATER, priority=5).enqueue(1)
    sent.using(tags=["a"], expires_in_s=60).enqueue(1)
    sent.enqueue_many([number] for number in range(3))
    assert strict.enqueue(1).id == strict.enqueue(1).id
    chain(call(sent, 1), call(sent)).enqueue()
    group([call(sent, 1), call(sent, 2)], then=call(added)).enqueue()
    map_tasks(sent, range(5))
    schedules.add("nightly", sent, cron="0 4 * * *", args=[1])
    schedules.change("nightly", args=[2])
    schedules.pause("nightly")
    schedules.resume("nightly")
    assert [each.name for each in schedules.entries()] == ["nightly"]
    schedules.remove("nightly")
    get_queue("default").send_many([b"a", b"b"], delay_s=60)
    get_reliable_queue("parcels").push(task_body(sent, 1))
    result.refresh()
    assert not result.is_finished and progress_of(result.id) is None


def test_sender_with_a_topic_publishes(configure: Configure, user_with_role: UserOf):
    configure(url=user_with_role("sender", topics=TOPICS))

    publish("orders", "a", "b")


async def test_sender_sends_everything_by_coroutines(configure: Configure, user_with_role: UserOf):
    configure(url=user_with_role("sender"))

    await send_everything()
    await get_client().connection.aclose()


@pytest.mark.parametrize("durability", [{"REPLICAS": 1}, {"REPLICAS": 1, "FSYNC": "replicas"}], ids=["wait", "waitaof"])
@pytest.mark.parametrize("role", ["sender", "worker", "operator"])
def test_every_form_of_sending_can_wait_for_replicas_and_disks(
    role: str, durability: dict[str, Any], configure: Configure, user_with_role: UserOf, settings: Any
):
    configure(url=user_with_role(role, topics=TOPICS))
    waiting = {**settings.RSMQ["CONNECTIONS"]["default"], "DURABILITY": {**durability, "TIMEOUT_S": 0.01}}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": waiting}, "RELIABLE": {"parcels": {}}}

    for send in forms_of_sending():
        with pytest.raises(NotConfirmed, match="not confirmed within"):  # the server has no replica
            send()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", ["sender", "worker", "operator"])
def test_workflow_of_a_transaction_can_wait_for_replicas(
    role: str, configure: Configure, user_with_role: UserOf, settings: Any, caplog: pytest.LogCaptureFixture
):
    configure(url=user_with_role(role), on_commit=True)
    waiting = {**settings.RSMQ["CONNECTIONS"]["default"], "DURABILITY": {"REPLICAS": 1, "TIMEOUT_S": 0.01}}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": waiting}}

    with transaction.atomic():
        workflow = group([call(declare(plain), 1)]).enqueue()

    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("rsmq_django")]
    assert line.startswith(f"the transaction is committed, and workflow {workflow.id} was sent: ")
    assert "not confirmed within" in line


def forms_of_sending() -> list[Callable[[], Any]]:
    """Return a function for each form of sending."""
    sent, strict, tagged = declare(plain), declare(plain, unique=Unique()), declare(plain, tags=["a"])

    def calls(task: Any) -> list[Any]:
        return [call(task, 1), call(task, 2)]

    def sender() -> DurableClient:
        found = get_sender()
        assert isinstance(found, DurableClient)
        return found

    return [
        lambda: sent.enqueue(1),
        lambda: asyncio.run(sent.aenqueue(1)),
        lambda: sent.using(run_after=LATER, priority=5).enqueue(1),
        lambda: tagged.enqueue(1),
        lambda: strict.enqueue(7),
        lambda: sent.enqueue_many([number] for number in range(3)),
        lambda: chain(call(sent, 1), call(sent)).enqueue(),
        lambda: group(calls(sent), then=call(declare(summed))).enqueue(),
        lambda: group(calls(strict)).enqueue(),
        lambda: asyncio.run(group(calls(sent)).aenqueue()),
        lambda: map_tasks(sent, range(5)),
        lambda: get_queue("default").send(b"a"),
        lambda: get_reliable_queue("parcels").push(task_body(sent, 1)),
        lambda: publish("orders", "a"),
        lambda: sender().confirm(),
        lambda: asyncio.run(sender().aconfirm()),
    ]


def test_worker_runs_everything(configure: Configure, user_with_role: UserOf, server: PrivateServer):
    configure(url=user_with_role("worker"))
    ensure_queue("default")
    tries: list[int] = []

    def fragile(number: int) -> None:
        tries.append(number)
        raise Retry(after_s=0) if len(tries) < 3 else ValueError("no")

    sent, added = declare(plain), declare(summed)
    failing = declare(fragile, max_attempts=4)
    strict = declare(plain, unique=Unique(), limits=[Concurrency(1), Rate(5, per_s=60)])
    sent.enqueue_many([number] for number in range(3))
    failing.enqueue(1)
    strict.enqueue(1)
    sent.using(tags=["a"], priority=5).enqueue(1)
    workflow = group([call(sent, 1), call(sent, 2)], then=call(added)).enqueue()

    assert work()

    assert tries and server.redis.zcard("rsmq:default-dead") == 1
    assert workflow.results() == [1, 2]


def test_worker_processes_with_their_supervisor_serve_all_sources(
    start_worker: StartWorker,
    journal: Journal,
    user_with_role: UserOf,
    server: PrivateServer,
    configure: Configure,
    settings: Any,
):
    configure()
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"parcels": {}}}
    ensure_queue("default")
    Topic("orders", get_client()).publish("a")
    reliable = get_reliable_queue("parcels")
    reliable.push(b'{"task": "tests.worker.site.tasks.write", "args": ["reliable"]}')
    schedule = '{"often": {"TASK": "tests.worker.site.tasks.write", "EVERY_S": 1, "ARGS": ["schedule"]}}'
    worker = start_worker(
        "--processes=1",
        worker_url=user_with_role("worker", topics=TOPICS),
        reliable='{"parcels": {}}',
        topic="orders",
        schedules=schedule,
        events='{"RECORD": "all"}',
    )
    get_queue("default").send(b'{"task": "tests.worker.site.tasks.write", "args": ["queue"]}')

    wait_until(lambda: {"queue", "reliable", "schedule"} <= {*journal.names("start")})
    wait_until(lambda: server.redis.xlen("rsmq::events") >= 3)
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.output
    assert "may not" not in worker.output and "NOPERM" not in worker.output


@pytest.mark.parametrize(
    "sealed",
    [{"SIGNING_KEYS": ["k" * 32]}, {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}],
    ids=["signed", "encrypted"],
)
def test_sealed_queues_fair_shares_and_batches_need_no_further_rights(
    configure: Configure, user_with_role: UserOf, sealed: dict[str, Any]
):
    sender, worker = user_with_role("sender"), user_with_role("worker")
    ran: list[int] = []

    def note(number: int) -> None:
        ran.append(number)

    def note_all(calls: list[Any]) -> None:
        ran.extend(each.args[0] for each in calls)

    fair, batched = declare(note, fair_by=lambda number: number % 2), declare(note_all, batch=10)
    configure(url=sender, default=sealed)
    ensure_queue("default")
    fair.enqueue_many([number] for number in range(4))
    fair.enqueue(4)
    results = [batched.enqueue(number) for number in range(5, 8)]

    configure(url=worker, default=sealed)
    assert work()

    assert sorted(ran) == [*range(8)]
    configure(url=sender, default=sealed)
    for result in results:
        result.refresh()
        assert result.is_finished


def test_sender_and_worker_with_the_namespaces_of_the_shards_use_all_shards(
    configure: Configure, user_with_role: UserOf
):
    sender, worker = user_with_role("sender", has_shards=True), user_with_role("worker", has_shards=True)
    ran: list[int] = []

    def note(number: int) -> None:
        ran.append(number)

    sent = declare(note)
    keyed = declare(plain, unique=Unique(), limits=[Concurrency(1, by=["number"])], shard_by=["number"])
    configure(url=sender, default={"SHARDS": 3})
    sent.enqueue_many([number] for number in range(6))
    result = keyed.enqueue(7)

    configure(url=worker, default={"SHARDS": 3})
    assert work()

    assert sorted(ran) == [*range(6)]
    configure(url=sender, default={"SHARDS": 3})
    result.refresh()
    assert result.return_value == 7


def test_sender_waits_for_the_end_of_a_call_and_shows_how_far_it_is(
    configure: Configure, user_with_role: UserOf, start_worker: StartWorker, settings: Any
):
    settings.MIDDLEWARE = []
    configure(url=user_with_role("sender"))
    ensure_queue("default")
    worker = start_worker("--processes=1", worker_url=user_with_role("worker"))

    waited_for: Any = write.enqueue("waited for")
    assert waited_for.wait(timeout_s=60).return_value == "waited for"
    awaited: Any = write.enqueue("awaited")
    asyncio.run(awaited.await_end(timeout_s=60))
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0, worker.output
    assert Browser().get(status_address(awaited)).json()["status"] == "SUCCESSFUL"


@pytest.mark.django_db(transaction=True)
def test_worker_relays_the_outbox(configure: Configure, user_with_role: UserOf):
    configure(url=user_with_role("worker"), on_commit=True, default={"OUTBOX": True})
    ensure_queue("default")
    with transaction.atomic():
        declare(plain).enqueue(1)
        declare(summed, priority=5).enqueue([1, 2])

    assert Relay().relay_waiting() == 2
    assert work()
