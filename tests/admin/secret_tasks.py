"""Tasks whose arguments are secret, for tests of what pages show of their calls."""

from typing import Any

from rsmq_django.tasks import task


@task
def login(user: str, password: str = "hunter2", *tokens: str, **secrets: Any) -> None:  # noqa: S107
    """Do nothing."""


@task
def store(user: str, value: int = 7) -> None:
    """Do nothing."""


@task(takes_context=True)
def rotate(context: Any, old_key: str, user: str) -> None:
    """Do nothing."""
