"""The same faults for queues, reliable queues and topics: the network stalls, crawls or tears, the server restarts."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic, TopicMessage
from rsmq_django.reliable_queues import get_reliable_queue, task_body
from rsmq_django.tasks import fixed, topic_task
from rsmq_django.worker.worker import Worker
from tests.chaos.silence import Silence
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, working

pytestmark = pytest.mark.slow

SOURCES = ["queues", "reliable queues", "topics"]
RELIABLE = "rsmq::reliable:orders:"


@dataclass
class Place:
    """Messages of one source, sent past the proxy or by way of it, and settled by a worker behind the proxy."""

    source: str
    server: PrivateServer
    #: Topic and group.
    topic: str = "news"
    group: str = "readers"
    _silence: Silence = field(default_factory=Silence)

    @property
    def queue(self) -> str:
        """Return the name that a worker gets."""
        return "orders" if self.source == "reliable queues" else "default"

    def send(self, function: Callable[[int], None], count: int) -> None:
        """Declare the function and send it the numbers below `count`."""
        if self.source == "topics":
            options: dict[str, Any] = {"max_deliveries": 0, "backoff": fixed(0), "visibility_timeout_s": 30}
            topic_task(self.topic, group=self.group, consumers=2, **options)(_of_message(function))
            Topic(self.topic, Client(Connection(self.server.url, timeout_s=15))).publish(*map(str, range(count)))
            return
        task = declare(max_attempts=1000, backoff=fixed(0))(function)
        if self.source == "queues":
            task.enqueue_many([[number] for number in range(count)])
        else:
            get_reliable_queue("orders").push(*[task_body(task, number) for number in range(count)])

    def left(self) -> int:
        """Return how many messages are not settled."""
        redis = self.server.redis
        if self.source == "queues":
            return int(redis.zcard("rsmq:default"))
        if self.source == "reliable queues":
            return int(redis.hlen(f"{RELIABLE}bodies"))
        return int(redis.get(f"{self.topic}:nextIndex")) - int(redis.get(f"{self.topic}:{self.group}:nextIndex") or 0)

    def is_settled(self) -> bool:
        """Return whether all messages are settled; else let lost ones come again when nothing happens."""
        left = self.left()
        if self._silence.has_lasted(left):
            self.let_lost_messages_come_again()
        return left == 0

    @property
    def due_key(self) -> str:
        """Return the key with the leases of the group."""
        return f"rsmqt:{self.topic}:due:{self.group}"

    def dead(self) -> int:
        """Return how many messages have failed for good."""
        names = {
            "queues": "rsmq:default-dead",
            "reliable queues": f"{RELIABLE}dead",
            "topics": f"{self.topic}.dlt:nextIndex",
        }
        return int(self.server.redis.exists(names[self.source]))

    def let_lost_messages_come_again(self) -> None:
        """Let the leases of messages pass whose fetch has lost its reply; queues release them with the next fetch."""
        passed = {"topics": (self.due_key, 3e6), "reliable queues": (f"{RELIABLE}delivered", 3e6 * 4096)}
        if self.source in passed:
            key, scores = passed[self.source]
            for member in self.server.redis.zrange(key, 0, -1):  # only if it is still there
                self.server.redis.zadd(key, {member: -scores}, xx=True, incr=True)


def _of_message(function: Callable[[int], None]) -> Callable[[TopicMessage], None]:
    def run(message: TopicMessage) -> None:
        function(int(message.body))

    return run


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    """A way to the server that breaks."""
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture(params=SOURCES)
def place(request: pytest.FixtureRequest, proxy: FaultProxy, server: PrivateServer, settings: Any) -> Place:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": proxy.url, "TIMEOUT_S": 2}},
        "QUEUES": {"default": {}},
        "RELIABLE": {"orders": {"LEASE_S": 5, "MAX_DELIVERIES": 0}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False, "UNKNOWN_TASK_GRACE_S": 0},
    }
    return Place(request.param, server)


def is_cut_off(worker: Worker) -> bool:
    return any(source.is_unavailable for source in worker.sources)


def test_message_that_runs_while_the_network_stalls_runs_once(place: Place, proxy: FaultProxy):
    ran = Counter[int]()
    began, release = threading.Event(), threading.Event()

    def run(number: int) -> None:
        ran[number] += 1
        began.set()
        assert release.wait(60)

    place.send(run, 1)
    with working(place.queue) as worker:
        assert began.wait(60)
        proxy.black_hole()
        release.set()
        wait_until(lambda: is_cut_off(worker))
        proxy.release()
        wait_until(lambda: place.left() == 0)

    assert ran == {0: 1}
    assert place.dead() == 0


def test_slow_network_loses_and_repeats_nothing(place: Place, proxy: FaultProxy):
    ran = Counter[int]()
    place.send(lambda number: ran.update([number]), 60)
    proxy.request_bytes_per_s = 50_000

    with working(place.queue, threads=4):
        wait_until(lambda: place.left() == 0)

    assert ran == dict.fromkeys(range(60), 1)
    assert place.dead() == 0


@pytest.mark.parametrize("after_bytes", [0, 1, 30], ids=["before", "in its first line", "later"])
def test_replies_that_are_cut_lose_nothing(place: Place, proxy: FaultProxy, after_bytes: int):
    ran = Counter[int]()

    def run(number: int) -> None:
        ran[number] += 1
        threading.Event().wait(0.001)

    place.send(run, 80)
    with working(place.queue, threads=4):
        for part in range(1, 5):
            wait_until(lambda: len(ran) >= 20 * part or place.is_settled())  # noqa: B023
            proxy.cut_next_reply(after_bytes=after_bytes)
        wait_until(place.is_settled)

    assert set(ran) == set(range(80))
    assert place.dead() == 0


def test_message_that_runs_while_the_server_restarts_runs_once(place: Place, server: PrivateServer):
    ran = Counter[int]()
    began, release = threading.Event(), threading.Event()

    def run(number: int) -> None:
        ran[number] += 1
        if number == 0:
            began.set()
            assert release.wait(60)

    place.send(run, 3)
    with working(place.queue, threads=1):
        assert began.wait(60)
        server.restart()
        release.set()
        wait_until(lambda: place.left() == 0)

    assert ran == {0: 1, 1: 1, 2: 1}
    assert place.dead() == 0


@pytest.mark.parametrize("source", ["reliable queues", "topics"])  # of queues: test_supervisor.py
def test_process_that_stood_still_for_a_lease_settles_no_message_of_another_one(
    source: str,
    project: Configure,
    settings: Any,
    server: PrivateServer,
    start_worker: StartWorker,
    journal: Journal,
):
    reliable = {"orders": {"LEASE_S": 3000, "MAX_DELIVERIES": 0}}
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": reliable}
    place = Place(source, server, topic="noted", group="site")
    if source == "topics":
        Topic("noted", Client(Connection(server.url, timeout_s=15))).publish("gate")
    else:
        get_reliable_queue("orders").push(task_body(tasks.wait_at_gate, "slow"))

    def start() -> Any:
        command = ("--processes", "1", "--threads", "1", "--queues", place.queue)
        topic = {"topic": "noted", "lease_s": "3000"} if source == "topics" else {}
        return start_worker(*command, reliable=json.dumps(reliable), **topic)

    paused = start()
    wait_until(lambda: len(journal.lines("start")) == 1)
    paused.send_to_all(signal.SIGSTOP)
    place.let_lost_messages_come_again()
    other = start()
    wait_until(lambda: len(journal.lines("start")) == 2)
    other.send_to_all(signal.SIGSTOP)  # so that the late one ends first
    journal.open_gate()
    paused.send_to_all(signal.SIGCONT)
    wait_until(lambda: "the result is discarded" in paused.output)
    assert place.left() == 1
    other.send_to_all(signal.SIGCONT)
    wait_until(lambda: place.left() == 0)

    assert len(journal.lines("end")) == 2
    assert place.dead() == 0
