"""Functions that take batches: one call for many messages, and a fate of its own for each of them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rsmq_django.core import Message
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import (
    BatchCall,
    HardTimeout,
    Postpone,
    Retry,
    TaskTimeout,
    cancel,
    consumer,
    current_task,
    fixed,
)
from rsmq_django.tasks.batch import BadAnswer, answers
from rsmq_django.tasks.workflow import call as call_of
from rsmq_django.tasks.workflow import chain
from tests.chaos.fleet import start  # noqa: F401
from tests.chaos.project import tasks as chaos_tasks
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, the_dead_letter, work, working


def send_raw_many(count: int) -> list[str]:
    return ensure_queue("default").send_many([b"%d" % number for number in range(count)])


# -- What a batch is -----------------------------------------------------------------------------------------------


def test_consumer_gets_the_messages_of_one_fetch_together_in_order(project: Configure):
    seen: list[list[bytes]] = []
    consumer("default", batch=100)(lambda messages: seen.append([message.body for message in messages]))
    send_raw_many(250)

    work(threads=1)

    assert [len(batch) for batch in seen] == [100, 100, 50]
    assert [body for batch in seen for body in batch] == [b"%d" % number for number in range(250)]
    assert get_queue("default").attributes().messages == 0


def test_task_gets_calls_and_each_has_a_result(project: Configure):
    seen: list[list[int]] = []

    def double(calls: list[BatchCall]) -> list[int]:
        seen.append([call.args[0] for call in calls])
        return [call.args[0] * call.kwargs.get("by", 2) for call in calls]

    doubled = declare(batch=100)(double)
    results = [doubled.enqueue(1), doubled.enqueue(2, by=5), doubled.enqueue(3)]

    work(threads=1)

    for result in results:
        result.refresh()
    assert seen == [[1, 2, 3]]
    assert [result.return_value for result in results] == [2, 10, 6]


def test_coroutine_functions_take_batches(project: Configure):
    seen: list[int] = []

    async def note(calls: list[BatchCall]) -> dict[str, object]:
        await asyncio.sleep(0)
        seen.append(len(calls))
        return {calls[1].id: ValueError("the second")}

    noted = declare(batch=10, max_attempts=1)(note)
    noted.enqueue_many([[number] for number in range(5)])

    work()

    assert seen == [5]
    assert the_dead_letter()[1]["message"] == "the second"


def test_calls_of_different_tasks_are_never_in_one_batch(project: Configure):
    seen: list[tuple[str, list[int]]] = []
    one = declare(batch=10)(lambda calls: seen.append(("one", [call.args[0] for call in calls])))
    two = declare(batch=10)(_two(seen))
    single: list[int] = []
    alone = declare(_alone(single))
    for number in range(3):
        one.enqueue(number)
        two.enqueue(number)
        alone.enqueue(number)

    work(threads=9)

    assert sorted(seen) == [("one", [0, 1, 2]), ("two", [0, 1, 2])]
    assert sorted(single) == [0, 1, 2]


def _two(seen: list[tuple[str, list[int]]]):
    def two(calls: list[BatchCall]) -> None:
        seen.append(("two", [call.args[0] for call in calls]))

    return two


def _alone(single: list[int]):
    def alone(number: int) -> None:
        single.append(number)

    return alone


def test_ordinary_tasks_are_not_fetched_by_the_batch(project: Configure, server: PrivateServer):
    project(rows={}, mail={})
    held: list[int] = []
    declare(queue_name="rows", batch=50)(lambda calls: None)
    slow = threading.Event()

    def wait() -> None:
        held.append(get_queue("mail").attributes().hidden_messages)
        slow.wait(60)

    declare(queue_name="mail")(wait).enqueue_many([[] for _ in range(20)])
    with working(threads=2):
        wait_until(lambda: len(held) == 2)
        assert get_queue("mail").attributes().hidden_messages == 2
        slow.set()
        wait_until(lambda: get_queue("mail").attributes().messages == 0)


def test_max_tasks_counts_messages(project: Configure):
    seen: list[int] = []
    consumer("default", batch=100)(lambda messages: seen.append(len(messages)))
    send_raw_many(50)

    work(until_empty=False, max_tasks=7)

    assert sum(seen) == 7
    assert get_queue("default").attributes().messages == 43


def test_queues_with_weights_share_calls(project: Configure):
    project(rows={"WEIGHT": 1}, mail={"WEIGHT": 1})
    order: list[tuple[str, int]] = []

    def mail() -> None:
        order.append(("mail", 1))

    declare(queue_name="mail")(mail).enqueue_many([[]] * 20)
    declare(queue_name="rows", batch=10)(lambda calls: order.append(("rows", len(calls)))).enqueue_many([[]] * 200)

    work(threads=1)

    assert sum(size for name, size in order if name == "rows") == 200
    first = [name for name, _ in order[:20]]
    assert first.count("rows") >= 5 and first.count("mail") >= 5


# -- What becomes of each ------------------------------------------------------------------------------------------


def test_only_the_items_that_failed_run_again(project: Configure):
    seen: list[list[tuple[bytes, int]]] = []

    def read(messages: list[Message]) -> list[object]:
        seen.append([(message.body, message.receive_count) for message in messages])
        return [ValueError("odd") if int(message.body) % 2 else None for message in messages]

    consumer("default", batch=10, max_attempts=2, backoff=fixed(0))(read)
    send_raw_many(4)

    work(threads=1)

    assert seen[0] == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1)]
    assert sorted(each for batch in seen[1:] for each in batch) == [(b"1", 2), (b"3", 2)]
    dead = dead_letters()
    assert sorted(message.body for message, _ in dead) == [b"1", b"3"]
    assert {(record["reason"], record["attempts"], record["message"]) for _, record in dead} == {
        ("attempts_used_up", 2, "odd")
    }


def test_answer_by_id_may_retry_and_postpone(project: Configure):
    seen: list[tuple[int, int]] = []

    def count(calls: list[BatchCall]) -> dict[str, object]:
        seen.extend((call.args[0], call.current.attempt) for call in calls)
        first = {1: Retry("later", after_s=0), 2: Postpone(0, "not yet")}
        fresh = [call for call in calls if seen.count((call.args[0], 1)) == 1 and call.current.attempt == 1]
        return {call.id: first[call.args[0]] for call in fresh if call.args[0] in first}

    declare(batch=10, max_attempts=2)(count).enqueue_many([[0], [1], [2]])

    work(threads=1)

    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 1)]
    assert dead_letters() == []


def test_exception_of_the_function_fails_each_item_by_the_policy_of_the_task(project: Configure):
    sizes: list[int] = []

    def fail(calls: list[BatchCall]) -> None:
        sizes.append(len(calls))
        raise OSError("down")

    failing = declare(batch=10, max_attempts=2, backoff=fixed(0))(fail)
    results = [failing.enqueue(number) for number in range(3)]

    work(threads=1)

    for result in results:
        result.refresh()
    assert sizes[0] == 3 and sum(sizes) == 6
    assert [[error.exception_class for error in result.errors] for result in results] == [[OSError, OSError]] * 3
    assert len(dead_letters()) == 3


def test_answer_that_does_not_fit_is_not_run_twice(project: Configure):
    runs: list[int] = []

    def answer(messages: list[Message]) -> list[None]:
        runs.append(len(messages))
        return [None]

    consumer("default", batch=10)(answer)
    send_raw_many(2)

    work(threads=1)

    assert runs == [2]
    dead = dead_letters()
    assert [record["reason"] for _, record in dead] == ["bad_return_value"] * 2
    assert "the answer has 1 items, the batch had 2" in dead[0][1]["message"]


def test_answers():
    error = ValueError()

    assert answers(None, ["a", "b"]) == [None, None]
    assert answers(5, ["a", "b"]) == [5, 5]
    assert answers((1, error), ["a", "b"]) == [1, error]
    assert answers({"b": error}, ["a", "b"]) == [None, error]
    assert str(answers([KeyError], ["a"])[0]).startswith("the answer is the class KeyError")
    with pytest.raises(BadAnswer, match="'c', which is no id"):
        answers({"c": None}, ["a"])


def test_time_limit_is_that_of_the_call(project: Configure):
    def hang(calls: list[BatchCall]) -> None:
        while True:
            time.sleep(0.01)

    hanging = declare(batch=10, max_attempts=1, timeout_s=0.1)(hang)
    results = [hanging.enqueue(number) for number in range(2)]

    work(threads=1)

    for result in results:
        result.refresh()
        assert [error.exception_class for error in result.errors] == [TaskTimeout]


def test_message_that_cannot_be_read_does_not_harm_the_others(project: Configure):
    seen: list[int] = []
    declare(batch=10)(lambda calls: seen.extend(call.args[0] for call in calls)).enqueue_many([[1], [2]])
    send_raw(b"no call")

    work(threads=1)

    assert seen == [1, 2]
    assert the_dead_letter()[1]["reason"] == "undecodable"


def test_cancelled_call_does_not_stop_the_others(project: Configure):
    began = threading.Event()
    cancelled: list[list[bool]] = []

    def wait(calls: list[BatchCall]) -> None:
        began.set()
        wait_until(lambda: calls[0].current.is_cancelled)
        cancelled.append([call.current.is_cancelled for call in calls])

    waiting = declare(batch=10, max_attempts=1)(wait)
    ids = waiting.enqueue_many([[1], [2]])
    with working(threads=1):
        wait_until(began.is_set)
        assert cancel(ids[0])
        wait_until(lambda: get_queue("default").attributes().messages == 0)

    assert cancelled == [[True, False]]
    assert [str(waiting.get_result(each).status) for each in ids] == ["FAILED", "SUCCESSFUL"]


def test_call_is_interrupted_when_all_of_it_was_cancelled(project: Configure):
    began, ended = threading.Event(), threading.Event()

    def wait(calls: list[BatchCall]) -> None:
        try:
            began.set()
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    ids = declare(batch=10, max_attempts=1)(wait).enqueue_many([[1], [2]])
    with working(threads=1):
        wait_until(began.is_set)
        for each in ids:
            assert cancel(each)
        wait_until(ended.is_set)


def test_batch_that_the_worker_does_not_wait_for_is_released_whole(project: Configure, server: PrivateServer):
    began, release = threading.Event(), threading.Event()

    def wait(messages: list[Message]) -> None:
        began.set()
        release.wait(60)

    consumer("default", batch=10)(wait)
    send_raw_many(3)
    with working(threads=1) as worker:
        wait_until(began.is_set)
        worker.stop(within_s=0)
    release.set()  # not before the worker has ended: what returns until then counts as done

    assert get_queue("default").attributes().hidden_messages == 0
    assert get_queue("default").attributes().messages == 3
    assert set(server.redis.hgetall("rsmq::released:default").values()) == {b"1"}


def test_call_in_a_workflow_gets_its_result_first(project: Configure):
    seen: list[list[int]] = []

    def make() -> int:
        return 20

    def add(calls: list[BatchCall]) -> None:
        seen.extend(call.args for call in calls)

    chain(call_of(declare(make)), call_of(declare(batch=10)(add), 22)).enqueue()

    work()

    assert seen == [[20, 22]]


# -- Around it -----------------------------------------------------------------------------------------------------


def test_no_single_task_is_the_current_one(project: Configure):
    errors: list[str] = []

    def ask(calls: list[BatchCall]) -> None:
        try:
            current_task()
        except RuntimeError as error:
            errors.append(str(error))

    declare(batch=10)(ask).enqueue()

    work()

    assert "`call.current`" in errors[0]


@pytest.mark.parametrize("size", [0, -1, 1001, True, 2.5, "10"])
def test_impossible_sizes_are_refused(project: Configure, size: object):
    with pytest.raises(ValueError, match="batch is .* a whole number from 1 to 1000"):
        declare(batch=size)(lambda calls: None)


def test_context_is_refused_because_each_call_has_its_own(project: Configure):
    with pytest.raises(ValueError, match=r"takes batches; each of its calls has its context as `call.current`"):
        declare(batch=5, takes_context=True)(lambda context, calls: None)


# -- Processes that die --------------------------------------------------------------------------------------------


#: The first look takes three messages.
THREE = ("--burst", "--processes", "1", "--threads", "3")


@pytest.mark.slow
def test_batch_whose_process_died_runs_again_one_by_one(
    project: Configure,
    start: StartWorker,  # noqa: F811
    journal: Journal,
):
    results = [chaos_tasks.crash_once_together.enqueue(number) for number in range(3)]

    assert start(*THREE).wait() == 0

    for result in results:
        result.refresh()
    assert journal.names("start") == ["3", "1", "1", "1"]
    assert [result.status for result in results] == ["SUCCESSFUL"] * 3


@pytest.mark.slow
def test_hard_limit_fails_all_of_a_batch_once(
    project: Configure,
    start: StartWorker,  # noqa: F811
    journal: Journal,
):
    results = [chaos_tasks.hang_once_together.enqueue(number) for number in range(3)]

    assert start(*THREE).wait() == 0

    for result in results:
        result.refresh()
    sizes = [int(size) for size in journal.names("start")]
    assert sizes[0] == 3 and sum(sizes) == 6
    assert [[error.exception_class for error in result.errors] for result in results] == [[HardTimeout]] * 3
