"""Texts of other programs, made so that every sign in them can be seen."""

from __future__ import annotations

import re
import unicodedata

#: Signs that change the direction of what follows: with them a text can look like another one.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAYBE_INVISIBLE = re.compile(r"[^\x20-\x7e\n\t]")


def visible(text: str) -> str:
    """Return text in which control and direction signs are written out, so that they stay text."""
    return _MAYBE_INVISIBLE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    sign = match[0]
    if unicodedata.category(sign) not in _INVISIBLE:
        return sign
    number = ord(sign)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
