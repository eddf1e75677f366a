"""Texts of other programs, changed so that every character is visible."""

from __future__ import annotations

import re
import unicodedata

#: Characters that change the direction of the following text: with them a text can look like another one.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAYBE_INVISIBLE = re.compile(r"[^\x20-\x7e\n\t]")


def visible(text: str) -> str:
    """Return text with visible escapes in place of control and direction characters."""
    return _MAYBE_INVISIBLE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    sign = match[0]
    if unicodedata.category(sign) not in _INVISIBLE:
        return sign
    number = ord(sign)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
