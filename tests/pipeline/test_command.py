"""`manage.py rsmq_pipeline`: the steps that need no Java, and the messages about missing parts."""

import datetime as dt
import importlib.util
import json
import re
import shlex
import shutil
import sys
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from rsmq_django.core import Queue
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.streams import name_log
from rsmq_django.management.commands import rsmq_pipeline
from rsmq_django.management.commands.rsmq_pipeline import Command
from rsmq_django.pipeline.config import archived_connections
from rsmq_django.pipeline.health import java_version
from rsmq_django.pipeline.models import CapacityAdvice, TaskHour
from rsmq_django.pipeline.state import project_logs
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.spark.bulk import BulkSender
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.job import Pipeline, main
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.lock import RunLock
from rsmq_django.spark.options import Options
from rsmq_django.spark.runs import StepRun, read_runs, status_of
from rsmq_django.spark.schemas import DEAD_LETTERS, EVENTS, HOURLY, RUNS
from rsmq_django.spark.server import Server
from rsmq_django.spark.transfer import marks_of
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark
from tests.spark.samples import log_events, store_events

from .conftest import DAY, NOON, hour_row, write_events


def note_archived(lake: Lake, server: PrivateServer, entry_id: str, count: int, *, log: str = "") -> None:
    """Set the position of an archive that stored one batch, of the current log or of another one."""
    pipeline_server = Server(server.url, namespace="rsmq", patience_s=5)
    end = {"id": entry_id, "n": count, "lost": 0, "log": log or pipeline_server.run(name_log("rsmq::events"))}
    pipeline_server.close()
    lake.open(EVENTS, create=True).commit(marks=marks_of("rsmq::events", end))


@pytest.mark.django_db
@pytest.mark.parametrize("step", ["publish", "run", "rollup"])
def test_lake_that_is_not_mounted_keeps_its_history_and_gets_no_events(
    pipeline, lake: Lake, write_hours, monkeypatch: pytest.MonkeyPatch, step: str
):
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    write_events(lake, [{"event_at": NOON}])
    write_hours([hour_row()])
    assert pipeline("publish")[0] == 0
    shutil.move(lake.root, lake.root.with_name("unmounted"))

    with pytest.raises(CommandError, match="has no table of events, but events up to .*: is its storage mounted"):
        pipeline(step)

    assert TaskHour.objects.count() == 1
    assert not lake.root.exists()

    shutil.move(lake.root.with_name("unmounted"), lake.root)
    assert pipeline("publish")[0] == 0
    shutil.rmtree(lake.root)
    assert pipeline("publish", since=DAY)[0] == 0  # it was deleted on purpose
    assert TaskHour.objects.count() == 0


