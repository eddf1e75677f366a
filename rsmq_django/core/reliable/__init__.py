"""Reliable queues: first in, first out; what is popped stays on record until it is acknowledged.

The semantics, ids and replies of RedisRQ (the RELIABLEQ data type), as scripts on a server without modules. `queue.py`
has the operations, `arguments.py` what they accept, `waiting.py` how a pop blocks, `records.py` the values,
`replies.py` how they are read, `shapes.py` the lists that RedisRQ answers with, `listing.py` which queues there are,
and `library.py` the same scripts as functions for programs in other languages.
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
