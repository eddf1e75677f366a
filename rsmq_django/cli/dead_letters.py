"""Which messages are meant: filters on the failure records of dead letters, shared by list, count and redrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from ..core.browse import StoredMessage
from .options import MOMENT

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Filter:
    """What a message's failure record must say. Without any condition every message fits, record or not."""

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


def filter_options(function: F) -> F:
    """Add the options of a filter to a command; it gets their values as keywords for `Filter`."""
    options = (
        click.option("--until", "until_ms", type=MOMENT, metavar="TIME", help="That died no later, as --since."),
        click.option(
            "--since", "since_ms", type=MOMENT, metavar="TIME", help="That died since: 30m, 2h, 7d, or a time."
        ),
        click.option("--reason", metavar="WORD", help="Of this reason, for example gave_up."),
        click.option("--error", metavar="NAME", help="Of this exception: path or name; * and ? fit any letters."),
        click.option("--task", metavar="NAME", help="Of this task: path or name; * and ? fit any letters."),
    )
    for option in options:
        function = option(function)
    return function
