"""Connections of a worker break at the worst moment: every message is processed, and settled ones stay settled."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import RedisFailure
from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, TaskContext, fixed
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import Configure, declare, queue_source, the_dead_letter, working

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(configure: Configure, server: PrivateServer) -> Iterator[FaultProxy]:
    """A way to the server that breaks; producers and workers go through it."""
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        for name in ("fetch", "succeed", "retry", "bury", "start", "release"):
            server.redis.script_load(load_script(f"tasks/worker/{name}").source)
        yield proxy


def is_empty() -> bool:
    return get_queue("default").attributes().messages == 0


def test_worker_gets_through_a_storm_of_resets(proxy: FaultProxy):
    done: list[int] = []

    def toil(number: int) -> None:
        threading.Event().wait(0.002)
        done.append(number)

    declare(max_attempts=50)(toil).enqueue_many([[number] for number in range(300)])

    with working(threads=4):
        while len(set(done)) < 300:
            before = len(done)
            wait_until(lambda: len(done) > before + 20 or len(set(done)) == 300)  # noqa: B023
            proxy.reset_connections()
        wait_until(is_empty)

    assert set(done) == set(range(300))
    assert get_queue("default-dead").attributes().messages == 0


def test_results_that_are_too_long_to_be_sent_together_are_sent_one_by_one(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure()
        together = threading.Barrier(16)

        def export() -> str:
            together.wait(60)
            return "x" * 500_000

        task = declare(export)
        results = [task.enqueue() for _ in range(16)]
        configure(url=proxy.url, timeout_s=0.5)
        proxy.request_bytes_per_s = 4e6  # two of them in the time that one exchange has

        with working(threads=16):
            wait_until(lambda: server.redis.zcard("rsmq:default") == 0)

    configure()
    assert {task.get_result(result.id).status for result in results} == {"SUCCESSFUL"}


def test_outcome_that_cannot_be_sent_does_not_block_others(configure: Configure, server: PrivateServer, settings: Any):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url, timeout_s=1.5)
        settings.RSMQ["TASKS"]["MAX_RESULT_BYTES"] = 16_000_000
        settings.RSMQ = {**settings.RSMQ}
        done: list[int] = []

        def export() -> str:
            return "x" * 10_000_000

        def note(number: int) -> None:
            done.append(number)

        large: Task[..., str] = declare(export)
        small: Task[..., None] = declare(note)

        exported = large.enqueue()
        proxy.request_bytes_per_s = 4e5  # the large one would need 25 s
        with working(threads=2):
            wait_until(lambda: any(b"xxxx" in request for request in list(proxy.requests)))
            direct = Queue("default", Client(Connection(server.url, timeout_s=15)))  # past the slow connection
            direct.send_many([json.dumps({"task": small.module_path, "args": [number]}) for number in range(20)])
            wait_until(lambda: server.redis.zcard("rsmq:default") <= 1)
            proxy.request_bytes_per_s = None
            wait_until(lambda: server.redis.zcard("rsmq:default") == 0)

        assert sorted(done) == list(range(20))
        assert large.get_result(exported.id).status == "SUCCESSFUL"


@pytest.mark.parametrize("script", ["fetch", "succeed", "retry", "bury", "start"])
def test_lost_reply_changes_nothing(proxy: FaultProxy, script: str):
    attempts: dict[str, list[int]] = {"good": [], "flaky": [], "bad": []}

    def run(context: TaskContext, kind: str) -> str:
        attempts[kind].append(context.attempt)
        threading.Event().wait(0.25)  # long enough for its start to be noted
        if kind == "bad" or (kind == "flaky" and context.attempt == 1):
            raise OSError
        return kind

    declared = declare(takes_context=True, max_attempts=2, backoff=fixed(0))(run)
    proxy.lose_reply_to(load_script(f"tasks/worker/{script}").sha1.encode())

    good, flaky, bad = (declared.enqueue(kind) for kind in attempts)
    with working(threads=3):
        wait_until(lambda: is_empty() and get_queue("default-dead").attributes().messages == 1)

    for result in (good, flaky, bad):
        result.refresh()
    assert attempts == {"good": [1], "flaky": [1, 2], "bad": [1, 2]}
    assert (good.return_value, flaky.return_value, bad.status) == ("good", "flaky", "FAILED")
    assert the_dead_letter()[1]["attempts"] == 2


def test_outcome_that_could_not_be_sent_is_sent_when_the_network_is_back(proxy: FaultProxy):
    done, release = [], threading.Event()

    def run() -> str:
        release.wait(60)
        done.append(1)
        return "told"

    result = declare(run).enqueue()
    with working() as worker:
        wait_until(lambda: worker.pool.sync_count == 1)
        proxy.black_hole()
        release.set()
        wait_until(lambda: queue_source(worker).backoff.is_on)
        proxy.release()
        wait_until(is_empty)

    result.refresh()
    assert (done, result.return_value) == ([1], "told")


def test_cut_of_three_quarters_of_the_visibility_timeout_repeats_nothing(
    configure: Configure, proxy: FaultProxy, server: PrivateServer
):
    configure(url=proxy.url, default={"VISIBILITY_TIMEOUT_S": 400})
    ran, release_running, release_ended = Counter[str](), threading.Event(), threading.Event()

    def run(name: str) -> None:
        ran[name] += 1
        (release_ended if name == "ended" else release_running).wait(60)

    declared = declare(run)
    declared.enqueue("running")
    declared.enqueue("ended")
    direct = Queue("default", Client(Connection(server.url, timeout_s=15)))
    with working(threads=2) as worker:
        leases = queue_source(worker).leases
        wait_until(lambda: len(ran) == 2 and not leases.has_unnoted_start())
        proxy.refuse()
        proxy.reset_connections()
        release_ended.set()
        wait_until(lambda: queue_source(worker).backoff.is_on)
        pass_time(direct, seconds=300)
        for held in leases.held():
            held.renewed_at -= 300
        proxy.release()
        wait_until(lambda: direct.attributes().messages == 1)  # the outcome was told
        wait_until(lambda: least_left_s(server) > 200)  # the lease was renewed
        assert direct.receive() is None
        release_running.set()
        wait_until(lambda: direct.attributes().messages == 0)

    assert ran == {"running": 1, "ended": 1}
    assert direct.attributes().total_received == 2


def least_left_s(server: PrivateServer) -> float:
    """Return how much is left of the lease that runs out first."""
    seconds, microseconds = server.redis.time()
    ((_, score),) = server.redis.zrange("rsmq:default", 0, 0, withscores=True)
    return float(score) / 1000 - seconds - microseconds / 1e6


@pytest.mark.parametrize("fault", ["black_hole", "refuse"])
def test_producer_gets_an_error_soon_when_it_cannot_send(proxy: FaultProxy, project: Configure, settings, fault: str):
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": proxy.url, "TIMEOUT_S": 0.1}}}
    declared = declare(lambda: None)
    getattr(proxy, fault)()

    with pytest.raises(RedisFailure):  # and its deadline fails a test that waits for ever
        declared.enqueue()
    with pytest.raises(RedisFailure):
        declared.enqueue_many([[]] * 5000)


async def test_async_producer_gets_an_error_soon_too(proxy: FaultProxy, settings):
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": proxy.url, "TIMEOUT_S": 0.1}}}
    declared = declare(lambda: None)
    proxy.black_hole()

    with pytest.raises(RedisFailure):
        await declared.aenqueue()
