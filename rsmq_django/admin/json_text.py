"""JSON as it was written, for people: indented, its parts told apart, secret values hidden.

Works on the text itself, piece by piece, and never builds the value. So nothing is lost or changed (numbers of any
length, a name that is there twice), the beginning of a long text can be shown, and no depth is too deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .redaction import HIDDEN, is_secret, redact

#: Deeper levels are not moved further to the right.
MAX_INDENT = 16

_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*(?:"|\\?\Z))|(?P<number>-?\d[\d.eE+-]*)|(?P<word>[A-Za-z]+)'
    r"|(?P<sign>[{}\[\],:])|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)


class Piece(NamedTuple):
    """A part of the text; `kind` is "name", "string", "number", "word", "sign", "space", "other" or "hidden"."""

    kind: str
    text: str


@dataclass(slots=True)
class _Level:
    """An object or array that is open."""

    sign: str
    #: Place in an array.
    index: int = 0
    #: The last name of an object.
    name: str = ""
    expects_name: bool = field(init=False)

    def __post_init__(self) -> None:
        self.expects_name = self.sign == "{"


def is_json(text: str) -> bool:
    """Return whether a text, or the beginning of one, reads like a JSON object or array."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    words = ("true", "false", "null", "NaN", "Infinity")
    kinds = ((match.lastgroup, match[0]) for match in _PIECE.finditer(text))
    return all(kind != "other" and (kind != "word" or text in words or not text) for kind, text in kinds) or _cut_word(
        text
    )


def _cut_word(text: str) -> bool:
    """Return whether only a word at the very end does not fit: the text was cut in the middle of it."""
    head = re.sub(r"[A-Za-z-]+\Z", "", text)
    return head != text and len(text) - len(head) < 9 and is_json(head)


def pieces(text: str, *, secret_args: Container[int] = ()) -> Iterator[Piece]:
    """Return the parts of a JSON text with new white space, secret values hidden.

    `secret_args` are places in the top-level array named "args" that are to be hidden: positional arguments of a task
    have no names of their own.
    """
    levels: list[_Level] = []
    hidden_at: int | None = None  # how many levels were open where a hidden value began
    for kind, word in _words(text):
        level = levels[-1] if levels else None
        if kind == "sign" and word in "}]" and levels:
            levels.pop()
            if hidden_at is not None and len(levels) > hidden_at:
                continue
            if hidden_at is not None and len(levels) == hidden_at:
                hidden_at = None
                continue
            hidden_at = None
            yield Piece("space", _line(len(levels)))
            yield Piece("sign", word)
            continue
        is_inside = hidden_at is not None and len(levels) > hidden_at
        if kind == "sign" and word in ",:":
            if is_inside:
                continue
            hidden_at = None
            yield from _separator(word, level, len(levels))
            continue
        if not is_inside and hidden_at is None and _is_hidden(level, levels, secret_args):
            yield Piece("hidden", HIDDEN)
            hidden_at = len(levels)
            is_inside = True
        if kind == "sign":
            levels.append(_Level(word))
            if not is_inside:
                yield Piece("sign", word)
                yield Piece("space", _line(len(levels)))
        elif not is_inside:
            yield _value(kind, word, level)


def _words(text: str) -> Iterator[tuple[str, str]]:
    for match in _PIECE.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "space":
            yield kind, match[0]


def _separator(word: str, level: _Level | None, depth: int) -> Iterator[Piece]:
    yield Piece("sign", word)
    if word == ":":
        yield Piece("space", " ")
        if level is not None:
            level.expects_name = False
        return
    if level is not None:
        level.index += 1
        level.expects_name = level.sign == "{"
    yield Piece("space", _line(depth))


def _value(kind: str, word: str, level: _Level | None) -> Piece:
    if kind == "string" and level is not None and level.expects_name:
        level.name = _decoded(word)
        return Piece("name", word)
    return Piece(kind, _redacted(word) if kind == "string" else word)


def _is_hidden(level: _Level | None, levels: list[_Level], secret_args: Container[int]) -> bool:
    """Return whether the value that begins here is to be hidden."""
    if level is None or level.expects_name:
        return False
    if level.sign == "{":
        return is_secret(level.name)
    return len(levels) == 2 and levels[0].name == "args" and level.index in secret_args


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MAX_INDENT)


def _decoded(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word


def _redacted(word: str) -> str:
    """Return a string in which secrets are hidden: texts may hold JSON or URLs of their own."""
    text = _decoded(word)
    clean = redact(text)
    return word if clean == text else json.dumps(clean, ensure_ascii=False)
