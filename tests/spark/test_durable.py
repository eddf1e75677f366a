"""Redis deletes only entries that are on the disk: the order of fsync, renames and deletions."""

import datetime as dt
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rsmq_django.core import Queue
from rsmq_django.spark.drain import Journals
from rsmq_django.spark.durable import sync, write_whole
from rsmq_django.spark.finalize import acknowledge_drained, trim_events
from rsmq_django.spark.lake import Lake, place_batch
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, log_events
from tests.spark.test_finalize import ids, write_checkpoint
from tests.spark.test_lake import written

DAY = dt.date(2026, 11, 18)
BATCH = "q0ddba11a-000000"


class Disk:
    """Notes what is brought to the disk, and what `look` sees at that moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[int, list[object]] = {}
        self.look: Callable[[], object] = lambda: None
        bring = os.fsync

        def fsync(descriptor: int) -> None:
            bring(descriptor)
            self.seen.setdefault(os.fstat(descriptor).st_ino, []).append(self.look())

        monkeypatch.setattr(os, "fsync", fsync)

    def views(self, path: Path) -> list[object]:
        """Return what was seen whenever a file or directory was brought to the disk."""
        return self.seen.get(path.stat().st_ino, [])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def test_batch_is_renamed_after_its_content_is_synced_and_complete_after_its_name_is(lake: Lake, disk: Disk):
    place = lake.table(EVENTS)
    batch = place / f"dt={DAY}" / f"b={BATCH}"
    disk.look = batch.exists

    lake.prepare(place)
    files = written(lake, 3)
    assert [disk.views(file) for file in files] == [[False]], "by the task that wrote it"
    place_batch(place, BATCH, {DAY: files})

    assert set(disk.views(batch)) == {False}, "the names of its files, before it is seen"
    assert True in disk.views(batch.parent), "its own name, before its end is noted"
    assert True in disk.views(place), "the name of the day"
    assert disk.views(lake.root), "the name of the table"
    assert disk.views(lake.root.parent), "the name of the lake"


def test_log_is_trimmed_when_the_notes_of_the_checkpoint_are_on_the_disk(
    server: PrivateServer, pipeline_server: Server, lake: Lake, disk: Disk
):
    log_events(server.redis, 100)
    checkpoint = lake.checkpoint("archive")
    write_checkpoint(checkpoint, {0: ids(server)[29], 1: ids(server)[59]}, done=1)
    disk.look = lambda: server.redis.xlen(STREAM)

    assert trim_events(pipeline_server, checkpoint) == 60

    needed = [checkpoint / name / batch for name in ("offsets", "commits") for batch in "01"]
    needed += [checkpoint / "offsets", checkpoint / "commits", checkpoint, checkpoint.parent, lake.root]
    assert {path: disk.views(path) for path in needed} == {path: [100] for path in needed}


def test_drained_messages_leave_redis_when_the_notes_of_the_checkpoint_are_on_the_disk(
    server: PrivateServer, mail: Queue, lake: Lake, disk: Disk, options
):
    mail.send_many([b"a", b"b", b"c"])
    drain = options(kind="drain", queue="mail")
    journals = Journals(drain)
    ((journal, end),) = journals.advance_all(journals.beginning(), 10).items()
    checkpoint = lake.checkpoint("drain-lake-mail")
    write_checkpoint(checkpoint, {0: end["id"]}, done=0, stream=journal)
    disk.look = lambda: server.redis.xlen(journal)

    done = acknowledge_drained(drain, checkpoint)

    assert (done.entries, server.redis.xlen(journal)) == (3, 0)
    assert disk.views(checkpoint / "commits" / "0") == [3]


def test_raw_batches_are_removed_when_the_compacted_day_is_on_the_disk(lake: Lake, disk: Disk):
    place = lake.table(EVENTS)
    place_batch(place, BATCH, {DAY: written(lake, 3)})
    (fresh,) = written(lake, 3)
    raw, compacted = place / f"dt={DAY}" / f"b={BATCH}", lake.compact / f"dt={DAY}"
    disk.look = raw.exists

    lake.replace_compacted(DAY, [fresh], rows=3, batches=[BATCH])

    assert not raw.exists()
    (file,) = compacted.glob("*.parquet")
    for path in (file, compacted / "_done", compacted, lake.compact, lake.root):
        assert True in disk.views(path), path


def test_note_gets_its_name_when_its_content_is_on_the_disk(tmp_path: Path, disk: Disk):
    note = tmp_path / "note.json"
    disk.look = note.exists

    write_whole(note, b"{}")

    assert disk.views(note) == [False]
    assert disk.views(tmp_path) == [True]


def test_nothing_is_trimmed_when_the_disk_refuses(
    server: PrivateServer, pipeline_server: Server, lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 10)
    checkpoint = lake.checkpoint("archive")
    write_checkpoint(checkpoint, {0: ids(server)[-1]}, done=0)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="broken"):
        trim_events(pipeline_server, checkpoint)

    assert server.redis.xlen(STREAM) == 10


def test_file_system_without_fsync_is_taken_at_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def not_here(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "fsync is not supported")

    monkeypatch.setattr(os, "fsync", not_here)
    sync(tmp_path)
