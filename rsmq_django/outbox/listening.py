"""How a relay learns that there is something to send: PostgreSQL tells it, any other database is asked now and then."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from django.db import connections

from .writing import CHANNEL


class Doorbell:
    """Waits for new rows. A notification that is lost costs one poll interval, nothing more."""

    def __init__(self, database: str) -> None:
        self._database = database
        #: The driver's connection that listens; another one after the database was away.
        self._listening: Any = None
        self._has_rung = False

    def listen(self) -> None:
        """Begin to listen, where the database can tell. Call it before looking at the table."""
        connection = connections[self._database]
        if connection.vendor != "postgresql":
            return
        connection.ensure_connection()
        driver = connection.connection
        # psycopg 3; with its predecessor, rows are looked for at every interval.
        if driver is self._listening or not hasattr(driver, "add_notify_handler"):
            return
        driver.add_notify_handler(self._ring)
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._listening = driver

    def wait(self, seconds: float, *, watched: Sequence[int] = ()) -> None:
        """Sleep until there is news, a watched file descriptor can be read, or the time is over."""
        descriptors = list(watched)
        if self._listening is not None and not self._listening.closed:
            descriptors.append(self._listening.fileno())
        if not self._has_rung:
            ready = select.select(descriptors, [], [], max(0.0, seconds))[0]
            if any(descriptor not in watched for descriptor in ready):
                self._read()
        self._has_rung = False

    def _read(self) -> None:
        """Let the driver read what has arrived; any query makes it do so, and finds out whether it still lives."""
        with connections[self._database].cursor() as cursor:
            cursor.execute("SELECT 1")

    def _ring(self, notification: object) -> None:
        self._has_rung = True
