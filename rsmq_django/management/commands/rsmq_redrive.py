"""`./manage.py rsmq_redrive`, which is `./manage.py rsmqctl message redrive`."""

from __future__ import annotations

from ..cli.entrance import Entrance


class Command(Entrance):
    """The management command."""

    help = "Sends dead letters back to their original queues, to be run again."
    path = ("message", "redrive")
    has_connections = True
