"""Topic -> lake -> topic: each message once, also after kills and with two drivers; and back: all or none."""

import datetime as dt
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pytest

from rsmq_django.core import Client
from rsmq_django.core.queue.bulk import Job
from rsmq_django.core.topic import NewMessage, Retention, Topic
from rsmq_django.spark import topics, transfer
from rsmq_django.spark.bulk import BulkSender
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.errors import DataLoss, LogReset, PipelineError
from rsmq_django.spark.schemas import archived_topic
from rsmq_django.spark.topics import restore_topic, topic_transfer, unarchived_messages
from rsmq_django.spark.transfer import Transferred
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
RACES = int(os.environ.get("RACES", "12"))
KILLS = int(os.environ.get("KILLS", "3"))
SMALL = {"maxRowsPerBatch": "10", "rowsPerPartition": "4", "chunkRows": "3", "patienceS": "5"}


@pytest.fixture
def config(tmp_path: Path, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    monkeypatch.setenv("RSMQ_REDIS_URL", server.url)
    return JobConfig(lake=str(tmp_path / "lake"), source=SMALL)


@pytest.fixture
def topic(client: Client) -> Topic:
    return Topic("orders", client)


@pytest.fixture
def archive(config: JobConfig) -> Callable[..., Transferred]:
    """Archive a topic without a lock, and return the result."""

    def run(name: str = "orders", **source: str) -> Transferred:
        job = topic_transfer(PlainSpark(), JobConfig(lake=config.lake, source=SMALL | source), name)
        job.run(job.log.newest_ids())
        return job.result

    return run


def publish(topic: Topic, count: int, first: int = 0) -> None:
    for at in range(first, first + count, 500):
        topic.publish(*(f"m{number}" for number in range(at, min(at + 500, first + count))))


def rows(config: JobConfig, name: str = "orders") -> list[dict[str, Any]]:
    found = config.find_lake().open(archived_topic(name)).read().to_pylist()
    return sorted(found, key=lambda row: (row["log"], row["index"]))


def bodies(config: JobConfig) -> list[str]:
    return [row["body"].decode() for row in rows(config)]


# -- To the lake -------------------------------------------------------------------------------------------------------


def test_each_message_is_one_row_with_key_and_headers_and_stays_in_the_topic(archive, config: JobConfig, topic: Topic):
    topic.publish("plain", NewMessage("with", key="k", headers={"a": "ä"}), b"\xff\x00")
    first = archive()
    publish(topic, 25)
    second = archive()

    assert (first.rows, second.rows, archive().rows) == (3, 25, 0)
    found = rows(config)
    assert [row["body"] for row in found[:3]] == [b"plain", b"with", b"\xff\x00"]
    assert [(row["key"], row["headers"]) for row in found[:3]] == [
        (None, None),
        ("k", '{"a": "\\u00e4"}'),
        (None, None),
    ]
    assert [row["index"] for row in found] == list(range(1, 29))
    assert all(row["published_at"] for row in found)
    assert topic.status().length == 28


def test_messages_trimmed_unread_are_counted_and_holes_are_not(archive, config: JobConfig, topic: Topic):
    publish(topic, 10)
    archive()
    publish(topic, 20, 10)
    topic.trim(before=16)
    topic.publish(*(NewMessage(f"v{number}", key="same") for number in range(8)))
    topic.compact()

    with pytest.raises(DataLoss, match="5 messages from 11 on were trimmed before they were read"):
        archive(failOnDataLoss="true")
    result = archive()

    assert (result.rows, result.lost) == (16, 5)
    assert bodies(config)[-2:] == ["m29", "v7"]
    assert archive().lost == 0


def test_messages_trimmed_between_plan_and_reading_are_counted(archive, topic: Topic, monkeypatch: pytest.MonkeyPatch):
    publish(topic, 30)
    write_range = transfer.write_range

    def after_trimming(*args: Any) -> Any:
        topic.trim(keep=25)
        return write_range(*args)

    monkeypatch.setattr(transfer, "write_range", after_trimming)
    result = archive()

    assert (result.rows, result.lost) == (25, 5)


def test_topic_of_the_same_name_is_another_log_and_is_read_from_its_beginning(
    archive, config: JobConfig, topic: Topic, server: PrivateServer
):
    publish(topic, 12)
    archive()
    server.redis.delete("orders:nextIndex", *[f"orders:messages:{index}" for index in range(1, 13)])
    publish(topic, 15, 100)

    result = archive()

    assert (result.rows, result.lost) == (15, 0)
    assert len({row["log"] for row in rows(config)}) == 2
    assert sorted(bodies(config)) == sorted([f"m{n}" for n in (*range(12), *range(100, 115))])


def test_topic_whose_end_is_missing_is_refused(archive, topic: Topic, server: PrivateServer):
    publish(topic, 12)
    archive()
    server.redis.set("orders:nextIndex", 5)

    with pytest.raises(LogReset, match="ends at 5, before our position 12"):
        archive()


def test_topic_without_messages_has_nothing_to_archive(archive, config: JobConfig):
    assert archive().rows == 0
    assert unarchived_messages(config, "orders") == 0


def test_unarchived_messages_are_counted(archive, config: JobConfig, topic: Topic):
    publish(topic, 30)
    assert unarchived_messages(config, "orders") == 30
    archive()
    publish(topic, 3)

    assert unarchived_messages(config, "orders") == 3


@pytest.mark.parametrize("name", ["{orders}", "../orders", "a b%41", ".hidden", "ünï", "a~7B"])
def test_any_name_of_a_topic_is_a_directory_of_its_own_below_topics(name: str, config: JobConfig, client: Client):
    topic = Topic(name, client)
    topic.publish("1")
    job = topic_transfer(PlainSpark(), config, name)
    job.run()

    assert [row["body"] for row in rows(config, name)] == [b"1"]
    assert Path(job.lake.open(job.definition).uri).parent == Path(config.lake, "topics")


# -- Several drivers, kills --------------------------------------------------------------------------------------------


@pytest.mark.deadline(3600)
def test_two_drivers_at_once_store_each_message_once(archive, config: JobConfig, topic: Topic):
    sent = 0
    for number in range(RACES):
        count = 3 + number % 7
        publish(topic, count, sent)
        sent += count
        errors: list[BaseException] = []

        def drive(errors: list[BaseException] = errors) -> None:
            try:
                archive(maxRowsPerBatch="4", rowsPerPartition="2", failOnDataLoss="true")
            except BaseException as error:
                errors.append(error)

        drivers = [threading.Thread(target=drive) for _ in range(2)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        if errors:
            raise errors[0]

    assert bodies(config) == [f"m{number}" for number in range(sent)]


def stored(config: JobConfig) -> int:
    return sum(file.rows for file in config.find_lake().open(archived_topic("orders")).files)


@pytest.mark.slow
@pytest.mark.deadline(3600)
def test_two_drivers_that_are_killed_again_and_again_store_each_message_once(
    place: str, topic: Topic, config: JobConfig, server: PrivateServer
):
    config, sent, killed = JobConfig(lake=place, source={"patienceS": "5"}), 0, 0
    environment = {**os.environ, "RSMQ_REDIS_URL": server.url, "DJANGO_SETTINGS_MODULE": ""}
    command = [sys.executable, "-m", "tests.spark.plain", place, "100", "orders"]
    while killed < KILLS:
        publish(topic, 3000, sent)
        before, sent = stored(config), sent + 3000
        drivers = [subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
        # At a random moment after the first messages were stored.
        wait_until(partial(lambda before: stored(config) > before, before), timeout_s=60)
        threading.Event().wait(random.Random().uniform(0, 0.5))
        for driver in drivers:
            killed += driver.poll() is None
            driver.kill()
            driver.communicate()
    job = topic_transfer(PlainSpark(), config, "orders")
    job.run()

    assert [row["index"] for row in rows(config)] == list(range(1, sent + 1))


# -- Back --------------------------------------------------------------------------------------------------------------


def test_restored_messages_have_their_order_keys_and_headers(archive, config: JobConfig, topic: Topic, client: Client):
    messages = [NewMessage(f"m{n}", key=f"k{n % 4}" if n % 3 else None, headers={"n": f"{n}"}) for n in range(60)]
    topic.publish(*messages, NewMessage("", key="k1"), b"\xff\x00", "7:9:no lengths")
    archive()
    copy = Topic("copy", client)

    would = restore_topic(config, "orders", into="copy", dry_run=True)
    assert (would.known, would.sent, copy.status().length) == (63, 0, 0)
    done = restore_topic(config, "orders", into="copy", dry_run=False)

    def content(of: Topic) -> list[Any]:
        return [(each.body, each.key, dict(each.headers)) for each in of.read_range(1, 100).messages]

    assert done.sent == 63
    assert content(copy) == content(topic)
    assert copy.compact() == topic.compact() > 0


def test_restore_is_refused_where_messages_are(archive, config: JobConfig, topic: Topic, client: Client):
    publish(topic, 5)
    archive()
    Topic("busy", client).publish("other")
    restore_topic(config, "orders", into="copy", dry_run=False)

    with pytest.raises(PipelineError, match="'busy' has messages; restore into another topic"):
        restore_topic(config, "orders", into="busy", dry_run=False)
    with pytest.raises(PipelineError, match="'copy' was restored from this archive before"):
        restore_topic(config, "orders", into="copy", dry_run=False)
    with pytest.raises(PipelineError, match="no messages of topic 'absent'; archive it first"):
        restore_topic(config, "absent", into="copy", dry_run=False)
    assert Topic("copy", client).status().length == 5


def test_restore_that_fails_publishes_nothing(
    archive, config: JobConfig, topic: Topic, client: Client, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    publish(topic, 2500)
    archive(maxRowsPerBatch="5000")
    messages = topics._messages

    def breaking(table: Table) -> Any:
        yield next(messages(table))
        raise OSError("disk failed")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="disk failed"):
        broken.setattr(topics, "_messages", breaking)
        restore_topic(config, "orders", into="copy", dry_run=False)

    assert Topic("copy", client).status().length == 0
    assert [key for key in server.redis.keys("rsmq::spark:job:*") if b":topic" in key] == []
    assert restore_topic(config, "orders", into="copy", dry_run=False).sent == 2500


def test_restore_that_died_while_it_published_is_completed_by_the_next_one(
    archive, config: JobConfig, topic: Topic, client: Client, monkeypatch: pytest.MonkeyPatch
):
    topic.set_retention(Retention(max_count=10_000))
    publish(topic, 2500)
    archive(maxRowsPerBatch="5000")
    with monkeypatch.context() as died:
        died.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        restore_topic(config, "orders", into="copy", dry_run=False)
    copy = Topic("copy", client)
    assert copy.status().length == 0

    assert restore_topic(config, "orders", into="copy", dry_run=False).sent == 2500
    assert [each.body for each in copy.read_range(2400, 5).messages] == [f"m{n}".encode() for n in range(2399, 2404)]


@pytest.mark.parametrize("change", ["more was archived", "another program has compacted the table"])
def test_restore_that_died_while_it_published_is_completed_although_the_table_has_changed(
    archive, config: JobConfig, topic: Topic, client: Client, monkeypatch: pytest.MonkeyPatch, change: str
):
    for first in (0, 10):
        publish(topic, 10, first)
        archive()
    chunks = iter([Job.publish])
    with monkeypatch.context() as died, pytest.raises(StopIteration):
        died.setattr(Job, "publish", lambda *args, **more: next(chunks)(*args, **more))
        restore_topic(config, "orders", into="copy", dry_run=False)
    assert 0 < Topic("copy", client).status().length < 20
    if change == "more was archived":
        publish(topic, 5, 20)
        archive()
    else:
        table = deltalake.DeltaTable(config.find_lake().open(archived_topic("orders")).uri)
        assert table.optimize.compact()["numFilesRemoved"] > 1

    assert restore_topic(config, "orders", into="copy", dry_run=True).sent == 0
    assert restore_topic(config, "orders", into="copy", dry_run=False).sent == 20

    copy = Topic("copy", client)
    assert [each.body for each in copy.read_range(1, 100).messages] == [f"m{n}".encode() for n in range(20)]
    with pytest.raises(PipelineError, match="'copy' was restored"):
        restore_topic(config, "orders", into="copy", dry_run=False)
    assert restore_topic(config, "orders", into="other", dry_run=False).sent == len(rows(config))


def test_two_restores_at_once_publish_once_although_more_was_archived_between_their_starts(
    archive, config: JobConfig, topic: Topic, client: Client, monkeypatch: pytest.MonkeyPatch
):
    publish(topic, 20)
    archive()
    messages, seconds = topics._messages, list[topics.Restored]()

    def second_meanwhile(table: Table) -> Any:
        monkeypatch.setattr(topics, "_messages", messages)
        publish(topic, 5, 20)
        archive()
        seconds.append(restore_topic(config, "orders", into="copy", dry_run=False))
        return messages(table)

    monkeypatch.setattr(topics, "_messages", second_meanwhile)
    first = restore_topic(config, "orders", into="copy", dry_run=False)

    copy = Topic("copy", client)
    assert [each.body for each in copy.read_range(1, 100).messages] == [f"m{n}".encode() for n in range(25)]
    assert [first.sent, seconds[0].sent] == [25, 25]
    with pytest.raises(PipelineError, match="'copy' was restored from this archive before; restore into another topic"):
        restore_topic(config, "orders", into="copy", dry_run=False)


def test_another_archive_is_refused_where_a_restore_has_begun_to_publish(
    archive, config: JobConfig, topic: Topic, client: Client, monkeypatch: pytest.MonkeyPatch
):
    publish(topic, 5)
    Topic("users", client).publish("other")
    archive()
    archive("users")
    with monkeypatch.context() as died:
        died.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        restore_topic(config, "orders", into="copy", dry_run=False)

    for dry_run in (True, False):
        with pytest.raises(PipelineError, match="'copy' is being restored from another archive; complete that first"):
            restore_topic(config, "users", into="copy", dry_run=dry_run)

    assert restore_topic(config, "users", into="others", dry_run=False).sent == 1
    assert restore_topic(config, "orders", into="copy", dry_run=False).sent == 5


@pytest.mark.parametrize("ends", [True, False], ids=["that has ended", "that still publishes"])
def test_restore_does_not_publish_behind_that_of_another_archive(
    archive, config: JobConfig, topic: Topic, client: Client, server: PrivateServer, monkeypatch: Any, ends: bool
):
    publish(topic, 5)
    Topic("users", client).publish("other")
    archive()
    archive("users")
    messages = topics._messages

    def other_meanwhile(table: Table) -> Any:
        monkeypatch.setattr(topics, "_messages", messages)
        with monkeypatch.context() as died:
            if not ends:
                died.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
            restore_topic(config, "users", into="copy", dry_run=False)
        return messages(table)

    monkeypatch.setattr(topics, "_messages", other_meanwhile)
    with pytest.raises(PipelineError, match="'copy' (has messages|is being restored)"):
        restore_topic(config, "orders", into="copy", dry_run=False)

    assert Topic("copy", client).status().length == ends
    assert restore_topic(config, "orders", into="other-copy", dry_run=False).sent == 5


def test_messages_keep_their_order_when_a_clock_was_set_back_over_midnight(config: JobConfig, client: Client):
    """Indexes count on; the days are those of the server's clock."""
    days = {1: "01", 2: "03", 3: "02", 4: "03", 5: "02", 6: "04", 7: "05"}
    for log in ("first", "second"):
        for index, day in days.items():
            at = dt.datetime.fromisoformat(f"2026-11-{day}T12:00:00+00:00")
            row = {"topic": "orders", "log": log, "index": index, "published_at": at, "key": None, "headers": None}
            config.find_lake().append(archived_topic("orders"), at.date(), [row | {"body": f"{log} {index}".encode()}])

    restore_topic(config, "orders", into="copy", dry_run=False)

    found = [each.body.decode() for each in Topic("copy", client).read_range(1, 100).messages]
    wanted = [f"{log} {index}" for log in ("first", "second") for index in days]
    assert found == sorted(found, key=lambda body: (body.split()[0] != found[0].split()[0], body))
    assert sorted(found) == wanted


def test_rows_with_key_or_headers_are_written_to_a_topic(config: JobConfig, client: Client, options):
    sender = BulkSender(options(kind="topic", topic="orders", job="import-9"), ("body", "headers"))
    staged = sender.stage([{"body": ["a", "b"], "headers": ['{"x": "1"}', None]}], attempt="0.0")

    assert sender.commit([staged]) == 2
    found = Topic("orders", client).read_range(1, 10).messages
    assert [(each.body, dict(each.headers), each.key) for each in found] == [(b"a", {"x": "1"}, None), (b"b", {}, None)]
