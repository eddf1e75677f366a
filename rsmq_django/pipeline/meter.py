"""Progress of a step on a terminal: rows, rate and time, and a bar if the total is known.

Shows nothing without a terminal or without rich.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["Meter"]


class Meter:
    """Shows one step at a time on standard error."""

    def __init__(self, *, is_shown: bool | None = None, console: Console | None = None) -> None:
        can_show = importlib.util.find_spec("rich") is not None and sys.stderr.isatty()
        self.is_shown = can_show if is_shown is None else is_shown
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @contextmanager
    def during(self, step: str) -> Iterator[None]:
        """Show the progress of a step, and remove it at its end; a line with the result follows."""
        if not self.is_shown:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn())
        speed, console = TextColumn("{task.fields[rate]}"), self._console or Console(stderr=True)
        with Progress(*columns, speed, TimeElapsedColumn(), console=console, transient=True) as progress:
            self._progress, self._task = progress, progress.add_task(step, total=None, rate="")
            try:
                yield
            finally:
                self._progress = None

    def __call__(self, step: str, done: int, total: int | None = None) -> None:
        """Show the progress of the step. It can be called at any rate."""
        if self._progress is None or self._task is None:
            return
        speed = self._progress.tasks[0].speed
        rate = f"{speed:,.0f}/s" if speed else ""
        self._progress.update(self._task, completed=done, total=total, rate=rate)
