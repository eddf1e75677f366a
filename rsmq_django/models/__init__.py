"""Models of the admin: unmanaged, their rows are read from Redis on demand by `live/`.

Nothing here has a table or a foreign key, because deleting would follow those with SQL; and nothing can be saved,
because a change in Redis is a script that compares with the state that was shown.
"""

from .listed import ReliableQueue, Topic
from .live import LiveManager, LiveModel
from .queues import Message, Queue
from .runs import Run
from .tasks import RegisteredTask, Result, Schedule, Workflow
from .workers import Worker

__all__ = [
    "LiveManager",
    "LiveModel",
    "Message",
    "Queue",
    "RegisteredTask",
    "ReliableQueue",
    "Result",
    "Run",
    "Schedule",
    "Topic",
    "Worker",
    "Workflow",
]
