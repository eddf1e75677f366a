"""What the type checker must see through the decorators. Nothing here runs: `make lint` reads it.

Each ignored error is one that mypy must report; without it, mypy complains that the comment is not needed.
"""

from typing import assert_type

from rsmq_django.core import Message
from rsmq_django.tasks import Task, TaskContext, consumer, task


@task
def bare(order_id: int) -> str:
    return str(order_id)


@task(queue_name="mail", max_attempts=3)
def with_options(order_id: int, *, loud: bool = False) -> str:
    return str(order_id)


@task(takes_context=True)
def with_context(context: TaskContext, order_id: int) -> int:
    return context.attempt + order_id


@task
async def a_coroutine(order_id: int) -> int:
    return order_id


@consumer("raw")
def raw(message: Message) -> None: ...


def checks() -> None:
    assert_type(bare.enqueue(7).return_value, str)
    assert_type(with_options.using(queue_name="other").enqueue(order_id=7, loud=True).return_value, str)
    assert_type(with_context.enqueue(7).return_value, int)
    assert_type(bare.enqueue_many([{"order_id": 7}]), list[str])
    a_coroutine.enqueue(7)
    one_task: Task[[int], str] = bare
    one_task.enqueue(7)
    bare.enqueue("seven")  # type: ignore[arg-type]
    bare.enqueue()  # type: ignore[call-arg]
    with_options.enqueue(7, shout=True)  # type: ignore[call-arg]
    with_context.enqueue()  # type: ignore[call-arg]
    task(max_attempt=3)  # type: ignore[call-overload]
