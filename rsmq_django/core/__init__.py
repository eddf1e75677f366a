"""Pure Redis: queues, reliable queues, topics, and the records of tasks, as Lua scripts and their callers.

Nothing here imports Django or knows settings: callers pass connections and options. Declaring and running tasks is in
`tasks/` and `worker/`.
"""

from . import errors
from .errors import LeaseLost, RsmqError
from .queue.queue import Queue, alist_queues, list_queues
from .queue.records import Message, QueueAttributes, SettleResult
from .transport.client import Client
from .transport.connection import Connection
from .transport.durability import Durability, DurableClient

__all__ = [
    "Client",
    "Connection",
    "Durability",
    "DurableClient",
    "LeaseLost",
    "Message",
    "Queue",
    "QueueAttributes",
    "RsmqError",
    "SettleResult",
    "alist_queues",
    "errors",
    "list_queues",
]
