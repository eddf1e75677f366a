"""`./manage.py rsmq_schedule`, which is `./manage.py rsmqctl schedule`."""

from __future__ import annotations

from ..cli.entrance import CHECKS, Entrance


class Command(Entrance):
    """The management command."""

    help = "Shows and changes schedules of periodic tasks."
    requires_system_checks = CHECKS
    path = ("schedule",)
