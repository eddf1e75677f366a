"""Commands and replies, and how commands are packed for the socket.

redis-py needs three times as long to pack a command, which was most of the time of a send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Command = tuple[str | bytes | int, ...]
#: Also a command that is packed already.
Request = Command | bytes
Reply = Any

#: Prefixes of words up to this length in bytes; a lookup is faster than formatting them.
_MANY = 256
_LENGTHS = [b"$%d" % length for length in range(_MANY)]
#: Prefixes with words of numbers below that, which most numbers are.
_NUMBERS = [b"$%d\r\n%d" % (len(str(number)), number) for number in range(_MANY)]


def packed_words(words: Sequence[str | bytes | int]) -> bytes:
    """Return words in the protocol's format, without their number before them and the line break after them."""
    return packed([tuple(words)]).partition(b"\r\n")[2][:-2]


def length_prefix(length: int) -> bytes:
    """Return the prefix of a word of this length in the protocol's format."""
    return _LENGTHS[length] if length < _MANY else b"$%d" % length


def packed(commands: Sequence[Request]) -> bytes:
    """Return commands in the protocol's format."""
    if len(commands) == 1 and type(commands[0]) is bytes:
        return commands[0]
    parts: list[bytes] = []
    add = parts.append
    for command in commands:
        if type(command) is bytes:
            add(command[:-2])
            continue
        add(b"*%d" % len(command))
        for word in command:
            if isinstance(word, str):
                try:
                    encoded = word.encode()  # an argument for errors makes it three times slower
                except UnicodeEncodeError:
                    # Surrogates: an id of another client that is not UTF-8 becomes the same bytes again.
                    encoded = word.encode("utf-8", "surrogateescape")
                word = encoded
            elif isinstance(word, int):
                if 0 <= word < _MANY:
                    add(_NUMBERS[word])
                    continue
                word = b"%d" % word
            length = len(word)
            add(_LENGTHS[length] if length < _MANY else b"$%d" % length)
            add(word)
    add(b"")
    return b"\r\n".join(parts)
