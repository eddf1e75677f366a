"""Reliable queues (RELIABLEQ): first in, first out; popped messages stay in flight until they are acknowledged.

The operations and replies of RedisRQ on a server without modules; `library.py` offers the same scripts to programs in
other languages. RSMQ queues are in another package of `core`, and workers read both through `worker/sources/`.
"""

from .listing import alist_reliable_queues, list_reliable_queues
from .queue import ReliableQueue
from .records import KINDS, STATES, Kind, ReliableMessage, ReliableStatistics, StoredReliableMessage
from .replies import Popped

__all__ = [
    "KINDS",
    "STATES",
    "Kind",
    "Popped",
    "ReliableMessage",
    "ReliableQueue",
    "ReliableStatistics",
    "StoredReliableMessage",
    "alist_reliable_queues",
    "list_reliable_queues",
]
