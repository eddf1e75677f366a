"""Exceptions as text for logs, failure records and results. A task may raise anything, so nothing here may raise."""

from __future__ import annotations

import traceback

from ...core.texts import printable

#: Tracebacks are for people, who read their end.
MAX_TRACEBACK_CHARACTERS = 8192
MAX_TEXT_CHARACTERS = 2000
MAX_LINE_CHARACTERS = 500


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the task's first frame on, cut at its beginning when it is long."""
    frame, ours = error.__traceback__, __package__.partition(".")[0] + "."
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith(ours):
        frame = frame.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frame))
    except BaseException:  # its own __str__ raises, maybe SystemExit
        text = one_line(error)
    return text if len(text) <= MAX_TRACEBACK_CHARACTERS else "...\n" + text[-MAX_TRACEBACK_CHARACTERS:]


def dotted_path(kind: type[BaseException]) -> str:
    """Return the dotted path of an exception's class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return the exception's own text."""
    try:
        return str(error)[:MAX_TEXT_CHARACTERS]
    except BaseException:  # its own __str__ raises, maybe SystemExit
        return "(its text cannot be shown)"


def one_line(error: BaseException) -> str:
    """Return class and text on one printable line: texts are input of other people, and logs are read by line."""
    text = text_of(error)[:MAX_LINE_CHARACTERS]
    line = f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__
    return printable(line)
