"""`./manage.py rsmq_doctor`, which is `./manage.py rsmqctl doctor`."""

from __future__ import annotations

from ..cli.entrance import CHECKS, Entrance


class Command(Entrance):
    """The management command."""

    help = "Checks Redis and its RSMQ queues for problems, and repairs them on request."
    requires_system_checks = CHECKS
    path = ("doctor",)
    has_connections = True
