"""The output of commands: JSON, tables, questions and progress.

Names and bodies are untrusted: they pass through `printable()` before they reach a terminal. Colours and progress
appear on terminals only; a pipe gets plain text.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import Any, Self, TextIO

import click

from ..core.texts import printable as printable
from .failures import Failed

#: Line width in a pipe; a terminal has its own.
PIPE_WIDTH = 160
GAP = "  "
#: On a terminal that is too narrow for all columns, lines wrap rather than lose the last one.
MIN_LAST_COLUMN = 12
CLEAR_LINE = "\x1b[K"
#: Shorter work shows no progress bar.
PATIENCE_S = 0.5


# -- Untrusted text ---------------------------------------------------------------------------------------------------


def as_text(body: bytes, *, is_cut: bool = False) -> str:
    r"""Return a body as text; bytes that are not UTF-8 become \xff. An incomplete character at a cut is dropped."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(body, final=not is_cut)


def message_fields(body: bytes) -> dict[str, str]:
    """Return the JSON fields of a body: `message`, and `encoding` when it is not UTF-8."""
    try:
        return {"message": body.decode()}
    except UnicodeDecodeError:
        return {"message": base64.b64encode(body).decode("ascii"), "encoding": "base64"}


def write_json(value: Any) -> None:
    """Print a JSON document on one line. ASCII only, so that it cannot contain terminal control sequences."""
    click.echo(json.dumps(value))


# -- Sizes and times --------------------------------------------------------------------------------------------------


def as_duration(seconds: float) -> str:
    """Return 0.5 as 500ms, 75 as 1m15s, 7500 as 2h5m."""
    if not math.isfinite(seconds):
        return "forever"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, letters in ((86_400, 3_600, "dh"), (3_600, 60, "hm"), (60, 1, "ms")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large}{letters[0]}" + (f"{rest}{letters[1]}" if rest else "")
    return f"{whole}s"


def as_size(size_bytes: float) -> str:
    """Return 1536 as 1.5K."""
    for unit in ("", "K", "M", "G"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f}{unit}" if not unit or size_bytes >= 10 else f"{size_bytes:.1f}{unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f}T"


# -- Tables -----------------------------------------------------------------------------------------------------------


class TextTable:
    """Aligned columns. The last column takes the remaining width; rows may arrive in several parts."""

    def __init__(self, headers: Sequence[str], *, right: Sequence[str] = ()) -> None:
        self.headers = headers
        self._right = [header in right for header in headers]
        self._widths = [len(header) for header in headers]
        self._line_width = line_width()
        self._is_begun = False

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the header, once, and the rows. Cells may be styled."""
        for row in rows:
            self._widths = [max(width, columns(cell)) for width, cell in zip(self._widths, row, strict=True)]
        lines = [self._line(row) for row in rows]
        if not self._is_begun:
            lines.insert(0, click.style(self._line(self.headers), bold=True))
            self._is_begun = True
        return lines

    def print(self, rows: Sequence[Sequence[str]]) -> None:
        """Print the rows."""
        click.echo("\n".join(self.lines(rows)))

    def _line(self, cells: Sequence[str]) -> str:
        *first, last = cells
        room = self._line_width - sum(self._widths[:-1]) - len(GAP) * len(first)
        padded = [
            _aligned(cell, width, is_right=is_right)
            for cell, width, is_right in zip(first, self._widths, self._right, strict=False)
        ]
        if self._right[-1]:
            last = _aligned(last, self._widths[-1], is_right=True)
        elif "\x1b" not in last:
            last = cut(last, max(room, MIN_LAST_COLUMN))
        return GAP.join([*padded, last]).rstrip()


def _aligned(cell: str, width: int, *, is_right: bool) -> str:
    blanks = " " * (width - columns(cell))
    return blanks + cell if is_right else cell + blanks


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    letters = click.unstyle(text) if "\x1b" in text else text
    if letters.isascii():
        return len(letters)
    return sum(_letter_width(letter) for letter in letters)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return plain text of at most `width` columns; an ellipsis marks omitted text."""
    if columns(text) <= width:
        return text
    kept, taken = [], 1
    for letter in text:
        taken += _letter_width(letter)
        if taken > width:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def line_width() -> int:
    """Return the width of the terminal, or the line width for a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def can_redraw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


# -- Questions and progress -------------------------------------------------------------------------------------------


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation before data is deleted. Without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed("confirmationNeeded", f"{question} Cannot ask without a terminal: add --yes")
    click.confirm(question, abort=True, err=True)


class ProgressBar:
    """A progress bar on stderr, if that is a terminal and the work takes more than a moment.

    Without a total it shows a counter.
    """

    def __init__(self, label: str, total: int | None, *, shows_numbers: bool = True, is_quiet: bool = False) -> None:
        self._make_bar = partial(
            click.progressbar,
            # Click treats an endless iterator as one of unknown length.
            iterable=None if total is not None else iter(int, 1),
            length=total,
            label=label,
            file=sys.stderr,
            show_pos=shows_numbers,
            show_percent=total is not None,
        )
        self._shown_from_s = math.inf if is_quiet or not sys.stderr.isatty() else time.monotonic() + PATIENCE_S
        self._early_steps = 0
        self._bar: Any = None

    def advance(self, steps: int) -> None:
        """Add a number of finished steps."""
        if self._bar is None and time.monotonic() < self._shown_from_s:
            self._early_steps += steps
            return
        if self._bar is None:
            self._bar = self._make_bar()
            self._bar.__enter__()
            steps += self._early_steps
        self._bar.update(steps)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar on the screen, and move to the line below it."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)


class StatusLine:
    """A status line on stderr, if that is a terminal, which disappears when the work ends."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_shown = can_redraw(sys.stderr) and not is_quiet

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._is_shown:
            # Not with click, which removes this code along with the colours when NO_COLOR is set.
            sys.stderr.write(f"\r{CLEAR_LINE}{cut(printable(text), line_width() - 1)}")
            sys.stderr.flush()

    def show_progress(self, what: str, done: int, total: int | None) -> None:
        """Replace the line with the progress."""
        self.show(f"{what}: {done}" if total is None else f"{what}: {done} of {total}")

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        self.show("")
