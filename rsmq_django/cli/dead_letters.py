"""The options that select dead letters, shared by list, count, redrive and retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..core.queue.dead_letters import Filter
from .options import MOMENT

__all__ = ["Filter", "filter_options"]

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(function: F) -> F:
    """Add the filter options to a command, which receives their values as keyword arguments for `Filter`."""
    options = (
        click.option(
            "--until", "until_ms", type=MOMENT, metavar="TIME", help="Failed at or before TIME; same forms as --since."
        ),
        click.option(
            "--since",
            "since_ms",
            type=MOMENT,
            metavar="TIME",
            help="Failed at or after TIME: 30m, 2h, 7d, or a time.",
        ),
        click.option("--reason", metavar="WORD", help="With this reason, for example gave_up."),
        click.option("--error", metavar="NAME", help="With this exception: path or name; * and ? are wildcards."),
        click.option("--task", metavar="NAME", help="Of this task: path or name; * and ? are wildcards."),
    )
    for option in options:
        function = option(function)
    return function
