"""What becomes of a message: deleted, tried again, or moved to its dead-letter queue with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.core import Message, SettleResult
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Postpone, Retry, TaskContext, call, consumer, fixed, group
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.lease.settle import settle_calls
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Settlement
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import (
    Configure,
    dead_letters,
    declare,
    new_worker,
    queue_source,
    send_raw,
    the_dead_letter,
    work,
)


def messages_in(queue_name: str = "default") -> int:
    return get_queue(queue_name).attributes().messages


# -- Success -------------------------------------------------------------------------------------------------------


def test_message_is_deleted_when_its_function_returned(project: Configure):
    seen = []
    declare(lambda number: seen.append(number)).enqueue(7)

    assert work()

    assert seen == [7]
    assert messages_in("default") == messages_in("default-dead") == 0


def test_no_data_is_left_in_redis(project: Configure, server):
    declare(result_ttl_s=0)(lambda: None).enqueue()

    work()

    fields = {field for field in server.redis.hkeys("rsmq:default:Q") if len(field) >= 32}
    assert fields == set()
    assert not server.redis.exists("rsmq:default")


def test_arguments_arrive_as_they_were_sent(project: Configure):
    seen: list[Any] = []

    def note(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    declare(note).enqueue(1, "dva", [3.5, None], four={"5": True})

    work()

    assert seen == [((1, "dva", [3.5, None]), {"four": {"5": True}})]


def test_context_has_the_attempt_and_the_task(project: Configure):
    seen = []

    def note(context: TaskContext, number: int) -> None:
        seen.append((context.attempt, context.task_result.id, context.task_result.args, number))
        if context.attempt < 3:
            raise OSError

    result = declare(takes_context=True, backoff=fixed(0))(note).enqueue(7)

    work()

    assert seen == [(attempt, result.id, [7], 7) for attempt in (1, 2, 3)]


# -- Another attempt -----------------------------------------------------------------------------------------------


def test_failed_task_is_run_again_until_it_succeeds(project: Configure):
    attempts = []

    def flaky() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError

    declare(backoff=fixed(0), max_attempts=3)(flaky).enqueue()

    work()

    assert len(attempts) == 3
    assert messages_in("default") == messages_in("default-dead") == 0


def test_failed_message_is_invisible_for_the_backoff(project: Configure):
    def fail() -> None:
        raise OSError

    asked = []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 100

    declare(backoff=backoff)(fail).enqueue()

    new_worker(max_tasks=1).run()

    pass_time(get_queue("default"), seconds=99)
    assert get_queue("default").receive() is None
    pass_time(get_queue("default"), seconds=2)
    again = get_queue("default").receive()
    assert again is not None and again.receive_count == 2
    assert asked == [1]


def test_task_can_set_the_time_of_its_retry(project: Configure):
    def not_yet() -> None:
        raise Retry("not yet", after_s=1000)

    declare(backoff=fixed(0))(not_yet).enqueue()

    new_worker(max_tasks=1).run()

    pass_time(get_queue("default"), seconds=999)
    assert get_queue("default").receive() is None
    pass_time(get_queue("default"), seconds=2)
    assert get_queue("default").receive() is not None


@pytest.mark.parametrize("after_s", [float("inf"), float("nan"), 1e300, -5, "soon"])
def test_impossible_wait_does_no_harm(project: Configure, after_s):
    def fail() -> None:
        raise Retry(after_s=after_s)

    seen = []
    declare(fail).enqueue()
    declare(lambda: seen.append(1)).enqueue()

    new_worker(max_tasks=2).run()

    assert seen == [1]
    assert messages_in("default") == 1


def test_backoff_that_raises_is_replaced_by_the_default_one(project: Configure, caplog):
    def fail() -> None:
        raise OSError

    def broken(attempt: int) -> float:
        raise LookupError("no such table")

    declare(backoff=broken)(fail).enqueue()

    new_worker(max_tasks=1).run()

    assert messages_in("default") == 1
    assert "the backoff of tests.worker.test_outcomes.fail raised" in caplog.text
    assert "no such table" in caplog.text


def test_maximum_attempts_of_the_queue_apply_to_tasks_without_their_own(project: Configure):
    project(default={"MAX_ATTEMPTS": 2})
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError

    declare(backoff=fixed(0))(fail).enqueue()

    work()

    assert len(attempts) == 2
    assert the_dead_letter()[1]["reason"] == "attempts_used_up"


# -- The dead-letter queue -----------------------------------------------------------------------------------------


def test_dead_letter_is_the_message_itself(project: Configure):
    def fail() -> None:
        raise OSError

    declare(backoff=fixed(0), max_attempts=3)(fail).enqueue()
    original = ensure_queue("default").receive(visibility_timeout_s=0)
    assert original is not None

    work()

    dead, _ = the_dead_letter()
    assert (dead.id, dead.body) == (original.id, original.body)
    assert dead.receive_count == 4  # ours, two failures, and the look at it; the third attempt was not left
    assert dead.first_received_ms == original.first_received_ms
    assert messages_in("default") == 0


@pytest.mark.parametrize("settlement", [lambda: None, lambda: 1 / 0], ids=["succeeds", "dies"])
def test_counts_of_a_message_are_deleted_with_it(project: Configure, server, settlement):
    result = declare(max_attempts=1, result_ttl_s=0)(settlement).enqueue()
    message = get_queue("default").receive(visibility_timeout_s=0)
    assert message is not None and message.id.endswith(result.id)
    # Given back once, and one worker died of it.
    server.redis.hset("rsmq::released:default", mapping={message.id: 1, f"{message.id}:crashes": 1})

    work()

    assert not server.redis.exists("rsmq::released:default")
    assert not [field for field in server.redis.hkeys("rsmq:default:Q") if message.id.encode() in field]


def test_dead_letter_counts_as_sent_to_its_queue(project: Configure):
    declare(max_attempts=1)(lambda: 1 / 0).enqueue()

    work()

    assert get_queue("default-dead").attributes().total_sent == 1


def test_failure_record_has_the_failure(project: Configure, server):
    def fail() -> None:
        raise OSError("no paint left")

    result = declare(backoff=fixed(0), max_attempts=2)(fail).enqueue()

    work(worker_id="painter")

    _, record = the_dead_letter()
    traceback = record.pop("traceback")
    assert abs(record.pop("died_ms") - float(server.redis.time()[0]) * 1000) < 60_000
    assert record == {
        "reason": "attempts_used_up",
        "queue": "default",
        "task": "tests.worker.test_outcomes.fail",
        "task_id": result.id,
        "attempts": 2,
        "error": "builtins.OSError",
        "message": "no paint left",
        "worker": "painter",
    }
    assert traceback.startswith("Traceback (most recent call last):\n") and traceback.endswith("no paint left\n")


def test_hopeless_error_is_not_tried_again(project: Configure):
    attempts = []

    def fail() -> None:
        attempts.append(1)
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError from error

    declare(backoff=fixed(0), give_up_on=ValueError)(fail).enqueue()

    work()

    assert len(attempts) == 1
    assert the_dead_letter()[1]["reason"] == "gave_up"


def test_circle_of_causes_does_not_hang_the_worker(project: Configure):
    def fail() -> None:
        error = OSError("its own cause")
        raise error from error

    declare(max_attempts=1, give_up_on=ValueError)(fail).enqueue()

    work()

    assert the_dead_letter()[1]["reason"] == "attempts_used_up"


class StrangeDict(dict):
    def items(self) -> Any:
        raise SystemError("not today")


@pytest.mark.parametrize(
    "value", [object(), {(1, 2): 3}, float("nan"), StrangeDict(a=1), 10**5000], ids=lambda v: type(v).__name__
)
def test_value_that_json_cannot_hold_is_a_failure_that_is_not_repeated(project: Configure, value):
    calls = []

    def produce() -> Any:
        calls.append(1)
        return value

    result = declare(backoff=fixed(0))(produce).enqueue()

    work()

    result.refresh()
    assert len(calls) == 1
    assert the_dead_letter()[1]["reason"] == "bad_return_value"
    assert result.status == "FAILED"


def test_value_longer_than_a_result_may_be_is_a_failure_that_is_not_repeated(project: Configure, settings: Any):
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False, "MAX_RESULT_BYTES": 1000}}
    produce = declare(backoff=fixed(0))(lambda length: "x" * length)
    fits, is_too_long = produce.enqueue(998), produce.enqueue(999)

    work()

    assert len(produce.get_result(fits.id).return_value) == 998
    assert produce.get_result(is_too_long.id).status == "FAILED"
    _, record = the_dead_letter()
    assert (record["reason"], record["attempts"]) == ("bad_return_value", 1)
    assert "returned 1001 bytes" in record["message"] and "MAX_RESULT_BYTES" in record["message"]


def test_value_for_a_workflow_is_as_long_as_a_result_may_be_also_when_no_result_is_kept(
    project: Configure, settings: Any
):
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False, "MAX_RESULT_BYTES": 1000}}
    produce = declare(backoff=fixed(0), result_ttl_s=0)(lambda length: "x" * length)
    workflow = group([call(produce, 999)]).enqueue()

    work()

    assert the_dead_letter()[1]["reason"] == "bad_return_value"
    assert workflow.status().failed == 1


def test_value_that_is_not_kept_may_be_of_any_length(project: Configure):
    declare(result_ttl_s=0)(lambda: "x" * 2_000_000).enqueue()

    work()

    assert dead_letters() == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "undecodable"),
        (b"\xff\xfe not text", "undecodable"),
        (b"plain text", "undecodable"),
        (b'{"kwargs": {}}', "undecodable"),
        (b'{"task": "TASK", "id": "\\ud83e"}', "undecodable"),
        (b'{"task": "TASK", "v": 2}', "unknown_version"),
        (b'{"task": "nobody.tasks.knows"}', "unknown_task"),
        (b'{"task": "os.system", "args": ["true"]}', "unknown_task"),
        (b'{"task": "TASK", "args": [1, 2]}', "wrong_arguments"),
        (b'{"task": "TASK", "kwargs": {"nmber": 1}}', "wrong_arguments"),
    ],
)
def test_message_without_a_task_is_dead_at_once_and_stops_no_other(project: Configure, body: bytes, reason: str):
    seen = []
    good = declare(lambda number=0: seen.append(number))
    bad_id = send_raw(body.replace(b"TASK", good.module_path.encode()))
    good.enqueue(7)

    assert work(threads=1)

    dead, record = the_dead_letter()
    assert seen == [7]
    assert (dead.id, record["reason"], record["attempts"]) == (bad_id, reason, 1)
    assert dead.body == body.replace(b"TASK", good.module_path.encode())
    assert record["traceback"] == ""


def test_wrong_arguments_are_explained_with_the_signature(project: Configure, caplog: pytest.LogCaptureFixture):
    def ship(order: int, *, express: bool = False) -> None: ...

    task = declare(ship)
    send_raw(json.dumps({"task": task.module_path, "id": "k" * 22, "args": [1], "kwargs": {"expres": True}}))

    work()

    _, record = the_dead_letter()
    result = task.get_result("k" * 22)
    assert record["message"].startswith("tests.worker.test_outcomes.ship(order: 'int', *, express: 'bool' = False)")
    assert "unexpected keyword argument 'expres'" in record["message"]
    assert f"{task.module_path} failed for good (wrong_arguments)" in caplog.text
    assert (record["task"], record["task_id"]) == ("tests.worker.test_outcomes.ship", result.id)
    assert result.status == "FAILED"


def test_message_whose_worker_died_at_each_attempt_is_not_run_again(project: Configure):
    calls = []
    result = declare(max_attempts=2)(lambda: calls.append(1)).enqueue()
    for _ in range(2):  # received, and never heard of again
        get_queue("default").receive(visibility_timeout_s=0)

    work()

    _, record = the_dead_letter()
    result.refresh()
    assert calls == []
    assert record["reason"] == "worker_died"
    assert record["message"] == "the worker died or lost its lease in each of 2 attempts"
    assert result.status == "FAILED"


def test_dead_letter_queue_of_the_task_goes_before_that_of_its_queue(project: Configure):
    project(default={"DEAD_LETTER": "sorry"}, graveyard={})

    def fail() -> None:
        raise OSError

    declare(max_attempts=1)(fail).enqueue()
    declare(max_attempts=1, dead_letter_queue="graveyard")(lambda: 1 / 0).enqueue()

    work("default")

    assert the_dead_letter("sorry")[1]["error"] == "builtins.OSError"
    assert the_dead_letter("graveyard")[1]["error"] == "builtins.ZeroDivisionError"


def test_dead_letter_queue_of_the_task_goes_with_it_to_another_queue(project: Configure):
    project(default={}, mail={}, graveyard={})
    declared = declare(max_attempts=1, dead_letter_queue="graveyard")(lambda: 1 / 0)
    declared.using(queue_name="mail").enqueue()

    work("mail")

    assert the_dead_letter("graveyard")[1]["queue"] == "mail"


def test_dead_letter_queue_that_was_deleted_is_created_again(project: Configure):
    def fail() -> None:
        get_queue("default-dead").delete_queue()
        raise OSError

    declare(max_attempts=1)(fail).enqueue()

    work()

    assert the_dead_letter()[1]["reason"] == "attempts_used_up"


def test_body_may_be_longer_than_any_limit_of_the_dead_letter_queue(project: Configure):
    project(default={"MAX_SIZE_BYTES": 65536}, **{"default-dead": {"MAX_SIZE_BYTES": 1024}})
    send_raw("x" * 60_000)

    work("default")

    assert len(the_dead_letter()[0].body) == 60_000


# -- Raw queues ----------------------------------------------------------------------------------------------------


def test_consumer_gets_the_message_unchanged(project: Configure):
    seen: list[Message] = []
    consumer("default")(seen.append)
    message_id = send_raw(b"\xff\x00 bytes of any kind")

    work()

    (message,) = seen
    assert (message.id, message.body, message.receive_count) == (message_id, b"\xff\x00 bytes of any kind", 1)
    assert messages_in("default") == 0


async def test_consumer_may_be_async(project: Configure):
    seen = []

    async def read(message: Message) -> None:
        seen.append(message.body)

    consumer("default")(read)
    send_raw(b"hello")

    work()

    assert seen == [b"hello"]


def test_consumer_may_return_anything(project: Configure):
    consumer("default")(lambda message: object())
    send_raw(b"hello")

    work()

    assert messages_in("default") == messages_in("default-dead") == 0


def test_consumer_that_fails_follows_its_options(project: Configure):
    seen = []

    def read(message: Message) -> None:
        seen.append(message.receive_count)
        json.loads(message.body)

    consumer("default", max_attempts=2, backoff=fixed(0))(read)
    send_raw(b'{"cut": "of')

    work()

    _, record = the_dead_letter()
    assert seen == [1, 2]
    assert (record["reason"], record["task"], record["task_id"]) == (
        "attempts_used_up",
        "tests.worker.test_outcomes.test_consumer_that_fails_follows_its_options.<locals>.read",
        None,
    )


def test_raw_messages_leave_no_result(project: Configure, server):
    consumer("default")(lambda message: None)
    send_raw(b"hello")

    work()

    assert server.redis.keys("rsmq::result*") == []


def test_every_bad_message_of_a_hundred_arrives_in_the_dead_letter_queue(project: Configure):
    seen = []
    good = declare(lambda number: seen.append(number))
    for number in range(100):
        send_raw(f"bad {number}")
        good.enqueue(number)

    work()

    assert sorted(seen) == list(range(100))
    assert sorted(message.body for message, _ in dead_letters()) == sorted(b"bad %d" % n for n in range(100))


def test_successes_of_first_and_later_deliveries_end_in_one_call(project: Configure):
    queue = ensure_queue("default")
    again = queue.send("again")
    assert queue.receive() is not None
    queue.change_visibility(again, 0)
    queue.send("first")
    worker = new_worker()
    source = queue_source(worker)
    deliveries = wait_until(lambda: source.exchange(2))
    assert sorted(delivery.message.receive_count for delivery in deliveries) == [1, 2]
    executions = [Execution(delivery, sink=source, notifier=worker.notifier) for delivery in deliveries]

    (settle_call,) = settle_calls([Settlement(execution, NOTHING_RETURNED) for execution in executions])

    assert get_client().run(settle_call.call) == [SettleResult.DONE] * 2
    assert queue.attributes().messages == 0


def test_result_of_a_task_that_waits_long_for_its_next_attempt_outlives_the_wait(
    project: Configure, server: PrivateServer
):
    wait_s = 30 * 86_400

    def fail() -> None:
        raise OSError("no disk")

    result = declare(max_attempts=2, backoff=fixed(wait_s))(fail).enqueue()
    work(until_empty=False, until_drained=True)

    assert server.redis.ttl(f"rsmq::result:{result.id}") > wait_s


def test_result_of_a_task_that_is_postponed_for_long_outlives_the_wait(project: Configure, server: PrivateServer):
    wait_s = 30 * 86_400

    def postpone() -> None:
        raise Postpone(after_s=wait_s)

    result = declare(postpone).enqueue()
    work(until_empty=False, until_drained=True)

    assert server.redis.ttl(f"rsmq::result:{result.id}") > wait_s


def test_missing_record_is_written_again_with_queue_and_message(project: Configure, server: PrivateServer):
    def fail() -> None:
        raise OSError("no disk")

    result = declare(max_attempts=1)(fail).enqueue()
    server.redis.delete(f"rsmq::result:{result.id}")
    (message_id,) = server.redis.zrange("rsmq:default", 0, -1)

    work()

    record = server.redis.hgetall(f"rsmq::result:{result.id}")
    assert (record[b"status"], record[b"queue"], record[b"message"]) == (b"FAILED", b"default", message_id)
