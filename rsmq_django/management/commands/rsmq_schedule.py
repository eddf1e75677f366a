"""`./manage.py rsmq_schedule`, which is `./manage.py rsmqctl schedule`."""

from __future__ import annotations

from ..cli.entrance import Entrance


class Command(Entrance):
    """The management command."""

    help = "Shows and changes schedules of periodic tasks."
    path = ("schedule",)
