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


FAR = "4300000000000-7"  # of 2106


def test_empty_log_that_is_ahead_of_the_clock_is_begun_again_at_the_right_time(
    server: PrivateServer, pipeline_server: Server
):
    server.redis.xadd(STREAM, {"v": ""}, id=FAR)
    log = pipeline_server.run(name_log(STREAM))
    call = trim(STREAM, f"{STREAM}:readers", reader="archive", finished_id=FAR, log=log)

    assert pipeline_server.run(call) == 1

    assert server.redis.exists(STREAM, f"{STREAM}:readers") == 0
    log_events(server.redis, 1)
    assert int(ids(server)[0].partition("-")[0]) < 4_300_000_000_000
    assert pipeline_server.run(name_log(STREAM)) not in (log, "")


@pytest.mark.parametrize("why", ["not empty", "another reader", "another group", "right time"])
def test_log_that_is_still_needed_is_not_begun_again(server: PrivateServer, pipeline_server: Server, why: str):
    readers, now_ms = f"{STREAM}:readers", pipeline_server.now_us() // 1000
    newest = f"{now_ms + 60_000}-0" if why == "right time" else FAR
    server.redis.xadd(STREAM, {"v": ""}, id=newest)
    log = pipeline_server.run(name_log(STREAM))
    if why == "not empty":
        server.redis.xadd(STREAM, {"v": ""})
    if why == "another reader":
        server.redis.hset(readers, "other", f"{FAR}@{now_ms}")
    if why == "another group":
        server.redis.xgroup_create(STREAM, "billing", "0")

    removed = pipeline_server.run(trim(STREAM, readers, reader="archive", finished_id=newest, log=log))

    assert removed == 1
    assert pipeline_server.run(name_log(STREAM)) == log
    assert server.redis.hexists(readers, "archive")


def test_reader_that_died_does_not_keep_a_log_that_is_ahead(server: PrivateServer, pipeline_server: Server):
    server.redis.xadd(STREAM, {"v": ""}, id=FAR)
    server.redis.hset(f"{STREAM}:readers", "dead", "1795000000000-0@1795000000000")

    pipeline_server.run(trim(STREAM, f"{STREAM}:readers", reader="archive", finished_id=FAR, log=""))

    assert server.redis.exists(STREAM) == 0


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
