"""`settings.RSMQ` -> the configuration of a pipeline run, and the address of Redis in the environment.

The address is passed in an environment variable, because Spark shows all options in its plans.
"""

from __future__ import annotations

import os
import re
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from ..conf.archive import archived_connections, find_lake, lake_path
from ..conf.sections import ConnectionSettings
from ..conf.settings import get_settings
from ..queues import get_client
from ..spark.config import JobConfig
from ..spark.options import DEFAULT_URL_VARIABLE
from ..spark.schemas import EVENTS, FIVE_MINUTES, HOURLY, TABLES

__all__ = ["archived_connections", "export_address", "find_lake", "job_config", "lake_path"]


def job_config(*, lake: str | None = None, master: str | None = None, conf: dict[str, str] | None = None) -> JobConfig:
    """Return the options of a run; the command line overrides the settings."""
    settings = get_settings()
    pipeline = settings.pipeline
    return JobConfig(
        lake=lake_path(lake),
        master=master or pipeline.master,
        conf=dict(pipeline.spark_conf) | (conf or {}),
        namespace=settings.connection(pipeline.connection).namespace,
        credential_provider=_provider_path(settings.connection(pipeline.connection).credential_provider),
        logs={alias: _source_of(settings.connection(alias)) for alias in archived_connections()[1:]},
        objectives=pipeline.objectives,
        wait_targets_s=pipeline.wait_targets_s,
        slots_per_worker=settings.worker.threads,
        keep_days=keep_days(),
    )


def _source_of(connection: ConnectionSettings) -> dict[str, str]:
    """Return the options of the source for a log."""
    given = {"urlEnv": url_variable(connection), "ns": connection.namespace}
    provider = _provider_path(connection.credential_provider)
    return given | ({"credentialProvider": provider} if provider else {})


def url_variable(connection: ConnectionSettings) -> str:
    """Return the environment variable with the address of a connection and of its shards."""
    settings, alias = get_settings(), connection.own_alias
    if alias == settings.connection(settings.pipeline.connection).own_alias:
        return DEFAULT_URL_VARIABLE
    return f"{DEFAULT_URL_VARIABLE}_" + re.sub("[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", alias)


def _provider_path(provider: Any) -> str:
    """Return the dotted path of a credential provider, by which executors find it; "" for None."""
    if provider is None or isinstance(provider, str):
        return provider or ""
    path = f"{getattr(provider, '__module__', '')}.{getattr(provider, '__qualname__', '')}"
    if not hasattr(provider, "__qualname__") or "<" in path:
        raise ImproperlyConfigured(
            "the pipeline passes CREDENTIAL_PROVIDER to Spark's executors by name; give its dotted path"
        )
    return path


def keep_days() -> dict[str, int]:
    """Return the number of days to keep for each table."""
    pipeline = get_settings().pipeline
    own = {
        EVENTS.name: pipeline.keep_events_days,
        # At least as long as the events, or their sums would be computed again.
        FIVE_MINUTES.name: max(pipeline.keep_events_days, pipeline.keep_days),
        HOURLY.name: pipeline.keep_hourly_days,
    }
    return {table.name: own.get(table.name, pipeline.keep_days) for table in TABLES}


def export_address() -> None:
    """Set the environment variables with the addresses of the archived logs; call it before the session starts."""
    settings = get_settings()
    for alias in archived_connections():
        os.environ[url_variable(settings.connection(alias))] = get_client(alias).connection.url


def require_tables() -> None:
    """Raise ImproperlyConfigured if the tables for publishing are not installed."""
    if not apps.is_installed("rsmq_django.pipeline"):
        raise ImproperlyConfigured("publishing needs 'rsmq_django.pipeline' in INSTALLED_APPS, and migrate")
