"""Foreign text as text that a terminal or a log shows and does not obey.

Ids, names, bodies and errors may hold anything: line ends that make one line look like two, and codes that move the
cursor or turn the direction of writing.
"""

from __future__ import annotations

#: In front of further lines of one record, so that none of them looks like a record of its own.
INDENT = "  "
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""Return text in which control characters and the like are written out: \n, \x1b, \u202e."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def printable_lines(text: str) -> str:
    """Return several lines, all but the first indented, in which control characters are written out."""
    first, *others = text.rstrip("\n").split("\n")
    return "\n".join([printable(first), *(INDENT + printable(line) for line in others)])


def _escaped(letter: str) -> str:
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
