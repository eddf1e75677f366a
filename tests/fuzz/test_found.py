"""Findings of the fuzzing targets, each as its smallest example."""

from __future__ import annotations

import pytest

from rsmq_django.core import Client
from rsmq_django.core.queue.browse import read_failure
from rsmq_django.core.tasks.stacks import read_stacks
from rsmq_django.core.topic.replies import read_headers
from rsmq_django.core.transport.call import Call
from rsmq_django.tasks.compat import TaskResultDoesNotExist, task_backends
from rsmq_django.tasks.workflow_state import Failure, read_outcome
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure

DEEP = b"[" * 100_000


def test_failure_record_may_hold_numbers_larger_than_a_float():
    failure = read_failure(b'{"died_ms": 1%s, "attempts": 1%s}' % (b"0" * 400, b"0" * 400))

    assert failure is not None and (failure.died_ms, failure.attempts) == (None, 0)


@pytest.mark.parametrize("headers", [DEEP, b'{"a": 1}', b'{"a": ["b"]}', b"[]", b"x"], ids=lambda text: ascii(text[:9]))
def test_headers_of_a_topic_that_are_not_texts_are_left_out(headers: bytes):
    assert read_headers(headers) == {}


def test_stacks_that_are_nested_without_end_are_none():
    assert read_stacks("rsmq", "w1").read(DEEP) == {}


@pytest.mark.parametrize("stored", [DEEP, b"x", b'{"a"'], ids=lambda text: ascii(text[:9]))
def test_outcome_of_a_member_that_is_not_readable_is_a_failure(stored: bytes):
    for outcome in (read_outcome(3, stored, b""), read_outcome(3, b"", stored), read_outcome(3, b"", b"7")):
        assert isinstance(outcome, Failure) and (outcome.member, outcome.reason) == (3, "unreadable")


@pytest.mark.parametrize("damage", [{"status": "x"}, {"value": "x"}, {"value": "[" * 100_000}], ids=ascii)
def test_unreadable_result_record_counts_as_a_missing_result(project: Configure, server: PrivateServer, damage: dict):
    project()
    server.redis.hset("rsmq::result:t1", mapping={"status": "SUCCESSFUL", "value": "1", "queue": "default", **damage})

    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result("t1")


def test_result_record_of_which_only_the_status_is_left_is_a_result(project: Configure, server: PrivateServer):
    project()
    server.redis.hset("rsmq::result:t1", "status", "RUNNING")

    assert task_backends["default"].get_result("t1").status == "RUNNING"


@pytest.mark.parametrize("attempt", [10**15, -(10**15)])
def test_attempt_beyond_all_limits_fills_no_memory(project: Configure, server: PrivateServer, attempt: int):
    project()
    server.redis.hset("rsmq::result:t1", mapping={"status": "RUNNING", "worker:1": "w1", f"worker:{attempt}": "w2"})

    assert task_backends["default"].get_result("t1").worker_ids == ["w1"]


async def test_a_cycle_of_replaced_calls_ends_the_search(project: Configure, server: PrivateServer):
    project()
    for one, other in (("t1", "t2"), ("t2", "t1")):
        server.redis.hset(f"rsmq::result:{one}", mapping={"status": "READY", "of": other})

    assert task_backends["default"].get_result("t1").id == "t2"
    assert (await task_backends["default"].aget_result("t1")).id == "t2"


LIMIT = ("m1", "1", 30_000, 0, 1)


@pytest.mark.parametrize("place", ["", "x", "1 x jobs", "1 2"])
def test_place_in_a_limit_that_no_worker_wrote_is_removed(client: Client, server: PrivateServer, place: str):
    server.redis.hset("rsmq::limit:a", "other", place)
    keys = ("rsmq::limit:a", "rsmq::limit:a:turn", "rsmq:jobs", "rsmq:jobs:Q")

    assert client.run(Call("tasks/limits/take", keys, (*LIMIT, "concurrency", 1, 0, 1000, "jobs"), list)) == [1]


def test_schedule_state_that_is_not_a_time_does_not_block_the_others(client: Client, server: PrivateServer):
    server.redis.rpush("rsmq::limit:a", "x")
    keys = ("rsmq::limit:a", "rsmq::limit:a:turn", "rsmq:jobs", "rsmq:jobs:Q")

    assert client.run(Call("tasks/limits/take", keys, (*LIMIT, "rate", 1, 1000, 1000, "jobs"), list)) == [1]


def test_turn_that_is_not_a_time_is_a_turn_of_the_past(client: Client, server: PrivateServer):
    server.redis.rpush("rsmq::limit:a", server.redis.time()[0] * 1000)
    server.redis.set("rsmq::limit:a:turn", "x")
    keys = ("rsmq::limit:a", "rsmq::limit:a:turn", "rsmq:jobs", "rsmq:jobs:Q")

    may_run, wait_ms = client.run(Call("tasks/limits/take", keys, (*LIMIT, "rate", 1, 60_000, 60_000, "jobs"), list))

    assert may_run == 0 and 0 < wait_ms <= 120_000


def test_number_of_events_below_zero_does_not_keep_the_server_busy(client: Client, server: PrivateServer):
    keys = ("rsmq:q", "rsmq:q:Q", "rsmq:q:released", "rsmq::holds:w1", "rsmq::events", "rsmq::dropped")

    assert client.run(Call("tasks/worker/release", keys, (0, "rsmq:rt:q", "m1", "1", "-1e17"), list)) == []
