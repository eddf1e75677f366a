"""Topics with replay: a numbered log, and groups that each read the whole log with their own cursor.

The keys of plain clients (`{topic}:nextIndex`, `{topic}:messages:{n}`, `{topic}:{group}:nextIndex`) are used byte for
byte. Nothing here runs a task: the consumers of workers are in `rsmq_django.worker.sources`.
"""

from .bridge import Bridge, Forwarded
from .group import ConsumerGroup, GroupOptions
from .listing import alist_topics, list_topics
from .records import GroupStatus, NewMessage, Retention, SeekResult, TopicBatch, TopicMessage, TopicRange, TopicStatus
from .topic import Topic

__all__ = [
    "Bridge",
    "ConsumerGroup",
    "Forwarded",
    "GroupOptions",
    "GroupStatus",
    "NewMessage",
    "Retention",
    "SeekResult",
    "Topic",
    "TopicBatch",
    "TopicMessage",
    "TopicRange",
    "TopicStatus",
    "alist_topics",
    "list_topics",
]
