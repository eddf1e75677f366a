"""The options that say which dead letters are meant, shared by list, count and redrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..core.dead_letters import Filter
from .options import MOMENT

__all__ = ["Filter", "filter_options"]

F = TypeVar("F", bound=Callable[..., Any])


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
