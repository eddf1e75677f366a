"""A task that failed for good, redriven by an operator and run by a worker: the same task, from attempt 1 on."""

from __future__ import annotations

import io

from django.core.management import call_command

from rsmq_django.queues import get_queue
from rsmq_django.tasks import TaskContext, fixed
from tests.redis_server import PrivateServer
from tests.worker.workshop import (  # noqa: F401
    Configure,
    configure,
    dead_letters,
    declare,
    own_registries,
    patient_workers,
    project,
    work,
)


def rsmqctl(*words: str) -> str:
    output = io.StringIO()
    call_command("rsmqctl", *words, stdout=output)
    return output.getvalue()


def test_redriven_task_keeps_its_id_and_starts_at_its_first_attempt(
    project: Configure,  # noqa: F811
    server: PrivateServer,
):
    attempts: list[tuple[str, int]] = []
    is_down = True

    @declare(max_attempts=2, backoff=fixed(0), takes_context=True)
    def send_receipt(context: TaskContext, order_id: int) -> str:
        attempts.append((context.task_result.id, context.attempt))
        if is_down:
            raise ConnectionError("mail server is down")
        return f"receipt {order_id}"

    result = send_receipt.enqueue(7)
    work()
    is_down = False
    assert send_receipt.get_result(result.id).status == "FAILED"

    redriven = rsmqctl("message", "redrive", "-n", "default-dead", "--error", "ConnectionError")
    waiting = send_receipt.get_result(result.id)
    work()

    assert redriven == "redriven 1 message from default-dead: 1 to default\n"
    assert (waiting.status, waiting.finished_at) == ("READY", None)
    assert waiting.args == [7]
    assert attempts == [(result.id, 1), (result.id, 2), (result.id, 1)]
    done = send_receipt.get_result(result.id)
    assert (done.status, done.return_value) == ("SUCCESSFUL", "receipt 7")
    assert get_queue("default-dead").attributes().messages == 0
    assert not server.redis.exists("rsmq::dead:default-dead", "rsmq::released:default-dead")


def test_redriven_task_that_fails_again_is_a_dead_letter_again(project: Configure):  # noqa: F811
    @declare(max_attempts=1)
    def always_fails() -> None:
        raise OSError("no")

    result = always_fails.enqueue()
    work()
    rsmqctl("message", "redrive", "-n", "default-dead")
    work()

    ((_, record),) = dead_letters()
    assert (record["task_id"], record["attempts"]) == (result.id, 1)
