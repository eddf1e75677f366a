"""A bulk job from its stages to its end, and the trimming of a log: what Spark does, without Spark."""

from __future__ import annotations

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.keys import job_key, publishing_key
from rsmq_django.core.queue.bulk import Job, Stage
from rsmq_django.core.transport.streams import name_log, trim
from tests.redis_server import PrivateServer

ROWS = [("A" * 22, 0, b"a"), ("B" * 22, 0, b"b")]


@pytest.fixture
def staged(client: Client, queue: Queue) -> tuple[Job, str]:
    """A job that publishes two messages to "jobs", and the name of its stage."""
    job, name = Job("rsmq", "import"), Stage.new_name("run", "0", "queue", "jobs")
    assert client.run(job.stage(name, first_us=1, rows=ROWS)) == 2
    assert client.run(job.adopt("run", [Stage(name, 2)])) == 1
    assert client.run(job.begin("run", stages=1, rows=2)).state == "publishing"
    return job, name


def test_a_job_whose_rows_were_published_is_done_and_leaves_nothing_but_its_record(
    client: Client, queue: Queue, server: PrivateServer, staged: tuple[Job, str]
):
    job, name = staged
    client.run(job.keep([name]))
    assert client.run(job.publish(name)) == 2

    assert client.run(job.finish("run")) == (2, 2)

    assert server.redis.hget(job_key("rsmq", "import"), "state") == b"done"
    assert server.redis.ttl(job_key("rsmq", "import")) > 0
    assert server.redis.exists(publishing_key("rsmq"), f"{job_key('rsmq', 'import')}:stages:run") == 0
    assert [message.body for message in queue.receive_many(10)] == [b"a", b"b"]


def test_a_job_that_lost_a_row_is_not_done(client: Client, server: PrivateServer, staged: tuple[Job, str]):
    job, _ = staged

    assert client.run(job.finish("run")) == (2, 0)

    assert server.redis.hget(job_key("rsmq", "import"), "state") == b"publishing"
    assert server.redis.ttl(job_key("rsmq", "import")) == -1


def test_a_log_is_trimmed_by_readers_of_this_log_only(client: Client, server: PrivateServer):
    ids = [server.redis.xadd("log", {"n": n}) for n in range(3)]
    log = client.run(name_log("log"))

    def trimmed(log: str) -> int:
        return client.run(trim("log", "readers", reader="lake", finished_id=ids[1].decode(), log=log))

    assert (trimmed("log:" + "0" * 32), server.redis.xlen("log"), server.redis.exists("readers")) == (0, 3, 0)
    assert (trimmed(log), server.redis.xlen("log")) == (2, 1)
