"""Unique tasks: equal calls are enqueued once; missing messages do not block later calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.core.errors import BrokenQueue
from rsmq_django.core.ids import random_suffixes
from rsmq_django.core.queue.moves import purge
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import Retry, Task, Unique, cancel_tagged, tagged
from rsmq_django.tasks.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from rsmq_django.tasks.outgoing import prepare
from rsmq_django.tasks.round_trips import send
from rsmq_django.worker.execute.execution import Execution
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import Configure, declare, work, working

Declare = Callable[..., Task[..., Any]]


@pytest.fixture
def paint(project: Configure) -> Declare:
    """Return the function that declares a task that is unique in some way."""

    def make(**options: Any) -> Task[..., Any]:
        def painting(colour: str = "red", *, coats: int = 1) -> str:
            return colour

        declared: Task[..., Any] = declare(unique=Unique(**options))(painting)
        return declared

    return make


def waiting(queue_name: str = "default") -> list[dict[str, Any]]:
    """Return the calls in a queue, without receiving them."""
    queue = get_queue(queue_name)
    (ids,) = queue.client.connection.exchange([("ZRANGE", queue.keys.messages, 0, -1)])
    bodies = queue.client.connection.exchange([("HGET", queue.keys.settings, each) for each in ids]) if ids else []
    return [json.loads(body) for body in bodies]


def colours(queue_name: str = "default") -> list[Any]:
    return [call["args"] or call["kwargs"] for call in waiting(queue_name)]


def test_a_lock_that_another_program_wrote_is_named(paint: Declare, server: PrivateServer):
    task = paint()
    task.enqueue("red")
    (lock,) = server.redis.keys("rsmq::unique:*")
    server.redis.delete(lock)
    server.redis.set(lock, "foreign")

    with pytest.raises(BrokenQueue, match=rf"lock '{lock.decode()}' of a unique call for queue 'default'.*delete it"):
        task.enqueue("red")


def test_a_call_that_is_sent_twice_is_stored_once_and_is_not_a_duplicate_of_itself(paint: Declare):
    task = paint(mode="replace")
    outgoing = prepare(task, [(["red"], {})], ids=random_suffixes(1))

    assert send(outgoing).ids == send(outgoing).ids == outgoing.ids

    assert len(waiting()) == 1
    assert task.get_result(outgoing.ids[0]).status == TaskResultStatus.READY


# -- Which calls are equal -------------------------------------------------------------------------------------------


def test_an_equal_call_is_dropped_and_has_the_result_of_the_first(paint: Declare):
    task = paint()

    first, second = task.enqueue("red"), task.enqueue(colour="red", coats=1)

    assert second.id == first.id
    assert len(waiting()) == 1
    assert task.enqueue("blue").id != first.id


def test_calls_are_distinguished_by_the_arguments_named(paint: Declare):
    task = paint(by=["colour"])

    assert task.enqueue("red", coats=1).id == task.enqueue("red", coats=2).id != task.enqueue("blue").id


def test_calls_are_distinguished_by_a_function(paint: Declare):
    task = paint(by=lambda colour, **_: colour[0])

    assert task.enqueue("red").id == task.enqueue("rose").id != task.enqueue("blue").id


def test_the_context_does_not_count_as_an_argument(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(), takes_context=True)(lambda context, number: None)

    assert task.enqueue(1).id == task.enqueue(number=1).id != task.enqueue(2).id


def test_equal_calls_of_different_tasks_have_nothing_to_do_with_each_other(project: Configure):
    def one(number: int) -> None: ...

    def two(number: int) -> None: ...

    first, second = (declare(unique=Unique())(function) for function in (one, two))
    first.enqueue(1)
    second.enqueue(1)

    assert len(waiting()) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scope": "for ever"}, "scope is 'for ever'"),
        ({"mode": "rejct"}, "mode is 'rejct'"),
        ({"scope": "window"}, "window_s is None"),
        ({"mode": "debounce", "window_s": 0}, "window_s is 0"),
        ({"scope": "window", "window_s": float("inf")}, "window_s is inf; .* at most 31622400"),
        ({"scope": "window", "window_s": float("nan")}, "window_s is nan"),
        ({"scope": "window", "window_s": True}, "window_s is True"),
        ({"mode": "debounce", "window_s": 1e300}, "window_s is 1e"),
        ({"mode": "debounce", "window_s": 1, "max_wait_s": "5"}, "max_wait_s is '5'; it must be seconds above 0"),
        ({"mode": "debounce", "window_s": 1, "max_wait_s": float("nan")}, "max_wait_s is nan"),
        ({"mode": "debounce", "window_s": 1, "max_wait_s": -1}, "max_wait_s is -1"),
        ({"window_s": 5}, "window_s has no meaning"),
        ({"scope": "window", "mode": "debounce", "window_s": 5}, "leave scope='window' out"),
        ({"max_wait_s": 5}, "max_wait_s has no meaning"),
        ({"by": "colour"}, r"by=\['colour'\]"),
        ({"by": ["color"]}, "lacks this argument, it has only colour, coats"),
    ],
)
def test_options_that_cannot_work_are_refused_where_the_task_is_declared(
    paint: Declare, options: dict[str, Any], says: str
):
    with pytest.raises(ValueError, match=says):
        paint(**options)


def test_arguments_that_the_function_does_not_take_are_refused(paint: Declare):
    with pytest.raises(TypeError, match="colour"):
        paint().enqueue(color="red")


# -- How long one stands for all -------------------------------------------------------------------------------------


def test_after_the_end_the_next_one_is_sent(paint: Declare):
    task = paint()
    first = task.enqueue()

    work()

    assert task.enqueue().id != first.id


def test_ended_call_leaves_no_data(paint: Declare, server: PrivateServer):
    paint().enqueue()

    work()

    assert not server.redis.keys("rsmq::unique:*")


@pytest.mark.parametrize(("scope", "sent"), [("pending", 2), ("running", 1)])
def test_a_running_call_blocks_equal_calls_only_for_the_scope_running(paint: Declare, scope: str, sent: int):
    task = paint(scope=scope)
    first = task.enqueue()
    get_queue("default").receive()

    second = task.enqueue()

    assert (second.id == first.id) is (sent == 1)
    assert len(waiting()) == sent


def test_call_that_waits_for_its_retry_blocks_equal_calls(project: Configure):
    def stubborn() -> None:
        raise Retry(after_s=3600)

    task: Task[..., Any] = declare(unique=Unique())(stubborn)
    first = task.enqueue()
    with working():
        wait_until(lambda: get_queue("default").attributes().hidden_messages == 1)
        wait_until(lambda: task.get_result(first.id).attempts == 1)

    assert task.enqueue().id == first.id


def test_call_that_failed_for_good_does_not_block_equal_calls(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(), max_attempts=1)(lambda: 1 / 0)
    first = task.enqueue()

    work()

    assert task.enqueue().id != first.id


def test_purged_call_does_not_block_equal_calls(paint: Declare):
    task = paint()
    first = task.enqueue()
    purge(get_client(), "default")

    assert task.enqueue().id != first.id


def test_a_window_applies_regardless_of_the_outcome_of_the_first_call(paint: Declare):
    task = paint(scope="window", window_s=3600)
    first = task.enqueue()
    work()

    assert task.enqueue().id == first.id
    assert len(waiting()) == 0


def test_a_window_ends(paint: Declare):
    task = paint(scope="window", window_s=0.05)
    first = task.enqueue()
    work()

    wait_until(lambda: task.enqueue().id != first.id)


def test_a_window_ends_with_that_of_the_first_however_often_its_call_is_replaced(paint: Declare, server: PrivateServer):
    task = paint(by=["colour"], scope="window", mode="replace", window_s=3600)
    task.enqueue("red", coats=1)
    (lock,) = server.redis.keys("rsmq::unique:*")
    server.redis.hincrby(lock, "until_ms", -3_000_000)
    server.redis.pexpire(lock, 600_000)
    ends_ms = server.redis.hget(lock, "until_ms")

    task.enqueue("red", coats=2)

    assert [call["kwargs"] for call in waiting()] == [{"coats": 2}]
    assert server.redis.hget(lock, "until_ms") == ends_ms
    assert server.redis.pttl(lock) <= 600_000


def test_uniqueness_applies_across_priorities_and_queues(configure: Configure):
    configure(default={}, mail={})
    task: Task[..., Any] = declare(unique=Unique())(lambda: None)

    first = task.using(priority=7).enqueue()

    assert task.enqueue().id == first.id
    assert task.using(queue_name="mail").enqueue().id == first.id


# -- What becomes of the next one ------------------------------------------------------------------------------------


def test_the_new_call_replaces_a_waiting_one(paint: Declare):
    task = paint(by=["colour"], mode="replace")
    first = task.enqueue("red", coats=1)

    second = task.enqueue("red", coats=2)

    assert [call["kwargs"] for call in waiting()] == [{"coats": 2}]
    assert task.get_result(first.id).id == second.id


def test_running_call_is_not_replaced(paint: Declare):
    task = paint(mode="replace")
    first = task.enqueue()
    get_queue("default").receive()

    assert task.enqueue().id == first.id


def test_of_a_burst_only_the_last_runs_when_it_is_quiet(paint: Declare):
    task = paint(by=["colour"], mode="debounce", window_s=60)
    for coats in range(5):
        task.enqueue("red", coats=coats)

    assert [call["kwargs"] for call in waiting()] == [{"coats": 4}]
    assert get_queue("default").receive() is None, "it has not been quiet yet"

    pass_time(get_queue("default"), seconds=61)
    assert get_queue("default").receive() is not None


def test_a_burst_without_end_runs_after_the_longest_wait(paint: Declare, server: PrivateServer):
    task = paint(mode="debounce", window_s=60, max_wait_s=100)
    task.enqueue()
    (lock,) = server.redis.keys("rsmq::unique:*")
    server.redis.hincrby(lock, "first_ms", -99_000)

    task.enqueue()

    ((_, due_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    seconds, microseconds = server.redis.time()
    assert due_ms - (seconds * 1000 + microseconds // 1000) < 1500


# -- Nothing in between ----------------------------------------------------------------------------------------------


def test_of_many_senders_at_once_one_wins(paint: Declare):
    task = paint()
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(task.enqueue().id)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ids)) == len(waiting()) == 1


async def test_uniqueness_applies_to_async_senders(paint: Declare):
    task = paint()

    assert (await task.aenqueue()).id == (await task.aenqueue()).id


def test_enqueue_many_drops_equal_calls(paint: Declare):
    task = paint()

    task.enqueue_many([["red"], ["blue"], ["red"], {"colour": "blue"}])

    assert sorted(colour for [colour] in colours()) == ["blue", "red"]


def test_a_dropped_call_that_waited_for_a_commit_finds_the_result_of_the_first(paint: Declare):
    task = paint()
    first = task.enqueue()
    dropped = task.enqueue_many([[]])[0]

    assert dropped != first.id
    assert task.get_result(dropped).id == first.id
    work()
    assert task.get_result(dropped).status is TaskResultStatus.SUCCESSFUL


def test_a_task_without_results_leaves_no_record_of_dropped_calls(project: Configure, server: PrivateServer):
    task: Task[..., Any] = declare(unique=Unique(), result_ttl_s=0)(lambda: None)
    task.enqueue()
    (dropped,) = task.enqueue_many([[]])

    assert not server.redis.keys("rsmq::result:*")
    with pytest.raises(TaskResultDoesNotExist):
        task.get_result(dropped)


def test_a_late_ending_does_not_free_the_lock_of_a_message_that_runs_again(
    paint: Declare, monkeypatch: pytest.MonkeyPatch
):
    task = paint()
    first = task.enqueue()
    perform = Execution.perform

    def lose_lease(self: Execution) -> Any:
        pass_time(get_queue("default"), seconds=1000)
        get_queue("default").receive()  # by somebody else
        return perform(self)

    monkeypatch.setattr(Execution, "perform", lose_lease)
    work(until_empty=False, until_drained=True)

    assert task.enqueue().id == first.id


def test_a_call_from_the_beginning_of_a_long_burst_finds_the_result_of_the_last(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(by=[], mode="debounce", window_s=60), tags=["burst"])(lambda n: n)
    results = [task.enqueue(number) for number in range(400)]

    found = task_backends["default"].get_result(results[0].id)

    assert found.id == results[-1].id
    assert tagged("burst") == [results[-1].id]  # what was replaced neither waits nor runs


def test_a_dropped_call_leaves_no_tag(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(), tags=["mail"])(lambda: None)
    first = task.enqueue()

    task.enqueue()

    assert tagged("mail") == [first.id]


def test_a_replaced_call_leaves_its_tags_and_not_those_of_the_new_one(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(mode="replace"))(lambda: None)
    task.using(tags=["one", "both"]).enqueue()
    second = task.using(tags=["two", "both"]).enqueue()

    assert (tagged("one"), tagged("two"), tagged("both")) == ([], [second.id], [second.id])


async def test_a_coroutine_that_replaces_a_call_removes_its_tags_too(project: Configure):
    task: Task[..., Any] = declare(unique=Unique(mode="replace"))(lambda: None)
    await task.using(tags=["one"]).aenqueue()

    await task.aenqueue()

    assert tagged("one") == []


def test_the_tag_of_a_replaced_call_does_not_cancel_the_new_one(project: Configure, server: PrivateServer):
    task: Task[..., Any] = declare(unique=Unique(mode="replace"))(lambda: None)
    first = task.using(tags=["one"]).enqueue()
    second = task.using(tags=["two"]).enqueue()
    server.redis.zadd("rsmq::tag:one", {first.id: 9e12})  # as if its sender had died before it removed the tag

    assert cancel_tagged("one") == 0

    assert (task.get_result(second.id).status, tagged("one"), tagged("two")) == ("READY", [], [second.id])


@pytest.mark.parametrize("forged", ["[1", "7", '["x", 7]', "[" * 100_000])
def test_tags_in_a_lock_that_another_program_wrote_stop_no_call(project: Configure, server: PrivateServer, forged: str):
    task: Task[..., Any] = declare(unique=Unique(mode="replace"))(lambda: None)
    task.enqueue()
    (lock,) = server.redis.keys("rsmq::unique:*")
    server.redis.hset(lock, "tags", forged)

    second = task.enqueue()

    assert task.get_result(second.id).status == "READY"


def test_half_of_a_lock_names_nothing(project: Configure, server: PrivateServer):
    task: Task[..., Any] = declare(unique=Unique())(lambda: None)
    task.enqueue()
    (key,) = server.redis.keys("rsmq::unique:*")
    server.redis.hdel(key, "queue", "message")

    task.enqueue()

    assert get_queue("default").attributes().messages == 2
