"""Several event logs in one lake: of other servers, of other namespaces, and while one server does not answer."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.spark import durable
from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import DEFAULT_URL_VARIABLE
from rsmq_django.spark.runs import StepRun
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.server import Server
from rsmq_django.spark.transfer import is_latest_log, read_offset
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark, archive_job
from tests.spark.samples import STREAM, log_events

MEDIA, SHARD = f"media#{STREAM}", "default.1#rsmq-1::events"


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def media(server: PrivateServer) -> redis.Redis:
    """A database of its own, which is as good as another server: the log has the same key."""
    return redis.Redis.from_url(f"{server.url}?db=1")


@pytest.fixture
def archive(lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., StepRun]:
    """Run the step for the logs of two servers, and of a shard on the first one."""
    monkeypatch.setenv(DEFAULT_URL_VARIABLE, server.url)
    monkeypatch.setenv("MEDIA_URL", f"{server.url}?db=1")
    logs = {
        "media": {"urlEnv": "MEDIA_URL", "ns": "rsmq"},
        "default.1": {"urlEnv": DEFAULT_URL_VARIABLE, "ns": "rsmq-1"},
    }

    def run(**more: Any) -> StepRun:
        pipeline = Pipeline(JobConfig(lake=str(lake.root), logs=logs, source={"patienceS": "0"}), **more)
        pipeline.__dict__["spark"] = PlainSpark()
        return pipeline.run("archive")

    return run


def rows_of(lake: Lake) -> Counter[str]:
    rows = lake.open(EVENTS).read(names=["shard", "log", "entry_id"]).to_pylist()
    assert len({(row["log"], row["entry_id"]) for row in rows}) == len(rows), "each once"
    return Counter(row["shard"] for row in rows)


def log_in_all(server: PrivateServer, media: redis.Redis) -> None:
    log_events(server.redis, 100)
    log_events(media, 200)
    server.redis.rename(STREAM, "kept")
    log_events(server.redis, 300)
    server.redis.rename(STREAM, "rsmq-1::events")
    server.redis.rename("kept", STREAM)


def test_each_log_is_archived_once_under_its_name_and_trimmed(archive, lake: Lake, server: PrivateServer, media):
    log_in_all(server, media)

    first, second = archive(), archive()

    assert (first.error, first.rows_out, second.rows_out) == ("", 600, 0)
    assert rows_of(lake) == {STREAM: 100, MEDIA: 200, SHARD: 300}
    assert set(first.offsets) == set(second.offsets) == {STREAM, MEDIA, SHARD}
    assert [server.redis.xlen(STREAM), media.xlen(STREAM), server.redis.xlen("rsmq-1::events")] == [0, 0, 0]
    table = lake.open(EVENTS)
    assert is_latest_log(table, STREAM, first.offsets[STREAM]["log"])
    assert is_latest_log(table, MEDIA, first.offsets[MEDIA]["log"])


def test_server_that_does_not_answer_stops_no_other_one(archive, lake: Lake, server: PrivateServer, media, monkeypatch):
    log_in_all(server, media)
    monkeypatch.setenv("MEDIA_URL", "unix:///nonexistent/socket")
    failed, before = archive(), rows_of(lake)
    monkeypatch.setenv("MEDIA_URL", f"{server.url}?db=1")
    log_events(server.redis, 10)

    good = archive()

    assert (failed.exit_code, failed.rows_out, before) == (1, 400, {STREAM: 100, SHARD: 300})
    assert failed.error.startswith(f"ConnectionsFailed: {MEDIA}: ConnectionFailed: ")
    assert (good.exit_code, good.rows_out) == (0, 210)
    assert rows_of(lake) == {STREAM: 110, MEDIA: 200, SHARD: 300}


def test_run_that_dies_between_two_logs_is_continued_by_the_next(
    archive, lake: Lake, server: PrivateServer, media, monkeypatch
):
    log_in_all(server, media)
    run = ArchiveJob.run

    def die_at_the_second(job: ArchiveJob) -> Any:
        if job.connection:
            raise KeyboardInterrupt
        return run(job)

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(ArchiveJob, "run", die_at_the_second)
        archive()
    died = rows_of(lake)

    assert archive().rows_out == 500
    assert died == {STREAM: 100}
    assert rows_of(lake) == {STREAM: 100, MEDIA: 200, SHARD: 300}


def test_lost_events_of_all_logs_are_counted(archive, server: PrivateServer, media):
    log_in_all(server, media)
    archive()
    log_events(server.redis, 50)
    log_events(media, 50)
    server.redis.xtrim(STREAM, maxlen=40, approximate=False)
    media.xtrim(STREAM, maxlen=30, approximate=False)

    run = archive()

    assert (run.exit_code, run.rows_out, run.lost) == (3, 70, 30)


def test_continuous_run_takes_the_logs_in_turn(archive, lake: Lake, server: PrivateServer, media, monkeypatch):
    log_in_all(server, media)
    rounds = []

    class Stopped:
        def is_set(self) -> bool:
            return False

        def wait(self, seconds: float) -> bool:
            rounds.append(seconds)
            log_events(media, 5)
            return len(rounds) == 3

    run = archive(every_s=7.0, stopped=Stopped())

    assert (run.error, rounds, run.rows_out) == ("", [7.0] * 3, 610)
    assert rows_of(lake) == {STREAM: 100, MEDIA: 210, SHARD: 300}


def test_continuous_run_brings_each_commit_of_the_table_to_the_disk_once(
    archive, lake: Lake, server: PrivateServer, media, monkeypatch: pytest.MonkeyPatch
):
    log_in_all(server, media)
    archive()
    before = lake.open(EVENTS).version
    synced: Counter[str] = Counter()
    bring = durable.sync

    def noted(path: Path) -> None:
        synced[path.name] += path.parent == lake.root / "events" / "_delta_log" and path.suffix == ".json"
        bring(path)

    monkeypatch.setattr(durable, "sync", noted)

    class Stopped:
        def __init__(self) -> None:
            self.rounds = 0

        def is_set(self) -> bool:
            return False

        def wait(self, seconds: float) -> bool:
            log_events(media, 5)
            self.rounds += 1
            return self.rounds == 4

    run = archive(every_s=7.0, stopped=Stopped())

    assert (run.error, run.rows_out) == ("", 15)
    assert +synced == {f"{version:020}.json": 1 for version in range(before + 3 + 1)}


def test_server_that_does_not_answer_is_waited_for_once_and_not_for_each_of_its_logs(
    lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(DEFAULT_URL_VARIABLE, server.url)
    monkeypatch.setenv("MEDIA_URL", "unix:///nonexistent/socket")
    logs = {f"media.{number}": {"urlEnv": "MEDIA_URL", "ns": f"rsmq-{number}"} for number in range(3)}
    log_events(server.redis, 10)
    waits: list[tuple[str, float]] = []
    monkeypatch.setattr(Server, "_patiently", note_patience(waits))

    pipeline = Pipeline(JobConfig(lake=str(lake.root), logs=logs, source={"patienceS": "0.1"}))
    pipeline.__dict__["spark"] = PlainSpark()
    run, taken = pipeline.run("archive"), pipeline.run("snapshot")

    assert (run.rows_out, run.exit_code, taken.exit_code) == (10, 1, 1)
    assert run.error.count("ConnectionFailed: ") == taken.error.count("ConnectionFailed: ") == 3
    assert waits == [("rsmq-0", 0.1), ("rsmq-1", 0.0), ("rsmq-2", 0.0)] * 2


def note_patience(waits: list[tuple[str, float]]) -> Callable[..., Any]:
    """Return a method that notes how long it was ready to wait for a server that did not answer."""
    run = Server._patiently

    def noted(self: Server, attempt: Any, **options: Any) -> Any:
        try:
            return run(self, attempt, **options)
        except ConnectionFailed:
            waits.append((self.namespace, self.patience_s))
            raise

    return noted


def test_log_whose_connection_got_another_name_is_continued(lake: Lake, server: PrivateServer):
    log_events(server.redis, 100)
    job = archive_job(lake, url=server.url)
    job.connection = "media"
    job.transfer()
    log_events(server.redis, 20)

    again = archive_job(lake, url=server.url)
    again.transfer()

    assert again.result.rows == 20
    assert rows_of(lake) == {STREAM: 20, MEDIA: 100}
    log = again.result.offsets[STREAM]["log"]
    assert read_offset(lake.open(EVENTS), STREAM, log)["n"] == 120
