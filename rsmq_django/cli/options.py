"""Options and types that several commands share, and groups whose commands all accept --json.

Also completes queue and topic names in a shell. Completion must never fail or block: on an error it returns nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ..core import Client, Connection, RsmqError, list_queues
from ..core.topic import list_topics
from .session import Session, console_session

F = TypeVar("F", bound=Callable[..., Any])

#: The shell blocks while it waits for completions.
COMPLETION_TIMEOUT_S = 0.5


# -- Groups -----------------------------------------------------------------------------------------------------------


def _choose_json(context: click.Context, _parameter: click.Parameter, is_chosen: bool) -> None:
    if is_chosen:
        context.ensure_object(Session).json = True


def _choose_verbose(context: click.Context, _parameter: click.Parameter, is_chosen: bool) -> None:
    if is_chosen:
        context.ensure_object(Session).verbose = True


#: Eager, so that errors of the other options are printed in the chosen format.
JSON_OPTION = click.Option(
    ["as_json", "--json"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_choose_json,
    help="Print JSON.",
)
VERBOSE_OPTION = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_choose_verbose,
    help="Print tracebacks of errors.",
)


class RsmqctlCommand(click.Command):
    """A command that accepts --json after its name, too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, --json and --help."""
        *own, help_option = super().get_params(ctx)
        return [*own, JSON_OPTION, help_option]


class RsmqctlGroup(click.Group):
    """A group of such commands."""

    command_class = RsmqctlCommand


# -- Completion -------------------------------------------------------------------------------------------------------


def complete_queue_name(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of queues that begin with the typed text."""
    chosen = context.find_root().params
    url = chosen.get("url") or console_session().url
    try:
        client = Client(
            Connection(str(url), timeout_s=COMPLETION_TIMEOUT_S, role="cli"), namespace=chosen.get("ns") or "rsmq"
        )
        return [name for name in list_queues(client) if name.startswith(typed)]
    except (RsmqError, ValueError):
        return []


def complete_topic_name(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names of topics that begin with the typed text."""
    url = context.find_root().params.get("url") or console_session().url
    try:
        client = Client(Connection(str(url), timeout_s=COMPLETION_TIMEOUT_S, role="cli"))
        return [name for name in list_topics(client) if name.startswith(typed)]
    except (RsmqError, ValueError):
        return []


# -- Types ------------------------------------------------------------------------------------------------------------

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class TimeParam(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """A time: an age such as 90s, 30m, 2h, 7d, or an ISO date and time (local unless it names a zone)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return epoch milliseconds."""
        age = _AGE.fullmatch(value)
        if age:
            return (time.time() - float(age[1]) * _UNIT_S[age[2]]) * 1000
        try:
            return datetime.fromisoformat(value).timestamp() * 1000
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither an age such as 30m, 2h or 7d nor a time such as 2026-03-01T12:00", param, ctx
            )


MOMENT = TimeParam()


# -- Options ----------------------------------------------------------------------------------------------------------

name_option = click.option(
    "-n", "--name", required=True, metavar="QUEUE", shell_complete=complete_queue_name, help="The queue."
)
yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")


def attribute_options(*, vt: int | None, delay: int | None, max_size: int | None) -> Callable[[F], F]:
    """Return the options for a queue's attributes, with these defaults."""
    options = (
        click.option(
            "-m",
            "--maxsize",
            type=int,
            default=max_size,
            show_default=max_size is not None,
            help="Maximum body size in bytes; -1 for no limit.",
        ),
        click.option(
            "-d",
            "--delay",
            type=int,
            default=delay,
            show_default=delay is not None,
            help="Delay of new messages in seconds.",
        ),
        click.option(
            "-t",
            "--visibility-timeout",
            type=int,
            default=vt,
            show_default=vt is not None,
            help="Visibility timeout of received messages in seconds.",
        ),
    )

    def decorate(function: F) -> F:
        for option in options:
            function = option(function)
        return function

    return decorate
