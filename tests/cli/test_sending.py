"""`message send`: bodies from arguments, files and standard input; many lines in few round trips."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rsmq_django.core import Queue
from tests.cli.conftest import SCRIPT, Result
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

Run = Callable[..., Result]


def bodies(queue: Queue) -> list[bytes]:
    """Take all bodies out of a queue."""
    found: list[bytes] = []
    while batch := queue.receive_many(1000):
        found += [message.body for message in batch]
    return found


@pytest.mark.parametrize("body", [b"", b"\xff\x00\n", b"two\nlines\n"])
def test_body_arrives_from_standard_input_byte_by_byte(rsmqctl: Run, queue: Queue, body: bytes):
    assert rsmqctl("message", "send", "-n", "jobs", "--stdin", stdin=body).exit_code == 0

    assert bodies(queue) == [body]


def test_body_is_the_content_of_a_file(rsmqctl: Run, queue: Queue, tmp_path: Path):
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n")

    rsmqctl("message", "send", "-n", "jobs", "--file", str(tmp_path / "picture"))

    assert bodies(queue) == [b"\x89PNG\r\n\x1a\n"]


def test_file_that_is_not_there_is_a_mistake_in_the_command_line(rsmqctl: Run, queue: Queue):
    wrong = rsmqctl("message", "send", "-n", "jobs", "--file", "/nowhere/at-all")

    assert wrong.exit_code == 2
    assert "/nowhere/at-all" in wrong.errors


@pytest.mark.parametrize(
    "words", [("-m", "x", "--stdin"), ("-m", "x", "--lines"), ("--stdin", "--file", "/dev/null")], ids=str
)
def test_body_comes_from_one_place(rsmqctl: Run, queue: Queue, words: tuple[str, ...]):
    wrong = rsmqctl("message", "send", "-n", "jobs", *words)

    assert wrong.exit_code == 2
    assert "only one of -m, --stdin and --file" in wrong.errors
    assert queue.attributes().messages == 0


def test_sending_wakes_waiting_workers(rsmqctl: Run, queue: Queue, server: PrivateServer):
    with server.redis.pubsub() as listener:
        listener.subscribe("rsmq:rt:jobs")
        wait_until(lambda: listener.get_message(timeout=0.1))

        rsmqctl("message", "send", "-n", "jobs", "-m", "x")

        heard = wait_until(lambda: listener.get_message(timeout=0.1))
    assert heard["data"] == b"1"


def test_id_as_json(rsmqctl: Run, queue: Queue):
    sent = rsmqctl("--json", "message", "send", "-n", "jobs", "-m", "x")

    received = queue.receive()
    assert received is not None
    assert sent.json == {"id": received.id}


# -- Lines ------------------------------------------------------------------------------------------------------------


def test_each_line_is_a_message_and_empty_ones_are_none(rsmqctl: Run, queue: Queue):
    sent = rsmqctl("message", "send", "-n", "jobs", "--lines", stdin=b'{"a": 1}\n\nplain\r\n\xff\nlast')

    messages = queue.receive_many(10)
    assert [message.body for message in messages] == [b'{"a": 1}', b"plain", b"\xff", b"last"]
    assert sent.output.split() == [message.id for message in messages]


def test_lines_of_a_file_travel_in_thousands(rsmqctl: Run, queue: Queue, server: PrivateServer, tmp_path: Path):
    lines = [f"line {n}".encode() for n in range(3500)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines) + b"\n")
    queue.send(b"first")
    queue.pop()
    server.redis.config_resetstat()

    sent = rsmqctl("message", "send", "-n", "jobs", "--lines", "--file", str(tmp_path / "lines"))

    assert server.redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 4
    assert len(sent.output.split()) == 3500
    assert bodies(queue) == lines


def test_long_lines_travel_in_smaller_batches(rsmqctl: Run, queue: Queue, server: PrivateServer):
    queue.send(b"first")
    queue.pop()
    server.redis.config_resetstat()

    rsmqctl("message", "send", "-n", "jobs", "--lines", stdin=b"\n".join([b"x" * 60_000] * 100))

    assert 6 <= server.redis.info("commandstats")["cmdstat_evalsha"]["calls"] <= 12
    assert queue.attributes().messages == 100


def test_lines_of_a_slow_pipe_are_sent_as_they_arrive(environment: None, queue: Queue):
    words = [SCRIPT, "message", "send", "-n", "jobs", "--lines"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        assert sending.stdout is not None
        sending.stdin.write(b"one\nhalf a li")
        sending.stdin.flush()
        assert len(sending.stdout.readline()) == 33
        assert queue.attributes().messages == 1
        sending.stdin.write(b"ne\n")
        sending.stdin.close()
        assert len(sending.stdout.readline()) == 33

    assert bodies(queue) == [b"one", b"half a line"]


def test_line_that_is_too_long_is_reported_and_earlier_lines_stay(rsmqctl: Run, queue: Queue):
    lines = [f"{n}".encode() for n in range(1, 1501)] + [b"x" * 70_000, b"after", b""]

    failed = rsmqctl("message", "send", "-n", "jobs", "--lines", stdin=b"\n".join(lines))

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: line 1501: message too long: 70000 bytes, maximum 65536; ")
    assert failed.errors.endswith("; 1000 messages sent, up to line 1000; continue with line 1001\n")
    assert len(failed.output.split()) == 1000
    assert bodies(queue) == lines[:1000]


def test_too_long_line_inside_a_batch_sends_nothing_of_that_batch(rsmqctl: Run, queue: Queue):
    queue.set_attributes(max_size_bytes=1024)

    failed = rsmqctl("message", "send", "-n", "jobs", "--lines", stdin=b"one\ntwo\n" + b"x" * 1025 + b"\nfour")

    assert failed.errors.startswith("Error: line 3: message too long: 1025 bytes")
    assert failed.errors.endswith("; nothing sent\n")
    assert bodies(queue) == []


@pytest.mark.parametrize(
    "words", [("message", "send"), ("reliable", "push", "--create"), ("topic", "publish", "--create")]
)
def test_reader_of_the_ids_that_ends_early_is_told_where_to_continue(
    environment: None, queue: Queue, words: tuple[str, ...]
):
    lines = b"".join(b"line %d\n" % number for number in range(5000))
    reader, writer = os.pipe()
    os.close(reader)

    words = (*words, "-n", "jobs", "--lines")
    done = subprocess.run([SCRIPT, *words], input=lines, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    said = b"1000 messages sent, up to line 1000; continue with line 1001\n"
    assert (done.returncode, done.stderr) == (1, b"Error: the reader of the output has ended; " + said)


def test_lost_reply_reports_which_lines_are_unknown(rsmqctl: Run, queue: Queue, server: PrivateServer):
    queue.send(b"first")
    queue.pop()
    with FaultProxy(server.url) as proxy:
        proxy.lose_reply_to(b"line 1500")
        lines = b"".join(f"line {n}\n".encode() for n in range(1, 2001))

        failed = rsmqctl("-r", proxy.url, "message", "send", "-n", "jobs", "--lines", stdin=lines)

    assert failed.exit_code == 1
    assert failed.errors.endswith(
        "; 1000 messages sent, up to line 1000; lines 1001 to 2000 were either all sent or not sent at all\n"
    )


@pytest.mark.parametrize("words", [("topic", "publish"), ("reliable", "push")])
def test_lines_for_topics_and_reliable_queues_report_their_progress_too(
    rsmqctl: Run, server: PrivateServer, words: tuple[str, ...]
):
    lines = b"".join(f"line {n}\n".encode() for n in range(1, 2001))
    rsmqctl(*words, "-n", "orders", "--create", "-m", "first")
    with FaultProxy(server.url) as proxy:
        proxy.answer_instead(b"line 1500", b"-OOM command not allowed\r\n")
        full = rsmqctl("-r", proxy.url, *words, "-n", "orders", "--lines", stdin=lines)
        proxy.lose_reply_to(b"line 1500")
        lost = rsmqctl("-r", proxy.url, *words, "-n", "orders", "--lines", stdin=lines)

    assert full.exit_code == lost.exit_code == 1
    assert full.errors.endswith("; 1000 messages sent, up to line 1000; continue with line 1001\n")
    assert lost.errors.endswith(
        "; 1000 messages sent, up to line 1000; lines 1001 to 2000 were either all sent or not sent at all\n"
    )


def test_lines_to_a_queue_that_is_not_there_fail(rsmqctl: Run):
    failed = rsmqctl("message", "send", "-n", "nope", "--lines", stdin=b"x\n")

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: queue not found: nope; ")


def test_ids_of_lines_as_json(rsmqctl: Run, queue: Queue):
    sent = rsmqctl("--json", "message", "send", "-n", "jobs", "--lines", stdin=b"a\nb\n")

    assert [row["id"] for row in sent.json_lines] == [message.id for message in queue.receive_many(10)]
