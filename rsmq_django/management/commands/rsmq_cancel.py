"""`./manage.py rsmq_cancel ID...`, which is `./manage.py rsmqctl task cancel ID...`."""

from __future__ import annotations

from ..cli.entrance import Entrance


class Command(Entrance):
    """The management command."""

    help = "Cancels unfinished tasks."
    path = ("task", "cancel")
