"""The server forgets its scripts, crashes, runs out of memory, or is not there: workers go on, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core.errors import ConnectionFailed, QueueFull, RedisFailure
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import Task, fixed
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, dead_letters, declare, until, working

pytestmark = pytest.mark.slow


class Work:
    """Tasks that take a moment, and what they have done."""

    def __init__(self) -> None:
        self.done: list[int] = []

        def toil(number: int) -> int:
            threading.Event().wait(0.002)
            self.done.append(number)
            return number

        self.task: Task[..., Any] = declare(max_attempts=20, backoff=fixed(0))(toil)

    def wait_for(self, count: int) -> None:
        """Wait until so many numbers are done."""
        wait_until(lambda: len(set(self.done)) >= count)

    def wait_for_all(self, count: int) -> None:
        """Wait until every one of the first `count` numbers is done and the queue is empty."""
        wait_until(lambda: len(set(self.done)) == count and is_empty())
        assert set(self.done) == set(range(count))


def is_empty() -> bool:
    return get_queue("default").attributes().messages == 0


def test_evicted_scripts_cause_no_error(project: Configure, server: PrivateServer, caplog):
    work, flushed = Work(), 0
    with working(threads=4):
        for start in range(0, 400, 20):
            work.task.enqueue_many([[number] for number in range(start, start + 20)])
            server.redis.script_flush()
            flushed += 1
        wait_until(lambda: server.redis.script_flush() and len(set(work.done)) == 400)
        work.wait_for_all(400)

    assert sorted(work.done) == list(range(400))  # each one once
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_worker_continues_after_the_server_crashed(project: Configure, server: PrivateServer, caplog):
    work, threads = Work(), 4
    with caplog.at_level("INFO", "rsmq_django"), working(threads=threads):
        for crashes, first in enumerate((0, 150), 1):
            work.task.enqueue_many([[number] for number in range(first, first + 150)])
            work.wait_for(first + 60)
            said = caplog.text.count("Trying again until it works")
            server.kill()
            wait_until(lambda: caplog.text.count("Trying again until it works") > said)  # noqa: B023
            server.start()
            wait_until(lambda: caplog.text.count("works again after") >= crashes)  # noqa: B023
        work.wait_for_all(300)

    assert dead_letters() == []


def test_results_survive_a_crash_of_the_server(project: Configure, server: PrivateServer):
    work = Work()
    ids = work.task.enqueue_many([[number] for number in range(50)])
    with working():
        work.wait_for(10)
        server.restart()
        work.wait_for_all(50)

    assert [work.task.get_result(task_id).return_value for task_id in ids] == list(range(50))


def test_worker_that_starts_before_the_server_waits_for_it(project: Configure, server: PrivateServer, caplog):
    work = Work()
    work.task.enqueue(0)
    server.kill()

    with working():
        wait_until(lambda: "Trying again until it works" in caplog.text)
        with pytest.raises(ConnectionFailed):
            work.task.enqueue(1)
        server.start()
        work.wait_for_all(1)

    assert work.done == [0]


@pytest.fixture
def locked(server: PrivateServer) -> Iterator[Any]:
    """A server that asks for a password which nobody here has, until the function that comes with it is called."""

    def unlock() -> None:
        server.redis.config_set("requirepass", "")

    server.redis.config_set("requirepass", "secret")
    server.redis.connection_pool.connection_kwargs["password"] = "secret"
    yield unlock
    unlock()
    server.redis.connection_pool.connection_kwargs.pop("password")
    server.redis.connection_pool.disconnect()


def test_worker_with_a_wrong_password_continues_when_it_becomes_right(project: Configure, locked, caplog):
    work = Work()
    with working():
        wait_until(lambda: "refused the user or password" in caplog.text or "NOAUTH" in caplog.text)
        locked()
        work.task.enqueue(0)
        work.wait_for_all(1)

    assert work.done == [0]


@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    ],
    ids=["a replica", "without its replicas"],
)
def test_server_that_takes_no_writes_is_waited_for(
    project: Configure, server: PrivateServer, caplog, refuse: tuple[str, ...], allow: tuple[str, ...]
):
    work = Work()
    work.task.enqueue_many([[number] for number in range(20)])
    server.redis.execute_command(*refuse)
    try:
        with working():
            wait_until(lambda: "nothing was changed, try again later" in caplog.text)
            server.redis.execute_command(*allow)
            work.wait_for_all(20)
    finally:
        server.redis.execute_command(*allow)

    assert sorted(work.done) == list(range(20)) and "gone or damaged" not in caplog.text


def test_server_that_takes_no_more_clients_is_waited_for(project: Configure, server: PrivateServer, caplog):
    work = Work()
    most = server.redis.config_get("maxclients")["maxclients"]
    with working():
        try:
            server.redis.config_set("maxclients", 1)
            for kind in ("normal", "pubsub"):
                server.redis.client_kill_filter(_type=kind, skipme=True)
            wait_until(lambda: "Trying again until it works" in caplog.text)
            # The server hangs up at once: whether its reason can still be read is a matter of luck.
            with pytest.raises(RedisFailure):
                work.task.enqueue(0)
        finally:
            server.redis.config_set("maxclients", most)
        work.task.enqueue(0)
        work.wait_for_all(1)


# -- Full memory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def full(server: PrivateServer) -> Iterator[Any]:
    """Return the function that fills the server's memory."""

    def fill() -> None:
        server.redis.config_set("maxmemory", 1)

    yield fill
    server.redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_full_server_is_drained(project: Configure, full, is_async: bool):
    done, release = [], threading.Event()

    def finish(number: int) -> int:
        release.wait(60)
        done.append(number)
        return number

    async def afinish(number: int) -> int:
        await until(release)
        done.append(number)
        return number

    declared = declare(afinish if is_async else finish)
    ids = declared.enqueue_many([[number] for number in range(20)])

    with working(threads=4):
        wait_until(lambda: get_queue("default").attributes().hidden_messages > 0)
        full()
        with pytest.raises(QueueFull):
            declared.enqueue(20)
        release.set()
        wait_until(is_empty)

    assert sorted(done) == list(range(20))
    assert [declared.get_result(task_id).return_value for task_id in ids] == list(range(20))


def test_failures_find_their_way_on_a_full_server(project: Configure, full):
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError

    result = declare(max_attempts=3, backoff=fixed(0))(fail).enqueue()
    ensure_queue("default-dead")
    full()

    with working():
        wait_until(lambda: get_queue("default-dead").attributes().messages == 1)

    result.refresh()
    assert (len(attempts), result.status) == (3, "FAILED")
