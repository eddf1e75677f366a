"""Results of signed tasks say whether they are authentic, and a message changes no result but its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from rsmq_django.core.queue.browse import page
from rsmq_django.core.queue.moves import move
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.redrive import redrive
from rsmq_django.tasks import cancel, current_task, progress_of
from rsmq_django.tasks.compat import TaskResultDoesNotExist, task_backends
from rsmq_django.tasks.proofs import keyring_of
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, work

SIGNED = {"SIGNING_KEYS": ["k" * 32]}
ENCRYPTED = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
LIE = "tests.worker.test_attacks_on_results.lie"


@pytest.fixture(params=[SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def sealed(request: pytest.FixtureRequest, configure: Configure) -> dict[str, Any]:
    options: dict[str, Any] = request.param
    configure(payments=options, other={"SIGNING_KEYS": ["o" * 32]}, default={})
    return options


def paying(queue_name: str = "payments", **options: Any) -> Any:
    def pay(number: int = 1) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number

    return declare(queue_name=queue_name, max_attempts=1, **options)(pay)


def result_of(task_id: str) -> Any:
    return task_backends["default"].get_result(task_id)


def record_of(task_id: str) -> str:
    return f"rsmq::result:{task_id}"


# -- Authentic results ------------------------------------------------------------------------------------------------


def test_a_finished_task_of_a_sealed_queue_is_authentic(sealed: dict[str, Any]):
    task = paying()
    good, bad, urgent = task.enqueue(7), task.enqueue(-7), task.using(priority=3).enqueue(8)
    waiting = task.using(queue_name="other").enqueue(1)
    assert not good.is_authentic and not result_of(good.id).is_authentic

    work("payments")
    good.refresh()

    assert (good.is_authentic, good.return_value) == (True, 7)
    assert (result_of(bad.id).is_authentic, result_of(bad.id).errors[0].traceback[-15:]) == (True, "-7 is negative\n")
    assert result_of(urgent.id).is_authentic
    assert not result_of(waiting.id).is_authentic


def test_a_finished_task_whose_arguments_are_gone_is_not_authentic(sealed: dict[str, Any], server: PrivateServer):
    result = paying().enqueue(7)
    work("payments")
    assert server.redis.hdel(record_of(result.id), "body") == 1

    found = result_of(result.id)
    assert (found.is_authentic, found.args, found.return_value) == (False, [], 7)


def test_a_cancelled_task_of_a_sealed_queue_is_authentic(sealed: dict[str, Any]):
    result = paying().enqueue(7)

    cancel(result.id)

    result.refresh()
    assert (result.is_authentic, result.errors[0].exception_class.__name__) == (True, "TaskCancelled")


@pytest.mark.parametrize(("days", "is_authentic"), [(1, False), (0, True)])
def test_before_the_last_day_of_old_signatures_the_release_before_can_read_results(
    configure: Configure, server: PrivateServer, days: int, is_authentic: bool
):
    until = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()
    configure(payments=SIGNED | {"OLD_SIGNATURES_UNTIL": until}, default={})
    good, bad = paying().enqueue(7), paying().enqueue(-7)

    work("payments")

    stored = [server.redis.hget(record_of(good.id), "value"), server.redis.hget(record_of(bad.id), "error:1")]
    assert [b"\n" in text for text in stored] == [is_authentic] * 2  # it takes nothing behind the JSON
    assert [result_of(each.id).is_authentic for each in (good, bad)] == [is_authentic] * 2


@pytest.mark.parametrize("is_replaced", [False, True], ids=["its own call", "another call in its place"])
def test_record_of_a_cancelled_call_cannot_be_run(sealed: dict[str, Any], server: PrivateServer, is_replaced: bool):
    """Without its arguments it is a call that no process with the keys has sent."""
    called: list[int] = []

    def pay(number: int = 1000) -> None:
        called.append(number)

    task = declare(queue_name="payments", max_attempts=1)(pay)
    result = task.enqueue(7)
    if is_replaced:
        message_id = server.redis.hget(record_of(result.id), "message")
        body = json.dumps({"task": task.module_path, "id": result.id, "args": [1000]})
        server.redis.hset("rsmq:payments:Q", message_id, body)

    cancel(result.id)
    send_raw(server.redis.hget(record_of(result.id), "body"), queue_name="payments")
    work("payments")

    assert called == []
    assert result_of(result.id).is_authentic is not is_replaced


def test_a_result_of_a_queue_without_keys_is_never_authentic(sealed: dict[str, Any]):
    result = paying("default").enqueue(7)

    work()

    result.refresh()
    assert (result.is_authentic, result.return_value) == (False, 7)


@pytest.mark.parametrize(
    "forged",
    [
        {"value": "1000000"},
        {"queue": "default"},
        {"queue": "other"},
        {"queue": "default", "value": "1000000"},
        {"status": "FAILED"},
        {"status": "FAILED", "error:1": '["builtins.ValueError", "forged"]'},
        {"body": "{}"},
        {"body": '{"task": "x", "args": [5]}'},
    ],
    ids=str,
)
def test_a_forged_record_is_not_authentic(sealed: dict[str, Any], server: PrivateServer, forged: dict[str, str]):
    result = paying().enqueue(7)
    work()
    server.redis.hset(record_of(result.id), mapping=forged)

    assert not result_of(result.id).is_authentic


def test_the_record_of_another_task_is_not_authentic(sealed: dict[str, Any], server: PrivateServer):
    task = paying()
    cheap, dear = task.enqueue(1), task.enqueue(1000)
    work()
    server.redis.copy(record_of(dear.id), record_of(cheap.id), replace=True)

    stolen = result_of(cheap.id)

    assert (stolen.is_authentic, stolen.return_value) == (False, 1000)


# -- A message changes no result but its own --------------------------------------------------------------------------


@pytest.fixture
def lies(sealed: dict[str, Any]) -> None:
    """A task of the queue "default" that its attacker has run under the ids of others."""

    @declare(queue_name="default", max_attempts=1)
    def lie(how: str = "") -> str:
        current_task().progress(99)
        if how == "raise":
            raise ValueError("ATTACKER")
        return "ATTACKER"


@pytest.mark.parametrize("how", ["return", "raise"])
@pytest.mark.parametrize("queue_name", ["payments", "victims"])
def test_a_message_does_not_overwrite_the_result_of_another_one(
    configure: Configure, sealed: dict[str, Any], lies: None, server: PrivateServer, how: str, queue_name: str
):
    configure(payments=sealed, default={}, victims={})
    result = paying(queue_name).enqueue(7)
    before = server.redis.hgetall(record_of(result.id))
    (message_id,) = server.redis.zrange(f"rsmq:{queue_name}", 0, -1)
    body = json.dumps({"task": LIE, "id": result.id, "args": [how]})
    send_raw(body)
    queue = ensure_queue("default")  # once more, under the very id of the message
    server.redis.hset(queue.keys.settings, message_id, body)
    server.redis.zadd(queue.keys.messages, {message_id: 1})

    work("default")

    assert server.redis.hgetall(record_of(result.id)) == before
    assert progress_of(result.id) is None
    assert cancel(result.id)
    assert server.redis.zcard(f"rsmq:{queue_name}") == 0


def test_redriving_a_message_gives_it_no_result_of_another_one(
    sealed: dict[str, Any], lies: None, server: PrivateServer
):
    result = paying().enqueue(7)
    before = server.redis.hgetall(record_of(result.id))
    send_raw(json.dumps({"task": LIE, "id": result.id, "args": ["raise"]}))
    work("default")

    assert redrive("default-dead").moved.total() == 1
    work("default")

    assert server.redis.hgetall(record_of(result.id)) == before


def test_a_foreign_message_with_an_id_of_its_own_gets_a_result(sealed: dict[str, Any], lies: None):
    send_raw(json.dumps({"task": LIE, "id": "order-7"}))

    work()

    assert result_of("order-7").return_value == "ATTACKER"


@pytest.mark.parametrize("queue_name", ["payments", "default"])
def test_a_redriven_message_keeps_its_result(sealed: dict[str, Any], server: PrivateServer, queue_name: str):
    result = paying(queue_name).enqueue(-7)
    work()
    redrive(f"{queue_name}-dead")

    work()

    result.refresh()
    assert (result.is_authentic, len(result.errors)) == (queue_name == "payments", 2)


def test_a_moved_message_keeps_its_result(configure: Configure, server: PrivateServer):
    configure(default={}, slow={}, slower={})
    result = paying("default").enqueue(-7)
    ensure_queue("slow")
    ensure_queue("slower")
    work("default")
    redrive("default-dead", to="slow")
    client = get_client()

    found = client.run(page(client.namespace, "slow"))
    client.run(move(client.namespace, "slow", "slower", found.messages))
    work("slower")

    result.refresh()
    assert len(result.errors) == 2


def test_a_dead_letter_at_work_keeps_its_result(configure: Configure):
    configure(default={}, **{"default-dead": {}})
    numbers: list[int] = [-1, 1]

    @declare(max_attempts=1)
    def shaky() -> int:
        number = numbers.pop(0)
        if number < 0:
            raise ValueError("not yet")
        return number

    result = shaky.enqueue()

    work()

    result.refresh()
    assert result.return_value == 1


def test_forged_record_whose_id_no_proof_can_have_is_not_read(sealed: dict[str, Any], server: PrivateServer):
    each = paying()
    result = each.enqueue()
    work("payments")
    forged = f"{result.id}\0value"
    server.redis.copy(f"rsmq::result:{result.id}", f"rsmq::result:{forged}")

    with pytest.raises(TaskResultDoesNotExist):
        each.get_result(forged)
    assert not keyring_of("payments").verifies("any", "result", forged)
