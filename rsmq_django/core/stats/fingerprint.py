"""Fingerprints of failures: failures that differ in their data only have the same one.

The admin groups dead letters by fingerprint, and the history of the pipeline groups the failed attempts of the event
log and the archive of dead letters, so that all of them show the same groups. Plain Python over the fields that all
three have.
"""

from __future__ import annotations

import hashlib
import re

from ..queue.browse import FailureRecord
from .events import MAX_ERROR_CHARACTERS

LONGEST_PATTERN = 200
#: The error of a message that no task understood. The event log has no task for it; the failure record has the name in
#: the message.
_UNREADABLE = "rsmq_django.tasks.envelope.Unreadable"
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]*\d[0-9a-fA-F]*(?:-[0-9a-fA-F]+)*\b|\d+")


def pattern_of(message: str) -> str:
    """Return the first line of an error's text with its data replaced: "Flight # is gone"."""
    # Cut to the length in the event log first, so that the result is the same for both.
    line = message[:MAX_ERROR_CHARACTERS].strip().partition("\n")[0]
    return _HEX.sub("#", _QUOTED.sub("'…'", line))[:LONGEST_PATTERN]


def fingerprint(task: str, error_type: str, error: str) -> str:
    """Return 32 hex digits: equal for failures of one task with the same type of error and pattern of text."""
    words = ("" if error_type == _UNREADABLE else task, error_type, pattern_of(error))
    # Half a surrogate pair is legal in JSON, but not in UTF-8.
    return hashlib.sha256("\0".join(words).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def fingerprint_of(failure: FailureRecord | None) -> str:
    """Return the fingerprint of a dead letter; "none" when no failure is on record."""
    return "none" if failure is None else fingerprint(failure.task, failure.error, failure.message)
