"""Queues with SHARDS: each shard is an ordinary queue in a namespace of its own, and workers follow all of them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError

from rsmq_django import schedules
from rsmq_django.conf.settings import get_settings
from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import OutcomeUnknown, PartlyDone, QueueNotFound
from rsmq_django.core.limits import MAX_TRIP_BYTES
from rsmq_django.core.queue.pause import paused, resume
from rsmq_django.core.tasks.processes import ProcessRecord, describe
from rsmq_django.core.transport.packing import packed
from rsmq_django.queues import (
    ensure_queue,
    get_client,
    get_queue,
    pause_queue,
    paused_queues,
    resume_queue,
    shards_of_queue,
)
from rsmq_django.redrive import redrive
from rsmq_django.tasks import Concurrency, Rate, Unique, call, cancel, cancel_tagged, fixed, group
from rsmq_django.tasks.compat import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends
from rsmq_django.tasks.shards import shard_of_key
from rsmq_django.tasks.topic_task import bridge_topic, check_topic_tasks
from rsmq_django.testing.enqueued import calls_in
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.exchanges import Exchanges
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, work

SHARDS = 4
KEYS = (b"rsmq:default", b"rsmq-1:default", b"rsmq-2:default", b"rsmq-3:default")


@pytest.fixture
def sharded(configure: Configure) -> None:
    """A project with one queue of four shards."""
    configure(default={"SHARDS": SHARDS})


def lengths(name: str = "default") -> list[int]:
    """Return how many messages each shard has."""
    shards = range(get_settings().queue(name).shards)
    return [ensure_queue(name, shard=shard).attributes().messages for shard in shards]


def shard_of(text: str) -> int:
    """Compute the shard of a key as docs/how-to/queues.md tells programs in other languages."""
    return zlib.crc32(text.encode()) % SHARDS


# -- Where calls go ---------------------------------------------------------------------------------------------------


def test_calls_without_a_key_take_the_shards_in_turn_and_all_of_them_run(sharded: None):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    for number in range(SHARDS):
        declared.enqueue(number)
    declared.enqueue_many([[number] for number in range(SHARDS, 3 * SHARDS)])
    assert lengths() == [3] * SHARDS

    assert work()

    assert sorted(seen) == list(range(3 * SHARDS)) and lengths() == [0] * SHARDS


async def test_calls_of_coroutines_take_the_shards_in_turn(sharded: None):
    declared = declare(lambda number: number)
    for number in range(SHARDS):
        await declared.aenqueue(number)
    await declared.aenqueue_many([[number] for number in range(SHARDS)])

    assert [(await queue.aattributes()).messages for queue in shards_of_queue("default")] == [2] * SHARDS
    for queue in shards_of_queue("default"):
        await queue.client.connection.aclose()


def test_each_shard_is_an_ordinary_queue_in_a_namespace_of_its_own(sharded: None):
    declare(lambda: None).enqueue_many([[]] * SHARDS)
    connection = get_client().connection

    for namespace in ("rsmq", "rsmq-1", "rsmq-2", "rsmq-3"):
        assert Queue("default", Client(connection, namespace=namespace)).receive() is not None


def test_key_of_a_call_decides_its_shard_as_the_docs_say(sharded: None):
    declared = declare(lambda customer, number=0: None, shard_by=["customer"])
    texts = ["anna", "7", '{"a": 1}', '["é", 2]', "é"]
    for key in ("anna", 7, {"a": 1}, ["é", 2], "é"):
        declared.enqueue(key)
    text_of = {'["é", 2]': '["\\u00e9", 2]'}  # JSON is ASCII, a text is UTF-8

    expected = Counter(shard_of(text_of.get(text, text)) for text in texts)
    assert lengths() == [expected[number] for number in range(SHARDS)]


def test_calls_with_one_key_run_in_the_order_in_which_they_were_sent(sharded: None):
    seen: list[tuple[str, int]] = []
    declared = declare(lambda customer, number: seen.append((customer, number)), shard_by=["customer"])
    sent = [(customer, number) for number in range(5) for customer in ("anna", "bob", "cem", "dilek")]
    declared.enqueue_many([list(call) for call in sent])

    assert work()

    for customer in ("anna", "bob", "cem", "dilek"):
        assert [number for name, number in seen if name == customer] == list(range(5))


def test_shard_key_of_one_call_is_given_with_using(sharded: None):
    declared = declare(lambda customer: None)
    for _ in range(3):
        declared.using(shard_by=lambda customer: customer.lower()).enqueue("ANNA")

    assert lengths()[shard_of("anna")] == 3


def test_ids_of_many_calls_are_in_the_order_of_the_caller(sharded: None):
    declared = declare(lambda number: None, shard_by=["number"])
    ids = declared.enqueue_many([[number] for number in range(20)])

    found = [task_backends["default"].get_result(task_id).args[0] for task_id in ids]
    assert found == list(range(20))


def test_call_of_many_that_fails_in_the_middle_has_the_positions_of_the_caller(sharded: None, exchanges: Exchanges):
    declared = declare(lambda number: None)
    declared.enqueue_many([[number] for number in range(SHARDS)])
    work()
    exchanges.begin_again()
    exchanges.gone_after = 2

    with pytest.raises(PartlyDone) as failed:
        declared.enqueue_many([[number] for number in range(2 * SHARDS)])
    exchanges.begin_again()

    numbers = {
        place: task_backends["default"].get_result(task_id).args[0] for place, task_id in failed.value.done.items()
    }
    assert numbers == {place: place for place in numbers} and len(numbers) == 4 and not failed.value.unknown


def test_requests_to_all_shards_are_sent_before_the_first_reply_arrives(configure: Configure, server: PrivateServer):
    ids = send_while_replies_are_held(configure, server, [[number, ""] for number in range(2 * SHARDS)])

    assert lengths() == [3] * SHARDS
    found = [task_backends["default"].get_result(task_id).args for task_id in ids]
    assert found == [[number, ""] for number in range(2 * SHARDS)]


def test_much_that_is_sent_goes_to_all_shards_in_each_round(configure: Configure, server: PrivateServer):
    text = "x" * (2 * MAX_TRIP_BYTES // (20 * SHARDS))

    ids = send_while_replies_are_held(configure, server, [[number, text] for number in range(20 * SHARDS)])

    assert lengths() == [21] * SHARDS
    assert [task_backends["default"].get_result(task_id).args[0] for task_id in ids] == list(range(20 * SHARDS))


def send_while_replies_are_held(configure: Configure, server: PrivateServer, calls: list[list[Any]]) -> list[str]:
    """Send calls over sockets that are open, and let the replies pass once each shard has got a request."""
    with FaultProxy(server.url) as proxy, ThreadPoolExecutor() as pool:
        configure(url=proxy.url, timeout_s=60, default={"SHARDS": SHARDS})
        declared = declare(lambda number, text: None)
        declared.enqueue_many([[number, ""] for number in range(SHARDS)])  # opens the sockets
        proxy.requests.clear()
        proxy.hold_replies()
        sending = pool.submit(declared.enqueue_many, calls)
        try:
            wait_until(lambda: all(map(proxy.times_seen, KEYS)))
        finally:
            proxy.release()
        ids = sending.result()
    configure(default={"SHARDS": SHARDS})
    return ids


async def test_coroutine_sends_to_all_shards_before_the_first_reply_arrives(
    configure: Configure, server: PrivateServer
):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url, timeout_s=60, default={"SHARDS": SHARDS})
        declared = declare(lambda number: None)
        await declared.aenqueue_many([[number] for number in range(SHARDS)])  # opens the sockets
        proxy.requests.clear()
        proxy.hold_replies()
        sending = asyncio.create_task(declared.aenqueue_many([[number] for number in range(2 * SHARDS)]))
        try:
            await asyncio.to_thread(wait_until, lambda: all(map(proxy.times_seen, KEYS)))
        finally:
            proxy.release()
        assert len(set(await sending)) == 2 * SHARDS

    configure(default={"SHARDS": SHARDS})
    assert lengths() == [3] * SHARDS


@pytest.mark.parametrize("is_async", [False, True])
def test_requests_under_way_at_the_same_time_are_no_longer_than_one(
    sharded: None, monkeypatch: pytest.MonkeyPatch, is_async: bool
):
    under_way, most = list[int](), list[int]()
    begin, finish, aexchange = Connection.begin, Connection.finish, Connection.aexchange

    def note(size: int) -> None:
        under_way.append(size)
        most.append(sum(under_way))

    def begin_noted(connection: Connection, request: bytes) -> Any:
        note(len(request))
        return begin(connection, request)

    def finish_noted(connection: Connection, *words: Any) -> Any:
        under_way.pop()
        return finish(connection, *words)

    async def aexchange_noted(connection: Connection, commands: Any) -> Any:
        note(len(packed(commands)))
        replies = await aexchange(connection, commands)
        under_way.pop()
        return replies

    declared = declare(lambda text: None)
    declared.enqueue_many([["x"]] * SHARDS)  # opens the sockets
    monkeypatch.setattr(Connection, "begin", begin_noted)
    monkeypatch.setattr(Connection, "finish", finish_noted)
    monkeypatch.setattr(Connection, "aexchange", aexchange_noted)
    calls = [["x" * 60_000]] * 6 * SHARDS  # two of four round trips fit
    ids = asyncio.run(declared.aenqueue_many(calls)) if is_async else declared.enqueue_many(calls)

    assert len(set(ids)) == len(calls) and not under_way
    assert 0 < max(most) < 1.1 * MAX_TRIP_BYTES


def test_server_of_all_shards_that_does_not_answer_is_waited_for_once(
    configure: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    given_up = list[Any]()
    give_up = Connection.give_up

    def count_and_give_up(connection: Connection, link: Any) -> None:
        given_up.append(link)
        give_up(connection, link)

    monkeypatch.setattr(Connection, "give_up", count_and_give_up)
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url, timeout_s=0.3, default={"SHARDS": SHARDS})
        declared = declare(lambda number: None)
        for _ in range(2):
            with suppress(OutcomeUnknown):  # a slow machine
                declared.enqueue_many([[number] for number in range(SHARDS)])  # opens the sockets
        proxy.hold_replies()
        with pytest.raises(OutcomeUnknown) as failed:
            declared.enqueue_many([[number] for number in range(2 * SHARDS)])
    configure()

    assert not isinstance(failed.value, PartlyDone), "a part of the calls was known to be sent or not"
    assert len(given_up) == SHARDS


@pytest.mark.django_db(transaction=True)
def test_calls_of_a_transaction_are_sent_to_their_shards_at_the_commit(configure: Configure):
    from django.db import transaction

    configure(on_commit=True, default={"SHARDS": SHARDS})
    declared = declare(lambda number: None)
    with transaction.atomic():
        for number in range(2 * SHARDS):
            declared.enqueue(number)
        assert lengths() == [0] * SHARDS

    assert lengths() == [2] * SHARDS


@pytest.mark.django_db(transaction=True)
def test_commit_waits_once_for_a_server_of_several_shards_that_does_not_answer(
    configure: Configure, caplog: pytest.LogCaptureFixture
):
    from django.db import transaction

    with socket.create_server(("127.0.0.1", 0), backlog=SHARDS) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        configure(on_commit=True, url=url, timeout_s=0.2, default={"SHARDS": SHARDS})
        with transaction.atomic():
            declare(lambda number: None).enqueue_many([[number] for number in range(2 * SHARDS)])
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
    configure()

    assert "the transaction is committed, but each of 8 calls of" in caplog.text


# -- Results, cancellation, dead letters ------------------------------------------------------------------------------


def test_result_is_found_with_one_question_although_there_are_many_shards(sharded: None, exchanges: Exchanges):
    declared = declare(lambda number: number + 1)
    ids = declared.enqueue_many([[number] for number in range(SHARDS)])
    work()
    backend = task_backends["default"]
    backend.get_result(ids[0])  # scripts are loaded

    for number, task_id in enumerate(ids):
        exchanges.begin_again()
        assert backend.get_result(task_id).return_value == number + 1 and exchanges.count == 1


def test_id_that_no_shard_knows_has_no_result(sharded: None):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result("0" * 22)


def test_call_in_any_shard_can_be_cancelled_by_its_id_and_its_tag(sharded: None):
    declared = declare(lambda number: None, tags=["import"])
    ids = declared.enqueue_many([[number] for number in range(2 * SHARDS)])

    for task_id in ids[:SHARDS]:
        assert cancel(task_id)
    assert cancel_tagged("import") == SHARDS and lengths() == [0] * SHARDS


def test_call_that_fails_for_good_is_a_dead_letter_in_its_own_shard(sharded: None):
    def fail(number: int) -> None:
        raise KeyError(number)

    ids = declare(fail, max_attempts=1).enqueue_many([[number] for number in range(SHARDS)])
    work()

    assert lengths("default-dead") == [1] * SHARDS
    for task_id in ids:
        assert task_backends["default"].get_result(task_id).status == TaskResultStatus.FAILED


def test_retry_stays_in_its_shard(sharded: None):
    attempts: list[int] = []

    def stubborn() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise KeyError

    declare(stubborn, backoff=fixed(0)).using(shard_by=lambda: "x").enqueue()
    work()

    assert len(attempts) == 3 and lengths() == [0] * SHARDS


# -- What has to be whole ---------------------------------------------------------------------------------------------


def test_equal_calls_of_a_unique_task_are_one_in_all_shards(sharded: None):
    declared = declare(lambda number: None, unique=Unique())
    declared.enqueue_many([[number] for number in range(8)])
    first = [declared.enqueue(number).id for number in range(8)]
    again = [declared.enqueue(number).id for number in range(8)]

    assert again == first and sum(lengths()) == 8 and max(lengths()) < 8


def test_limit_by_a_key_holds_for_all_shards_together(sharded: None):
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def slow(customer: str) -> None:
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        running[customer] -= 1

    declared = declare(slow, limits=[Concurrency(1, by=["customer"])])
    declared.enqueue_many([[customer] for _ in range(5) for customer in ("anna", "bob", "cem")])
    own = [shard_of(customer) for customer in ("anna", "bob", "cem")]
    assert [count for count in lengths() if count] == [5 * own.count(shard) for shard in sorted(set(own))]

    work(threads=4)

    assert set(most.values()) == {1} and sum(lengths()) == 0


def test_limit_of_a_whole_task_keeps_its_calls_in_one_shard(sharded: None):
    declare(lambda number: None, limits=[Rate(100, per_s=1)]).enqueue_many([[number] for number in range(12)])

    assert sorted(lengths()) == [0, 0, 0, 12]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard_by": ["a"], "unique": Unique(by=["b"])}, ["shard_by (a)", "unique (b)"]),
        ({"shard_by": ["a"], "limits": [Concurrency(1)]}, ["shard_by (a)", "the limit Concurrency (all calls)"]),
        ({"unique": Unique(by=["a"]), "limits": [Rate(1, 1, by=["b"])]}, ["unique (a)", "the limit Rate (b)"]),
        ({"shard_by": lambda a, b: a, "unique": Unique(by=["a"])}, ["shard_by (a function)", "unique (a)"]),
        ({"fair_by": ["a"], "unique": Unique(by=["b"])}, ["unique (b)", "fair_by (a)"]),
    ],
)
def test_two_keys_that_would_choose_different_shards_are_refused_by_name(sharded: None, options: Any, words: list[str]):
    with pytest.raises(InvalidTask) as refused:
        declare(lambda a, b: None, **options)

    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    "options",
    [
        {"shard_by": ["a"], "unique": Unique()},
        {"shard_by": ["a"], "unique": Unique(by=["b", "a"])},
        {"unique": Unique(by=["a", "b"]), "limits": [Rate(1, 1, by=["b"])]},
        {"unique": Unique(by=["a"]), "limits": [Concurrency(1)]},
        {"shard_by": lambda a, b: a, "unique": Unique()},
    ],
)
def test_key_that_agrees_with_all_others_is_used(sharded: None, options: Any):
    declare(lambda a, b: None, **options).enqueue(1, 2)

    assert sum(lengths()) == 1


def test_call_with_a_key_that_disagrees_is_refused(sharded: None):
    declared = declare(lambda a, b: None, unique=Unique(by=["a"]))

    with pytest.raises(InvalidTask, match=r"shard_by \(b\) and unique \(a\)"):
        declared.using(shard_by=["b"]).enqueue(1, 2)


def test_limit_that_tasks_share_is_refused(sharded: None):
    with pytest.raises(InvalidTask, match="the limit 'mail' is shared between tasks"):
        declare(lambda: None, limits=[Concurrency(1, name="mail")])


@pytest.mark.parametrize("keys", [{"SIGNING_KEYS": ["k" * 32]}, {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}])
def test_signed_and_encrypted_calls_run_in_every_shard(configure: Configure, keys: dict[str, Any]):
    configure(default={"SHARDS": SHARDS, **keys})
    ids = declare(lambda number: number + 1).enqueue_many([[number] for number in range(2 * SHARDS)])

    work()

    assert lengths("default-dead") == [0] * SHARDS
    results = [task_backends["default"].get_result(task_id).return_value for task_id in ids]
    assert results == [number + 1 for number in range(2 * SHARDS)]


def test_signed_call_that_is_moved_to_another_shard_stays_valid(configure: Configure):
    configure(default={"SHARDS": SHARDS, "SIGNING_KEYS": ["k" * 32]})
    seen: list[int] = []
    declare(lambda number: seen.append(number)).using(shard_by=lambda number: "x").enqueue(7)
    ensure_queue("default", shard=2)
    before, after = get_queue("default", shard=shard_of("x")), get_queue("default", shard=2)
    message = before.pop()
    assert message is not None
    after.send(message.body)

    work()

    assert seen == [7] and lengths("default-dead") == [0] * SHARDS


def test_workflow_is_whole_in_the_first_shard(sharded: None):
    seen: list[Any] = []
    declared = declare(lambda number: number)

    def collect(numbers: list[int]) -> None:
        seen.append(numbers)

    group([call(declared, number) for number in range(5)], then=call(declare(collect))).enqueue()
    assert lengths() == [5, 0, 0, 0]

    work()

    assert seen == [[0, 1, 2, 3, 4]]


def test_workflow_refuses_a_task_whose_key_would_choose_another_shard(sharded: None):
    declared = declare(lambda number: number, shard_by=["number"])

    with pytest.raises(InvalidTask, match=r"a workflow sends to the first one, while shard_by \(number\)"):
        group([call(declared, 1)]).enqueue()


def test_schedule_refuses_a_task_whose_key_would_choose_another_shard(sharded: None):
    declared = declare(lambda: None, limits=[Concurrency(1)])

    with pytest.raises(ValueError, match="a schedule sends to the first one, while the limit Concurrency"):
        schedules.add("nightly", declared, every_s=60)


def test_schedule_of_a_queue_with_shards_is_listed_once_and_runs(sharded: None):
    seen: list[int] = []
    declared = declare(lambda: seen.append(1))
    schedules.add("nightly", declared, every_s=60)
    assert [entry.name for entry in schedules.entries()] == ["nightly"]

    schedules.run_now("nightly")
    work()

    assert seen == [1]


# -- Operations -------------------------------------------------------------------------------------------------------


def test_pause_holds_all_shards(sharded: None):
    seen: list[int] = []
    declare(lambda number: seen.append(number)).enqueue_many([[number] for number in range(2 * SHARDS)])
    assert pause_queue("default") and not pause_queue("default") and paused_queues() == ["default"]

    work(until_empty=False, until_drained=True)
    assert seen == []

    assert resume_queue("default") and paused_queues() == []
    work()
    assert len(seen) == 2 * SHARDS


def test_queue_is_not_used_as_if_it_had_one_shard(sharded: None):
    with pytest.raises(ImproperlyConfigured, match=re.escape("get_queue('default', shard=0)")):
        get_queue("default")
    with pytest.raises(ImproperlyConfigured, match="Queue 'default' has the shards 0 to 3, not 4"):
        get_queue("default", shard=4)

    assert [queue.client.namespace for queue in shards_of_queue("default")] == ["rsmq", "rsmq-1", "rsmq-2", "rsmq-3"]


def test_queue_without_shards_has_one(project: Configure):
    assert shards_of_queue("default") == [get_queue("default")] == [get_queue("default", shard=0)]
    with pytest.raises(ImproperlyConfigured, match="Queue 'default' has no shards, so no shard 1"):
        get_queue("default", shard=1)


def test_id_of_a_shard_that_the_settings_leave_out_is_an_error_that_names_it(configure: Configure):
    configure(default={"SHARDS": SHARDS})
    ids = declare(lambda number: None).enqueue_many([[number] for number in range(SHARDS)])
    task_id = next(each for each in ids if each.startswith("03"))
    configure(default={"SHARDS": 2})

    told = "Its id names shard 3, and the settings have the shards 0 to 1: raise SHARDS"
    with pytest.raises(TaskResultDoesNotExist, match=told):
        task_backends["default"].get_result(task_id)
    with pytest.raises(TaskResultDoesNotExist, match=told):
        cancel(task_id)
    for other in (f"01{task_id[2:]}", f"zz{task_id[2:]}"):
        with pytest.raises(TaskResultDoesNotExist) as caught:
            cancel(other)
        assert "shard" not in str(caught.value)


def test_shards_that_a_paused_queue_gets_later_are_paused_too_until_it_is_resumed(configure: Configure):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    configure(default={"SHARDS": 2})
    work()
    run_command("rsmqctl", "queue", "pause", "-n", "default")

    configure(default={"SHARDS": SHARDS})
    work(until_empty=False, until_drained=True)
    declared.enqueue_many([[number] for number in range(SHARDS)])
    work(until_empty=False, until_drained=True)
    assert seen == []

    run_command("rsmqctl", "queue", "resume", "-n", "default")
    work()
    assert len(seen) == SHARDS


def test_shard_that_exists_is_not_paused_by_a_worker_that_starts(configure: Configure):
    seen: list[int] = []
    declared = declare(shard_by=["number"])(lambda number: seen.append(number))
    configure(default={"SHARDS": SHARDS})
    work()
    pause_queue("default")
    queue = get_queue("default", shard=2)
    queue.client.run(resume(queue.client.namespace, "default"))
    in_shard_2 = [number for number in range(100) if shard_of_key(str(number), SHARDS) == 2]

    declared.enqueue_many([[number] for number in range(100)])
    work(until_empty=False, until_drained=True)

    assert sorted(seen) == in_shard_2


def test_messages_that_waited_when_the_queue_grew_are_found(configure: Configure):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    declared.enqueue_many([[number] for number in range(5)])
    configure(default={"SHARDS": 2})
    declared.enqueue_many([[number] for number in range(5, 10)])
    configure(default={"SHARDS": 8})
    ids = declared.enqueue_many([[number] for number in range(10, 20)])

    assert work()

    assert sorted(seen) == list(range(20))
    assert task_backends["default"].get_result(ids[-1]).status == TaskResultStatus.SUCCESSFUL


def test_backlog_of_some_shards_does_not_keep_the_others_waiting(sharded: None):
    """Three connections or more: which one comes first changes with each turn."""
    worker = new_worker(threads=1)

    firsts = [worker._sources_in_turn()[0] for _ in range(2 * SHARDS)]

    assert firsts == [*worker.sources, *worker.sources]


# -- Commands ---------------------------------------------------------------------------------------------------------


def run_command(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_stats_show_one_row_with_the_sums_of_all_shards_and_one_shard_on_request(sharded: None):
    declare(lambda number: None).enqueue_many([[number] for number in range(2 * SHARDS)])

    (row,) = [line for line in run_command("rsmq_stats").splitlines() if line.startswith("default ")]
    (shard,) = [
        line for line in run_command("rsmqctl", "--connection", "default.1", "stats").splitlines() if "default" in line
    ]
    (data,) = map(json.loads, run_command("rsmqctl", "--json", "stats").splitlines())

    assert row.split()[1] == str(2 * SHARDS) and row.split()[6] == str(2 * SHARDS)
    assert shard.split()[1] == "2"
    assert (data["ready"], data["sent"], data["connection"]) == (2 * SHARDS, 2 * SHARDS, "default")


def test_operator_pauses_resumes_and_empties_all_shards(sharded: None):
    declare(lambda number: None).enqueue_many([[number] for number in range(2 * SHARDS)])

    assert run_command("rsmqctl", "queue", "pause", "-n", "default") == "paused default\n"
    clients = [queue.client for queue in shards_of_queue("default")]
    assert [client.run(paused(client.namespace)) for client in clients] == [{"default"}] * SHARDS
    assert run_command("rsmqctl", "queue", "resume", "-n", "default") == "resumed default\n"
    assert run_command("rsmqctl", "queue", "purge", "-n", "default", "--yes") == "removed 8 messages from default\n"
    assert lengths() == [0] * SHARDS


@pytest.mark.parametrize("way", ["command", "function"])
def test_redrive_takes_the_dead_letters_of_all_shards_up_to_its_limit(sharded: None, way: str):
    seen: list[int] = []

    def fail_once(number: int) -> None:
        seen.append(number)
        if seen.count(number) == 1:
            raise KeyError(number)

    declare(fail_once, max_attempts=1).enqueue_many([[number] for number in range(2 * SHARDS)])
    work()

    if way == "command":
        run_command("rsmqctl", "message", "redrive", "default-dead", "--limit", "3")
        assert sum(lengths("default-dead")) == 2 * SHARDS - 3
        run_command("rsmq_redrive")
    else:
        assert redrive("default-dead", limit=3).moved == {"default": 3}
        assert redrive("default-dead").moved == {"default": 5}
    work()

    assert sum(lengths("default-dead")) == 0 and sorted(seen) == sorted([*range(2 * SHARDS)] * 2)


def test_redrive_to_a_queue_that_is_missing_in_a_shard_is_an_error(sharded: None):
    def fail(number: int) -> None:
        raise KeyError(number)

    declare(fail, max_attempts=1).enqueue_many([[number] for number in range(SHARDS)])
    work()
    get_queue("default", shard=1).delete_queue()

    with pytest.raises(QueueNotFound, match="queue not found: 'default'"):
        redrive("default-dead")

    ensure_queue("default", shard=1)
    redrive("default-dead")
    assert lengths() == [1] * SHARDS and lengths("default-dead") == [0] * SHARDS


@pytest.mark.parametrize(("options", "verb"), [([], "redriven"), (["--dry-run"], "would redrive")])
def test_redrive_names_each_shard_and_prints_the_sum(sharded: None, options: list[str], verb: str):
    def fail(number: int) -> None:
        raise KeyError(number)

    declare(fail, max_attempts=1).enqueue_many([[number] for number in range(2 * SHARDS)])
    work()
    lines = run_command("rsmqctl", "message", "redrive", "-n", "default-dead", *options).splitlines()

    for alias in ("default", "default.1", "default.2", "default.3"):
        assert f"{verb} 2 messages from default-dead on {alias}: 2 to default" in lines
    assert lines[-1] == f"{verb} 8 messages from default-dead in all"


def test_redrive_counts_what_it_moved_of_a_shard_where_others_stayed(sharded: None, capsys: pytest.CaptureFixture[str]):
    def fail(number: int) -> None:
        raise KeyError(number)

    declare(fail, max_attempts=1).enqueue_many([[number] for number in range(SHARDS)])
    work()
    get_queue("default-dead", shard=1).send("of an unknown queue")

    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("rsmqctl", "message", "redrive", "-n", "default-dead", stdout=out)

    assert "1 message not moved from default-dead on default.1" in capsys.readouterr().err
    assert out.getvalue().splitlines()[-1] == "redriven 4 messages from default-dead in all"


def test_command_for_one_queue_asks_for_the_shard(sharded: None, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run_command("rsmqctl", "message", "list", "-n", "default")
    assert "has 4 shards; choose one with --connection: default, default.1, default.2" in capsys.readouterr().err

    declare(lambda: None).using(shard_by=lambda: "x").enqueue()
    alias = get_settings().shards_of(get_settings().queue("default"))[shard_of("x")].connection
    assert "1" in run_command("rsmqctl", "--connection", alias, "queue", "stats", "-n", "default")


def test_commands_find_a_failed_call_of_any_shard_by_its_id(sharded: None):
    def fail(number: int) -> None:
        raise KeyError(number)

    ids = declare(fail, max_attempts=1).enqueue_many([[number] for number in range(SHARDS)])
    work()

    assert all("KeyError" in run_command("rsmqctl", "task", "show", task_id) for task_id in ids)
    run_command("rsmqctl", "task", "retry", *ids)
    assert lengths() == [1] * SHARDS and lengths("default-dead") == [0] * SHARDS


def test_doctor_looks_at_each_shard(sharded: None):
    for queue in shards_of_queue("default"):
        queue.create()
    get_queue("default", shard=2).client.connection.exchange([("SET", "rsmq-2:default", "damage")])
    out = StringIO()

    with pytest.raises(CommandError):
        call_command("rsmq_doctor", stdout=out)

    assert "default.2" in out.getvalue()


def test_doctor_reports_messages_in_a_shard_that_the_settings_leave_out(configure: Configure):
    configure(default={"SHARDS": SHARDS})
    declare(lambda number: None).enqueue_many([[number] for number in range(SHARDS)])
    configure(default={"SHARDS": 2})

    report = run_command("rsmq_doctor")

    assert report.count("left-out-shard") == 2
    for shard in (2, 3):
        assert f"1 message in the namespace rsmq-{shard}, which may be shard {shard}: SHARDS is 2" in report


def test_doctor_reports_left_out_shards_also_when_those_in_between_are_empty(configure: Configure):
    configure(default={"SHARDS": 40})
    for shard in range(1, 40):
        ensure_queue("default", shard=shard)
    get_queue("default", shard=39).send("left")
    configure(default={"SHARDS": 2})

    assert "1 message in the namespace rsmq-39, which may be shard 39: SHARDS is 2" in run_command("rsmq_doctor")


@pytest.mark.parametrize("options", [{"SHARDS": 1}, {}])
def test_doctor_reports_messages_in_shards_when_no_queue_has_any_more(configure: Configure, options: dict[str, int]):
    configure(default={"SHARDS": SHARDS})
    for shard in range(1, SHARDS):
        ensure_queue("default", shard=shard)
    get_queue("default", shard=3).send("left")
    configure(default=options)

    report = run_command("rsmq_doctor")

    assert report.count("left-out-shard") == 1
    assert "1 message in the namespace rsmq-3, which may be shard 3: SHARDS is 1" in report
    assert "unless another project uses the namespace" in report


def test_doctor_leaves_out_a_namespace_whose_queues_workers_consume(configure: Configure):
    configure(default={"SHARDS": 2})
    ensure_queue("default", shard=1).send("of another project")
    client = get_client("default.1")
    record = ProcessRecord(
        host="", pid=1, version="", age_ms=0, memory_bytes=0, state="working", queues=("default",), running=()
    )
    client.run(heartbeat_call(client, ["w1"]))
    client.run(describe(client.namespace, "w1", record))
    configure(default={})

    assert "left-out-shard" not in run_command("rsmq_doctor")


def test_doctor_works_for_a_user_of_only_the_shards_in_use(configure: Configure, server: PrivateServer):
    configure(default={"SHARDS": 2})
    keys = ("~rsmq:*", "~rsmq-1:*")
    get_client().connection.exchange([("ACL", "SETUSER", "own", "on", ">pw", *keys, "&*", "+@all")])
    try:
        configure(url=server.url.replace("unix://", "unix://own:pw@"), default={"SHARDS": 2})
        assert "connection default.1" in run_command("rsmq_doctor")
    finally:
        configure(default={"SHARDS": 2})
        get_client().connection.exchange([("ACL", "DELUSER", "own")])


@pytest.mark.parametrize(("shards", "beyond"), [(1, set()), (2, {"rsmq-2:QUEUES"})])
def test_doctor_asks_a_user_of_two_shards_for_no_more_than_one_key_beyond(
    configure: Configure, server: PrivateServer, shards: int, beyond: set[str]
):
    admin = server.redis
    admin.execute_command("ACL", "SETUSER", "own", "on", ">pw", "~rsmq:*", "~rsmq-1:*", "&*", "+@all")
    admin.execute_command("ACL", "LOG", "RESET")
    try:
        configure(url=server.url.replace("unix://", "unix://own:pw@"), default={"SHARDS": shards})
        run_command("rsmq_doctor")
        refused = {entry["object"] for entry in admin.acl_log() if entry["object"].endswith(":QUEUES")}
    finally:
        configure(default={"SHARDS": 2})
        admin.execute_command("ACL", "DELUSER", "own")
    assert refused == beyond


def test_operator_works_on_the_shards_that_exist(sharded: None):
    for name in ("default", "default-dead"):
        ensure_queue(name, shard=2).send("first")

    assert "0 messages" in run_command("rsmqctl", "message", "redrive", "default-dead", "--task", "none")
    assert run_command("rsmqctl", "queue", "pause", "-n", "default") == "paused default\n"
    assert run_command("rsmqctl", "queue", "purge", "-n", "default", "--yes") == "removed 1 message from default\n"
    assert paused_queues() == ["default"] and lengths() == [0] * SHARDS


@pytest.mark.parametrize("command", [["queue", "purge", "-n"], ["queue", "pause", "-n"], ["message", "redrive"]])
def test_queue_of_which_no_shard_exists_is_an_error(
    sharded: None, command: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        run_command("rsmqctl", *command, "default-dead")
    assert "queue not found: default-dead" in capsys.readouterr().err


def test_bridge_of_a_topic_to_a_queue_with_shards_is_refused(sharded: None):
    bridge_topic("orders", group="jobs", queue="default")

    with pytest.raises(ImproperlyConfigured, match="queue 'default' has SHARDS, and a bridge moves messages to one"):
        check_topic_tasks()


def test_kit_for_tests_sees_the_calls_of_all_shards(sharded: None):
    declare(lambda number: None).enqueue_many([[number] for number in range(2 * SHARDS)])

    assert sorted(each.args[0] for each in calls_in("default")) == list(range(2 * SHARDS))
