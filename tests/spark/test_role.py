"""The Redis side of the pipeline with exactly the rights of docs/how-to/acl.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.topic import Topic
from rsmq_django.spark.bulk import BulkSender, unfinished_jobs
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.drain import Journals, drains
from rsmq_django.spark.log import StreamLog
from rsmq_django.spark.options import Options
from rsmq_django.spark.server import Server
from rsmq_django.spark.snapshot import QueueSnapshot
from rsmq_django.spark.topics import restore_topic, topic_transfer, transfer_topic
from tests.acl_users import TOPICS, UserOf, user_with_role
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark
from tests.spark.samples import log_events

__all__ = ["user_with_role"]


def test_pipeline_reads_drains_and_sends(mail: Queue, server: PrivateServer, user_with_role: UserOf):
    mail.send_many(["1", "2"])
    log_events(server.redis, 10)
    url = user_with_role("pipeline")

    def options(**given: str) -> Options:
        common = {
            "url": url,
            "patienceS": "5",
            "queue": "mail",
            "failOnDataLoss": "false",
        }  # Redis 6.2 counts no losses
        return Options.read(common | given)

    snapshot = QueueSnapshot(options())
    assert sum(len(table["message_id"]) for part in snapshot.plan() for table in snapshot.read(part)) == 2
    events = options(kind="events")
    log = StreamLog(events, events.streams)
    assert log.ranges(log.beginning(), log.advance_all(log.beginning(), 100))
    journals = Journals(options(kind="drain"))
    end = journals.advance_all(journals.beginning(), 100)
    (drain,) = drains(journals.options)
    pipeline = Server(url, namespace="rsmq", patience_s=5)
    assert pipeline.run(drain.acknowledge(end[drain.journal]["id"])) == (2, 0)
    job = BulkSender(options(job="import-7"), ("body",))
    job.commit([job.stage([{"body": ["a", "b", "c"]}], attempt="0.1")])
    assert unfinished_jobs(pipeline) == [] and mail.attributes().messages == 3
    pipeline.close()


def test_pipeline_archives_and_restores_a_topic(
    client: Client, server: PrivateServer, user_with_role: UserOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    Topic(TOPICS[0], client).publish("1", "2", key="k")
    monkeypatch.setenv("RSMQ_REDIS_URL", user_with_role("pipeline", topics=TOPICS))
    config = JobConfig(lake=str(tmp_path / "lake"), source={"patienceS": "5"})

    transfer_topic(topic_transfer(PlainSpark(), config, TOPICS[0]))

    assert restore_topic(config, TOPICS[0], into=f"{TOPICS[0]}.dlt", dry_run=False).sent == 2
