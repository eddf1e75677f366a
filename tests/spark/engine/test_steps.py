"""Draining into the lake with Spark."""

import datetime as dt

import pytest

from rsmq_django.core import Queue
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.drained import drain_queue
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import (
    drained,
)
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 11, 18)
MIDNIGHT_MS = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1000)


@pytest.fixture
def config(tmp_path, spark) -> JobConfig:
    objectives = {"mail": {"success": 0.99, "wait_p95_ms": 2}}
    return JobConfig(lake=str(tmp_path / "lake"), objectives=objectives)


@pytest.fixture
def lake(config: JobConfig) -> Lake:
    return config.find_lake()


@pytest.mark.parametrize("lease_s", [0, 300])
def test_drained_queue_is_in_the_lake_and_removed_from_redis(
    spark, config: JobConfig, lake: Lake, server: PrivateServer, mail: Queue, lease_s: int
):
    mail.send_many(f"order {number}" for number in range(2500))

    result = drain_queue(spark, config, "mail", lease_s=lease_s)

    stored = lake.open(drained("mail")).read(names=["body"])
    assert (result.rows, result.left) == (2500, 0)
    assert {body.decode() for body in stored["body"].to_pylist()} == {f"order {number}" for number in range(2500)}
    assert stored.num_rows == 2500
    assert mail.attributes().messages == 0
    assert server.redis.hlen("rsmq:mail:Q") == 7
    assert server.redis.xlen("rsmq::spark:drain:lake:mail") == 0
