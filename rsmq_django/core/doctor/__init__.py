"""The doctor: checks a server and its queues for inconsistencies (`examine()`), and repairs them (`repair()`).

It works on queues of a million messages without blocking other clients, and on data of any RSMQ client. It knows no
settings: callers pass them in. Checks of settings are in `checks.py` of the package.
"""

from .examination import examine
from .finding import ExpectedQueue, Finding, Progress, Repair, Severity
from .repairs import repair

__all__ = ["ExpectedQueue", "Finding", "Progress", "Repair", "Severity", "examine", "repair"]
