"""`rsmqctl task`: runs of tasks, and retries of dead letters."""

from __future__ import annotations

import click

from .options import RsmqctlGroup
from .task_retry import retry
from .tasks import list_, show, tail


@click.group(cls=RsmqctlGroup)
def task() -> None:
    """List, show and follow runs of tasks, and retry dead letters."""


for command in (list_, show, tail, retry):
    task.add_command(command)
