"""`./manage.py rsmq_stats`, which is `./manage.py rsmqctl stats`."""

from __future__ import annotations

from ..cli.entrance import CHECKS, Entrance


class Command(Entrance):
    """The management command."""

    help = "Shows depth of queues and recent counts, latency and run time, per queue and task."
    requires_system_checks = CHECKS
    path = ("stats",)
    has_connections = True
