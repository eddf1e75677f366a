"""The doctor: what is wrong with a server and the queues on it, and how to mend it.

`examine()` only looks, `repair()` mends what it found. Both work on queues of a million messages without holding up
other clients, and read what any RSMQ client has left behind. Neither knows Django: settings are passed in.
"""

from .examination import examine
from .finding import ExpectedQueue, Finding, Progress, Repair, Severity
from .repairs import repair

__all__ = ["ExpectedQueue", "Finding", "Progress", "Repair", "Severity", "examine", "repair"]
