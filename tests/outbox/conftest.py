"""Fixtures of the outbox's tests: real databases of two kinds, and processes that use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from django.core.management import call_command
from django.db import connections

from tests.postgres_server import PostgresCluster
from tests.redis_server import PrivateServer
from tests.worker.processes import ROOT, WorkerProcess, journal  # noqa: F401
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, configure, own_registries, patient_workers, project  # noqa: F401

#: The alias under which the tests' own process knows the database.
LEDGER = "ledger"


@pytest.fixture(scope="session")
def cluster() -> Iterator[PostgresCluster]:
    cluster = PostgresCluster()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Path:
    """A file with all tables, to be copied: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "ledger.sqlite3"
    with django_db_blocker.unblock(), known_as_ledger(sqlite_settings(path)):
        call_command("migrate", database=LEDGER, verbosity=0)
    return path


@pytest.fixture(scope="session")
def migrated_postgres(cluster: PostgresCluster, django_db_blocker: Any) -> str:
    """The name of a database with all tables, to be copied."""
    with django_db_blocker.unblock(), known_as_ledger(cluster.make_database("migrated")):
        call_command("migrate", database=LEDGER, verbosity=0)
    return "migrated"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """An empty database with all tables, as the alias "ledger"; the value is Django's settings for it."""
    if request.param == "postgresql":
        template = request.getfixturevalue("migrated_postgres")
        settings = request.getfixturevalue("cluster").make_database("ledger", template=template)
    else:
        settings = sqlite_settings(tmp_path / "ledger.sqlite3")
        shutil.copy(request.getfixturevalue("migrated_sqlite"), settings["NAME"])
    with django_db_blocker.unblock(), known_as_ledger(settings):
        yield settings


def sqlite_settings(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        # Writers wait for each other at BEGIN, where SQLite is patient.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }


@contextmanager
def known_as_ledger(settings: dict[str, Any]) -> Iterator[None]:
    """Let the alias mean this database."""
    connections.databases[LEDGER] = {**connections.databases["default"], "OPTIONS": {}, **settings}
    try:
        yield
    finally:
        _disconnect()
        # The thread that runs sync code for async tests outlives a test, and so would its connection.
        SyncToAsync.single_thread_executor.submit(_disconnect).result()
        del connections.databases[LEDGER]


def _disconnect() -> None:
    connections[LEDGER].close()
    del connections[LEDGER]


@pytest.fixture
def with_outbox(configure: Configure, database: dict[str, Any]) -> Configure:  # noqa: F811
    """A project whose queue "default" uses the outbox of the database "ledger"."""
    configure(on_commit=LEDGER, default={"OUTBOX": True})
    return configure


class Site:
    """Processes of a project with an outbox: those that enqueue, and those that relay and work."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self.environment = environment
        self._directory = directory
        self.started: list[WorkerProcess] = []

    def python(self, code: str, *, expect: int = 0) -> str:
        """Run code in a process of the project and return what it printed; `expect` is its exit status."""
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            cwd=ROOT,
            env={**self.environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == expect, done.stderr
        return done.stdout

    def start(self, *arguments: str) -> WorkerProcess:
        """Start a command of manage.py."""
        log = self._directory / f"log-{len(self.started)}"
        self.started.append(WorkerProcess(arguments[1:], command=arguments[0], environment=self.environment, log=log))
        return self.started[-1]


@pytest.fixture
def site(
    with_outbox: Configure,
    database: dict[str, Any],
    server: PrivateServer,
    journal: Journal,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Site]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.outbox.shop.settings",
        "RSMQ_TEST_URL": server.url,
        "RSMQ_TEST_DATABASES": json.dumps({"default": database}),
    }
    site = Site(environment, tmp_path)
    yield site
    for process in site.started:
        process.destroy()
