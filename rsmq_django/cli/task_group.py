"""`rsmqctl task`: what ran, and running it again."""

from __future__ import annotations

import click

from .options import Group
from .task_retry import retry
from .tasks import list_, show, tail


@click.group(cls=Group)
def task() -> None:
    """What ran, and running it again."""


for command in (list_, show, tail, retry):
    task.add_command(command)
