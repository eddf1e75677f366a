"""kill -9 of everything, restarts of Redis: no event lost, none stored twice."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.lake import Lake
from tests.redis_server import PrivateServer
from tests.spark.plain import ids_in
from tests.spark.samples import STREAM, log_events
from tests.support import wait_until

pytestmark = pytest.mark.spark_slow

ROOT = Path(__file__).parents[3]
ROWS, BATCH = 24_000, 4_000
#: A busy machine starts a JVM in minutes.
PATIENCE_S = 540


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


class Child:
    """A process of tests.spark.engine.child, with its JVM in one process group."""

    def __init__(self, server: PrivateServer, *words: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "tests.spark.engine.child", *words]
        variables = {**os.environ, "RSMQ_REDIS_URL": server.url, **(env or {})}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    def kill(self) -> None:
        """End driver, JVM and Python workers at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended a moment ago
        self.process.communicate()

    def answer(self) -> dict[str, Any]:
        """Wait for the end and return what it printed last."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, err.decode()[-3000:]
        return dict(json.loads(out.decode().splitlines()[-1]))


@pytest.fixture
def start(server: PrivateServer) -> Iterator[Any]:
    """Start children, and leave none behind."""
    children: list[Child] = []

    def begin(*words: str, **options: Any) -> Child:
        children.append(Child(server, *words, **options))
        return children[-1]

    yield begin
    for child in children:
        child.kill()


def wait_for_batch(child: Child, lake: Lake, server: PrivateServer) -> None:
    """Wait until a child that works has committed another batch than those of earlier runs."""
    before, ended = commits(lake), child.process.poll
    wait_until(lambda: (locks(server) and commits(lake) > before) or ended() is not None, timeout_s=PATIENCE_S)
    assert child.process.poll() is None, child.process.communicate()[1].decode()[-3000:]


def commits(lake: Lake) -> int:
    """Return the number of commits with events: the first one made the table."""
    return len(list(lake.root.glob("events/_delta_log/*.json"))) or 1


def let_the_lock_expire(server: PrivateServer) -> None:
    """Do what a minute does after a run was killed."""
    for lock in locks(server):
        server.redis.delete(lock)


def locks(server: PrivateServer) -> list[bytes]:
    """Return the locks of runs."""
    return list(server.redis.scan_iter("rsmq::spark:lock:*"))


def executors_of(group: int) -> list[int]:
    """Return the executors among the processes of a group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_executor = b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes()
            if is_executor and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
        except (OSError, ProcessLookupError):
            continue  # it ended while we looked
    return found


def test_driver_killed_before_a_commit_and_then_in_a_batch_loses_and_doubles_nothing(
    start, lake: Lake, server: PrivateServer
):
    log_events(server.redis, ROWS)
    words = ("archive", str(lake.root), "--rows", str(BATCH))
    child = start(*words, "--die-after", "1")
    _, said = child.process.communicate(timeout=PATIENCE_S)
    assert child.process.returncode == -signal.SIGKILL, said.decode()[-3000:]
    assert len(ids_in(lake)) == BATCH, "batch 1 was written and not committed"
    let_the_lock_expire(server)

    child = start(*words)
    wait_for_batch(child, lake, server)
    # Somewhere in a batch: while it reads, while it writes, or just after.
    threading.Event().wait(random.Random().uniform(0, 0.5))
    child.kill()
    let_the_lock_expire(server)

    start(*words).answer()

    ids = ids_in(lake)
    assert len(ids) == len(set(ids)) == ROWS
    assert server.redis.xlen(STREAM) == 0


def test_redis_restarted_in_mid_run_is_waited_for(_session: Any, lake: Lake, server: PrivateServer, pipeline_server):
    log_events(server.redis, ROWS)
    source = {"url": server.url, "maxRowsPerBatch": "4000", "rowsPerPartition": "2000"}
    job = ArchiveJob(_session, lake, pipeline_server, source)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(job.run()))
    thread.start()
    wait_until(lambda: commits(lake) > 1, timeout_s=PATIENCE_S)
    server.restart()
    thread.join(timeout=PATIENCE_S)

    ids = ids_in(lake)
    assert results
    assert len(ids) == len(set(ids)) == ROWS
    assert server.redis.xlen(STREAM) == 0


def test_redis_at_its_memory_limit_is_archived_and_so_relieved(
    _session: Any, lake: Lake, server: PrivateServer, pipeline_server
):
    log_events(server.redis, 10_000)
    server.redis.config_set("maxmemory", "1mb")
    try:
        result = ArchiveJob(_session, lake, pipeline_server, {"url": server.url}).run()
    finally:
        server.redis.config_set("maxmemory", 0)

    assert (result.rows, result.trimmed) == (10_000, 10_000)
