"""Reliable queues: first in, first out; popped messages stay in flight until they are acknowledged.

The semantics, ids and replies of RedisRQ (the RELIABLEQ data type), as scripts on a server without modules. `queue.py`
has the operations, `arguments.py` their validation, `waiting.py` blocking pops, `records.py` the values, `replies.py`
the parsing of replies, `shapes.py` the lists that RedisRQ returns, `listing.py` the list of queues, and `library.py`
the same scripts as functions for programs in other languages.
"""

from .listing import alist_reliable_queues, list_reliable_queues
from .queue import ReliableQueue
from .records import KINDS, Kind, ReliableMessage, ReliableStatistics, StoredMessage
from .replies import Popped

__all__ = [
    "KINDS",
    "Kind",
    "Popped",
    "ReliableMessage",
    "ReliableQueue",
    "ReliableStatistics",
    "StoredMessage",
    "alist_reliable_queues",
    "list_reliable_queues",
]
