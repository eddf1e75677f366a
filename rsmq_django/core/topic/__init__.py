"""Topics with replay: a numbered log, and groups that each read the whole log with their own cursor.

The keys of plain clients (`{topic}:nextIndex`, `{topic}:messages:{n}`, `{topic}:{group}:nextIndex`) are used byte for
byte; all other keys begin with `rsmqt:`. See docs/topics.md.
"""

from .bridge import Bridge, Forwarded
from .group import Group, GroupOptions
from .listing import alist_topics, list_topics
from .records import Batch, Entry, GroupStatus, Range, Retention, SeekResult, TopicMessage, TopicStatus
from .topic import Topic

__all__ = [
    "Batch",
    "Bridge",
    "Entry",
    "Forwarded",
    "Group",
    "GroupOptions",
    "GroupStatus",
    "Range",
    "Retention",
    "SeekResult",
    "Topic",
    "TopicMessage",
    "TopicStatus",
    "alist_topics",
    "list_topics",
]
