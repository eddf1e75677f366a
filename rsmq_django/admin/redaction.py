"""Hiding what looks secret in text of any kind: error messages, tracebacks, bodies that are no JSON.

A value is hidden when its name contains one of the words of RSMQ["ADMIN"]["REDACT"]. This helps against glances and
screenshots; it cannot know a secret that has no name. JSON is handled by `json_text`, which knows names for certain.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..conf import get_settings

HIDDEN = "•••"

# A value: in quotes that are themselves escaped, in quotes (perhaps cut before the second one), or a word, which in a
# header may follow its kind ("Bearer ..."). What was matched is never given back ("*+"), so no text takes long.
_VALUE = (
    r"""(?:\\++"(?:[^"\\\n]|\\[^"\n])*+(?:\\*+")?|\\++'(?:[^'\\\n]|\\[^'\n])*+(?:\\*+')?|"""
    r""""(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|"""
    r"""(?:(?:bearer|basic|token|digest)\s++)?[^\s,;&)}\]"'<>\\]++)"""
)
_URL_PASSWORD = re.compile(r"(://[^\s/:@]{0,200}:)[^\s/]{1,200}(?=@)")
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
#: The name of an exception is none of a value: "KeyError: 'gate'".
_NO_NAME = re.compile(r"(?:Error|Exception|Warning)$")


def is_secret(name: str) -> bool:
    """Return whether a value of this name is to be hidden."""
    return _is_secret(name[:200].lower(), get_settings().admin.redact)


@lru_cache(maxsize=4096)
def _is_secret(name: str, words: tuple[str, ...]) -> bool:
    return any(word.lower() in name for word in words)


def redact(text: str) -> str:
    """Return a text in which values with secret names, passwords in URLs and private keys are hidden."""
    text = _PRIVATE_KEY.sub(rf"\1{HIDDEN}\2", _URL_PASSWORD.sub(rf"\1{HIDDEN}", text))
    words = get_settings().admin.redact
    return _assignments(words).sub(_hide, text) if words else text


def _hide(match: re.Match[str]) -> str:
    return match[0] if _NO_NAME.search(match[1]) else f"{match[1]}{match[2]}{HIDDEN}"


@lru_cache(maxsize=4)
def _assignments(words: tuple[str, ...]) -> re.Pattern[str]:
    secret = "|".join(re.escape(word) for word in words)
    name = rf"((?:{secret})[\w.-]{{0,60}}+)"
    return re.compile(rf"""{name}(\\*+["']?\s{{0,3}}(?:=>|[:=])\s{{0,3}}){_VALUE}""", re.IGNORECASE)
