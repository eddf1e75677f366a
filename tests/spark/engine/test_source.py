"""format("rsmq") in Spark: found by itself, right columns, exactly what is there, refusals that name the reason."""

import json

import pytest
from pyspark.errors import PySparkException

from rsmq_django.core import Client, Queue
from rsmq_django.spark.snapshot import SCHEMA
from tests.redis_server import PrivateServer
from tests.spark.engine.patience import started_patiently
from tests.spark.samples import STREAM, log_events

pytestmark = pytest.mark.spark


def our_keys(server: PrivateServer) -> list[bytes]:
    """Return the keys of bulk jobs, except those which say for an hour that a run was aborted."""
    return sorted(key for key in server.redis.scan_iter("rsmq::spark:*") if b":aborted:" not in key)


# -- Reading -----------------------------------------------------------------------------------------------------------


def test_snapshot_equals_the_sent_messages(spark, mail: Queue):
    mail.send_many(f"order {number}" for number in range(3000))
    mail.receive_many(5)

    table = spark.read.format("rsmq").option("rowsPerPartition", 1000).load().cache()

    ddl = ", ".join(f"{column.name} {column.kind}" for column in SCHEMA)
    assert table.schema.simpleString() == spark.createDataFrame([], ddl).schema.simpleString()
    assert table.count() == 3000
    assert {row.text for row in table.selectExpr("CAST(body AS STRING) AS text").collect()} == {
        f"order {number}" for number in range(3000)
    }
    assert table.where("receive_count > 0").count() == 5
    assert table.where("sent_at > now() - INTERVAL 1 HOUR AND sent_at <= now()").count() == 3000
    table.unpersist()


def test_empty_queue_is_an_empty_table(spark, mail: Queue):
    assert spark.read.format("rsmq").option("queue", "mail").load().collect() == []


def test_event_log_is_a_table(spark, server: PrivateServer):
    log_events(server.redis, 2500)

    table = spark.read.format("rsmq").options(kind="events", rowsPerPartition=1000).load()

    assert table.selectExpr("count(*)", "count(DISTINCT entry_id)", "sum(run_us)").first()[:] == (
        2500,
        2500,
        50_000_000,
    )
    ids = [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM, count=60)]
    place = {"startAfter": json.dumps({STREAM: ids[9]}), "endAt": ids[59]}
    assert spark.read.format("rsmq").options(kind="events", **place).load().count() == 50


def test_topic_is_a_table_by_index(spark, server: PrivateServer):
    server.redis.mset({f"orders:messages:{n}": f"order {n}" for n in range(1, 2001)} | {"orders:nextIndex": 2000})

    table = spark.read.format("rsmq").options(kind="topic", topic="orders", startIndex=11, rowsPerPartition=500).load()

    assert table.selectExpr("count(*)", "min(index)", "max(index)").first()[:] == (1990, 11, 2000)


def test_wrong_option_is_named_by_spark_too(spark):
    with pytest.raises(PySparkException, match="did you mean 'rowsPerPartition'"):
        spark.read.format("rsmq").option("rowPerPartition", 5).load().count()


# -- Writing -----------------------------------------------------------------------------------------------------------


def test_frame_is_sent_once_however_often_the_job_runs(spark, mail: Queue, server: PrivateServer):
    rows = spark.range(3000, numPartitions=3).selectExpr("concat('order ', id) AS body")

    for _ in range(2):
        rows.write.format("rsmq").mode("append").options(queue="mail", job="import-7").save()

    found = {message.body for _ in range(3) for message in mail.receive_many(1000)}
    assert found == {f"order {number}".encode() for number in range(3000)}
    assert mail.attributes().total_sent == 3000
    assert our_keys(server) == [b"rsmq::spark:job:import-7"]


def test_frame_with_a_bad_row_sends_nothing_and_leaves_nothing(spark, mail: Queue, server: PrivateServer):
    # Spark may still be staging other partitions while it aborts the job. The bad row lies in the second batch of its
    # partition, so that the first has been staged.
    rows = spark.range(60_000, numPartitions=3).selectExpr(
        "CASE WHEN id = 19999 THEN raise_error('bad row') ELSE concat('order ', id) END AS body"
    )

    with pytest.raises(PySparkException, match="bad row"):
        rows.write.format("rsmq").mode("append").option("queue", "mail").save()

    assert mail.attributes().messages == 0
    assert server.redis.hlen("rsmq:mail:Q") == 5
    assert our_keys(server) == []


