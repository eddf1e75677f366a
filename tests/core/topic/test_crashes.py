"""Processes and servers that die: no published message is lost, no acknowledged message is delivered again."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import RsmqError
from rsmq_django.core.topic import ConsumerGroup, Retention, Topic
from rsmq_django.embedded.binary import find_server
from tests.core.topic.conftest import PassTime, indexes
from tests.redis_server import RUN_DIR, PrivateServer
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
#: Reads, says what it got, acknowledges a part, and never comes to the rest.
CONSUMER = """
import sys, time
from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic
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
def test_messages_of_a_killed_consumer_are_read_by_others(
    topic: Topic, careful: ConsumerGroup, pass_time: PassTime, server: PrivateServer
):
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


def filled(topic: Topic, careful: ConsumerGroup) -> None:
    """Fill a topic, with one group that holds three messages and one that has read four."""
    topic.set_retention(Retention(max_count=1000))
    topic.publish(*map(str, range(10)), key="k", headers={"a": "b"})
    careful.ack(careful.read(5).messages[:2])
    topic.group("quick").read(4)


def check_goes_on(topic: Topic) -> None:
    """Check that everything goes on where it was."""
    careful = topic.group("careful", at_least_once=True)
    assert indexes(topic.group("quick").read(100)) == [5, 6, 7, 8, 9, 10]
    assert indexes(careful.read(100)) == [6, 7, 8, 9, 10]
    assert careful.ack([3, 4, 5]) == 3 and careful.status().position == 10
    assert topic.publish("next") == range(11, 12)
    assert topic.status().retention.max_count == 1000


@pytest.mark.slow
def test_restart_with_an_append_only_file_keeps_everything(topic: Topic, careful: ConsumerGroup, server: PrivateServer):
    filled(topic, careful)

    server.restart()

    check_goes_on(topic)


def answers(client: Client) -> bool:
    """Say whether the server has started and read its file."""
    try:
        Topic("orders", client).status()
    except RsmqError:
        return False
    return True


def test_restart_from_a_snapshot_keeps_everything(topic: Topic, careful: ConsumerGroup, server: PrivateServer):
    filled(topic, careful)
    server.redis.save()
    directory = Path(tempfile.mkdtemp(prefix="rsmq-", dir="/tmp"))  # a socket's path must be short
    shutil.copy(RUN_DIR / "dump.rdb", directory)

    command = [find_server().path, "--port", "0", "--unixsocket", str(directory / "s"), "--dir", str(directory)]
    other = subprocess.Popen([*command, "--appendonly", "no", "--save", ""], stdout=subprocess.DEVNULL)
    try:
        client = Client(Connection(f"unix://{directory / 's'}", timeout_s=15))
        wait_until(lambda: answers(client))
        check_goes_on(Topic("orders", client))
        client.connection.close()
    finally:
        other.kill()
        other.wait()
        shutil.rmtree(directory)
