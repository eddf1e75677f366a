"""Workers that take from a dead-letter queue: each dead letter has all its attempts, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.conf.settings import get_settings
from rsmq_django.core import Message
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import TaskContext, cancel, consumer, fixed
from rsmq_django.tasks.compat import InvalidTask
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, new_worker, the_dead_letter, work


@pytest.fixture
def chained(configure: Configure) -> Configure:
    """The dead letters of "mail" go to "mail-again", on which workers work, and from there to "mail-lost"."""
    configure(
        mail={"DEAD_LETTER": "mail-again", "MAX_ATTEMPTS": 3},
        **{"mail-again": {"DEAD_LETTER": "mail-lost", "MAX_ATTEMPTS": 2}},
    )
    return configure


def side_data(server: PrivateServer) -> dict[str, Any]:
    """Return what is noted beside the queues about messages."""
    found = {key.decode() for kind in ("dead", "released") for key in server.redis.keys(f"rsmq::{kind}:*")}
    return {key: server.redis.hgetall(key) for key in found}


def test_dead_letter_that_a_worker_takes_has_all_its_attempts(chained: Configure, server: PrivateServer):
    attempts: list[tuple[str, int]] = []

    def fail(context: TaskContext) -> None:
        attempts.append((context.task_result.task.queue_name, context.attempt))
        raise OSError

    declare(queue_name="mail", takes_context=True, backoff=fixed(0))(fail).enqueue()

    work()

    assert attempts == [("mail", 1), ("mail", 2), ("mail", 3), ("mail-again", 1), ("mail-again", 2)]
    message, record = the_dead_letter("mail-lost")
    assert (record["reason"], record["queue"], record["attempts"]) == ("attempts_used_up", "mail-again", 2)
    assert set(side_data(server)) == {"rsmq::dead:mail-lost", "rsmq::released:mail-lost"}


@pytest.mark.parametrize("result_ttl_s", [0, 3600])
def test_dead_letter_that_succeeds_is_deleted_with_its_failure_record(
    chained: Configure, server: PrivateServer, result_ttl_s: int
):
    def fail_at_first(context: TaskContext) -> str:
        if context.task_result.task.queue_name == "mail":
            raise OSError("at first")
        return "well"

    options: dict[str, Any] = {"queue_name": "mail", "takes_context": True, "backoff": fixed(0)}
    result = declare(result_ttl_s=result_ttl_s, **options)(fail_at_first).enqueue()

    work()

    assert side_data(server) == {}
    assert get_queue("mail-again").attributes().messages == 0
    if result_ttl_s:
        result.refresh()
        assert (result.status, result.return_value) == ("SUCCESSFUL", "well")
        assert [error.exception_class_path for error in result.errors] == ["builtins.OSError"] * 3
        assert (len(result.worker_ids), result.attempts) == (4, 4)


def test_consumer_of_dead_letters_leaves_no_failure_record_behind(configure: Configure, server: PrivateServer):
    configure(default={}, **{"default-dead": {}})
    seen: list[Message] = []
    consumer("default-dead")(lambda message: seen.append(message))
    declare(max_attempts=1)(lambda: 1 / 0).enqueue()

    work()

    assert len(seen) == 1
    assert side_data(server) == {}


def test_cancelled_dead_letter_is_deleted_with_its_failure_record(chained: Configure, server: PrivateServer):
    result = declare(queue_name="mail", max_attempts=1, result_ttl_s=0)(lambda: 1 / 0).enqueue()
    work("mail")

    assert cancel(result.id)

    assert side_data(server) == {}


def test_task_whose_dead_letter_queue_is_worked_on_fails_for_good_in_the_end(
    configure: Configure, server: PrivateServer
):
    configure(default={}, **{"second-try": {}})
    queues: list[str] = []

    def fail(context: TaskContext) -> None:
        queues.append(context.task_result.task.queue_name)
        raise OSError

    declare(takes_context=True, max_attempts=2, backoff=fixed(0), dead_letter_queue="second-try")(fail).enqueue()

    work()

    assert queues == ["default", "default", "second-try", "second-try"]
    assert the_dead_letter("second-try-dead")[1]["queue"] == "second-try"


def test_tasks_that_name_the_queue_of_each_other_for_their_dead_letters_fail_for_good_in_the_end(configure: Configure):
    configure(left={}, right={})
    runs: list[str] = []

    def to_the_right() -> None:
        runs.append("left")
        raise OSError

    def to_the_left() -> None:
        runs.append("right")
        raise OSError

    options: dict[str, Any] = {"max_attempts": 1}
    declare(queue_name="left", dead_letter_queue="right", **options)(to_the_right).enqueue()
    declare(queue_name="right", dead_letter_queue="left", **options)(to_the_left).enqueue()

    work()

    assert sorted(runs) == ["left", "left", "right", "right"]
    assert [the_dead_letter(f"{name}-dead")[1]["queue"] for name in ("left", "right")] == ["left", "right"]


@pytest.mark.parametrize(
    ("queues", "way"),
    [
        ({"default": {}}, "default -> default"),
        ({"default": {}, "other": {"DEAD_LETTER": "default"}}, "default -> other -> default"),
    ],
    ids=["its own queue", "one whose dead letters come back"],
)
def test_dead_letter_queue_that_leads_back_is_refused_where_the_task_is_declared(
    configure: Configure, queues: dict[str, Any], way: str
):
    configure(**queues)
    name = "other" if "other" in queues else "default"

    with pytest.raises(InvalidTask, match=way):
        declare(dead_letter_queue=name)(lambda: None)
    with pytest.raises(InvalidTask, match=way):
        consumer("default", dead_letter_queue=name)(lambda message: None)


@pytest.mark.parametrize(
    "queues",
    [
        {"default": {"DEAD_LETTER": "default"}},
        {"left": {"DEAD_LETTER": "right"}, "right": {"DEAD_LETTER": "left"}},
    ],
)
def test_circular_dead_letter_queues_are_refused_when_a_worker_starts(configure: Configure, queues: Any):
    configure(**queues)

    with pytest.raises(ImproperlyConfigured, match="rsmq.E0.."):
        new_worker()


def test_dead_letter_that_was_moved_elsewhere_keeps_its_attempts(chained: Configure, server: PrivateServer):
    attempts: list[int] = []

    def fail(context: TaskContext) -> None:
        attempts.append(context.attempt)
        raise OSError

    declare(queue_name="mail", takes_context=True, max_attempts=2, backoff=fixed(0))(fail).enqueue()
    work("mail")
    ensure_queue("mail-again").receive(visibility_timeout_s=0)  # a person looked at it

    work()

    assert attempts == [1, 2, 2]
    assert get_settings().dead_letter_chain("mail") == ["mail", "mail-again", "mail-lost"]
