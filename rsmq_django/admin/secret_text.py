"""Free text without secrets: error messages, tracebacks, header lines, bodies that are not JSON.

A value is hidden when its name contains one of the words of RSMQ["ADMIN"]["REDACT"]. A name is followed by `=`, `:`,
`=>`, a comma (in a pair) or `>` (of a tag); the value is a quoted text, everything up to the closing bracket, or a
word. A header line is hidden to its end. A secret without a name cannot be found.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..conf.settings import get_settings

HIDDEN = "•••"

_URL_PASSWORD = re.compile(r"(://[^\s/:@]{0,200}:)[^\s/]{1,200}(?=@)")
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
_BEARER = re.compile(r"\b(bearer\s{1,3})[\w.~+/-]{8,}=*", re.IGNORECASE)
#: The name of an exception does not name a value: "KeyError: 'gate'".
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning)$")
#: Headers whose values are several words, wherever they appear in a line.
_HEADER = re.compile(r"authorization|cookie", re.IGNORECASE)
#: How far back to look for what precedes a name.
_LOOK_BACK = 100

_LINE_START = re.compile(r"(?:\A|[\r\n]|\\[rn])[ \t<>*-]{0,20}[\w.-]*\Z")
_OPEN_QUOTE = re.compile(r"(\\*)([\"'])[\w.-]*\Z")
_OPEN_PAIR = re.compile(r"[(\[]\s{0,3}[a-zA-Z]{0,2}\\*[\"'][\w.-]*\Z")
_OPEN_TAG = re.compile(r"<[\w.:-]*\Z")
_FLAG = re.compile(r"(?:\A|\s)--?[\w-]*\Z")

_QUOTE = re.compile(r"[bfru]{0,2}(\\*)(\"\"\"|'''|\"|')", re.IGNORECASE)
_NEXT_STRING = re.compile(r"\s{1,80}" + _QUOTE.pattern, re.IGNORECASE)
_ANY_QUOTE = re.compile(r"(?<!\\)(\\*+)([\"'])")
_BRACKET_OR_QUOTE = re.compile(r"[()\[\]{}]|(?<!\\)\\*+[\"']")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|apikey|negotiate|hawk|ntlm)\s{1,3}", re.IGNORECASE)
# What separates values belongs to a value when a letter follows that does not begin another name.
_WORD = re.compile(r"(?:[^\s,;&()\[\]{}\"'<>\\]|[,;)\]}\"'>\\](?=\w)(?!\w[\w.-]{0,60}+\s?[=:]))++")
_ANNOTATION = re.compile(
    r"[\w.]{1,60}+(?:\[[^\]\n]{0,80}\])?(?:\s?\|\s?[\w.]{1,60}+(?:\[[^\]\n]{0,80}\])?){0,4}+\s?=\s?(?!=)"
)
_LINE_FEED = re.compile(r"\n")
_LINE_END = re.compile(r"[\r\n]|(?<!\\)\\++(?:r\\++n|n(?=[\w-]{1,60}:|[\"'\\]|\Z))|\Z")


class _Text(str):
    """A text that remembers where a pattern comes next: looking for it after each value would take quadratic time."""

    def __init__(self, _text: str) -> None:
        self._next: dict[re.Pattern[str], tuple[int, int]] = {}

    def next_match(self, pattern: re.Pattern[str], start: int) -> int:
        """Return where the first match from `start` on begins; the end of the text when there is none."""
        since, found = self._next.get(pattern, (0, -1))
        if not since <= start <= found:
            match = pattern.search(self, start)
            found = match.start() if match else len(self)
            self._next[pattern] = start, found
        return found


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
    return _BEARER.sub(rf"\1{HIDDEN}", _without_values(text, _names(words))) if words else text


@lru_cache(maxsize=4)
def _names(words: tuple[str, ...]) -> re.Pattern[str]:
    secret = "|".join(re.escape(word) for word in words)
    signs = r"\s{0,3}(?:=>|:=|[=!]=|[:=])|\s{0,3},|>|\s"
    return re.compile(rf"""((?:{secret})[\w.-]{{0,60}}+)(\\*+["']?\]?)({signs})\s{{0,3}}""", re.IGNORECASE)


def _without_values(text: str, names: re.Pattern[str]) -> str:
    parts, done, at = [], 0, 0
    searched = _Text(text)
    while (match := names.search(text, at)) is not None:
        start, end = _value_after(searched, match)
        at = max(end, match.end(1))
        if end > start:
            parts += [text[done:start], HIDDEN]
            done = end
    return "".join([*parts, text[done:]])


def _value_after(text: _Text, match: re.Match[str]) -> tuple[int, int]:
    """Return where the value of a name begins and ends; the same place twice when it has none."""
    start = match.end()
    if _EXCEPTION.search(match[1]):
        return start, start
    before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    find_end = _FIND_END.get(match[3].strip(), _end_after_sign)
    return start, find_end(text, match, before)


def _end_after_comma(text: _Text, match: re.Match[str], before: str) -> int:
    """Return where the value of a pair ends, as in ("password", "x")."""
    is_pair = match[2] and _OPEN_PAIR.search(before) and _QUOTE.match(text, match.end())
    return _value_end(text, match.end()) if is_pair else match.end()


def _end_after_tag(text: _Text, match: re.Match[str], before: str) -> int:
    """Return where the content of an element ends, as in <password>x</password>."""
    if match[2] or not _OPEN_TAG.search(before):
        return match.end()
    end = text.find("<", match.end())
    return end if end >= 0 else len(text)


def _end_after_space(text: _Text, match: re.Match[str], before: str) -> int:
    """Return where the value of an option ends, as in --password x."""
    is_option = not match[2] and _FLAG.search(before)
    return _value_end(text, match.end()) if is_option else match.end()


def _end_after_sign(text: _Text, match: re.Match[str], before: str) -> int:
    """Return where an assigned value ends, or a header."""
    start, is_colon = match.end(), match[3].strip() == ":"
    if not match[2] and (_HEADER.search(match[1]) or (is_colon and _LINE_START.search(before))):
        return _header_end(text, start, before)
    annotated = _ANNOTATION.match(text, start) if is_colon else None
    # What looks like an annotation may be the value itself, a text in base 64 that ends with "=": both are hidden.
    return _value_end(text, annotated.end() if annotated else start)


#: Separator of a name and its value -> how to find the end of the value.
_FIND_END = {",": _end_after_comma, ">": _end_after_tag, "": _end_after_space}


def _header_end(text: _Text, start: int, before: str) -> int:
    """Return where a line ends, or the quoted text of which it is the only one."""
    if _QUOTE.match(text, start) or text[start : start + 1] in _CLOSING:
        end = _value_end(text, start)
        if text[end : end + 1] not in (";", " "):  # else it is one of several values
            return end
    opened = _OPEN_QUOTE.search(before)
    line_end = _line_end(text, start)
    return _quote_end(text, start, len(opened[1]), opened[2], last=line_end) if opened else line_end


def _line_end(text: _Text, start: int) -> int:
    return text.next_match(_LINE_END, start)


def _value_end(text: _Text, start: int) -> int:
    """Return where the value ends that begins at `start`."""
    if text.startswith("<", start):
        closing = text.find(">", start, _line_end(text, start))
        return closing + 1 if closing >= 0 else _line_end(text, start)
    quote, scheme = _QUOTE.match(text, start), _SCHEME.match(text, start)
    at = _strings_end(text, quote) if quote else scheme.end() if scheme else start
    while True:
        if text[at : at + 1] in _CLOSING:  # never for "", which is the end
            at = _bracket_end(text, at)
        elif (word := _WORD.match(text, at)) is not None and (quote is None or word[0][0].isalnum()):
            at = word.end()
        elif quote is None and at > start and text[at - 1] in "=:" and (inner := _QUOTE.match(text, at)):
            at = _quoted_end(text, inner)
        else:
            return at


def _strings_end(text: _Text, quote: re.Match[str]) -> int:
    """Return the end of a quoted text and of adjacent ones: Python joins adjacent literals."""
    end = _quoted_end(text, quote)
    while (more := _NEXT_STRING.match(text, end)) is not None and more[1] == quote[1]:
        end = _quoted_end(text, more)
    return end


def _quoted_end(text: _Text, quote: re.Match[str]) -> int:
    """Return where a quoted text ends."""
    end = quote.end()
    if len(quote[2]) == 3:
        closing = text.find(quote[2], end)
        return closing + 3 if closing >= 0 else len(text)
    end = _quote_end(text, end, len(quote[1]), quote[2])
    closing_width = len(quote[1]) + 1
    return min(end + closing_width, len(text)) if end < _line_end_of_quote(text, end) else end


def _line_end_of_quote(text: _Text, start: int) -> int:
    return text.next_match(_LINE_FEED, start)


def _quote_end(text: _Text, start: int, backslashes: int, quote: str, *, last: int | None = None) -> int:
    """Return where the closing quote of a text begins, or its line ends without one; at most `last`.

    A text inside of n other texts has quotes with 2**n - 1 backslashes, and those of its own value have more.
    """
    line_end = _line_end_of_quote(text, start)
    if last is not None:
        line_end = min(line_end, last)
    for found in _ANY_QUOTE.finditer(text, start, line_end):
        number = len(found[1])
        if found[2] == quote and (number < backslashes or number % (2 * backslashes + 2) == backslashes):
            return found.end() - 1 - min(number, backslashes)
    return line_end


def _bracket_end(text: _Text, start: int) -> int:
    """Return where the bracket is closed that opens at `start`; the end of the text when it never is."""
    open_brackets, at = [_CLOSING[text[start]]], start + 1
    while open_brackets:
        found = _BRACKET_OR_QUOTE.search(text, at)
        if found is None:
            return len(text)
        at, sign = found.end(), found[0]
        if sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
        elif sign == open_brackets[-1]:
            open_brackets.pop()
        elif sign[-1] in "\"'":
            quote = _QUOTE.match(text, found.start())
            at = max(at, _quoted_end(text, quote)) if quote else at
    return at
