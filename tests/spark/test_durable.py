"""Redis deletes only entries that are on the disk: the order of fsync, commits and deletions."""

import datetime as dt
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.spark import delta
from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.drained import drain_queue
from rsmq_django.spark.durable import sync
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import EVENTS, drained
from rsmq_django.spark.transfer import StreamTransfer
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark, archive_job, ids_in
from tests.spark.samples import STREAM, log_events


class Disk:
    """Notes what is brought to the disk, and what `look` sees at that moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[int, list[Any]] = {}
        self.look: Callable[[], object] = lambda: None
        bring = os.fsync

        def fsync(descriptor: int) -> None:
            bring(descriptor)
            self.seen.setdefault(os.fstat(descriptor).st_ino, []).append(self.look())

        monkeypatch.setattr(os, "fsync", fsync)

    def views(self, path: Path) -> list[Any]:
        """Return what was seen whenever a file or directory was brought to the disk."""
        return self.seen.get(path.stat().st_ino, [])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def test_rows_are_on_the_disk_before_their_commit_and_the_commit_before_the_log_is_trimmed(
    lake: Lake, server: PrivateServer, disk: Disk
):
    log_events(server.redis, 60)
    table = lake.root / "events"
    first = table / "_delta_log" / f"{1:020}.json"
    disk.look = lambda: (first.exists(), server.redis.xlen(STREAM))

    archive_job(lake, url=server.url).transfer()

    (file,) = lake.open(EVENTS).files
    assert disk.views(table / file.path) == [(False, 60)], "by the task that wrote it"
    for directory in ((table / file.path).parent, table, lake.root, lake.root.parent):
        assert (False, 60) in disk.views(directory), directory
    assert disk.views(first) == [(True, 60)]
    assert (True, 60) in disk.views(first.parent), "its name"
    assert server.redis.xlen(STREAM) == 0


def test_commit_of_a_run_that_died_is_on_the_disk_before_the_log_is_trimmed(
    lake: Lake, server: PrivateServer, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 60)
    log = lake.root / "events" / "_delta_log"
    with monkeypatch.context() as killed:
        killed.setattr(Table, "sync", lambda *_, **__: None)
        killed.setattr(ArchiveJob, "trim", lambda *_: None)
        archive_job(lake, url=server.url).transfer()
    disk.look = lambda: server.redis.xlen(STREAM)
    assert disk.views(log / f"{1:020}.json") == []

    archive_job(lake, url=server.url).transfer()

    assert disk.views(log / f"{1:020}.json") == [60]
    assert (len(ids_in(lake)), server.redis.xlen(STREAM)) == (60, 0)


def test_commit_of_another_run_that_dies_meanwhile_is_on_the_disk_before_the_log_is_trimmed(
    lake: Lake, server: PrivateServer, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    disk.look = lambda: server.redis.xlen(STREAM)
    begin = StreamTransfer.release_stored
    others: list[Any] = []

    def before_another(self: StreamTransfer) -> None:
        begin(self)
        if not others:
            others.append(None)
            log_events(server.redis, 60)
            with monkeypatch.context() as killed:
                killed.setattr(Table, "sync", lambda *_, **__: None)
                killed.setattr(ArchiveJob, "trim", lambda *_: None)
                archive_job(lake, url=server.url).transfer()
            log_events(server.redis, 10)

    monkeypatch.setattr(StreamTransfer, "release_stored", before_another)
    archive_job(lake, url=server.url).transfer()

    log = lake.root / "events" / "_delta_log"
    assert [set(disk.views(log / f"{version:020}.json")) for version in (1, 2)] == [{70}, {70}]
    assert (len(ids_in(lake)), server.redis.xlen(STREAM)) == (70, 0)


def test_commit_is_on_the_disk_also_where_the_clock_of_the_file_server_is_behind(
    lake: Lake, server: PrivateServer, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 60)
    disk.look = lambda: server.redis.xlen(STREAM)
    monkeypatch.setattr(delta, "time", SimpleNamespace(time=lambda: time.time() + 3600))

    archive_job(lake, url=server.url).transfer()

    assert disk.views(lake.root / "events" / "_delta_log" / f"{1:020}.json") == [60]


def test_drained_messages_leave_redis_when_their_commit_is_on_the_disk(
    server: PrivateServer, mail: Queue, lake: Lake, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RSMQ_REDIS_URL", server.url)
    mail.send_many([b"a", b"b", b"c"])
    disk.look = lambda: server.redis.xlen("rsmq::spark:drain:lake:mail")

    done = drain_queue(PlainSpark(), JobConfig(lake=lake.uri), "mail")

    assert (done.rows, done.trimmed, mail.attributes().messages) == (3, 3, 0)
    assert disk.views(lake.root / "drained" / "mail" / "_delta_log" / f"{1:020}.json") == [3]
    assert len(lake.open(drained("mail")).read()) == 3


def test_compacted_file_is_on_the_disk_before_its_commit(lake: Lake, server: PrivateServer, disk: Disk):
    log_events(server.redis, 60)
    archive_job(lake, url=server.url, maxRowsPerBatch="30").transfer()
    third = lake.root / "events" / "_delta_log" / f"{3:020}.json"
    disk.look = third.exists

    lake.compact(dt.datetime.now(dt.UTC).date() + dt.timedelta(days=3))

    (file,) = lake.open(EVENTS).files
    assert disk.views(lake.root / "events" / file.path) == [False]
    assert disk.views(third) == [True]


def test_nothing_is_trimmed_when_the_disk_refuses(lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    log_events(server.redis, 10)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="broken"):
        archive_job(lake, url=server.url).transfer()

    assert server.redis.xlen(STREAM) == 10


def test_file_system_without_fsync_is_taken_at_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def not_here(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "fsync is not supported")

    monkeypatch.setattr(os, "fsync", not_here)
    sync(tmp_path)
