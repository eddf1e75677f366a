"""Sending in bulk: all rows once or none, at any point of failure of the job."""

import json
from decimal import Decimal

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import ConnectionFailed, MessageTooLong, QueueNotFound
from rsmq_django.core.queue.bulk import Job
from rsmq_django.spark.bulk import BulkSender, Staged, resume, unfinished_jobs
from rsmq_django.spark.errors import PipelineError, RunAborted, StageLost, WrongOption
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer


@pytest.fixture
def sender(options):
    """Make a sender as the driver of a fresh run would."""

    def make(names: tuple[str, ...] = ("body",), **given: str) -> BulkSender:
        return BulkSender(options(**{"queue": "mail"} | given), names)

    return make


def staged(sender: BulkSender, count: int, attempt: str = "0.1") -> Staged:
    return sender.stage([{"body": [f"m{number}" for number in range(count)]}], attempt=attempt)


def our_keys(server: PrivateServer) -> list[bytes]:
    """Return the keys of bulk jobs, except those which say for an hour that a run was aborted."""
    return sorted(key for key in server.redis.scan_iter("rsmq::spark:*") if b":aborted:" not in key)


def test_nothing_can_be_received_before_the_commit_and_everything_after_it_in_order(mail: Queue, sender):
    job = sender()
    message = staged(job, 2500)
    before = mail.attributes().messages

    job.commit([message])

    assert before == 0
    received = [found.body for _ in range(3) for found in mail.receive_many(1000)]
    assert received == [f"m{number}".encode() for number in range(2500)]
    assert mail.attributes().total_sent == 2500


def test_messages_are_published_in_chunks_of_the_requested_length(mail: Queue, sender, client: Client):
    job = sender(job="import-7")
    message = staged(job, 3)
    (name,) = [stage.name for stage in message.stages]
    publish = Job("rsmq", "import-7").publish(name, most=1)

    assert [client.run(publish) for _ in range(4)] == [1, 1, 1, 0]
    assert mail.attributes().messages == 3


def test_same_job_again_sends_nothing_even_after_workers_took_everything(mail: Queue, sender, server: PrivateServer):
    for attempt, rows in (("0.1", 10), ("0.2", 0)):
        job = sender(job="import-7")
        message = staged(job, 10, attempt)
        assert message.rows == rows, "what was sent is not even staged"
        job.commit([message])
        while messages := mail.receive_many(100):
            mail.delete_many(messages)

    assert mail.attributes().total_sent == 10
    assert our_keys(server) == [b"rsmq::spark:job:import-7"]


class Breaks(Exception):
    """The process dies here."""


@pytest.mark.slow
@pytest.mark.parametrize("after", range(9))
def test_crash_at_any_step_of_publishing_is_repaired_by_the_next_run(
    mail: Queue, sender, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, after: int
):
    job = sender(job="import-7")
    messages = [staged(job, 1500, "0.1"), staged(job, 1000, "1.2")]
    run, calls = Server.run, list[object]()

    def run_some(self, call):
        if len(calls) == after:
            raise Breaks
        calls.append(call)
        return run(self, call)

    with monkeypatch.context() as broken, pytest.raises(Breaks):
        broken.setattr(Server, "run", run_some)
        job.commit(messages)
    if 0 < after < 3:
        assert mail.attributes().messages == 0
    first = [message for _ in range(3) for message in mail.receive_many(1000)]
    mail.delete_many(first)

    for attempt in ("0.3", "0.4"):
        again = sender(job="import-7")
        again.commit([staged(again, 2500, attempt)])
    second = [message for _ in range(3) for message in mail.receive_many(1000)]

    assert len(first) + len(second) == 2500
    assert not {message.id for message in first} & {message.id for message in second}
    assert mail.attributes().total_sent == 2500
    assert [key for key in our_keys(server) if b":stages:" not in key] == [b"rsmq::spark:job:import-7"]
    assert all(server.redis.ttl(key) > 0 for key in our_keys(server)), "whatever is left goes away by itself"


def test_job_that_began_to_publish_is_ended_without_spark(
    mail: Queue, sender, pipeline_server: Server, monkeypatch: pytest.MonkeyPatch
):
    job = sender(job="import-7")
    message = staged(job, 2500)
    with monkeypatch.context() as broken:
        broken.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        job.commit([message])
    assert unfinished_jobs(pipeline_server) == ["import-7"]

    assert resume(pipeline_server, "import-7") == 2500

    assert unfinished_jobs(pipeline_server) == []
    assert mail.attributes().messages == 2500
    with pytest.raises(PipelineError, match="has not started to publish"):
        resume(pipeline_server, "other")


def test_abort_removes_what_failed_attempts_staged_too(mail: Queue, sender, server: PrivateServer):
    job = sender()
    staged(job, 1500)
    with pytest.raises(MessageTooLong, match="allows 65536"):
        job.stage([{"body": ["x" * 70_000]}], attempt="1.2")
    staged(job, 10, "1.3")  # this attempt fails later, which Spark never tells

    job.abort()

    assert mail.attributes().messages == 0
    assert server.redis.hlen("rsmq:mail:Q") == 5
    assert our_keys(server) == []


def test_task_that_still_stages_when_its_run_was_aborted_leaves_nothing(mail: Queue, sender, server: PrivateServer):
    job = sender(job="import-7")

    def tables():
        yield {"body": ["1"]}
        job.abort()  # another task has failed, and Spark has not ended this one yet
        yield {"body": ["2"]}

    with pytest.raises(RunAborted, match="was aborted, the rows were not staged"):
        job.stage(tables(), attempt="0.1")

    assert our_keys(server) == []
    (marker,) = server.redis.scan_iter("rsmq::spark:*")
    assert 0 < server.redis.ttl(marker) <= 3600
    again = sender(job="import-7")
    again.commit([staged(again, 3)])
    assert mail.attributes().messages == 3


