"""JSON as it was written, for people: indented, its parts told apart, secret values hidden.

Works on the text itself, piece by piece, and never builds the value. So nothing is lost or changed (numbers of any
length, a name that is there twice), the beginning of a long text can be shown, and no depth is too deep.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .call_secrets import CallSecrets, call_secrets
from .secret_text import HIDDEN, is_secret, redact

#: Deeper levels are not moved further to the right.
MAX_INDENT = 16
#: Texts inside of texts that are read as JSON; a deeper one is hidden.
MAX_NESTED = 5

_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|(?P<number>-?\d[\d.eE+-]*)|(?P<word>[A-Za-z]+)'
    r"|(?P<sign>[{}\[\],:])|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)


#: What words of JSON are made of, and the sign of -Infinity.
_LETTERS = string.ascii_letters + "-"
#: Longer texts are not parsed: the value of a call takes up to a hundred times as much memory as its text.
LONGEST_PARSED = 256 * 1024


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
    head = text.rstrip(_LETTERS)
    return head != text and len(text) - len(head) < 9 and is_json(head)


def redacted_text(text: str, *, task: str = "", is_cut: bool = False) -> str:
    """Return a text that is not JSON without secrets, those of a broken call included."""
    if '"args"' in text and secrets_in(text, task=task, is_cut=is_cut).hides_some:
        text = "".join(part for _, part in pieces(text, task=task, is_cut=is_cut))
    return redact(text)


def pieces(text: str, *, task: str = "", is_cut: bool = False, nested: int = 0) -> Iterator[Piece]:
    """Return the parts of a JSON text with new white space, secret values hidden.

    Positional arguments of a call are hidden by the names of the parameters. `task` is its task when the text does not
    name one. `nested` is the number of texts around this one.
    """
    writer = _JsonWriter(secrets_in(text, task=task, is_cut=is_cut), nested)
    for kind, word in _words(text):
        yield from writer.pieces_of(kind, word)


@dataclass(slots=True)
class _JsonWriter:
    """The open levels of a JSON text, and whether the current value is hidden."""

    secrets: CallSecrets
    #: The number of texts around this one.
    nested: int
    levels: list[_Level] = field(default_factory=list)
    #: How many levels were open where a hidden value began.
    hidden_at: int | None = None

    @property
    def is_inside(self) -> bool:
        """Return whether a hidden object or array is open."""
        return self.hidden_at is not None and len(self.levels) > self.hidden_at

    def pieces_of(self, kind: str, word: str) -> list[Piece]:
        """Return what to write for the next word."""
        if kind == "sign" and word in "}]" and self.levels:
            return self._close(word)
        if kind == "sign" and word in ",:":
            return self._separate(word)
        return self._begin(kind, word)

    def _close(self, word: str) -> list[Piece]:
        self.levels.pop()
        if self.is_inside:
            return []
        was_hidden, self.hidden_at = self.hidden_at == len(self.levels), None
        return [] if was_hidden else [Piece("space", _line(len(self.levels))), Piece("sign", word)]

    def _separate(self, word: str) -> list[Piece]:
        if self.is_inside:
            return []
        self.hidden_at = None
        level = self.levels[-1] if self.levels else None
        if level is not None:
            level.index += word == ","
            level.expects_name = word == "," and level.sign == "{"
        return [Piece("sign", word), Piece("space", " " if word == ":" else _line(len(self.levels)))]

    def _begin(self, kind: str, word: str) -> list[Piece]:
        level = self.levels[-1] if self.levels else None
        written: list[Piece] = []
        if self.hidden_at is None and _is_hidden(level, self.levels, self.secrets):
            written, self.hidden_at = [Piece("hidden", HIDDEN)], len(self.levels)
        elif not self.is_inside:
            written = [Piece("sign", word)] if kind == "sign" else [_value(kind, word, level, self.nested)]
        if kind == "sign":
            self.levels.append(_Level(word))
            if written and written[0].kind == "sign":
                written.append(Piece("space", _line(len(self.levels))))
        return written


def _words(text: str) -> Iterator[tuple[str, str]]:
    for match in _PIECE.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "space":
            yield kind, match[0]


def _value(kind: str, word: str, level: _Level | None, nested: int) -> Piece:
    if kind == "string" and level is not None and level.expects_name:
        level.name = _decoded(word)
        return Piece("name", word)
    return Piece(kind, _redacted(word, nested) if kind == "string" else word)


def _is_hidden(level: _Level | None, levels: list[_Level], secrets: CallSecrets) -> bool:
    """Return whether the value that begins here is to be hidden."""
    if level is None or level.expects_name:
        return False
    parent = levels[0].name if len(levels) == 2 else ""
    if level.sign == "{":
        return is_secret(level.name) or (parent == "kwargs" and secrets.hides_name(level.name))
    return parent == "args" and secrets.hides_place(level.index)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MAX_INDENT)


def _decoded(word: str) -> str:
    """Return the value of a string, also of one without its end."""
    if not _is_closed(word):
        word = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z", r"\1", word) + '"'
    try:
        return str(json.loads(word, strict=False))
    except ValueError:
        return word


def _is_closed(word: str) -> bool:
    inside = word[1:-1]
    return len(word) > 1 and word[-1] == '"' and (len(inside) - len(inside.rstrip("\\"))) % 2 == 0


def _redacted(word: str, nested: int) -> str:
    """Return a string in which secrets are hidden: texts may hold JSON, a call or URLs of their own."""
    text = _decoded(word)
    clean = redacted_string(text, is_cut=not _is_closed(word), nested=nested)
    return word if clean == text else json.dumps(clean, ensure_ascii=False)


def redacted_string(text: str, *, is_cut: bool = False, nested: int = 0) -> str:
    """Return a text without secrets; when it is JSON itself, its values are hidden by their names."""
    if not is_json(text):
        return redacted_text(text, is_cut=is_cut)
    if nested >= MAX_NESTED:
        return HIDDEN
    parts = [part for kind, part in pieces(text, is_cut=is_cut, nested=nested + 1) if kind != "space"]
    clean = "".join(parts)
    return clean if HIDDEN in clean else text


def secrets_in(text: str, *, task: str = "", is_cut: bool = False) -> CallSecrets:
    """Return which arguments of the call in a text, or in its beginning, are to be hidden."""
    if text.lstrip()[:1] != "{":
        return CallSecrets()
    try:
        call = json.loads(text) if len(text) <= LONGEST_PARSED else None
    except (ValueError, RecursionError):
        call = None
    if call is None:
        named = _texts_of_object(text).get("task", "") or task
        is_unknown = is_cut and not named
        return CallSecrets(hides_all=True) if is_unknown else call_secrets(named, is_meta_known=False)
    named = call.get("task")
    return call_secrets(named if isinstance(named, str) else task, call.get("meta"))


def _texts_of_object(text: str) -> dict[str, str]:
    """Return the members of the outermost object whose values are whole texts."""
    found: dict[str, str] = {}
    depth, name, sign_before = 0, "", ""
    for kind, word in _words(text):
        if kind == "string" and depth == 1 and sign_before == ":":
            found[name] = _decoded(word) if _is_closed(word) else ""
        elif kind == "string" and depth == 1:
            name = _decoded(word)
        elif kind == "sign":
            depth += (word in "{[") - (word in "}]")
        sign_before = word if kind == "sign" else ""
    return found
