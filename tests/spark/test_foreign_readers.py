"""Programs that know only Delta see each row once at any moment, also while the pipeline writes."""

import datetime as dt
import threading
from pathlib import Path

from deltalake import DeltaTable

from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import EVENTS
from tests.redis_server import PrivateServer
from tests.spark.plain import archive_job
from tests.spark.samples import log_events

ROUNDS, EVENTS_A_ROUND = 8, 300


def test_reader_of_delta_sees_each_row_once_while_archive_compaction_and_expiry_run(
    tmp_path: Path, server: PrivateServer
):
    lake, today = Lake.at(tmp_path / "lake"), dt.datetime.now(dt.UTC).date()
    uri, ended, seen = lake.open(EVENTS, create=True).uri, threading.Event(), list[tuple[int, int]]()

    def read() -> None:
        ids = DeltaTable(uri).to_pyarrow_table(columns=["entry_id"])["entry_id"].to_pylist()
        seen.append((len(ids), len(set(ids))))

    def read_on() -> None:
        while not ended.is_set():
            read()

    def maintain() -> None:
        while not ended.is_set():
            lake.compact(today + dt.timedelta(days=3))
            lake.expire(today)

    others = [threading.Thread(target=work) for work in (read_on, maintain)]
    for other in others:
        other.start()
    for _ in range(ROUNDS):
        log_events(server.redis, EVENTS_A_ROUND)
        archive_job(lake, url=server.url, maxRowsPerBatch="50", rowsPerPartition="25").transfer()
    ended.set()
    for other in others:
        other.join()
    read()

    assert seen[-1] == (ROUNDS * EVENTS_A_ROUND, ROUNDS * EVENTS_A_ROUND)
    assert [rows for rows, distinct in seen if rows != distinct] == []
    assert [rows for rows, _ in seen] == sorted(rows for rows, _ in seen)
    assert len({rows for rows, _ in seen}) > 2, "it read while rows were added"
