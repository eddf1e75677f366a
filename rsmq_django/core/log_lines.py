"""The loggers of this package: records are single lines without terminal control characters.

Message ids, names of queues, tasks and workers, and texts of errors come from Redis and are untrusted. Every record
passes this filter before a handler receives it, with any formatter.
"""

from __future__ import annotations

import logging
import traceback

from .texts import printable, printable_lines


class Printable(logging.Filter):
    """Escapes control characters of the message and our fields; indents all but the first line of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the record, and return True."""
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = printable(message), None
        for name, value in vars(record).items():
            if name.startswith("rsmq_") and isinstance(value, str):
                setattr(record, name, printable(value))
        if record.exc_info and not record.exc_text:
            record.exc_text = _traceback_of(record.exc_info[1])
        if record.exc_text:
            record.exc_text = printable_lines(record.exc_text)
        return True


def _traceback_of(error: BaseException | None) -> str:
    try:
        return "".join(traceback.format_exception(error)) if error is not None else ""
    except BaseException:  # its __str__ raises, possibly SystemExit
        return f"{type(error).__qualname__}: (its text cannot be shown)"


_PRINTABLE = Printable()


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    logger = logging.getLogger(name)
    logger.addFilter(_PRINTABLE)
    return logger
