"""Receiving, popping, deleting and hiding messages: batches, waiting, ids of other clients."""

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from rsmq_django.core import Queue
from tests.cli.conftest import SCRIPT, Result
from tests.redis_server import PrivateServer
from tests.support import wait_until

Run = Callable[..., Result]

FOREIGN_ID = "short-id-of-a-go-client"


@pytest.mark.parametrize("command", ["receive", "pop"])
def test_several_messages_are_printed_one_per_line(rsmqctl: Run, queue: Queue, command: str):
    queue.send_many(f"{n}" for n in range(5))

    assert [m["message"] for m in rsmqctl("message", command, "-n", "jobs", "--count", "3").json_lines] == list("012")
    assert [m["message"] for m in rsmqctl("message", command, "-n", "jobs", "--count", "9").json_lines] == list("34")
    assert rsmqctl("message", command, "-n", "jobs", "--count", "9").output == "No messages on queue: jobs\n"


@pytest.mark.parametrize("command", ["receive", "pop"])
def test_empty_queue_as_json_is_null(rsmqctl: Run, queue: Queue, command: str):
    empty = rsmqctl("--json", "message", command, "-n", "jobs")

    assert (empty.exit_code, empty.output) == (0, "null\n")


@pytest.mark.parametrize("count", ["0", "1001", "many"])
def test_impossible_count_is_a_mistake_in_the_command_line(rsmqctl: Run, queue: Queue, count: str):
    assert rsmqctl("message", "receive", "-n", "jobs", "--count", count).exit_code == 2


def test_fractions_of_a_second_are_allowed_on_messages(rsmqctl: Run, queue: Queue):
    message_id = queue.send(b"x")

    received = rsmqctl("message", "receive", "-n", "jobs", "-t", "0.05")
    wait_until(lambda: queue.attributes().ready_messages)
    changed = rsmqctl("message", "visibility", "-n", "jobs", "-i", message_id, "-t", "1.5")

    assert received.json["id"] == message_id
    assert changed.output == f"Message ID: {message_id} visibility timeout set to 1.5s\n"


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "10000000"])
def test_impossible_timeout_of_a_message_is_refused(rsmqctl: Run, queue: Queue, seconds: str):
    queue.send(b"x")

    failed = rsmqctl("message", "receive", "-n", "jobs", "-t", seconds)

    assert failed.exit_code == 1
    assert "--visibility-timeout is" in failed.errors
    assert queue.attributes().hidden_messages == 0


# -- Waiting ----------------------------------------------------------------------------------------------------------


#: Far less than the waits of ten minutes below, far more than a slow machine needs.
SOON_S = 300


@pytest.mark.slow
@pytest.mark.parametrize("command", ["receive", "pop"])
def test_wait_ends_when_a_message_is_published(environment: None, queue: Queue, server: PrivateServer, command: str):
    words = [SCRIPT, "message", command, "-n", "jobs", "--wait", "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiting:
        wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:jobs")[0][1])
        began_s = time.monotonic()
        Queue("jobs", queue.client, realtime=True).send(b"hello")
        output, _ = waiting.communicate(timeout=180)

    assert '"message": "hello"' in output
    assert time.monotonic() - began_s < SOON_S


def test_wait_ends_when_a_message_arrives_unannounced(rsmqctl: Run, queue: Queue):
    sender = threading.Timer(0.1, lambda: queue.send(b"hello"))  # this queue does not publish
    sender.start()
    began_s = time.monotonic()

    received = rsmqctl("message", "receive", "-n", "jobs", "--wait", "600")

    sender.join()
    assert received.json["message"] == "hello"
    assert time.monotonic() - began_s < SOON_S


def test_wait_ends_when_a_delay_is_over(rsmqctl: Run, queue: Queue):
    queue.send(b"hello", delay_s=0.2)
    began_s = time.monotonic()

    assert rsmqctl("message", "receive", "-n", "jobs", "--wait", "600").json["message"] == "hello"

    assert time.monotonic() - began_s < SOON_S


def test_wait_without_permission_to_subscribe_polls(rsmqctl: Run, queue: Queue, server: PrivateServer):
    rules = ["reset", "on", ">secret", "~rsmq:*", "+@all", "-subscribe", "resetchannels"]
    server.redis.execute_command("ACL", "SETUSER", "deaf", *rules)
    url = server.url.replace("unix://", "unix://deaf:secret@")
    queue.send(b"hello", delay_s=0.2)

    assert rsmqctl("-r", url, "message", "receive", "-n", "jobs", "--wait", "600").json["message"] == "hello"


def test_wait_without_messages_is_an_empty_receive(rsmqctl: Run, queue: Queue):
    empty = rsmqctl("message", "receive", "-n", "jobs", "--wait", "0.05")

    assert (empty.exit_code, empty.output) == (0, "No messages on queue: jobs\n")


# -- Deleting ---------------------------------------------------------------------------------------------------------


def test_several_messages_are_deleted_at_once_and_missing_ones_are_reported(rsmqctl: Run, queue: Queue):
    one, two = queue.send_many([b"1", b"2"])

    failed = rsmqctl("message", "delete", "-n", "jobs", "-i", one, "-i", "nobody", "-i", two, "-i", "vt")

    assert failed.exit_code == 1
    assert failed.errors == "Error: message not found: nobody, vt; not on queue jobs\n"
    assert queue.attributes().messages == 0


def test_dry_run_of_delete_changes_nothing_and_reports_missing_messages(rsmqctl: Run, queue: Queue):
    one, two = queue.send_many([b"1", b"2"])
    words = ("message", "delete", "-n", "jobs", "--dry-run")

    assert rsmqctl(*words, "-i", one, "-i", two).output == "would delete 2 messages from jobs\n"
    assert rsmqctl(*words, "-i", one, "-i", "nobody").errors.startswith("Error: message not found: nobody; ")
    assert queue.attributes().messages == 2


def test_messages_of_clients_with_other_ids_can_be_deleted_and_hidden(
    rsmqctl: Run, queue: Queue, server: PrivateServer
):
    server.redis.zadd("rsmq:jobs", {FOREIGN_ID: 1})
    server.redis.hset("rsmq:jobs:Q", FOREIGN_ID, "x")

    assert rsmqctl("message", "visibility", "-n", "jobs", "-i", FOREIGN_ID, "-t", "0").exit_code == 0
    assert rsmqctl("message", "delete", "-n", "jobs", "-i", FOREIGN_ID).exit_code == 0
    assert queue.attributes().messages == 0


def test_deleting_a_dead_letter_deletes_its_record(rsmqctl: Run, queue: Queue, server: PrivateServer):
    message_id = queue.send(b"x")
    server.redis.hset("rsmq::dead:jobs", message_id, "{}")

    rsmqctl("message", "delete", "-n", "jobs", "-i", message_id)

    assert not server.redis.exists("rsmq::dead:jobs")


def test_delete_and_visibility_as_json(rsmqctl: Run, queue: Queue):
    message_id = queue.send(b"x")

    hidden = rsmqctl("--json", "message", "visibility", "-n", "jobs", "-i", message_id, "-t", "5")
    deleted = rsmqctl("--json", "message", "delete", "-n", "jobs", "-i", message_id)

    assert hidden.json == {"id": message_id, "visibility_timeout": 5}
    assert deleted.json == {"deleted": [message_id]}
