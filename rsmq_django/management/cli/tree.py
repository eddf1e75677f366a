"""The operator commands of a project: those of rsmqctl, and those that need Django."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import click
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from ...cli import app
from ...cli.failures import Failed
from ...cli.session import Session
from .cancel import cancel
from .project import CONNECTION_OPTION, SettingsProject
from .schedule import schedule
from .stats import stats

#: Django reads these options before the command does.
READ_BY_DJANGO = [click.Option([name], hidden=True, expose_value=False) for name in ("--settings", "--pythonpath")]


def project_tree() -> click.Group:
    """Return rsmqctl with --connection and the commands that need Django."""
    tree = copy.copy(app.root)
    tree.params = [*app.root.params, CONNECTION_OPTION, *READ_BY_DJANGO]
    task = app.root.commands["task"]
    assert isinstance(task, click.Group)
    project_task = copy.copy(task)
    project_task.commands = {**task.commands, "cancel": cancel}
    tree.commands = {**app.root.commands, "task": project_task, "schedule": schedule, "stats": stats}
    if apps.is_installed("rsmq_django.outbox"):
        from .outbox import outbox  # its models can be imported where they are installed only

        tree.commands["outbox"] = outbox
    return tree


def project_session() -> Session:
    """Return the session of a command line of `manage.py`."""
    return Session(project=SettingsProject())


def run(
    command: click.Command, words: Sequence[str], *, prog_name: str, session: Session, color: bool | None = None
) -> None:
    """Run a command line. Raises Failed for every error that its user or the settings can cause."""
    try:
        app.run(command, words, prog_name=prog_name, session=session, color=color)
    except ImproperlyConfigured as error:
        raise Failed("improperlyConfigured", str(error)) from error
