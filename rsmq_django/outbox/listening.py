"""Wake-up of relays: PostgreSQL notifies them of new rows, other databases are polled."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from django.db import connections

from .writing import CHANNEL


class RowListener:
    """Waits for new rows. A lost notification delays them by one poll interval."""

    def __init__(self, database: str) -> None:
        self._database = database
        #: The driver's listening connection; replaced after a disconnection.
        self._listening: Any = None
        self._has_rung = False

    def listen(self) -> None:
        """Start to listen, if the database supports it. Call this before reading the table."""
        connection = connections[self._database]
        if connection.vendor != "postgresql":
            return
        connection.ensure_connection()
        driver = connection.connection
        # psycopg 3; with psycopg2, the table is polled.
        if driver is self._listening or not hasattr(driver, "add_notify_handler"):
            return
        driver.add_notify_handler(self._ring)
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._listening = driver

    def wait(self, seconds: float, *, watched: Sequence[int] = ()) -> None:
        """Sleep until a notification arrives, a watched file descriptor is readable, or the timeout ends."""
        descriptors = list(watched)
        if self._listening is not None and not self._listening.closed:
            descriptors.append(self._listening.fileno())
        if not self._has_rung:
            ready = select.select(descriptors, [], [], max(0.0, seconds))[0]
            if any(descriptor not in watched for descriptor in ready):
                self._read()
        self._has_rung = False

    def _read(self) -> None:
        """Make the driver read pending notifications: any query does, and it also checks the connection."""
        with connections[self._database].cursor() as cursor:
            cursor.execute("SELECT 1")

    def _ring(self, notification: object) -> None:
        self._has_rung = True
