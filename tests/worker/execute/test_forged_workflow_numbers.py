"""Another program writes numbers into the hash of a workflow: they decide neither how much is read nor what else runs.

The number of calls and bytes is counted, so that nothing here depends on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rsmq_django.core import Client
from rsmq_django.core.limits import MAX_TRIP_BYTES
from rsmq_django.core.tasks.workflow_outcomes import MAX_OUTCOME_BYTES
from rsmq_django.core.tasks.workflows import MAX_MEMBERS
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Failure, Workflow, call, chain, group, map_tasks
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks as site
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, new_worker, the_dead_letter, work, working

#: What is no number of members.
FORGED = ["1000000000000000", "9223372036854775808", "9" * 400, str(MAX_MEMBERS + 1), "-1", "-9223372036854775809"]
FORGED += ["2.5", "1e15", "inf", "-inf", "nan", "0x10", "many", "", " ", "\u0663", "\x00"]
#: A number that a workflow may have, but not this one.
LARGE = str(MAX_MEMBERS)
FIELDS = ["sent", "succeeded", "failed", "calls", "calls_done", "keep_ms", "low", "created_ms", "finished_ms"]
#: Numbers that a test asks for, but that are not in a hash of any workflow.
ALSO_FORGED = ["total", "open", "done", "size"]
#: Redis says this of the time to live of a key that does not exist.
GONE = -2


async def _nothing(script: str) -> None:
    pass


class Traffic:
    """Counts calls about workflows and the bytes of their replies. Too many calls fail, so that no test hangs."""

    MOST = 100

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bytes = 0
        #: Called before a call is run, the latter only before a call of a coroutine.
        self.before: Callable[[str], None] = lambda script: None
        self.abefore: Callable[[str], Awaitable[None]] = _nothing

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run, arun = Client.run, Client.arun

        def watched(client: Client, called: Any) -> Any:
            self._note(called)
            return run(client, called)

        async def awatched(client: Client, called: Any) -> Any:
            self._note(called)
            await self.abefore(called.script)
            return await arun(client, called)

        monkeypatch.setattr(Client, "run", watched)
        monkeypatch.setattr(Client, "arun", awatched)

    def _note(self, called: Any) -> None:
        if not called.script.startswith("tasks/workflow/") and "::workflow:" not in "".join(called.keys[:1]):
            return
        self.before(called.script)
        self.calls.append(called.script)
        assert len(self.calls) <= self.MOST, "a forged number makes a worker read and read"
        read = called.read

        def weighed(reply: Any) -> Any:
            self._weigh(reply)
            return read(reply)

        called.read = weighed

    def _weigh(self, reply: Any) -> None:
        parts = reply if isinstance(reply, list) else [reply]
        for part in parts:
            if isinstance(part, list):
                self._weigh(part)
            else:
                self.bytes += len(part) if isinstance(part, bytes) else 8


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """What is read of workflows from now on."""
    watched = Traffic()
    watched.watch(monkeypatch)
    return watched


class Shop:
    """Two queues: members run on one, what follows and honest tasks on the other."""

    def __init__(self, server: PrivateServer) -> None:
        self._redis = server.redis
        self.got: list[Any] = []
        self.honest: list[int] = []

        @declare(queue_name="parts")
        def part(number: int) -> int:
            if number < 0:
                raise ValueError("negative")
            return number * 10

        def take(got: Any = "nothing") -> None:
            self.got.append(got)

        async def atake(got: Any = "nothing") -> None:
            self.got.append(got)

        @declare()
        def ordinary(number: int) -> None:
            self.honest.append(number)

        self.part = part
        self.takers = {"function": declare()(take), "coroutine": declare()(atake)}
        self.ordinary = ordinary

    def ended(self, *numbers: int, kind: str = "function", **options: Any) -> Workflow:
        """Start a group whose callback waits in "default", because all members have ended."""
        started = group([call(self.part, n) for n in numbers], then=call(self.takers[kind]), **options).enqueue()
        work("parts")
        return started

    def forge(self, started: Workflow, field: str, value: str) -> None:
        self._redis.hset(f"rsmq::workflow:{started.id}", field, value)

    def send_honest(self) -> None:
        for number in range(5):
            self.ordinary.enqueue(number)


@pytest.fixture
def shop(configure: Configure, server: PrivateServer) -> Shop:
    configure(default={"MAX_ATTEMPTS": 1}, parts={"MAX_ATTEMPTS": 1})
    return Shop(server)


# -- Workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("value", [*FORGED, LARGE], ids=lambda value: ascii(value[:20]))
def test_forged_number_of_members_costs_one_bounded_read_and_ends_in_the_dead_letters(
    shop: Shop, traffic: Traffic, value: str, kind: str
):
    started = shop.ended(1, 2, kind=kind)
    shop.forge(started, "sent", value)
    shop.send_honest()
    traffic.calls.clear()
    traffic.bytes = 0

    work("default")

    assert (shop.got, sorted(shop.honest)) == ([], list(range(5)))
    record = the_dead_letter()[1]
    assert record["reason"] == "forged_argument" and started.id in record["message"]
    assert (len(traffic.calls), traffic.bytes < 1000) == (1, True)


@pytest.mark.parametrize("value", FORGED, ids=lambda value: ascii(value[:20]))
def test_forged_number_of_members_does_not_reach_a_callback_about_failures(shop: Shop, traffic: Traffic, value: str):
    started = group([call(shop.part, -1)], on_failure=call(shop.takers["function"])).enqueue()
    work("parts")
    shop.forge(started, "sent", value)
    shop.send_honest()

    work("default")

    assert (shop.got, sorted(shop.honest)) == ([], list(range(5)))
    assert the_dead_letter()[1]["reason"] == "forged_argument"


def test_callback_about_failures_reads_the_failures_and_not_the_number_of_members(shop: Shop, traffic: Traffic):
    started = group([call(shop.part, n) for n in (1, -1, 2)], on_failure=call(shop.takers["function"])).enqueue()
    work("parts")
    shop.forge(started, "sent", LARGE)
    traffic.calls.clear()

    work("default")

    ((failure,),) = shop.got
    assert (failure.member, failure.message) == (1, "negative")
    assert traffic.calls == ["tasks/workflow/extent", "tasks/workflow/numbers", "tasks/workflow/outcomes"]


@pytest.mark.parametrize("value", [*FORGED, LARGE], ids=lambda value: ascii(value[:20]))
@pytest.mark.parametrize("field", [*FIELDS[1:], *ALSO_FORGED])
def test_other_forged_numbers_change_nothing_for_a_call_that_is_ready(
    shop: Shop, traffic: Traffic, field: str, value: str
):
    started = shop.ended(1, 2)
    shop.forge(started, field, value)
    shop.send_honest()

    work("default")

    assert (shop.got, sorted(shop.honest)) == ([[10, 20]], list(range(5)))


@pytest.mark.parametrize("value", [*FORGED, LARGE], ids=lambda value: ascii(value[:20]))
@pytest.mark.parametrize("field", FIELDS)
def test_forged_numbers_do_not_keep_members_from_ending(
    shop: Shop, server: PrivateServer, traffic: Traffic, field: str, value: str
):
    numbers = (1, -1) if field == "failed" else (1, 2)
    started = group([call(shop.part, n) for n in numbers], then=call(shop.takers["function"])).enqueue()
    shop.forge(started, field, value)
    shop.send_honest()

    assert work()

    assert (sorted(shop.honest), get_queue("parts").attributes().messages) == (list(range(5)), 0)
    members = server.redis.hlen(f"rsmq::workflow:{started.id}:members")
    assert members == 0, "the outcome of each member was stored"
    expires_in_ms = server.redis.pttl(f"rsmq::workflow:{started.id}")
    assert expires_in_ms == GONE or 0 <= expires_in_ms <= 10**15, "it expires at some time"


def test_values_longer_than_any_result_are_not_transferred(shop: Shop, server: PrivateServer, traffic: Traffic):
    started = shop.ended(1, 2)
    server.redis.hset(f"rsmq::workflow:{started.id}:results", "0", b"1" * (MAX_OUTCOME_BYTES + 1))
    step = chain(call(shop.part, 1), call(shop.takers["function"])).enqueue()
    work("parts")
    server.redis.hset(f"rsmq::workflow:{step.id}:results", "0", b"1" * (MAX_OUTCOME_BYTES + 1))
    traffic.bytes = 0

    work("default")

    ((failure, twenty),) = shop.got
    assert (failure.reason, twenty) == ("unreadable", 20)
    assert the_dead_letter()[1]["reason"] == "forged_argument"
    assert traffic.bytes < 1000


def test_reply_with_long_results_ends_when_it_is_full(shop: Shop, server: PrivateServer, traffic: Traffic):
    started = shop.ended(*range(8))
    long = json.dumps("x" * (MAX_TRIP_BYTES // 2)).encode()
    for member in range(8):
        server.redis.hset(f"rsmq::workflow:{started.id}:results", str(member), long)
    traffic.calls.clear()

    work("default")

    assert [len(each) for each in shop.got[0]] == [MAX_TRIP_BYTES // 2] * 8
    assert traffic.calls == ["tasks/workflow/extent", *["tasks/workflow/outcomes"] * 4]


@pytest.mark.parametrize("stored", [b"{", b"[" * 100_000, b"9" * 5000, b"\xff"], ids=lambda stored: ascii(stored[:9]))
def test_result_that_is_not_readable_ends_the_next_step_in_the_dead_letters(
    shop: Shop, server: PrivateServer, stored: bytes
):
    step = chain(call(shop.part, 1), call(shop.takers["function"])).enqueue()
    work("parts")
    server.redis.hset(f"rsmq::workflow:{step.id}:results", "0", stored)

    work("default")

    assert (shop.got, the_dead_letter()[1]["reason"]) == ([], "forged_argument")


# -- Limits and signals while an argument is read ---------------------------------------------------------------------


def wide(shop: Shop, server: PrivateServer, taker: Any) -> None:
    """Let a callback wait whose argument takes several replies, although nothing about it is forged."""
    started = group([call(shop.part, n) for n in range(4)], then=call(taker)).enqueue()
    work("parts")
    long = json.dumps("x" * MAX_TRIP_BYTES).encode()
    server.redis.hset(f"rsmq::workflow:{started.id}:results", mapping={str(member): long for member in range(4)})


def test_worker_that_stops_gives_a_call_back_whose_argument_is_being_read(
    shop: Shop, server: PrivateServer, traffic: Traffic
):
    wide(shop, server, shop.takers["function"])
    workers: list[Any] = []

    def stop_at_the_second_reply(script: str) -> None:
        if script == "tasks/workflow/outcomes" and "tasks/workflow/outcomes" in traffic.calls and workers:
            worker = workers.pop()
            worker.stop(within_s=60)
            wait_until(lambda: [each for each in worker.pool.running() if each.is_worker_stopping])

    traffic.calls.clear()
    traffic.before = stop_at_the_second_reply
    worker = new_worker("default")
    workers.append(worker)

    has_finished = worker.run()

    assert (has_finished, shop.got, traffic.calls.count("tasks/workflow/outcomes")) == (True, [], 2)
    work("default")
    assert [len(each) for each in shop.got] == [4], "its one attempt was left"


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_time_limit_begins_before_the_argument_is_read(shop: Shop, server: PrivateServer, traffic: Traffic, kind: str):
    def take(got: Any) -> None:
        shop.got.append(got)

    async def atake(got: Any) -> None:
        shop.got.append(got)

    wide(shop, server, declare(timeout_s=0.2)(take if kind == "function" else atake))
    workers: list[Any] = []

    def be_slow(script: str) -> None:
        if script == "tasks/workflow/outcomes" and kind == "function":
            (running,) = workers[0].pool.running()
            wait_until(lambda: running.asked_to_end_with is not None)

    async def be_slow_too(script: str) -> None:
        if script == "tasks/workflow/outcomes":
            await asyncio.sleep(3600)

    traffic.calls.clear()
    traffic.before, traffic.abefore = be_slow, be_slow_too
    workers.append(new_worker("default", until_empty=True))

    assert workers[0].run()

    record = the_dead_letter()[1]
    assert (shop.got, record["reason"]) == ([], "attempts_used_up")
    assert record["error"].endswith(".TaskTimeout")
    assert traffic.calls.count("tasks/workflow/outcomes") == 1


def test_worker_process_with_a_forged_workflow_runs_other_tasks_and_obeys_sigterm(
    configure: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    queues: dict[str, Any] = {"default": {}, "late": {}}
    configure(**queues)
    started = group([call(site.square, 2, 0)], then=call(site.gather.using(queue_name="late"))).enqueue()
    first = start_worker("--queues", "default", "--batch", "--processes", "1", queues=queues)
    assert first.wait() == 0, first.output
    server.redis.hset(f"rsmq::workflow:{started.id}", "sent", 10**15)
    site.write.using(queue_name="late").enqueue("honest")

    worker = start_worker("--queues", "late", "--processes", "1", "--threads", "1", queues=queues)
    wait_until(lambda: "honest" in journal.names("end"))
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert (journal.lines("gathered"), the_dead_letter("late-dead")[1]["reason"]) == ([], "forged_argument")


# -- People -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*FORGED, LARGE], ids=lambda value: ascii(value[:20]))
def test_results_and_status_of_a_workflow_do_not_loop_on_forged_numbers(shop: Shop, traffic: Traffic, value: str):
    started = shop.ended(1, 2)
    for field in FIELDS:
        shop.forge(started, field, value)
    traffic.calls.clear()

    status, results = started.status(), started.results()

    is_large = value == LARGE
    assert results[:2] == ([10, 20] if is_large else []) and not any(results[2:])
    assert status.members == len(results) == (MAX_MEMBERS if is_large else 0)
    assert (status.waiting >= 0, traffic.bytes < 10_000, len(traffic.calls) <= 5) == (True, True, True)
    assert len(asyncio.run(started.aresults())) == len(results)


def test_status_leaves_out_fields_that_are_too_long_or_unknown(shop: Shop, server: PrivateServer, traffic: Traffic):
    started = shop.ended(1, name="pictures")
    key = f"rsmq::workflow:{started.id}"
    server.redis.hset(key, mapping={f"junk {number}": "x" * 1000 for number in range(1000)} | {"shape": "x" * 2**20})

    status = started.status()

    assert (status.name, status.shape, status.members) == ("pictures", "", 1)
    assert traffic.bytes < 2000


def test_results_of_a_map_without_kept_results_are_read_without_reading_each_member(shop: Shop, traffic: Traffic):
    with working("parts"):
        started = map_tasks(shop.part.using(max_attempts=1), [1, -1, *range(40)], window=40)
        wait_until(lambda: started.status().is_over)
    traffic.calls.clear()

    results = started.results()

    (failure,) = [each for each in results if each is not None]
    assert (len(results), results[1], failure.reason) == (42, failure, "attempts_used_up")
    assert isinstance(failure, Failure)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("part", ["", ":results"])
def test_call_whose_workflow_has_a_key_of_another_type_is_a_dead_letter(
    shop: Shop, server: PrivateServer, kind: str, part: str
):
    started = shop.ended(1, 2, kind=kind)
    key = f"rsmq::workflow:{started.id}{part}"
    server.redis.delete(key)
    server.redis.set(key, "used by another program")

    with working():
        wait_until(lambda: get_queue("default").attributes().messages == 0)

    _, record = the_dead_letter()
    assert (record["reason"], "has the wrong type" in record["message"], shop.got) == ("forged_argument", True, [])


def test_step_of_a_chain_waits_until_a_key_of_its_workflow_is_repaired(shop: Shop, server: PrivateServer):
    started = chain(call(shop.part, 1), call(shop.takers["function"])).enqueue()
    work("parts")
    key = f"rsmq::workflow:{started.id}:results"
    (kept,) = server.redis.hgetall(key).values()
    server.redis.rename(key, "kept")
    server.redis.set(key, "used by another program")

    get_queue("default").set_attributes(visibility_timeout_s=20)
    with working():
        wait_until(lambda: _due_in_s(server) > 30)
    server.redis.rename("kept", key)
    for message_id in server.redis.zrange("rsmq:default", 0, -1):
        server.redis.zadd("rsmq:default", {message_id: 0})
    work()

    assert (kept, shop.got, started.status().state) == (b"10", [10], "succeeded")


def _due_in_s(server: PrivateServer) -> float:
    ((_, due_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    seconds, _ = server.redis.time()
    return due_ms / 1000 - seconds