@pytest.mark.django_db
def test_publish_needs_no_java(pipeline, write_hours, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    write_hours([hour_row()])

    code, said = pipeline("publish")

    assert code == 0
    assert "publish" in said
    assert TaskHour.objects.count() == 1


@pytest.mark.django_db
def test_all_steps_but_those_that_start_spark_need_no_java(pipeline, lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    store_events(lake, [{"id": f"{1_795_000_000_000 + number}-0"} for number in range(30)])

    steps = ("snapshot", "dlq", "rollup", "analyse", "compact", "expire", "publish", "status")
    codes = {step: pipeline(step)[0] for step in steps}

    assert set(codes.values()) == {0}
    assert (TaskHour.objects.get().attempts, CapacityAdvice.objects.get().attempts) == (30, 30)


@pytest.mark.needs_redis(7, 0)
def test_status_has_unarchived_and_lost_events(pipeline, lake: Lake, server: PrivateServer):
    log_events(server.redis, 50)
    assert re.fullmatch(
        r"50 events not archived yet, the oldest for \d+ (s|min); the log is 0% full\n", pipeline("status")[1]
    )
    note_archived(lake, server, server.redis.xrange("rsmq::events", count=10)[-1][0].decode(), 10)
    server.redis.xtrim("rsmq::events", maxlen=30, approximate=False)

    code, said = pipeline("status")
    as_json = json.loads(pipeline("status", json=True)[1])

    assert code == 3
    assert "30 events not archived yet, the oldest for " in said
    assert "10 events were trimmed before they were archived" in said
    assert (as_json["lag"], as_json["lost"]) == (30, 10)


def test_archive_without_java_reports_the_missing_package(pipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(CommandError, match="pip install|install Java 17.* Without it: snapshot, dlq, rollup"):
        pipeline("archive")


def test_doctor_reports_missing_parts_with_a_remedy(pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python2")

    code, said = pipeline("doctor")

    assert code == 1
    assert "no Java" in said
    assert "openjdk-17" in said
    assert "Spark's workers run another Python" in said
    assert "RSMQ['EVENTS']['RECORD'] is 'recent'" in said


def test_doctor_wants_every_attempt_in_the_log_only_for_objectives(pipeline, settings):
    _code, said = pipeline("doctor")
    settings.RSMQ = settings.RSMQ | {
        "PIPELINE": {**settings.RSMQ.get("PIPELINE", {}), "OBJECTIVES": {"mail": {"success": 0.99}}}
    }
    _code, with_objectives = pipeline("doctor")

    wish = "needs every attempt in the log"
    assert "the last successes of each task are logged" in said and wish not in said and wish in with_objectives


def test_doctor_without_deltalake_names_the_extra_and_ends(pipeline, monkeypatch: pytest.MonkeyPatch):
    find_spec = importlib.util.find_spec
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None if name == "deltalake" else find_spec(name))
        without.setitem(sys.modules, "deltalake", None)  # an import raises ModuleNotFoundError

        code, said = pipeline("doctor")

    assert code == 1
    assert "deltalake\n         pip install 'rsmq-django[spark]'" in said


def test_doctor_names_each_table_that_cannot_be_read_once(pipeline, lake):
    for table in (HOURLY, EVENTS, RUNS):
        lake.append(table, DAY, [])
        newest = max((lake.root / table.name / "_delta_log").glob("*.json"))
        newest.write_bytes(newest.read_bytes()[:99])

    code, said = pipeline("doctor")

    assert code == 1
    assert [said.count(f"/{name} cannot be read: ") for name in ("events", "hourly", "runs")] == [1, 1, 1]


def test_doctor_reports_that_the_lake_cannot_be_written(pipeline, tmp_path):
    (tmp_path / "file").write_text("")

    code, said = pipeline("doctor", lake=str(tmp_path / "file" / "lake"))

    assert code == 1
    assert "cannot be written" in said


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_version_of_java_is_read_in_all_its_spellings(said: str, version: int | None):
    assert java_version(said) == version


def test_configuration_for_spark_submit_holds_no_address(pipeline, settings, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://user:hunter2@redis:6379/0", "NAMESPACE": "shop"}},
        "PIPELINE": {"OBJECTIVES": {"mail": {"success": 0.999}}, "KEEP_EVENTS_DAYS": 7},
    }

    code, said = pipeline("config")
    config = JobConfig.from_json(said)

    assert code == 0
    assert "hunter2" not in said
    assert (config.namespace, config.objectives, config.keep_days["events"]) == (
        "shop",
        {"mail": {"success": 0.999}},
        7,
    )


@pytest.mark.django_db
def test_dry_run_prints_the_work_of_each_step_and_changes_nothing(
    pipeline, lake: Lake, write_hours, server: PrivateServer
):
    log_events(server.redis, 50)
    write_hours([hour_row()], day=dt.datetime.now(dt.UTC).date())  # a fixed day would expire some day

    code, said = pipeline("run", dry_run=True)

    assert code == 0
    assert said.splitlines() == [
        "archive: 50 events",
        "snapshot: 0 queues",
        "dlq: 0 dead letters",
        "rollup: 0 events, and newly archived ones",
        "analyse: the archive is empty",
        "compact: 0 small files",
        "expire: nothing",
        "publish: 1 day changed, 0 removed",
        "nothing was changed",
    ]
    assert server.redis.xlen("rsmq::events") == 50
    assert read_runs(lake) == []
    assert not TaskHour.objects.exists()


def test_unreadable_table_is_reported_as_such_and_not_as_an_unreachable_server(
    pipeline, lake: Lake, server: PrivateServer
):
    note_archived(lake, server, "1795000000000-0", 10, log="log:a")
    (entry,) = lake.root.glob("events/_delta_log/*1.json")
    entry.write_text(entry.read_text()[:100])

    code, said = pipeline("doctor")

    assert code == 1
    assert f"the table {lake.root}/events cannot be read" in said
    assert "Redis: " not in said


def test_lake_of_an_earlier_version_is_refused_with_the_command_that_converts_it(pipeline, lake: Lake):
    (lake.root / "_checkpoints").mkdir(parents=True)

    code, said = pipeline("doctor")

    assert code == 1
    assert "was written by an earlier version; convert it: manage.py rsmq_pipeline convert" in said
    assert pipeline("convert") == (0, "")
    assert pipeline("status") == (0, "0 events not archived yet; the log is 0% full\n")


def test_refused_run_reports_what_allows_it():
    out = StringIO()
    command = Command(stdout=out, stderr=out, no_color=True)
    command.options = {"json": False, "verbosity": 1}

    command._print_run(StepRun("archive", "2026-11-18T12:00:00+00:00", error="DataLoss: 40"))

    assert out.getvalue().startswith("archive: DataLoss: 40\nwithout --strict, rsmq_pipeline archive counts them")


@pytest.mark.parametrize(("verbosity", "shown"), [(1, "archive: KeyError: first\n"), (2, "archive: first\n  second\n")])
def test_stack_of_java_is_shown_on_request_only(verbosity: int, shown: str):
    out = StringIO()
    command = Command(stdout=out, stderr=out, no_color=True)
    command.options = {"json": False, "verbosity": verbosity}

    run = StepRun("archive", "2026-11-18T12:00:00+00:00", error="KeyError: first", whole_error="first\nsecond")
    command._print_run(run)

    assert out.getvalue() == shown


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "conf", "level"),
    [({}, {}, "OFF"), ({"verbosity": 2}, {}, None), ({}, {"spark.log.level": "INFO"}, "INFO")],
)
def test_log_of_spark_is_off_unless_it_is_wanted(
    pipeline, settings, given: dict[str, int], conf: dict[str, str], level: str | None, monkeypatch: pytest.MonkeyPatch
):
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {"SPARK_CONF": conf}}
    used: list[str | None] = []
    monkeypatch.setattr(Pipeline, "run", lambda self, step: used.append(self.config.conf.get("spark.log.level")))
    monkeypatch.setattr(Command, "_print_run", lambda self, run: sys.exit(0))

    pipeline("rollup", **given)

    assert used == [level]


