"""Message ids: ten base-36 digits of server time in microseconds, then 22 random characters.

The server's clock writes the first part (inside the send script), the client draws the second, because Lua's own
generator starts from the same seed on every server.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64encode

from .errors import InvalidMessageId

SUFFIX_LENGTH = 22
ID_LENGTH = 32

_ID = re.compile(r"[a-zA-Z0-9:]{32}", re.ASCII)
_TIME_PREFIX = re.compile(r"[0-9a-zA-Z]{10}", re.ASCII)
#: Ids of reliable queues: milliseconds, and a number.
_RELIABLE = re.compile(r"([0-9]{13})-[0-9]{1,9}", re.ASCII)
#: 2010-01-01; RSMQ did not exist before, so an older time means that the id contains no time.
_OLDEST_SENT_US = 1_262_304_000_000_000
_DAY_US = 86_400_000_000
#: 2100-01-01.
_LATEST_SENT_US = 4_102_444_800_000_000


#: How many suffixes are drawn at once.
DRAWN_AT_ONCE = 64
#: Drawn suffixes for the next ids. Threads take each only once, because `list.pop` is atomic.
_drawn: list[str] = []
#: The process that has drawn them. A server written in C may fork without Python's hooks.
_drawn_by = 0


def random_suffix() -> str:
    """Return 22 random characters of `A-Z a-z 0-9` from the system's secure generator."""
    global _drawn_by
    if _drawn_by != os.getpid():
        _drawn.clear()
        _drawn_by = os.getpid()
    try:
        return _drawn.pop()
    except IndexError:
        suffix, *others = random_suffixes(DRAWN_AT_ONCE)
        _drawn.extend(others)
        return suffix


def random_suffixes(count: int) -> list[str]:
    """Return `count` new random suffixes, with one read of the secure generator per thousand or so."""
    suffixes: list[str] = []
    while len(suffixes) < count:
        # Dropping "+" and "/" keeps the 62 other characters equally likely; one character in 32 is lost that way.
        drawn = os.urandom(min(count - len(suffixes), 1000) * 18)
        letters = b64encode(drawn).translate(None, b"+/=").decode("ascii")
        last = len(letters) - SUFFIX_LENGTH
        suffixes += [letters[start : start + SUFFIX_LENGTH] for start in range(0, last + 1, SUFFIX_LENGTH)]
    return suffixes[:count]


def is_suffix(text: str) -> bool:
    """Return whether a text can be the random part of a message id."""
    return len(text) == SUFFIX_LENGTH and text.isascii() and text.isalnum()


def sent_ms(message_id: str) -> float | None:
    """Return the sending time in epoch milliseconds with a microsecond fraction, or None for ids without a time."""
    if len(message_id) != ID_LENGTH or not _TIME_PREFIX.match(message_id):
        reliable = _RELIABLE.fullmatch(message_id)
        return None if reliable is None else float(reliable[1])
    sent_us = int(message_id[:10], 36)
    if not _OLDEST_SENT_US <= sent_us <= time.time() * 1e6 + _DAY_US:
        return None
    return sent_us / 1000


def whole_sent_ms(message_id: str) -> int | str:
    """Return sent_ms() without the fraction, "" for None; takes a fifth of the time, because each event needs it."""
    if len(message_id) != ID_LENGTH:
        return ""
    try:
        sent_us = int(message_id[:10], 36)
    except ValueError:
        return ""
    return sent_us // 1000 if _OLDEST_SENT_US <= sent_us < _LATEST_SENT_US else ""


def checked_id(message_id: str) -> str:
    """Return `message_id`, or raise InvalidMessageId when it is not 32 characters of `A-Z a-z 0-9 :`."""
    if isinstance(message_id, str) and _ID.fullmatch(message_id):
        return message_id
    raise InvalidMessageId(
        f"not a message id: {message_id!r}; an id has 32 characters of A-Z, a-z, 0-9 and ':' as send() returned it"
    )
