"""One private PostgreSQL cluster per pytest process that asks for it, on a unix socket in a directory of its own.

PostgreSQL refuses to run as root, so root starts it as another user. It is a plain child of the test process and ended
by its pid.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from tests.support import wait_until

PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin")


def find_binaries() -> Path:
    """Return the directory of initdb and postgres. Without them CI fails, and a laptop skips the test."""
    found = [path for place in PLACES for path in sorted(Path("/").glob(place[1:])) if (path / "initdb").exists()]
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).parent)
    if not found:
        missing = "PostgreSQL's server is needed (Debian: apt-get install postgresql)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found[-1]


def ordinary_user() -> str:
    """Return the user to run the server as."""
    if os.geteuid() != 0:
        return getpass.getuser()
    users = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


class PostgresCluster:
    """A cluster without files that must survive anything but the death of processes."""

    def __init__(self) -> None:
        binaries, self.user = find_binaries(), ordinary_user()
        self.directory = Path(tempfile.mkdtemp(prefix="rsmq-pg-", dir="/tmp"))
        owner = self.user if os.geteuid() == 0 else None
        if owner is not None:
            shutil.chown(self.directory, owner)
        data = self.directory / "data"
        options = "-U tests -A trust -E UTF8 --no-sync --locale=C".split()
        initdb: list[str | Path] = [binaries / "initdb", "-D", data, *options]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=self.directory, user=owner)
        self._command: list[str | Path] = [binaries / "postgres", "-D", data, "-k", self.directory]
        self._command += ["-c", "listen_addresses=", "-c", "fsync=off"]
        self._owner = owner
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, user=self._owner
            )
        self._watch()
        wait_until(self._answers)

    def crash(self) -> None:
        """End the server and all its connections at once (SIGQUIT); start() recovers it."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._watcher.communicate()

    def make_database(self, name: str, *, template: str = "template1") -> dict[str, object]:
        """Make a database and return Django's settings for it."""
        with self._connect() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": "tests",
            "HOST": str(self.directory),
        }

    def end_connections(self, name: str) -> None:
        """Cut everybody off from a database, as a failover does."""
        with self._connect() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    def stop(self) -> None:
        """End the server and remove its directory."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._watcher.communicate()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.directory), user="tests", dbname="postgres", autocommit=True)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.directory / "log").read_text()
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _watch(self) -> None:
        """Have the server ended when this process ends without doing so: killed itself, or crashed."""
        command = f"read _; kill -QUIT {self._process.pid} 2>/dev/null"
        self._watcher = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)
