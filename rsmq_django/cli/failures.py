"""Errors of the command line: one line of text, or one JSON object.

Core's errors use the names of the Python API; here they are reworded with the names of the command line. Printing is
the business of `app`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Self

import click

from ..core import RsmqError, errors


class ExitCode(IntEnum):
    """The exit codes of all commands; docs/reference/rsmqctl.md shows them with their meanings."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Return a code with its meaning."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    SUCCESS = (
        0,
        "success, also of a receive without a message, and of Ctrl-C where it ends `--watch` or `tail`",
    )
    FAILURE = 1, "the command could not do its work, or only a part; or a check has found something"
    USAGE = 2, "a mistake in the command line, with the usage on stderr; nothing was done"
    INTERRUPTED = 130, "Ctrl-C"


class Failed(Exception):
    """A command failed; `name` is the error for programs, `text` the error line."""

    code = ExitCode.FAILURE

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.text = text


class Interrupted(Failed):
    """The command was interrupted by Ctrl-C; `text` states the progress so far."""

    code = ExitCode.INTERRUPTED

    def __init__(self, text: str = "interrupted") -> None:
        super().__init__("interrupted", text)


class WrongUsage(Failed):
    """The command line is wrong; `error` can print the usage of the command."""

    code = ExitCode.USAGE

    def __init__(self, error: click.UsageError) -> None:
        super().__init__("usage", error.format_message())
        self.error = error


class PipeClosed(Failed):
    """The reader of the output has ended (`| head`). Only a command that changes data has a text to print."""

    def __init__(self, text: str = "") -> None:
        super().__init__("pipeClosed", text)


#: Class of the error, a pattern in its text, its replacement.
_REWORDED: tuple[tuple[type[RsmqError], str, str], ...] = (
    (
        errors.QueueNotFound,
        r"""queue not found: (['"])(.*?)\1; create it; .*""",
        r"queue not found: \2; create it, or look in another namespace (--ns) or database (-r)",
    ),
    (
        errors.QueueNotFound,
        r"""reliable queue not found: (['"])(.*?)\1; the first push creates it""",
        r"reliable queue not found: \2; 'reliable push --create' creates it",
    ),
    (errors.QueueNotFound, r"""queue not found: (['"])(.*?)\1; """, r"queue not found: \2; "),
    (
        errors.QueueExists,
        r"""queue exists: (['"])(.*?)\1; .*""",
        r"queue exists: \2; its attributes were left alone, 'queue set' changes them",
    ),
    (
        errors.MessageTooLong,
        r"body is (\d+) bytes, queue '(.*?)' allows (\d+); .*",
        r"message too long: \1 bytes, maximum \3; 'queue set -n \2 -m -1' lifts it, or store the body elsewhere",
    ),
    (
        errors.MessageTooLong,
        r"body is (\d+) bytes, this client sends at most (\d+); .*",
        r"message too long: \1 bytes, maximum \2 for this client; store the body elsewhere and send a reference",
    ),
    (errors.InvalidValue, r"^visibility_timeout_s is", "--visibility-timeout is"),
    (errors.InvalidValue, r"^delay_s is", "--delay is"),
    (errors.InvalidValue, r"^max_size_bytes is", "--maxsize is"),
    (errors.NoAttributeSupplied, r".*", "nothing to set; give -t, -d or -m"),
)


def text_of(error: RsmqError | Failed) -> str:
    """Return the error line, with the names of the command line."""
    if isinstance(error, Failed):
        return error.text
    text = str(error)
    for kind, pattern, words in _REWORDED:
        if isinstance(error, kind) and re.search(pattern, text, re.S):
            return re.sub(pattern, words, text, count=1, flags=re.S)
    return text


def name_of(error: RsmqError | Failed) -> str:
    """Return the error's name for programs: the one of RSMQ's reference implementation if it has one."""
    if isinstance(error, Failed):
        return error.name
    kind = type(error).__name__
    return error.rsmq_name or kind[0].lower() + kind[1:]


def did_you_mean(name: str, known: Sequence[str], instead: str) -> str:
    """Return the question for the nearest known name; without one, what to do instead."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else instead


def failed_on(errors: Sequence[RsmqError]) -> Failed:
    """Return the failure of a command that some servers did not answer, while others did."""
    return Failed(name_of(errors[0]), "; ".join(dict.fromkeys(map(text_of, errors))))