@pytest.mark.needs_redis(7, 0)
def test_reset_that_cannot_be_accepted_yet_is_reported(
    pipeline, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    monkeypatch.setattr(Pipeline, "spark", PlainSpark())
    changed_nothing = "--accept-reset changed nothing: the log has no entries after the archived ones"
    log_events(server.redis, 5)
    newest = server.redis.xinfo_stream("rsmq::events")["last-generated-id"].decode()
    note_archived(lake, server, newest, 10)  # a failover lost five of them

    code, said = pipeline("archive")
    assert (code, "LogReset" in said, "--accept-reset` when the log has newer entries" in said) == (3, True, True)
    code, said = pipeline("archive", accept_reset=True)
    assert code == 0
    assert changed_nothing in said

    log_events(server.redis, 2)
    code, said = pipeline("archive", accept_reset=True)
    assert code == 0
    assert changed_nothing not in said
    assert pipeline("archive")[0] == 0


@pytest.mark.needs_redis(7, 0)
def test_log_that_was_created_again_is_reported_with_the_next_step(pipeline, lake: Lake, server: PrivateServer):
    log_events(server.redis, 3)
    note_archived(lake, server, "1795000000000-0", 10)

    code, said = pipeline("doctor")
    assert code == 1
    assert "the log no longer contains the archive's position" in said
    assert "rsmq_pipeline archive --accept-reset" in said

    code, said = pipeline("status")
    assert code == 1
    assert said.startswith("3 events not archived yet, the oldest for ")
    assert json.loads(pipeline("status", json=True)[1])["reset"] is True
    assert "it would fail" in pipeline("archive", dry_run=True)[1]


@pytest.mark.needs_redis(7, 0)
def test_events_that_were_trimmed_unread_are_reported_as_lost_and_not_as_a_refusal(
    pipeline, lake: Lake, server: PrivateServer
):
    log_events(server.redis, 50)
    note_archived(lake, server, server.redis.xrange("rsmq::events", count=10)[-1][0].decode(), 10)
    server.redis.xtrim("rsmq::events", maxlen=30, approximate=False)

    dry, doctor = pipeline("archive", dry_run=True)[1], pipeline("doctor")[1]

    assert "archive: 30 events\narchive: 10 events trimmed before, to be counted as lost\n" in dry
    assert "10 events were trimmed before they were archived" in doctor
    assert "The next run archives the others, and counts these as lost." in doctor


@pytest.mark.parametrize("newer", [0, 3])
def test_log_of_another_server_is_reported_and_not_refused(pipeline, lake: Lake, server: PrivateServer, newer: int):
    note_archived(lake, server, "1795000000000-0", 1000, log="log:of-another-server")
    log_events(server.redis, newer)

    code, said = pipeline("doctor")

    assert "the log is not the one of the latest batch: another server, or the log was deleted since" in said
    assert "no longer contains the archive's position" not in said
    code, said = pipeline("status")
    assert (code, said.startswith(f"{newer} events not archived yet")) == (0, True)


@pytest.mark.django_db
@pytest.mark.parametrize("event", ["failure", "another run", pytest.param("loss", marks=pytest.mark.needs_redis(7, 0))])
def test_run_publishes_what_there_is_whatever_happens_to_a_step(
    pipeline, lake: Lake, write_hours, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, event: str
):
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    monkeypatch.setattr(Pipeline, "spark", PlainSpark())
    monkeypatch.setattr(PlainSpark, "stop", lambda self: None, raising=False)
    write_hours([hour_row()], day=dt.datetime.now(dt.UTC).date())
    log_events(server.redis, 50)
    other = Server(server.url, namespace="rsmq", patience_s=5)
    lock = RunLock(other, f"{lake.uri}/{EVENTS.name}") if event == "another run" else nullcontext()
    if event == "failure":
        monkeypatch.setattr("rsmq_django.spark.job.rollup", raise_no_disk)
    if event == "loss":
        note_archived(lake, server, server.redis.xrange("rsmq::events", count=10)[-1][0].decode(), 10)
        server.redis.xtrim("rsmq::events", maxlen=30, approximate=False)

    with lock:
        code, said = pipeline("run")
    other.close()

    assert code == {"failure": 1, "another run": 4, "loss": 3}[event]
    assert TaskHour.objects.exists(), said
    assert ("rollup: RuntimeError: no disk" in said) == (event == "failure")


def raise_no_disk(*_given: Any, **_more: Any) -> Any:
    raise RuntimeError("no disk")


@pytest.mark.parametrize(
    ("codes", "status"), [([0, 4, 3, 1], 1), ([4, 3], 3), ([4, 0], 4), ([0, 0], 0), ([], 0)], ids=str
)
def test_status_of_several_steps_is_that_of_the_worst(codes: list[int], status: int):
    assert status_of(StepRun("archive", "", exit_code=code) for code in codes) == status


@pytest.fixture
def spread(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Queues, shards and reliable queues on several connections."""
    url = settings.RSMQ["CONNECTIONS"]["default"]["URL"]
    connections = {name: {"URL": url, "NAMESPACE": name} for name in ("default", "media", "orders", "unused")}
    for alias in ("media", "orders"):  # the command sets them
        monkeypatch.setenv(f"RSMQ_REDIS_URL_{alias}", url)
    settings.RSMQ = {
        "CONNECTIONS": connections | {"same": connections["default"]},
        "QUEUES": {"letters": {"CONNECTION": "same"}, "video": {"CONNECTION": "media", "SHARDS": 2}},
        "RELIABLE": {"payments": {"CONNECTION": "orders"}, "refunds": {}},
    }
    return settings.RSMQ


def test_logs_of_all_queues_are_archived_or_the_chosen_ones(pipeline, settings: Any, spread: dict[str, Any]):
    assert archived_connections() == ["default", "media", "media.1", "orders"]
    assert "are not archived" not in pipeline("doctor")[1]
    logs = json.loads(pipeline("config")[1])["logs"]
    assert logs["media.1"] == {"urlEnv": "RSMQ_REDIS_URL_media", "ns": "media-1"}

    settings.RSMQ = spread | {"PIPELINE": {"CONNECTIONS": ["orders"]}}

    assert archived_connections() == ["default", "orders"]
    assert list(json.loads(pipeline("config")[1])["logs"]) == ["orders"]
    settings.RSMQ = spread | {"PIPELINE": {"CONNECTION": "media", "CONNECTIONS": []}}
    assert archived_connections() == ["media", "media.1"]
    assert json.loads(pipeline("config")[1])["logs"]["media.1"]["urlEnv"] == "RSMQ_REDIS_URL"
    settings.RSMQ = spread | {"EVENTS": {"RECORD": "off"}}
    assert archived_connections() == ["default"]


@pytest.mark.django_db
def test_connections_whose_events_are_not_archived_are_named(
    pipeline, settings: Any, spread: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    monkeypatch.setattr(Pipeline, "run", lambda self, step: StepRun(step, "2026-11-18T12:00:00+00:00"))
    settings.RSMQ = spread | {"PIPELINE": {"CONNECTION": "media", "CONNECTIONS": ["orders"]}}
    sentence = "the events of queues on default, same are not archived: the pipeline reads the log of "

    assert f"{sentence}media, media.1, orders only" in pipeline("archive")[1]
    assert sentence not in pipeline("rollup")[1]
    assert sentence in pipeline("doctor")[1]
    settings.RSMQ = settings.RSMQ | {"EVENTS": {"RECORD": "off"}}
    assert sentence not in pipeline("doctor")[1]


def test_status_and_doctor_tell_the_lag_of_each_log(
    pipeline, settings: Any, spread: dict[str, Any], server: PrivateServer
):
    for stream, count in (("default::events", 5), ("media-1::events", 7)):
        for _ in range(count):
            server.redis.xadd(stream, {"e": "x"})

    code, status = pipeline("status")
    figures = json.loads(pipeline("status", json=True)[1])
    doctor = pipeline("doctor")[1]
    planned = pipeline("archive", dry_run=True)[1]

    assert code == 0
    total = r"in 4 logs: 12 events not archived yet, the oldest for .* \(.*\); the fullest log is 0% full \(media.1\)"
    assert re.match(total, status) and re.search(total, doctor)
    assert "\ndefault: 5 events not archived yet" in status and "\nmedia.1: 7 events not archived yet" in status
    assert "\nmedia: 0 events not archived yet; the log is 0% full" in status
    assert figures["lag"] == 12
    assert {name: each["lag"] for name, each in figures["logs"].items()} == {
        "default": 5,
        "media": 0,
        "media.1": 7,
        "orders": 0,
    }
    assert "archive: 12 events" in planned


@pytest.mark.django_db
def test_dry_run_counts_the_queues_and_dead_letters_of_all_connections(
    pipeline, spread: dict[str, Any], server: PrivateServer
):
    for alias, namespace in (("default", "default"), ("media.1", "media-1"), ("orders", "orders")):
        dead = Queue("video-dead", get_client(alias))
        dead.create()
        server.redis.hset(f"{namespace}::dead:video-dead", dead.send("1"), "{}")
    Queue("letters", get_client("orders")).create()

    planned = [pipeline(step, dry_run=True)[1] for step in ("snapshot", "dlq")]
    done = [pipeline(step)[1].split() for step in ("snapshot", "dlq")]

    assert planned[0].startswith("snapshot: 2 queues\n") and planned[1].startswith("dlq: 3 dead letters\n")
    assert [words[1:5] for words in done] == [["3", "in", "2", "out"], ["3", "in", "3", "out"]]


def test_status_of_the_other_logs_is_told_when_a_server_does_not_answer(
    pipeline, settings: Any, spread: dict[str, Any], server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.spark.server.FIRST_PAUSE_S", 9.0)
    server.redis.xadd("default::events", {"e": "x"})
    gone = spread["CONNECTIONS"] | {"media": {"URL": "unix:///nonexistent/socket", "NAMESPACE": "media"}}
    settings.RSMQ = spread | {"CONNECTIONS": gone}

    code, said = pipeline("status")

    assert code == 1
    assert "1 event" in said and "media: " in said and "orders: 0 events" in said
    logs = project_logs()
    assert logs.pop("default").length == 1
    assert (logs["media"], logs["media.1"], logs["orders"].length) == (None, None, 0)
    assert "media.1: " in pipeline("doctor")[1]


def test_drain_without_yes_is_a_dry_run(pipeline, server: PrivateServer):
    ensure_queue("default").send("1")

    code, said = pipeline("drain", queue="default")

    assert code == 0
    assert "up to 1 message\n" in said
    assert get_queue("default").attributes().messages == 1


def test_missing_queue_is_reported_with_the_existing_ones(pipeline, server: PrivateServer, tmp_path):
    ensure_queue("default")
    (tmp_path / "orders.csv").write_text("order_id\n7\n")

    for step, *what in (("drain",), ("backfill", str(tmp_path / "orders.csv"))):
        with pytest.raises(CommandError, match="no queue is named nope; there are default") as refused:
            pipeline(step, *what, queue="default,nope", yes=True)
        assert refused.value.returncode == 2


def test_backfill_without_yes_is_a_dry_run(pipeline, server: PrivateServer, tmp_path):
    queue = ensure_queue("default")
    (tmp_path / "orders.csv").write_text("order_id\n7\n")

    code, said = pipeline("backfill", str(tmp_path / "orders.csv"), queue="default")

    assert (code, queue.attributes().messages) == (0, 0)
    assert "orders.csv to default" in said
    assert "nothing was changed; add --yes to apply" in said


def test_job_that_died_while_it_published_is_resumed_by_name(pipeline, server: PrivateServer, monkeypatch):
    queue = ensure_queue("default")
    job = BulkSender(Options.read({"url": server.url, "queue": "default", "job": "import-7"}), ("body",))
    staged = job.stage([{"body": [f"order {number}" for number in range(2500)]}], attempt="0.1")
    with monkeypatch.context() as died:
        died.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        job.commit([staged])
    before = queue.attributes().messages

    first, again = pipeline("resume", "import-7"), pipeline("resume", "import-7")

    assert before == 0
    assert first == again == (0, "import-7: 2,500 rows are published\n")
    assert queue.attributes().total_sent == 2500
    with pytest.raises(CommandError, match="'import-8' has not started to publish; run it again instead"):
        pipeline("resume", "import-8")


def test_dry_run_of_resume_publishes_nothing(pipeline, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    queue = ensure_queue("default")
    job = BulkSender(Options.read({"url": server.url, "queue": "default", "job": "import-7"}), ("body",))
    staged = job.stage([{"body": ["order 1", "order 2"]}], attempt="0.1")
    with monkeypatch.context() as died:
        died.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        job.commit([staged])

    planned = pipeline("resume", "import-7", dry_run=True)

    assert planned == (0, "import-7: 2 rows would be published\n")
    assert queue.attributes().messages == 0
    with pytest.raises(CommandError, match="'import-8' has not started to publish; run it again instead"):
        pipeline("resume", "import-8", dry_run=True)


def test_dry_run_of_convert_leaves_the_lake_as_it_is(pipeline, lake: Lake):
    (lake.root / "_checkpoints").mkdir(parents=True)

    code, said = pipeline("convert", dry_run=True)

    assert (code, said) == (0, f"the lake {lake.uri} would be converted\n")
    assert lake.is_of_earlier_version()


def test_submit_writes_its_files_and_prints_a_line_without_secrets(pipeline, tmp_path: Path, server: PrivateServer):
    words = ["submit", "archive,rollup", "--master", "spark://head:7077", "--to", str(tmp_path), "--queue", "mail"]

    code, said = pipeline(*words, "--conf", "spark.driver.memory=2g", "--conf", "spark.executor.memory=3g")

    line = f"--py-files {tmp_path}/rsmq_django.zip {tmp_path}/submit.py {tmp_path}/job.json archive rollup --queue=mail"
    assert code == 0
    assert said.splitlines()[0] == f"spark-submit --master spark://head:7077 --conf=spark.driver.memory=2g {line}"
    config = JobConfig.from_file(tmp_path / "job.json")
    assert (config.master, config.conf["spark.executor.memory"]) == ("spark://head:7077", "3g")
    assert server.url not in said + (tmp_path / "job.json").read_text()
    with pytest.raises(CommandError, match="cannot run publish; its steps are archive, snapshot, dlq, rollup"):
        pipeline("submit", "archive,publish", "--to", str(tmp_path))


def test_submitted_steps_get_all_options_of_the_command(pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = ["--to", str(tmp_path), "--queue", "mail", "--lease", "60", "--accept-reset", "--since", "2026-11-01"]
    _code, said = pipeline("submit", "archive,drain", *words)
    given = shlex.split(said.splitlines()[0])
    got: list[Pipeline] = []
    monkeypatch.setattr("rsmq_django.spark.job.run_steps", lambda steps, *_others: got.append(steps))

    main(given[given.index(f"{tmp_path}/job.json") :])
    with pytest.raises(SystemExit) as ended:
        main([f"{tmp_path}/job.json", "drain"])

    assert (got[0].queues, got[0].lease_s, got[0].accept_reset) == (("mail",), 60.0, True)
    assert got[0].since == dt.date(2026, 11, 1)
    assert (len(got), ended.value.code) == (1, 2), "a drain of no queue is a mistake"


def test_dry_run_of_submit_writes_nothing(pipeline, tmp_path: Path):
    code, said = pipeline("submit", "--to", str(tmp_path / "new"), dry_run=True, yes=True)

    assert (code, said.split(" --master ")[0]) == (0, "spark-submit")
    assert f"{tmp_path}/new would be written, nothing was run" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.django_db
def test_topic_is_archived_and_restored_by_name(pipeline, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Pipeline, "spark", PlainSpark())
    monkeypatch.setattr(PlainSpark, "stop", lambda self: None, raising=False)
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    topic = Topic("orders", get_client())
    topic.publish("1", "2", headers={"a": "b"})

    counted = pipeline("archive-topic", "orders", dry_run=True)
    archived = pipeline("archive-topic", "orders")
    looked = pipeline("restore-topic", "orders", "--into", "copy")
    done = pipeline("restore-topic", "orders", "--into", "copy", yes=True)

    assert "archive-topic orders: 2 messages" in counted[1]
    assert archived[1].split() == ["archive-topic", "2", "in", "2", "out", *archived[1].split()[-2:]]
    assert looked[1] == "2 messages would be published to copy\nnothing was changed; add --yes to apply\n"
    assert done == (0, "2 messages published to copy\n")
    assert [dict(each.headers) for each in Topic("copy", get_client()).read_range(1, 9).messages] == [{"a": "b"}] * 2
    with pytest.raises(CommandError, match="--into OTHER"):
        pipeline("restore-topic", "orders")


def test_failure_group_goes_back_to_its_queue_once(pipeline, lake: Lake, server: PrivateServer):
    queue = ensure_queue("default")
    dead = Queue("default-dead", get_client())
    dead.create()
    ids = dead.send_many(["1", "2", "3"])
    group = fingerprint("shop.send", "ValueError", "no row 7")
    row = {"shard": "rsmq::events", "event_at": NOON, "event": "dead", "queue": "default", "fingerprint": group}
    rows = [row | {"entry_id": f"{n}-1", "message_id": message_id} for n, message_id in enumerate(ids[:2])]
    write_events(lake, [*rows, row | {"entry_id": "9-1", "message_id": ids[2], "event": "retried"}])

    looked = pipeline("replay", group)
    done = pipeline("replay", group, yes=True)
    again = pipeline("replay", group, yes=True)

    assert "2 dead letters would be sent back to default" in looked[1]
    assert "2 dead letters sent back to default" in done[1]
    assert "2 not sent: gone" in again[1]
    assert (queue.attributes().messages, dead.attributes().messages) == (2, 1)


def test_replay_reads_only_rows_of_its_group_and_stops_at_its_limit(
    pipeline, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    ensure_queue("default")
    dead = Queue("default-dead", get_client())
    dead.create()
    group = "6" * 32
    row = {"shard": "rsmq::events", "event_at": NOON, "event": "dead", "queue": "default"}
    sent = [dead.send_many([str(number) for number in range(3)]) for _ in range(3)]
    for batch in [["gone"], *sent]:  # each a file
        others = [row | {"message_id": f"o{number}", "fingerprint": "f" * 32} for number in range(50)]
        write_events(lake, [*others, *[row | {"message_id": each, "fingerprint": group} for each in batch]])
    read: list[int] = []
    scan = Table.scan

    def counting(self: Table, **options: Any) -> Any:
        for batch in scan(self, **options):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(Table, "scan", counting)
    whole = pipeline("replay", group)
    rows_of_group, read[:] = sum(read), []
    some = pipeline("replay", group, "--limit", "4", yes=True)

    assert "9 dead letters would be sent back to default" in whole[1]
    assert rows_of_group == 10
    assert "4 dead letters sent back to default" in some[1]
    assert sum(read) < 10
    assert "5 dead letters sent back to default" in pipeline("replay", group, yes=True)[1]


def test_group_without_events_goes_back_by_the_archive_of_dead_letters(pipeline, lake: Lake, server: PrivateServer):
    queue, dead = ensure_queue("default"), Queue("default-dead", get_client())
    dead.create()
    row = dict.fromkeys(column.name for column in DEAD_LETTERS.columns) | {"fingerprint": "f" * 32, "died_at": NOON}
    row |= {"dead_queue": "default-dead", "queue": "default", "message_id": dead.send("1")}
    lake.write_day(DEAD_LETTERS, NOON.date(), [row, row | {"queue": "closed"}, row | {"queue": ""}])

    code, said = pipeline("replay", "f" * 32, yes=True)

    assert code == 0
    assert "1 dead letter sent back to default" in said
    assert "1 not sent: closed is no longer in RSMQ['QUEUES']" in said
    assert queue.attributes().messages == 1


def test_dry_run_counts_dead_letters(pipeline, server: PrivateServer):
    dead = Queue("default-dead", get_client())
    dead.create()
    server.redis.hset("rsmq::dead:default-dead", dead.send("1"), "{}")

    assert "dlq: 1 dead letter\n" in pipeline("dlq", dry_run=True)[1]
    assert "dlq: 0 dead letters" in pipeline("dlq", dry_run=True, queue="none")[1]


def test_wrong_usage_has_its_own_status(pipeline):
    with pytest.raises(CommandError, match="is not a duration"):
        pipeline("archive", "--continuous", "soon")
    with pytest.raises(CommandError, match="write name=value") as no_pair:
        pipeline("status", "--conf", "spark.ui.enabled")
    assert no_pair.value.returncode == 2
    for step, said in (
        ("drain", "which queues"),
        ("replay", "a fingerprint"),
        ("backfill", "a file"),
        ("resume", "name of a job"),
    ):
        with pytest.raises(CommandError, match=said) as refused:
            pipeline(step)
        assert refused.value.returncode == 2


def test_replay_without_pyarrow_reports_the_missing_package(pipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)

    with pytest.raises(CommandError, match=r"pyarrow is not installed; pip install 'rsmq-django\[spark\]'"):
        pipeline("replay", "6f1ed002ab5595859014ebf0951522d9")


def test_an_invalid_day_is_refused_with_an_example(pipeline):
    with pytest.raises(CommandError, match="'yesterday' is not a date; write 2026-11-01"):
        pipeline("rollup", "--since", "yesterday")
