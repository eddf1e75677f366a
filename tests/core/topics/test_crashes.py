"""Processes and servers that die: nothing that was published is lost, nothing that was acknowledged comes again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rsmq_django.core.topics import Retention, Topic
from tests.core.topics.conftest import PassTime, indexes
from tests.redis_server import PrivateServer
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
#: Reads, says what it got, acknowledges a part, and never comes to the rest.
CONSUMER = """
import sys, time
from rsmq_django.core import Client, Connection
from rsmq_django.core.topics import Topic
group = Topic("orders", Client(Connection(sys.argv[1], timeout_s=60))).group("careful", at_least_once=True)
batch = group.read(20)
group.ack(batch.messages[:int(sys.argv[2])])
print(*[message.index for message in batch], flush=True)
time.sleep(300)
"""


def killed_consumer(server: PrivateServer, *, acknowledges: int) -> list[int]:
    """Run a consumer, kill it between reading and acknowledging, and return what it had read."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONSUMER, server.url, str(acknowledges)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    read = [int(word) for word in process.stdout.readline().split()]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return read


@pytest.mark.slow
def test_messages_of_a_killed_consumer_are_read_by_others(topic: Topic, careful, pass_time: PassTime, server):
    topic.publish(*map(str, range(100)))
    taken = [killed_consumer(server, acknowledges=n) for n in (0, 5, 20)]
    assert [len(read) for read in taken] == [20, 20, 20]

    rest = indexes(careful.read(1000))
    pass_time(careful, 31)
    again = indexes(careful.read(1000))
    careful.ack([*again])

    assert rest == list(range(61, 101))
    assert again == [*range(1, 21), *range(26, 41), *range(61, 101)], "all but those that were acknowledged"
    assert careful.status().held == 0 and careful.status().position == 100


@pytest.mark.parametrize("how", ["append-only file", "snapshot"])
def test_restart_of_the_server_keeps_everything(topic: Topic, careful, server: PrivateServer, how: str):
    topic.set_retention(Retention(max_count=1000))
    topic.publish(*map(str, range(10)), key="k", headers={"a": "b"})
    careful.ack(careful.read(5).messages[:2])
    topic.group("quick").read(4)
    before = state(server)

    if how == "snapshot":
        server.redis.config_set("appendonly", "no")
        server.redis.save()
        snapshot = {key: server.redis.dump(key) for key in server.redis.keys()}
        server.redis.config_set("appendonly", "yes")
        wait_until(lambda: not server.redis.info("persistence")["aof_rewrite_in_progress"])
        server.redis.flushall()
        for key, value in snapshot.items():
            server.redis.restore(key, 0, value)
    else:
        server.restart()

    assert state(server) == before
    assert indexes(topic.group("quick").read(100)) == [5, 6, 7, 8, 9, 10]
    assert indexes(careful.read(100)) == [6, 7, 8, 9, 10]
    assert careful.ack([3, 4, 5]) == 3 and careful.status().position == 10
    assert topic.publish("next") == range(11, 12)


def state(server: PrivateServer) -> dict:
    """Return every key of the server as it is stored."""
    return {key: server.redis.dump(key) for key in server.redis.keys()}
