"""Queues on Redis that every language can speak. Pure Redis: this package knows nothing of Django."""

from . import errors
from .client import Client
from .connection import Connection
from .errors import LeaseLost, RsmqError
from .queue import Queue, alist_queues, list_queues
from .records import Message, QueueAttributes, SettleResult

__all__ = [
    "Client",
    "Connection",
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
