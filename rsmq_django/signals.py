"""Signals about messages, beside Django's own about tasks (`task_enqueued`, `task_started`, `task_finished`).

Receivers run in the worker, on the thread or event loop of the task; what they raise is logged and goes no further.
"""

from django.dispatch import Signal

#: A message moved to its dead-letter queue. Arguments: queue_name, message, reason, task_path ("" when unknown).
message_dead_lettered = Signal()
#: A message was handed to somebody else while this worker held it; its result was discarded. Arguments: queue_name,
#: message.
lease_lost = Signal()
