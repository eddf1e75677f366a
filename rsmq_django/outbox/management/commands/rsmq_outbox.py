"""`./manage.py rsmq_outbox`, which is `./manage.py rsmqctl outbox`."""

from __future__ import annotations

from ....management.cli.entrance import CHECKS, Entrance


class Command(Entrance):
    """The management command."""

    help = "Shows and sends the task messages in the outbox."
    requires_system_checks = CHECKS
    path = ("outbox",)
