"""The doctor: checks a server and its queues for inconsistencies, and repairs them.

`examine()` only reads, `repair()` repairs its findings. Both work on queues of a million messages without blocking
other clients, and read data of any RSMQ client. Neither uses Django: settings are passed in.
"""

from .examination import examine
from .finding import ExpectedQueue, Finding, Progress, Repair, Severity
from .repairs import repair

__all__ = ["ExpectedQueue", "Finding", "Progress", "Repair", "Severity", "examine", "repair"]
