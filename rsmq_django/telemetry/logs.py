"""A formatter that writes log records as JSON lines, with the fields that workers add.

Any formatter that prints a record's extra attributes shows the same fields; this one needs no other package.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter"]

#: Prefix of our fields, which avoids conflicts with fields of logging and other packages.
PREFIX = "rsmq_"


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, message, our fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name.removeprefix(PREFIX): value for name, value in vars(record).items() if name.startswith(PREFIX)}
        if record.exc_text:
            fields["traceback"] = record.exc_text
        elif record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
