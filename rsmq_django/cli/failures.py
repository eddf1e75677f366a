"""What went wrong, as one line for people or one JSON object for programs.

Core's errors speak of Python's names; here they speak of the command line's. Refuses to know how anything is printed.
"""

from __future__ import annotations

import re

from ..core import RsmqError, errors


class Failed(Exception):
    """A command could not do what it was asked to; `name` is for programs, `text` for people."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.text = text


class Interrupted(Failed):
    """Somebody pressed Ctrl-C; `text` says how far it got."""

    def __init__(self, text: str = "interrupted") -> None:
        super().__init__("interrupted", text)


#: Class of the error, a pattern in its text, what to say in its place.
_REWORDED: tuple[tuple[type[RsmqError], str, str], ...] = (
    (
        errors.QueueNotFound,
        r"""queue not found: (['"])(.*?)\1; create it; .*""",
        r"queue not found: \2; create it, or look in another namespace (--ns) or database (-r)",
    ),
    (errors.QueueNotFound, r"""queue not found: (['"])(.*?)\1; """, r"queue not found: \2; "),
    (
        errors.QueueExists,
        r"""queue exists: (['"])(.*?)\1; .*""",
        r"queue exists: \2; its attributes were left alone, 'queue set' changes them",
    ),
    (
        errors.MessageTooLong,
        r"body is (\d+) bytes, queue '(.*?)' allows (\d+); .*",
        r"message too long: \1 bytes, maximum \3; 'queue set -n \2 -m -1' lifts it, or store the body elsewhere",
    ),
    (
        errors.MessageTooLong,
        r"body is (\d+) bytes, this client sends at most (\d+); .*",
        r"message too long: \1 bytes, maximum \2 for this client; store the body elsewhere and send a reference",
    ),
    (errors.InvalidValue, r"^visibility_timeout_s is", "--visibility-timeout is"),
    (errors.InvalidValue, r"^delay_s is", "--delay is"),
    (errors.InvalidValue, r"^max_size_bytes is", "--maxsize is"),
    (errors.NoAttributeSupplied, r".*", "nothing to set; give -t, -d or -m"),
)


def text_of(error: RsmqError | Failed) -> str:
    """Return the one line that says what happened, in the words of the command line."""
    if isinstance(error, Failed):
        return error.text
    text = str(error)
    for kind, pattern, words in _REWORDED:
        if isinstance(error, kind) and re.search(pattern, text, re.S):
            return re.sub(pattern, words, text, count=1, flags=re.S)
    return text


def name_of(error: RsmqError | Failed) -> str:
    """Return the error's name for programs: that of RSMQ's reference implementation where it has one."""
    if isinstance(error, Failed):
        return error.name
    kind = type(error).__name__
    return error.rsmq_name or kind[0].lower() + kind[1:]