def test_overwriting_is_refused(spark, mail: Queue):
    rows = spark.range(1).selectExpr("'x' AS body")

    with pytest.raises(PySparkException, match="can only be appended"):
        rows.write.format("rsmq").mode("overwrite").option("queue", "mail").save()


def test_rows_become_calls_of_a_task_in_the_queue_of_their_column(spark, mail: Queue, client: Client):
    other = Queue("other", client)
    other.create()
    rows = spark.range(10).selectExpr(
        "IF(id < 4, 'mail', 'other') AS queue", "to_json(named_struct('order_id', id)) AS kwargs"
    )

    rows.write.format("rsmq").mode("append").options(kind="tasks", task="shop.tasks.send_receipt").save()

    assert (mail.attributes().messages, other.attributes().messages) == (4, 6)
    assert b'"task":"shop.tasks.send_receipt"' in mail.receive().body


def test_stream_of_files_is_sent_once_even_when_its_last_batch_is_repeated(spark, mail: Queue, tmp_path):
    spark.range(2000, numPartitions=2).selectExpr("concat('order ', id) AS body").write.parquet(str(tmp_path / "in"))

    def run() -> None:
        files = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        query = files.writeStream.format("rsmq").options(queue="mail", checkpointLocation=str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    sent = mail.attributes().total_sent
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in commits.glob(f"*{newest}*"):
        path.unlink()  # as if Spark had been killed between our commit and its own
    while messages := mail.receive_many(1000):
        mail.delete_many(messages)
    run()

    assert sent == 2000
    assert mail.attributes().total_sent == 2000


# -- Secrets -----------------------------------------------------------------------------------------------------------


def test_password_shows_in_no_plan_error_or_checkpoint(spark, tmp_path, capfd):
    url = "redis://user:hunter2@127.0.0.1:1/0"
    table = spark.read.format("rsmq").options(url=url, patienceS=0).load()
    table.explain(True)
    with pytest.raises(PySparkException) as batch:
        table.count()
    stream = spark.readStream.format("rsmq").options(url=url, kind="events", patienceS=0).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    queries = []

    def run() -> None:
        queries.append(writer.start())
        queries[-1].awaitTermination()

    with pytest.raises(PySparkException) as streaming:
        started_patiently(run)

    said = capfd.readouterr()
    texts = [
        said.out,
        said.err,
        str(batch.value),
        str(streaming.value),
        *(repr(query.recentProgress) for query in queries),
    ]
    texts += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert "cannot connect" in str(batch.value)
    assert [text for text in texts if "hunter2" in text] == []


# -- Topics ------------------------------------------------------------------------------------------------------------


def test_frame_goes_to_a_topic_once_and_comes_back_as_a_stream_once(spark, server: PrivateServer, tmp_path):
    rows = spark.range(1500, numPartitions=2).selectExpr("concat('order ', id) AS body")

    def publish(job: str) -> None:
        rows.write.format("rsmq").mode("append").options(kind="topic", topic="orders", job=job).save()

    def follow() -> list[int]:
        given = {"kind": "topic", "topic": "orders", "maxRowsPerBatch": 1000, "rowsPerPartition": 500}
        stream = spark.readStream.format("rsmq").options(**given).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        out = writer.trigger(availableNow=True)
        started_patiently(lambda: out.start(str(tmp_path / "out")).awaitTermination())
        stored = spark.read.parquet(str(tmp_path / "out"))
        return list(stored.selectExpr("count(*)", "count(DISTINCT index)", "max(index)").first())

    publish("one")
    publish("one")
    first = follow()
    publish("two")
    second = follow()

    assert first == [1500, 1500, 1500]
    assert second == [3000, 3000, 3000]
    assert int(server.redis.get("orders:nextIndex")) == 3000
