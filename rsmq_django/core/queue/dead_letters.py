"""Dead letters: filters, and the history of earlier failures that is kept when they are sent again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from .browse import StoredMessage

#: Maximum number of failures of one message that are kept over redrives: more would not help to find the cause.
MOST_LIVES = 10
#: Fields that are kept of each; not the traceback, which is stored in the result record.
KEPT_OF_A_LIFE = ("reason", "queue", "attempts", "error", "message", "died_ms", "worker")
LONGEST_TEXT = 500


@dataclass(frozen=True)
class Filter:
    """Conditions on a message's failure record. Without conditions every message fits, even without a record."""

    #: Of the task and of the exception: a dotted path or its last part; `*` and `?` fit any letters.
    task: str | None = None
    error: str | None = None
    reason: str | None = None
    since_ms: float | None = None
    until_ms: float | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is no condition at all."""
        return self == Filter()

    def fits(self, message: StoredMessage) -> bool:
        """Return whether the message fulfils every condition."""
        if self.is_empty:
            return True
        failure = message.failure()
        if failure is None:
            return False
        died_ms = failure.died_ms or 0
        return (
            _is_named(failure.task, self.task)
            and _is_named(failure.error, self.error)
            and self.reason in (None, failure.reason)
            and (self.since_ms is None or died_ms >= self.since_ms)
            and (self.until_ms is None or 0 < died_ms <= self.until_ms)
        )


def _is_named(path: str, pattern: str | None) -> bool:
    """Return whether a dotted path, or its last part, fits a pattern with * and ?."""
    if pattern is None:
        return True
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition(".")[2], pattern)


def lives_of(failure_json: bytes) -> str:
    """Return all failures of a dead letter so far, oldest first, as a JSON array; "" when there is no record of any.

    Its failure record is the last one; `history` in it has those before. Tolerant: any program may have written it.
    """
    try:
        record = json.loads(failure_json)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(record, dict):
        return ""
    history = record.get("history")
    earlier = [life for life in history if isinstance(life, dict)] if isinstance(history, list) else []
    lives = [_shortened(life) for life in [*earlier, record]]
    return json.dumps(lives[-MOST_LIVES:], separators=(",", ":"))


def _shortened(life: dict[str, Any]) -> dict[str, Any]:
    kept = {name: life[name] for name in KEPT_OF_A_LIFE if isinstance(life.get(name), (str, int, float))}
    return {name: value[:LONGEST_TEXT] if isinstance(value, str) else value for name, value in kept.items()}