def test_task_that_still_stages_when_its_job_is_done_leaves_nothing(mail: Queue, sender, server: PrivateServer):
    slow, fast = sender(job="import-7"), sender(job="import-7")
    read = list[str]()

    def tables():
        for body in "123":
            if body == "2":
                fast.commit([staged(fast, 3)])
            read.append(body)
            yield {"body": [body]}

    message = slow.stage(tables(), attempt="0.1")
    assert our_keys(server) == [b"rsmq::spark:job:import-7"]
    slow.commit([message])

    assert (message.rows, message.stages, read) == (0, (), ["1", "2", "3"])
    assert mail.attributes().messages == 3


def test_abort_spares_a_job_that_is_being_published(mail: Queue, sender, monkeypatch: pytest.MonkeyPatch):
    job = sender(job="import-7")
    message = staged(job, 10)
    with monkeypatch.context() as broken:
        broken.setattr("rsmq_django.spark.bulk.publish", lambda *_args, **_more: 0)
        job.commit([message])

    job.abort()
    sender(job="import-7").commit([])

    assert mail.attributes().messages == 10


def test_stage_that_was_evicted_is_refused_before_anything_is_sent(mail: Queue, sender, server: PrivateServer):
    job = sender()
    messages = [staged(job, 10, "0.1"), staged(job, 10, "1.2")]
    server.redis.delete(f"rsmq::spark:job:{job.job}:{messages[1].stages[0].name}:bodies")

    with pytest.raises(StageLost, match="nothing was sent"):
        job.commit(messages)

    assert mail.attributes().messages == 0


def test_missing_queue_is_reported_while_staging_and_while_publishing(mail: Queue, sender):
    with pytest.raises(QueueNotFound, match="'nope'"):
        staged(sender(queue="nope"), 1)
    job = sender(job="import-7")
    message = staged(job, 1)
    mail.delete_queue()

    with pytest.raises(QueueNotFound, match="'mail'"):
        job.commit([message])
    mail.create()
    job.commit([message])

    assert mail.attributes().messages == 1


def test_rows_choose_their_queue_and_delay(mail: Queue, client: Client, sender):
    other = Queue("other", client)
    other.create(delay_s=100)
    table = {"body": ["1", b"2", "3"], "queue": ["mail", "other", "other"], "delay_s": [Decimal("5.5"), None, 0]}
    job = sender(("body", "queue", "delay_s"))

    job.commit([job.stage([table], attempt="0.1")])

    assert (mail.attributes().hidden_messages, mail.attributes().messages) == (1, 1)
    assert other.receive().body == b"3"
    assert other.attributes().hidden_messages == 2


def test_rows_become_calls_of_a_task(mail: Queue, sender):
    table = {"kwargs": ['{"order_id": 7}', None], "args": [None, "[1]"]}
    job = sender(tuple(table), kind="tasks", task="shop.tasks.send_receipt")

    job.commit([job.stage([table], attempt="0.1")])

    first, second = (json.loads(message.body) for message in mail.receive_many(2))
    assert first == {"task": "shop.tasks.send_receipt", "id": first["id"], "args": [], "kwargs": {"order_id": 7}}
    assert (second["args"], second["kwargs"]) == ([1], {})
    assert first["id"] != second["id"]


def test_arguments_that_are_not_json_are_refused(mail: Queue, sender):
    job = sender(("kwargs",), kind="tasks", task="shop.tasks.send_receipt")

    with pytest.raises(PipelineError, match="must be an object"):
        job.stage([{"kwargs": ["[1]"]}], attempt="0.1")


def test_rows_become_messages_of_a_topic(sender, server: PrivateServer):
    server.redis.set("orders:nextIndex", 5)
    job = sender(kind="topic", topic="orders", queue="")

    for _ in range(2):
        job.commit([staged(job, 1500)] if not server.redis.exists("orders:messages:6") else [])

    assert server.redis.get("orders:nextIndex") == b"1505"
    assert server.redis.mget("orders:messages:6", "orders:messages:1505") == [b"m0", b"m1499"]
    assert server.redis.xrevrange("rsmqt:orders:wake")[0][0] == b"1505-0"
    assert server.redis.zcard("rsmqt:orders:time") >= 1


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (("text",), {}, "column body is missing"),
        (("body", "color"), {}, "color would be lost"),
        (("body",), {"queue": "a,b"}, "set the option queue to one queue"),
        (("kwargs",), {"kind": "tasks"}, "needs the option task"),
        (("body",), {"direct": "true", "job": "x"}, "cannot be combined with the option job"),
    ],
)
def test_frame_that_cannot_be_sent_is_refused_with_a_remedy(sender, names, given, said):
    with pytest.raises(WrongOption, match=said):
        sender(names, **given)


def test_direct_rows_are_sent_at_once(mail: Queue, sender, server: PrivateServer):
    job = sender(direct="true")

    job.send_directly([{"body": [f"m{number}" for number in range(1500)]}])

    assert mail.attributes().messages == 1500
    assert our_keys(server) == []


def test_staging_is_refused_whole_at_the_memory_limit(mail: Queue, sender, server: PrivateServer):
    server.redis.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(Exception, match="memory limit"):
            staged(sender(), 1000)
    finally:
        server.redis.config_set("maxmemory", 0)
    assert mail.attributes().messages == 0


def test_unreachable_server_is_reported_after_a_wait(options):
    away = options(url="redis://127.0.0.1:1/0", patienceS="0.2").server()

    with pytest.raises(ConnectionFailed, match="cannot connect"):
        away.now_us()
