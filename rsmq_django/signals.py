"""Signals about messages, in addition to Django's task signals (`task_enqueued`, `task_started`, `task_finished`).

Receivers run in the worker, on the thread or event loop of the task; their exceptions are logged and not propagated.
"""

from django.dispatch import Signal

__all__ = ["lease_lost", "message_dead_lettered"]

#: A message moved to its dead-letter queue. Arguments: queue_name, message, reason, task_path ("" when unknown).
message_dead_lettered = Signal()
#: The lease of a message expired while this worker ran it, so its result was discarded. Arguments: queue_name, message.
lease_lost = Signal()
