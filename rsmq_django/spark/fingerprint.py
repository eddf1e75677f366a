"""Which failures are the same: task, kind of error, and the message without what differs each time.

Plain Python, so that a web page can find the group of one failure.
"""

from __future__ import annotations

import hashlib
import re

#: Longer texts are cut before anything else, as the worker does.
MAX_CHARACTERS = 500

_CHANGING = re.compile(
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"  # UUIDs
    r"|\b0x[0-9a-fA-F]+\b"
    r"|\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,}\b"  # digests and the like
    r"|[0-9]+"
)


def normalized(text: str) -> str:
    """Return the text with `#` for numbers, hexadecimals and UUIDs."""
    return _CHANGING.sub("#", text[:MAX_CHARACTERS])


def fingerprint(task: str, error_type: str, error: str) -> str:
    """Return 32 hexadecimal digits, the same for failures that differ only in numbers and ids."""
    text = "\0".join((task, error_type, normalized(error)))
    return hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
