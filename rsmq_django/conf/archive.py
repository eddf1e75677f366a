"""The place of the lake, and the connections whose event logs are archived in it, by the settings."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from ..core.keys import events_key
from .sections import ConnectionSettings
from .settings import get_settings

if TYPE_CHECKING:
    from ..spark.lake import Lake

DEFAULT_LAKE = "rsmq_lake"


def lake_path(given: str | None = None) -> str:
    """Return the place of the lake: the given one, the one of the settings, or `rsmq_lake` below BASE_DIR."""
    named = given or get_settings().pipeline.lake
    if named:
        return str(named)
    base = getattr(django_settings, "BASE_DIR", None)
    if base is None:
        raise ImproperlyConfigured("RSMQ['PIPELINE']['LAKE'] is missing, and BASE_DIR is not set.")
    return str(Path(base) / DEFAULT_LAKE)


def find_lake(given: str | None = None) -> Lake:
    """Return the lake of this project."""
    from ..spark.lake import Lake  # here: workers have no use for it

    return Lake.at(lake_path(given))


def archived_connections() -> list[str]:
    """Return the connections whose logs are archived, each log once; that of RSMQ['PIPELINE']['CONNECTION'] first.

    Those of shards belong to their connection, so a queue with shards is archived as a whole.
    """
    settings = get_settings()
    chosen = settings.pipeline.connections
    used = settings.used_connections() if chosen is None and settings.events.record != "off" else chosen or ()
    found: dict[Hashable, str] = {}
    for alias in (settings.pipeline.connection, *used):
        for each in settings.with_shards(alias):
            found.setdefault(_log_of(each), each.alias)
    return list(found.values())


def archived_log(alias: str) -> str | None:
    """Return the name that the log of a connection has in the lake; None if it is not archived."""
    from ..spark.options import named_log

    settings = get_settings()
    connection = settings.connection(alias)
    for number, each in enumerate(archived_connections()):
        if _log_of(settings.connection(each)) == _log_of(connection):
            return named_log(each if number else "", events_key(connection.namespace))
    return None


def _log_of(connection: ConnectionSettings) -> Hashable:
    return connection.url, connection.cache, connection.embedded, connection.namespace
