"""Which failures are the same one: dead letters that differ in their data only belong together."""

from __future__ import annotations

import hashlib
import re

from .browse import Failure

LONGEST_PATTERN = 200
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_HEX = re.compile(r"\b(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*(?:-[0-9a-fA-F]+)*\b|\d+")


def pattern_of(message: str) -> str:
    """Return the first line of an error's text with its data taken out: "Flight # is gone"."""
    line = message.strip().partition("\n")[0][: 4 * LONGEST_PATTERN]
    return _HEX.sub("#", _QUOTED.sub("'…'", line))[:LONGEST_PATTERN]


def fingerprint(failure: Failure | None) -> str:
    """Return twelve hex digits: equal for failures of one task by one error with one pattern of text."""
    if failure is None:
        return "none"
    words = (failure.task, failure.reason, failure.error, pattern_of(failure.message))
    # Half a surrogate pair is legal in JSON, and no UTF-8.
    data = "\0".join(words).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:12]
