"""A queue with shards on the connection of the pipeline: archived, counted, emptied and sent back as one queue."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client as Browser
from django.test import RequestFactory

from rsmq_django.core import Queue
from rsmq_django.core.keys import events_key, shard_namespace
from rsmq_django.management.commands import rsmq_pipeline
from rsmq_django.pipeline import history
from rsmq_django.pipeline.models import PipelineRun, QueueDepth
from rsmq_django.queues import get_client, shards_of_queue
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import DEAD_LETTERS, EVENTS, drained
from rsmq_django.telemetry.metrics import metrics
from tests.cluster import Cluster, Node
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark
from tests.support import wait_until
from tests.worker.workshop import declare, work

from .conftest import NOON

SHARDS = 4
LOGS = [events_key(shard_namespace("{rsmq}", shard)) for shard in range(SHARDS)]


@pytest.fixture(autouse=True)
def plain_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive and drain in this process."""
    monkeypatch.setattr(rsmq_pipeline, "_require_spark", lambda: None)
    monkeypatch.setattr(Pipeline, "spark", PlainSpark())
    monkeypatch.setattr(PlainSpark, "stop", lambda self: None, raising=False)


def sharded(url: str) -> dict[str, Any]:
    return {
        "CONNECTIONS": {"default": {"URL": url, "NAMESPACE": "{rsmq}", "TIMEOUT_S": 15}},
        "QUEUES": {"default": {"SHARDS": SHARDS, "MAX_ATTEMPTS": 1}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
        "EVENTS": {"RECORD": "all", "MAX_LENGTH": 1000},
    }


@pytest.fixture
def project(settings: Any, server: PrivateServer) -> None:
    settings.RSMQ = sharded(server.url)


def archived(lake: Lake) -> Counter[str]:
    """Return the number of calls that have succeeded in each log; each event has to be there once.

    A worker on a busy machine gives messages back that it took too early, and each such delivery is an event, too.
    """
    rows = lake.open(EVENTS).read(names=["shard", "entry_id", "task_id", "event"]).to_pylist()
    done = [row for row in rows if row["event"] == "succeeded"]
    assert len({(row["shard"], row["entry_id"]) for row in rows}) == len(rows), "each once"
    assert len({row["task_id"] for row in done}) == len(done)
    return Counter(row["shard"] for row in done)


@pytest.mark.django_db
def test_events_of_all_shards_are_archived_once_and_count_as_one_queue(
    pipeline, lake: Lake, project: None, server: PrivateServer
):
    declare(lambda number: None).enqueue_many([[number] for number in range(10 * SHARDS)])
    assert work()

    code, said = pipeline("run")
    again = pipeline("archive")[1]

    assert code == 0, said
    assert archived(lake) == {
        "{rsmq}::events": 10, **{f"default.{shard}#{LOGS[shard]}": 10 for shard in range(1, SHARDS)},
    }  # fmt: skip
    assert re.search("archive +0 in", again)
    assert [server.redis.xlen(log) for log in LOGS] == [0] * SHARDS
    (totals,) = history.task_totals().items()
    assert (totals[0][0], totals[1].succeeded) == ("default", 10 * SHARDS)


@pytest.mark.django_db
def test_snapshot_has_one_row_with_the_messages_of_all_shards(pipeline, project: None):
    declare(lambda number: None).enqueue_many([[number] for number in range(10 * SHARDS)])

    pipeline("snapshot")
    pipeline("publish")

    (depth,) = QueueDepth.objects.filter(queue="default")
    assert depth.waiting == 10 * SHARDS


@pytest.mark.django_db
def test_drain_takes_the_messages_of_all_shards(pipeline, lake: Lake, project: None):
    declare(lambda number: None).enqueue_many([[number] for number in range(10 * SHARDS)])

    planned = pipeline("drain", queue="default")[1]
    done = pipeline("drain", queue="default", yes=True)[1]
    again = pipeline("drain", queue="default", yes=True)[1]

    assert "drain default: up to 40 messages\n" in planned
    assert re.search("drain +40 in +40 out", done) and re.search("drain +0 in", again)
    assert len({*lake.open(drained("default")).read()["message_id"].to_pylist()}) == 10 * SHARDS
    assert sum(shard.attributes().messages for shard in shards_of_queue("default")) == 0


@pytest.mark.django_db
def test_dead_letters_of_a_group_go_back_from_all_shards(pipeline, lake: Lake, project: None):
    def fail(number: int) -> None:
        raise ValueError("no row 7")

    declare(fail).enqueue_many([[number] for number in range(2 * SHARDS)])
    assert work()
    pipeline("dlq")
    pipeline("archive")
    (group,) = {*lake.open(DEAD_LETTERS).read()["fingerprint"].to_pylist()}
    assert Queue("default-dead", get_client("default.2")).pop() is not None  # one of them is gone

    looked = pipeline("replay", group)[1]
    some = pipeline("replay", group, "--limit", "3", yes=True)[1]
    done = pipeline("replay", group, yes=True)[1]

    assert len(lake.open(DEAD_LETTERS).read()) == 2 * SHARDS
    assert "7 dead letters would be sent back to default\n1 not sent: gone\n" in looked
    assert some.splitlines()[0] == "3 dead letters sent back to default"  # the one that is gone may be among the first
    assert done == "4 dead letters sent back to default\n4 not sent: gone\n"
    assert sum(shard.attributes().messages for shard in shards_of_queue("default")) == 2 * SHARDS - 1


def test_backfill_into_a_queue_with_shards_is_refused(pipeline, project: None, tmp_path: Any):
    for shard in shards_of_queue("default"):
        shard.create()
    (tmp_path / "orders.csv").write_text("order_id\n7\n")

    with pytest.raises(CommandError, match="'default' has SHARDS; use enqueue_many") as refused:
        pipeline("backfill", str(tmp_path / "orders.csv"), queue="default", yes=True)

    assert refused.value.returncode == 2


@pytest.mark.django_db
@pytest.mark.needs_redis(7, 0)
def test_lag_and_losses_are_summed_and_the_worst_shard_is_named(pipeline, project: None, server: PrivateServer):
    for number, log in enumerate(LOGS):
        for _ in range(100 * (number + 1)):
            server.redis.xadd(log, {"v": "succeeded"})
    store_run_of_the_archive(lost={"{rsmq}::events": 1, "default.3#{rsmq-3}::events": 40})

    status, doctor = pipeline("status")[1], pipeline("doctor")[1]
    figures = json.loads(pipeline("status", json=True)[1])
    text = metrics(RequestFactory().get("/metrics")).content.decode()
    browser = Browser()
    browser.force_login(User.objects.create_superuser("root"))
    page = " ".join(browser.get("/admin/rsmq_pipeline/pipelinerun/").content.decode().split())

    total = "in 4 logs: 1,000 events not archived yet, the oldest for "
    assert total in status and total in doctor
    assert "the fullest log is 40% full (default.3)" in status and "default.1: 200 events not archived yet" in status
    assert (figures["lag"], figures["logs"]["default.3"]["lag"]) == (1000, 400)
    assert 'rsmq_pipeline_log_fill{connection="default.3"} 0.4' in text
    assert 'rsmq_events_lost_total{connection="default.3"} 40.0' in text
    assert "1,000 events, 40" in page and "(default.3)</dd>" in page and "41 (default.3)" in page


def store_run_of_the_archive(lost: dict[str, int]) -> None:
    """Store the record of a run, as publishing does."""
    offsets = {name: {"lost": number} for name, number in lost.items()}
    row: dict[str, Any] = {"run_id": "1", "step": "archive", "started_at": NOON, "seconds": 1, "exit_code": 0}
    PipelineRun.objects.create(**row, rows_in=1, rows_out=1, lost=0, offsets=offsets)


# -- On a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def has_slots(cluster: Cluster, node: Node) -> bool:
    return node in cluster.masters()


@pytest.mark.django_db
@pytest.mark.slow
@pytest.mark.needs_redis(7, 0)
def test_shards_on_a_node_that_is_killed_are_archived_once_when_it_is_back(
    pipeline, lake: Lake, settings: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    settings.RSMQ = sharded(cluster.nodes[0].url)
    monkeypatch.setattr("rsmq_django.spark.server.FIRST_PAUSE_S", 99.0)  # a server that is gone is not waited for
    declared = declare(lambda number: None)
    owners = [cluster.owner_of(log) for log in LOGS]
    killed = next(node for node in owners if node is not cluster.nodes[0])
    dead = {shard for shard in range(SHARDS) if owners[shard] is killed}
    for round_ in range(2):
        declared.enqueue_many([[number] for number in range(10 * SHARDS)])
        assert work()
        if round_ == 0:
            assert pipeline("archive")[0] == 0
    killed.run("SAVE")
    killed.kill()

    code, said = pipeline("archive")
    meanwhile = archived(lake)
    killed.start()
    wait_until(partial(has_slots, cluster, killed))
    cluster.settle()
    back = pipeline("archive")

    names = [LOGS[0], *(f"default.{shard}#{LOGS[shard]}" for shard in range(1, SHARDS))]
    assert code == 1 and all(f"{names[shard]}: " in said for shard in dead), said
    assert meanwhile == {name: 10 if shard in dead else 20 for shard, name in enumerate(names)}
    assert back[0] == 0, back[1]
    assert archived(lake) == dict.fromkeys(names, 20)
