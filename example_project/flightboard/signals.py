"""Who causes work, and who writes down that it is done.

Saving a new flight enqueues its tasks. The messages leave when the surrounding transaction commits, so no worker can
look for a flight that is not there yet.
"""

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from rsmq_django.tasks.compat import task_finished

from . import tasks
from .models import FinishedTask, Flight


@receiver(post_save, sender=Flight)
def enqueue_work_for_flight(*, instance: Flight, created: bool, raw: bool, **_: Any) -> None:
    """Enqueue what a new flight needs; loading a fixture (`raw`) causes no work."""
    if not created or raw:
        return
    tasks.assign_gate.enqueue(flight_id=instance.pk)
    tasks.announce_delay.enqueue(flight_id=instance.pk)
    if tasks.needs_claim(instance):
        tasks.open_claim.enqueue(flight_id=instance.pk)


@receiver(task_finished)
def write_work_log(*, task_result: Any, **_: Any) -> None:
    """Add a line to the work log. This runs in the worker."""
    has_succeeded = task_result.status == "SUCCESSFUL"
    error = "" if has_succeeded or not task_result.errors else task_result.errors[-1].exception_class_path
    line = FinishedTask(
        task_id=task_result.id,
        name=task_result.task.name,
        queue_name=task_result.task.queue_name,
        flight_id=task_result.kwargs.get("flight_id"),
        has_succeeded=has_succeeded,
        attempts=task_result.attempts,
        error=error.rpartition(".")[2],
    )
    # A message can be delivered twice; its task is still one line.
    FinishedTask.objects.bulk_create([line], ignore_conflicts=True)
