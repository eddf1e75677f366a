"""Trimming stored entries in Redis: the slowest live reader decides. And the lock of runs."""

import pytest

from rsmq_django.core.transport.streams import READER_SILENT_MS, name_log, trim
from rsmq_django.spark.errors import AlreadyRunning
from rsmq_django.spark.lock import RunLock
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, log_events
from tests.support import wait_until


def ids(server: PrivateServer) -> list[str]:
    return [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM)]


def test_trimming_waits_for_the_slowest_reader_and_not_for_a_dead_one(server: PrivateServer, pipeline_server: Server):
    log_events(server.redis, 100)
    all_ids = ids(server)

    def finish(reader: str, count: int, silent_ms: int = READER_SILENT_MS) -> int:
        call = trim(
            STREAM, f"{STREAM}:readers", reader=reader, finished_id=all_ids[count - 1], log="", silent_ms=silent_ms
        )
        return pipeline_server.run(call)

    assert finish("slow", 10) == 10
    assert finish("fast", 60) == 0
    assert finish("slow", 30) == 20
    wait_until(lambda: finish("fast", 60, silent_ms=1) == 30)  # "slow" has been silent for longer than a millisecond
    assert server.redis.hkeys(f"{STREAM}:readers") == [b"fast"]


def test_log_that_was_not_read_keeps_its_entries(server: PrivateServer, pipeline_server: Server):
    log_events(server.redis, 10)
    log = pipeline_server.run(name_log(STREAM))

    def finish(log: str) -> int:
        call = trim(STREAM, f"{STREAM}:readers", reader="archive", finished_id=ids(server)[-1], log=log)
        return pipeline_server.run(call)

    assert [finish(name) for name in ("log:of-another-server", "", log)] == [0, 0, 10]


@pytest.mark.slow
def test_trimming_works_at_the_memory_limit(server: PrivateServer, pipeline_server: Server):
    log_events(server.redis, 20_000)
    newest = ids(server)[-1]
    server.redis.config_set("maxmemory", "1mb")
    try:
        call = trim(STREAM, f"{STREAM}:readers", reader="archive", finished_id=newest, log="")
        assert pipeline_server.run(call) == 20_000
    finally:
        server.redis.config_set("maxmemory", 0)


def test_log_gets_its_identity_at_the_memory_limit(server: PrivateServer, pipeline_server: Server):
    log_events(server.redis, 10_000)
    server.redis.config_set("maxmemory", "1mb")
    try:
        log = pipeline_server.run(name_log(STREAM))
    finally:
        server.redis.config_set("maxmemory", 0)

    assert log and pipeline_server.run(name_log(STREAM)) == log
    assert server.redis.xlen(STREAM) == 10_000


def test_lock_can_be_taken_at_the_memory_limit(server: PrivateServer, pipeline_server: Server):
    log_events(server.redis, 10_000)
    server.redis.config_set("maxmemory", "1mb")
    try:
        with RunLock(pipeline_server, "/lake/archive") as lock:
            assert server.redis.exists(lock.key)
    finally:
        server.redis.config_set("maxmemory", 0)


def test_second_run_on_the_same_checkpoint_is_refused_until_the_first_ends(pipeline_server: Server):
    with RunLock(pipeline_server, "/lake/archive"):
        with pytest.raises(AlreadyRunning, match="/lake/archive"), RunLock(pipeline_server, "/lake/archive"):
            pass
        with RunLock(pipeline_server, "/lake/other"):
            pass

    with RunLock(pipeline_server, "/lake/archive"):
        pass
