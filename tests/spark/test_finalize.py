"""Trimming safely stored entries in Redis: the checkpoint and the slowest live reader decide."""

import json
from pathlib import Path

import pytest

from rsmq_django.core.transport.streams import READER_SILENT_MS, name_log, trim
from rsmq_django.spark.checkpoint import finished_offset, planned_rows
from rsmq_django.spark.errors import AlreadyRunning, PipelineError
from rsmq_django.spark.finalize import trim_events
from rsmq_django.spark.lock import RunLock
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, log_events
from tests.support import wait_until


def write_checkpoint(
    directory: Path, offsets: dict[int, str], *, done: int, stream: str = STREAM, lost: int = 0, log: str = ""
) -> None:
    """Write what Spark would: an offset per batch, and a commit for those that are done."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for batch, entry_id in offsets.items():
        end = json.dumps({stream: {"id": entry_id, "n": 1, "rows": 1, "lost": lost, "log": log}})
        (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{end}")
        if batch <= done:
            (directory / "commits" / str(batch)).write_text("v1\n{}")


def ids(server: PrivateServer) -> list[str]:
    return [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM)]


def test_only_entries_of_a_finished_batch_are_removed_from_the_log(
    server: PrivateServer, pipeline_server: Server, tmp_path
):
    log_events(server.redis, 100)
    all_ids = ids(server)
    write_checkpoint(tmp_path, {0: all_ids[29], 1: all_ids[59]}, done=0)

    removed = trim_events(pipeline_server, tmp_path)

    assert removed == 30
    assert ids(server) == all_ids[30:]
    assert trim_events(pipeline_server, tmp_path) == 0


def test_batch_was_planned_with_the_rows_of_the_streams_that_had_something_new(tmp_path: Path):
    (tmp_path / "offsets").mkdir()
    places = [{"a": ("1-1", 30), "b": ("1-1", 5)}, {"a": ("2-1", 20), "b": ("1-1", 5)}]
    for batch, streams in enumerate(places):
        end = {name: {"id": entry_id, "n": 1, "rows": rows, "lost": 0} for name, (entry_id, rows) in streams.items()}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")

    assert [planned_rows(tmp_path, batch) for batch in (0, 1)] == [35, 20]


@pytest.mark.parametrize("content", [None, "", "v1\n{}", "v1\n{}\n{half"])
def test_note_that_a_power_cut_left_half_written_is_named_and_nothing_is_trimmed(
    server: PrivateServer, pipeline_server: Server, tmp_path: Path, content: str | None
):
    log_events(server.redis, 3)
    write_checkpoint(tmp_path, {0: ids(server)[-1]}, done=0)
    (tmp_path / "offsets" / "0").unlink()
    if content is not None:
        (tmp_path / "offsets" / "0").write_text(content)

    with pytest.raises(PipelineError, match="archive --new-checkpoint"):
        trim_events(pipeline_server, tmp_path)

    assert server.redis.xlen(STREAM) == 3


def test_checkpoint_that_never_ran_releases_nothing(pipeline_server: Server, tmp_path):
    assert finished_offset(tmp_path / "none") is None
    assert trim_events(pipeline_server, tmp_path / "none") == 0


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


def test_log_that_was_not_read_keeps_its_entries(server: PrivateServer, pipeline_server: Server, tmp_path: Path):
    log_events(server.redis, 10)
    log = pipeline_server.run(name_log(STREAM))
    newest = ids(server)[-1]
    write_checkpoint(tmp_path / "other", {0: newest}, done=0, log="log:of-another-server")
    write_checkpoint(tmp_path / "unknown", {0: newest}, done=0)
    write_checkpoint(tmp_path / "same", {0: newest}, done=0, log=log)

    assert trim_events(pipeline_server, tmp_path / "other") == 0
    assert trim_events(pipeline_server, tmp_path / "unknown") == 0
    assert trim_events(pipeline_server, tmp_path / "same") == 10


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
