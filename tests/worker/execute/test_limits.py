"""Limits: never more runs at a time or starts in a window; what waits comes back, and the dead keep no place."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rsmq_django.core import Client
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.transport.call import Call
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import Concurrency, Rate, Task, TaskContext, consumer, fixed
from rsmq_django.tasks.compat import TaskResultStatus
from rsmq_django.tasks.limits import keys_of_limit
from rsmq_django.worker.execute import limits
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks as site_tasks
from tests.worker.site.journal import Journal, note
from tests.worker.workshop import Configure, declare, send_raw, work, working


class Overlaps:
    """Counts how many runs of each key there are at a time; the first ones wait until `expected` of a key have met."""

    def __init__(self, expected: int = 1) -> None:
        self._lock = threading.Lock()
        self._expected = expected
        self._met = threading.Event()
        self._running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def run(self, key: str, *, seconds: float = 0.03) -> None:
        with self._lock:
            self._running[key] += 1
            self._running["all"] += 1
            for each in (key, "all"):
                self.most[each] = max(self.most[each], self._running[each])
            if self.most[key] >= self._expected:
                self._met.set()
        assert self._met.wait(60)
        time.sleep(seconds)
        with self._lock:
            self._running[key] -= 1
            self._running["all"] -= 1
            self.done[key] += 1


def limit_keys(client: Client) -> list[bytes]:
    (keys,) = client.connection.exchange([("KEYS", "rsmq::limit:*")])
    return list(keys)


def test_no_more_calls_run_at_a_time_than_the_limit_allows(project: Configure):
    overlaps = Overlaps(expected=2)
    task: Task[..., Any] = declare(limits=[Concurrency(2)])(lambda key: overlaps.run(key))
    task.enqueue_many([["a"]] * 12)

    assert work(threads=6)

    assert (overlaps.done["a"], overlaps.most["a"]) == (12, 2)


def test_each_key_has_its_own_limit(project: Configure):
    overlaps = Overlaps()

    meet = threading.Barrier(2, timeout=60)

    @declare(limits=[Concurrency(3), Concurrency(1, by=["customer"])])
    def bill(customer: str) -> None:
        if customer in "ab" and not overlaps.done[customer]:
            meet.wait()
        overlaps.run(customer)

    bill.enqueue_many([[name] for name in "abcdabcd"])

    assert work(threads=8)

    assert overlaps.done == Counter("abcdabcd")
    assert {overlaps.most[name] for name in "abcd"} == {1}
    assert overlaps.most["all"] <= 3, "and those of two customers have met"


def test_a_flood_of_one_key_does_not_block_the_others(project: Configure):
    order: list[str] = []
    gate = threading.Event()

    @declare(limits=[Concurrency(1, by=["tenant"])])
    def sync(tenant: str) -> None:
        order.append(tenant)
        if tenant == "flood":
            assert gate.wait(60)

    sync.enqueue_many([["flood"]] * 30)
    sync.enqueue("small")

    with working(threads=2):
        wait_until(lambda: "small" in order)
        assert order.count("flood") == 1
        gate.set()
        wait_until(lambda: order.count("flood") == 30)


def test_coroutines_are_limited_too(project: Configure):
    running, most = 0, 0
    met = asyncio.Event()

    @declare(limits=[Concurrency(3)])
    async def call() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 3:
            met.set()
        await asyncio.wait_for(met.wait(), 60)
        await asyncio.sleep(0.02)
        running -= 1

    call.enqueue_many([[]] * 15)

    assert work(async_tasks=10)

    assert most == 3


def test_no_more_calls_start_in_a_window_than_the_rate_allows(project: Configure, client: Client):
    starts: list[int] = []
    task: Task[..., Any] = declare(limits=[Rate(3, per_s=600)])(lambda number: starts.append(number))
    task.enqueue_many([[number] for number in range(8)])
    queue = get_queue("default")

    for expected in (3, 6, 8):
        work(until_empty=False, until_drained=True)
        assert len(starts) == expected

        pass_time(queue, seconds=3000)  # all ask again
        let_starts_age(client, seconds=300)
        work(until_empty=False, until_drained=True)
        assert len(starts) == expected, "the window is not over"

        pass_time(queue, seconds=3000)
        let_starts_age(client, seconds=300)

    assert sorted(starts) == list(range(8))


def test_starts_of_a_clock_that_was_put_back_do_not_block_later_calls(project: Configure, client: Client):
    starts: list[int] = []
    task: Task[..., Any] = declare(limits=[Rate(3, per_s=600)])(lambda number: starts.append(number))
    task.enqueue_many([[number] for number in range(3)])
    work()
    let_starts_age(client, seconds=-3600)

    task.enqueue_many([[number] for number in range(3, 7)])
    work(until_empty=False, until_drained=True)

    assert sorted(starts) == [0, 1, 2, 3, 4, 5]


def let_starts_age(client: Client, *, seconds: int) -> None:
    (key,) = [key for key in limit_keys(client) if not key.endswith(b":turn")]
    (times,) = client.connection.exchange([("LRANGE", key, 0, -1)])
    moves = [("LSET", key, at, int(each) - seconds * 1000) for at, each in enumerate(times)]
    client.connection.exchange(moves)


def test_calls_that_wait_for_a_rate_return_one_after_the_other(project: Configure, client: Client):
    task: Task[..., Any] = declare(limits=[Rate(2, per_s=600)])(lambda number: None)
    task.enqueue_many([[number] for number in range(6)])

    work(until_empty=False, until_drained=True)

    keys = get_queue("default").keys
    (found,) = client.connection.exchange([("ZRANGE", keys.messages, 0, -1, "WITHSCORES")])
    dues = [float(score) for _id, score in found] if isinstance(found[0], (list, tuple)) else [*map(float, found[1::2])]
    assert [round((later - dues[0]) / 300_000) for later in dues] == [0, 1, 2, 3], "five minutes apart"


def test_tasks_share_a_limit_of_the_same_name(project: Configure):
    overlaps = Overlaps()

    def first(customer: str) -> None:
        overlaps.run(customer)

    def second(who: str) -> None:
        overlaps.run(who)

    one = declare(limits=[Concurrency(1, by=["customer"], name="partner")])(first)
    two = declare(limits=[Concurrency(1, by=["who"], name="partner")])(second)
    for _ in range(3):
        one.enqueue("a")
        two.enqueue("a")

    assert work(threads=4)

    assert (overlaps.done["a"], overlaps.most["a"]) == (6, 1)


@pytest.mark.parametrize("by", [None, ["customer"]])
def test_limits_without_a_name_are_those_of_each_task(project: Configure, by: list[str] | None):
    together = threading.Barrier(2)

    def first(customer: str) -> None:
        together.wait(60)

    def second(customer: str) -> None:
        together.wait(60)

    tasks = [declare(limits=[Concurrency(1, by=by)], max_attempts=1)(each) for each in (first, second)]
    results = [each.enqueue("a") for each in tasks]

    assert work(threads=2)

    done = [task.get_result(each.id).status for task, each in zip(tasks, results, strict=True)]
    assert done == [TaskResultStatus.SUCCESSFUL] * 2


@pytest.mark.slow
def test_waiting_costs_no_attempt_and_leaves_nothing_behind(project: Configure, client: Client):
    attempts: list[int] = []

    @declare(limits=[Concurrency(1)], takes_context=True, max_attempts=1)
    def slow(context: TaskContext) -> None:
        attempts.append(context.attempt)
        time.sleep(0.1)

    results = [slow.enqueue() for _ in range(4)]

    assert work(threads=4)

    assert attempts == [1] * 4
    assert {slow.get_result(each.id).status for each in results} == {TaskResultStatus.SUCCESSFUL}
    assert [key for key in limit_keys(client) if not key.endswith(b":turn")] == []


def test_a_message_that_waits_is_ready_and_not_started(project: Configure, settings: Any):
    settings.RSMQ = settings.RSMQ | {"EVENTS": {"RECORD": "all"}}
    began, gate = threading.Event(), threading.Event()

    @declare(limits=[Concurrency(1)])
    def hold() -> None:
        began.set()
        assert gate.wait(60)

    with working(threads=2):
        hold.enqueue()
        assert began.wait(60)
        second = hold.enqueue()
        wait_until(lambda: get_queue("default").attributes().hidden_messages == 2)
        found = hold.get_result(second.id)
        assert (found.status, found.started_at, found.worker_ids) == (TaskResultStatus.READY, None, [])
        gate.set()
        wait_until(lambda: hold.get_result(second.id).status == TaskResultStatus.SUCCESSFUL)


def test_a_failed_run_gives_its_place_back(project: Configure):
    runs: list[int] = []

    @declare(limits=[Concurrency(1)], max_attempts=3, backoff=fixed(0))
    def fail(number: int) -> None:
        runs.append(number)
        raise ValueError(number)

    fail.enqueue_many([[1], [2]])

    assert work(threads=2)

    assert sorted(runs) == [1, 1, 1, 2, 2, 2]


def test_the_place_of_a_lost_message_comes_free(project: Configure, client: Client):
    done: list[str] = []
    held = declare(limits=[Concurrency(1)])(lambda name: done.append(name))
    held.enqueue("one")
    queue = get_queue("default")
    # As if a worker had taken it, and a place, and died: nobody renews the lease.
    (message,) = queue.receive_many(1, visibility_timeout_s=30)
    take_place(held, message.id, message.receive_count)

    held.enqueue("two")
    with working():
        wait_until(lambda: queue.attributes().hidden_messages == 2)
        assert done == []
        pass_time(queue, seconds=31)
        wait_until(lambda: sorted(done) == ["one", "two"])


def take_place(task: Task[..., Any], message_id: str, receive_count: int) -> None:
    """Do what a worker does before a run."""
    (limit,) = task.options.limits
    both = keys_of_limit(limit, "rsmq", task.module_path, task.func, ["one"], {}, takes_context=False)
    keys = get_queue("default").keys
    args = (message_id, receive_count, 30_000, 100, 1, *limit.words(), "default")
    reply: Any = get_client("default").run(Call("tasks/limits/take", (*both, keys.messages, keys.settings), args, list))
    assert reply == [1]


@pytest.mark.slow
def test_a_limit_holds_across_the_queues_of_a_task(configure: Configure):
    configure(default={}, mail={})
    overlaps = Overlaps()
    task: Task[..., Any] = declare(limits=[Concurrency(1)])(lambda key: overlaps.run(key))
    for queue_name in ("default", "mail") * 4:
        task.using(queue_name=queue_name).enqueue(queue_name)
        task.using(queue_name=queue_name, priority=10).enqueue(queue_name)

    assert work(threads=4)

    assert overlaps.done == Counter({"default": 8, "mail": 8})
    assert overlaps.most["all"] == 1


def test_slots_of_messages_of_another_queue_are_checked(configure: Configure, client: Client):
    configure(default={}, mail={})
    done: list[str] = []
    task: Task[..., Any] = declare(limits=[Concurrency(1)])(lambda name: done.append(name))
    task.enqueue("one")
    queue = get_queue("default")
    (message,) = queue.receive_many(1, visibility_timeout_s=30)
    take_place(task, message.id, message.receive_count)
    queue.delete(message)
    (key,) = limit_keys(client)
    client.connection.exchange([("HSET", key, message.id, f"{message.receive_count} 1 default")])  # long ago

    task.using(queue_name="mail").enqueue("two")
    work("mail")

    assert done == ["two"]


def test_a_key_that_another_program_uses_is_named(
    project: Configure, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    limit, seen = Concurrency(1), list[str]()
    task: Task[..., Any] = declare(limits=[limit])(lambda name: seen.append(name))
    key, _ = keys_of_limit(limit, "rsmq", task.module_path, task.func, [], {}, takes_context=False)
    server.redis.set(key, "foreign")
    task.enqueue("a")

    with working():
        wait_until(lambda: f"one of the keys '{key}'" in caplog.text)
        server.redis.delete(key)
        wait_until(lambda: seen == ["a"])


@pytest.mark.parametrize("name", [b"\xff", b"reliable:1:\xff", b"a: b"])
def test_slot_of_a_queue_that_no_worker_can_have_stops_nothing(project: Configure, server: PrivateServer, name: bytes):
    done: list[str] = []
    task: Task[..., Any] = declare(limits=[Concurrency(1, name="bank")])(lambda key: done.append(key))
    task.enqueue("a")
    assert work()
    limit, path = task.options.limits[0], task.module_path
    slots, _turns = keys_of_limit(limit, "rsmq", path, task.func, ["b"], {}, takes_context=False)
    server.redis.hset(slots, "other", b"1 1 " + name)

    task.enqueue("b")
    assert work()

    assert done == ["a", "b"]


def test_calls_with_unreadable_limits_are_tried_again_within_a_second_but_not_all_at_once():
    class Away:
        def run_many(self, calls: list[Any]) -> list[Any]:
            raise ConnectionFailed("no route to the server")

    question: Any = SimpleNamespace(call=None, execution=SimpleNamespace(path="shop.tasks.mail"))

    answers = limits._answers(cast(Client, Away()), [question] * 50)

    assert {(answer.may_run, answer.is_sure) for answer in answers} == {(False, False)}
    assert all(0.5 <= answer.wait_s <= 1.0 for answer in answers)
    assert len({answer.wait_s for answer in answers}) > 1


@pytest.mark.parametrize("by", [lambda name: name.no_such_thing, lambda name: sys.exit(3)], ids=["error", "exit"])
def test_a_failing_key_function_does_not_stop_the_task(project: Configure, caplog: pytest.LogCaptureFixture, by: Any):
    done: list[str] = []
    task: Task[..., Any] = declare(limits=[Concurrency(1, by=by)])(lambda name: done.append(name))
    task.enqueue("one")

    assert work()

    assert done == ["one"]
    assert "limit key function of" in caplog.text


def test_raw_consumers_are_limited_by_a_function_of_the_message(project: Configure):
    overlaps = Overlaps()
    consumer("default", limits=[Concurrency(1, by=lambda message: message.body[:1].decode())])(
        lambda message: overlaps.run(message.body[:1].decode())
    )
    for body in (b"a1", b"a2", b"b1", b"b2"):
        send_raw(body)

    assert work(threads=4)

    assert overlaps.done == Counter("aabb")
    assert (overlaps.most["a"], overlaps.most["b"]) == (1, 1)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Concurrency(1), r"write a list, limits=\[Concurrency\(4\)\]"),
        ([4], "a limit is a Concurrency"),
        ([Concurrency(1, by=["client"])], "limit by 'client': .* lacks this argument, it has only customer"),
    ],
)
def test_limits_that_cannot_work_are_refused_where_the_task_is_declared(project: Configure, limits: Any, says: str):
    def bill(customer: str) -> None: ...

    with pytest.raises(ValueError, match=says):
        declare(limits=limits)(bill)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Concurrency(0), "Concurrency of 0"),
        (lambda: Concurrency(1001), "1 to 1000"),
        (lambda: Rate(1, per_s=0), "per_s is 0"),
        (lambda: Rate(1, per_s=float("nan")), "per_s is nan"),
        (lambda: Concurrency(1, by="customer"), r"by=\['customer'\]"),
    ],
)
def test_numbers_that_cannot_be_limits_are_refused(make: Any, says: str):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.slow
def test_four_processes_never_exceed_a_limit_though_one_is_killed(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    project(default={"VISIBILITY_TIMEOUT_S": 10})
    names = [f"n{number}" for number in range(40)]
    site_tasks.toil_limited.enqueue_many([[name, 0.05] for name in names])
    workers = [
        start_worker("--processes", "1", "--threads", "4", "--burst", queues={"default": {"VISIBILITY_TIMEOUT_S": 10}})
        for _ in range(4)
    ]
    wait_until(lambda: len(journal.lines("end")) >= 5)
    workers[0].destroy()
    note("killed", "one")

    for worker in workers[1:]:
        assert worker.wait() == 0

    assert {line[0] for line in journal.lines("end")} == set(names)
    assert most_at_a_time(journal.lines()) <= 3


def most_at_a_time(lines: list[list[str]]) -> int:
    """Return the most runs at a time, in a journal of "start", "end" and one "killed", which ended what has no end."""
    killed_at = lines.index(["killed", "one"])
    change = Counter[int]()
    for at, (word, name, *_) in enumerate(lines):
        if word == "start":
            following = [later for later in range(at + 1, len(lines)) if lines[later][1] == name]
            change[at] += 1
            change[following[0] if lines[following[0]][0] == "end" else killed_at] -= 1
    return max(itertools.accumulate(change[at] for at in range(len(lines))))


def test_call_whose_limits_still_ask_for_other_queues_after_three_rounds_waits(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []

    def ask_on(client: Client, questions: list[Any]) -> list[limits.LimitAnswer]:
        asked.append(len(questions))
        return [limits.LimitAnswer(False, queues_to_read=["default"]) for _ in questions]

    monkeypatch.setattr(limits, "_answers", ask_on)
    seen: list[int] = []
    declare(limits=[Concurrency(1)])(lambda: seen.append(1)).enqueue()

    work(until_empty=False, until_drained=True)

    assert (asked, seen) == ([1, 1, 1], [])
    attributes = get_queue("default").attributes()
    assert (attributes.messages, attributes.hidden_messages) == (1, 1), "it waits for the longest time"
