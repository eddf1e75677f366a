"""Texts for terminals and logs: escaping of untrusted ones, and counts.

Ids, names, bodies and errors may contain line ends, which make one line look like two, and control codes, which move
the cursor or change the direction of writing.
"""

from __future__ import annotations

#: Indentation of the further lines of a record, so that none of them looks like a separate record.
INDENT = "  "
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""Return text with control characters and similar ones escaped: \n, \x1b, \u202e."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def counted(number: int, noun: str = "message") -> str:
    """Return "1 message" or "2 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable_lines(text: str) -> str:
    """Return several lines with control characters escaped, all but the first indented."""
    first, *others = text.rstrip("\n").split("\n")
    return "\n".join([printable(first), *(INDENT + printable(line) for line in others)])


def _escaped(letter: str) -> str:
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
