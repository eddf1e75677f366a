"""Log -> Delta table: each entry in one row, with several drivers at once, after kills, on a disk and in S3."""

import datetime as dt
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.transport.streams import name_log
from rsmq_django.spark import transfer
from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.delta import Table
from rsmq_django.spark.errors import DataLoss, PipelineError
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.server import Server
from rsmq_django.spark.transfer import read_offset
from tests.redis_server import PrivateServer
from tests.spark.plain import archive_job, ids_in
from tests.spark.samples import STREAM, add_all, log_events
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
#: RACES=1000: so many rounds of two drivers (a quarter of an hour).
RACES = int(os.environ.get("RACES", "12"))
#: KILLS=50: so many kills on each storage.
KILLS = int(os.environ.get("KILLS", "3"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def archive(lake: Lake, server: PrivateServer) -> Callable[..., ArchiveJob]:
    """Run the archive to its end, and return it."""

    def run(into: Lake = lake, **source: str) -> ArchiveJob:
        job = archive_job(into, **{"url": server.url} | source)
        job.transfer()
        return job

    return run


def assert_stored_once(lake: Lake, count: int) -> None:
    ids = ids_in(lake)
    assert (len(ids), len(set(ids))) == (count, count)


# -- Several drivers ---------------------------------------------------------------------------------------------------


def race(lake: Lake, server: PrivateServer, rounds: int) -> int:
    """Let two drivers without a lock archive the same log, and return how many entries were sent."""
    sent = 0
    for number in range(rounds):
        count = 3 + number % 7
        log_events(server.redis, count)
        sent += count
        errors: list[BaseException] = []

        def drive(errors: list[BaseException] = errors) -> None:
            try:
                # Strict: a driver must not take what the other one has trimmed for lost.
                archive_job(lake, url=server.url, maxRowsPerBatch="4", rowsPerPartition="2").transfer()
            except BaseException as error:
                errors.append(error)

        drivers = [threading.Thread(target=drive) for _ in range(2)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        if errors:
            raise errors[0]
    return sent


@pytest.mark.deadline(3600)
def test_two_drivers_at_once_store_each_event_once_and_lose_none(lake: Lake, server: PrivateServer):
    sent = race(lake, server, RACES)

    assert_stored_once(lake, sent)
    assert server.redis.xlen(STREAM) == 0


def test_second_driver_that_planned_the_same_batch_stores_nothing_of_it(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 50)
    commit = Table.commit
    others: list[Any] = []

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        if not others and args and args[0]:
            others.append(None)  # before the first commit of this driver, another one takes everything
            archive()
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)
    job = archive()

    assert (job.result.rows, job.result.lost, len(others)) == (0, 0, 1)
    assert_stored_once(lake, 50)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_events_that_another_driver_stored_and_trimmed_in_between_are_not_lost(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, strict: str
):
    log_events(server.redis, 50)
    archive()
    log_events(server.redis, 50)
    write_range = transfer.write_range
    others: list[None] = []

    def after_another(*args: Any) -> Any:
        if not others:
            others.append(None)  # between plan and reading
            archive()
        return write_range(*args)

    monkeypatch.setattr(transfer, "write_range", after_another)
    job = archive(failOnDataLoss=strict)

    assert (job.result.rows, job.result.lost) == (0, 0)
    assert_stored_once(lake, 100)


def test_compaction_and_expiry_run_while_the_archive_commits(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 30)
    archive(maxRowsPerBatch="10")
    log_events(server.redis, 30)
    today = dt.datetime.now(dt.UTC).date()
    commit = Table.commit
    compacted: list[tuple[int, int]] = []

    def after_compaction(self: Table, *args: Any, **options: Any) -> None:
        if not options.get("moves_rows") and self.definition is EVENTS and args and args[0] and not compacted:
            compacted.append(lake.compact(today + dt.timedelta(days=3)))
            lake.expire(today)
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_compaction)
    job = archive()

    assert (compacted, job.result.rows) == ([(1, 30)], 30)
    assert_stored_once(lake, 60)
    assert len(lake.open(EVENTS).files) == 2


# -- Positions ---------------------------------------------------------------------------------------------------------


def test_position_is_kept_for_ids_of_any_size(archive, lake: Lake, server: PrivateServer, pipeline_server: Server):
    # A clock that was far ahead once: milliseconds stand still, and the numbers grow.
    ids = ["1795000000000-5", "7000000000000-0", f"7000000000000-{2**40}", f"7000000000000-{2**62}"]
    add_all(server.redis, ({"id": entry_id} for entry_id in ids))
    server.redis.xgroup_create(STREAM, "billing", "0")  # else the log would begin again
    archive()
    add_all(server.redis, ({"id": entry_id} for entry_id in [f"7000000000000-{2**62 + 1}"]))

    assert archive().result.rows == 1
    assert sorted(ids_in(lake)) == sorted([*ids, f"7000000000000-{2**62 + 1}"])
    offset = read_offset(lake.open(EVENTS), STREAM, pipeline_server.run(name_log(STREAM)))
    assert (offset["id"], offset["n"]) == (f"7000000000000-{2**62 + 1}", 5)


def test_events_that_are_ahead_of_the_clock_are_stored_on_the_day_of_archiving_and_later_ones_get_the_right_time(
    archive, lake: Lake, server: PrivateServer
):
    log_events(server.redis, 10)
    add_all(server.redis, ({"id": f"4300000000000-{number}"} for number in range(5)))
    log_events(server.redis, 5)  # Redis gives them the time of the newest one

    assert archive().result.rows == 20

    log_events(server.redis, 10)
    assert archive().result.rows == 10
    assert_stored_once(lake, 30)
    today = dt.datetime.now(dt.UTC).date()
    assert set(lake.days(EVENTS)) <= {today - dt.timedelta(days=1), today}
    times = lake.open(EVENTS).read(names=["event_at"])["event_at"].to_pylist()
    assert sum(at.year == 2106 for at in times) == 10


def test_each_log_has_a_position_of_its_own_and_is_continued(archive, lake: Lake, server: PrivateServer):
    log_events(server.redis, 40)
    archive()
    server.redis.rename(STREAM, "first")
    add_all(server.redis, ({"id": f"1795000000000-{number}"} for number in range(30)))
    archive()
    server.redis.rename(STREAM, "second")
    server.redis.rename("first", STREAM)
    log_events(server.redis, 5)

    back = archive()

    assert (back.result.rows, back.result.lost) == (5, 0)
    assert_stored_once(lake, 75)
    logs = lake.open(EVENTS).read(names=["log"])["log"].to_pylist()
    assert sorted(Counter(logs).values()) == [30, 45]


def test_two_lakes_of_one_log_count_what_the_other_one_trimmed(archive, tmp_path: Path, server: PrivateServer):
    one, other = Lake.at(tmp_path / "one"), Lake.at(tmp_path / "other")
    log_events(server.redis, 20)
    archive(one)
    log_events(server.redis, 10)
    archive(other)
    log_events(server.redis, 10)

    first = archive(one, failOnDataLoss="false")

    assert (first.result.rows, first.result.lost) == (10, 10)
    assert_stored_once(one, 30)
    assert_stored_once(other, 10)


def test_rows_trimmed_between_plan_and_reading_are_counted_once(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 50)
    write_range = transfer.write_range

    def after_trimming(*args: Any) -> Any:
        server.redis.xtrim(STREAM, maxlen=20, approximate=False)
        return write_range(*args)

    with monkeypatch.context() as trimmed:
        trimmed.setattr(transfer, "write_range", after_trimming)
        job = archive(failOnDataLoss="false")

    assert (job.result.rows, job.result.lost) == (20, 30)
    assert archive().result.lost == 0
    log_events(server.redis, 5)
    server.redis.xtrim(STREAM, maxlen=2, approximate=False)
    with pytest.raises(DataLoss, match="3 entries after"):
        archive()


# -- Kills, on a disk and in an object store ---------------------------------------------------------------------------


def has_fewer(server: PrivateServer, before: int) -> bool:
    return int(server.redis.xlen(STREAM)) < before


@pytest.mark.slow
@pytest.mark.deadline(3600)
def test_two_drivers_that_are_killed_again_and_again_store_each_event_once(place: str, server: PrivateServer):
    lake, sent, killed = Lake.at(place), 0, 0
    environment = {**os.environ, "RSMQ_REDIS_URL": server.url, "DJANGO_SETTINGS_MODULE": ""}
    command = [sys.executable, "-m", "tests.spark.plain", place, "100"]
    while killed < KILLS:
        log_events(server.redis, 3000)
        sent += 3000
        before = server.redis.xlen(STREAM)
        drivers = [subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
        # At a random moment after the first entries were trimmed.
        wait_until(partial(has_fewer, server, before), timeout_s=60)
        threading.Event().wait(random.Random().uniform(0, 0.5))
        for driver in drivers:
            killed += driver.poll() is None
            driver.kill()
            driver.communicate()
    archive_job(lake, url=server.url).transfer()

    assert_stored_once(lake, sent)
    assert server.redis.xlen(STREAM) == 0


def test_bucket_that_does_not_exist_is_named_with_the_next_step(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    for name, value in s3.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(PipelineError) as raised:
        Lake.at("s3://lakse/lake").days(EVENTS)

    said = str(raised.value)
    assert said.startswith("the table s3://lakse/lake/events cannot be read: ")
    assert said.endswith(
        "NoSuchBucket: The specified bucket does not exist; check the address, and the variables of the storage "
        "(docs/how-to/pipeline.md, The lake)"
    )
    assert "\x1b" not in said and "\n" not in said


def test_lake_in_an_object_store_is_compacted_and_expires(
    s3: dict[str, str], archive, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    lake = Lake.at(f"s3://lakes/{tmp_path.name}")
    day = dt.datetime.now(dt.UTC).date()
    log_events(server.redis, 60)
    archive(lake, maxRowsPerBatch="20")

    assert len(lake.open(EVENTS).files) == 3
    assert lake.compact(day + dt.timedelta(days=3)) == (1, 60)
    assert len(lake.open(EVENTS).files) == 1
    assert_stored_once(lake, 60)
    assert lake.expire(day + dt.timedelta(days=40)) == {"events": 1}
    assert lake.days(EVENTS) == []
