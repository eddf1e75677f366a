"""The balance counts each part from its own source, so that it can show differences."""

from typing import Any

from example_project.flightboard import tasks
from example_project.flightboard.models import FinishedTask
from example_project.flightboard.stock import delete_queues, read_balance, read_queues, unsettled
from rsmq_django.queues import get_queue


def finished(task_id: str, **fields: Any) -> FinishedTask:
    line = {"name": "assign_gate", "queue_name": "default", "has_succeeded": True, "attempts": 1}
    return FinishedTask.objects.create(task_id=task_id, **line | fields)


def test_queues_that_do_not_exist_yet_have_no_messages() -> None:
    delete_queues()

    assert [(queue.name, queue.sent) for queue in read_queues()] == [
        ("default", 0),
        ("notices", 0),
        ("claims", 0),
        ("weather-raw", 0),
    ]


def test_ready_and_delayed_messages_are_unsettled() -> None:
    get_queue("default").send("now")
    get_queue("notices").send("later", delay_s=60)

    assert unsettled(read_queues()) == 2


def test_message_that_vanished_is_a_difference(db: None) -> None:
    queue = get_queue("default")
    queue.send_many(["1", "2"])
    while queue.pop():
        pass
    finished("1")

    assert read_balance().differences() == ["default: 2 sent, but 1 succeeded and 0 dead letters"]


def test_retries_are_the_deliveries_beyond_the_first(db: None) -> None:
    queue = get_queue("default")
    queue.send("1")
    queue.receive(visibility_timeout_s=0)
    queue.pop()
    finished("1")

    balance = read_balance()

    assert (balance.sent, balance.retries, balance.differences()) == (1, 1, [])


def test_work_log_keeps_one_line_for_a_task_that_was_delivered_twice(db: None) -> None:
    from example_project.flightboard.signals import write_work_log

    result = tasks.assign_gate.enqueue(flight_id=1)
    for _ in range(2):
        write_work_log(task_result=result)

    assert [line.task_id for line in FinishedTask.objects.all()] == [result.id]
