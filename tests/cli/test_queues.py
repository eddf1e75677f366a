"""`queue set`, `pause`, `purge`, `stats`: commands beyond the first rsmqctl."""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.queue.pause import paused
from tests.cli.conftest import SCRIPT, Result
from tests.redis_server import PrivateServer
from tests.support import pass_time

Run = Callable[..., Result]


# -- Set --------------------------------------------------------------------------------------------------------------


def test_set_changes_the_given_attributes_and_prints_all(rsmqctl: Run, queue: Queue):
    shown = rsmqctl("queue", "set", "-n", "jobs", "-t", "0", "-m", "-1")

    assert (shown.json["vt"], shown.json["delay"], shown.json["maxsize"]) == (0.0, 0.0, -1)
    assert shown.output == rsmqctl("queue", "describe", "-n", "jobs").output


def test_set_without_anything_to_set_fails(rsmqctl: Run, queue: Queue):
    failed = rsmqctl("queue", "set", "-n", "jobs")

    assert (failed.exit_code, failed.errors) == (1, "Error: nothing to set; give -t, -d or -m\n")


@pytest.mark.parametrize(
    ("flag", "value", "text"),
    [
        ("-t", "10000000", "--visibility-timeout is 10000000; it must be whole seconds between 0 and 9999999"),
        ("-d", "-1", "--delay is -1; it must be whole seconds between 0 and 9999999"),
        ("-m", "100", "--maxsize is 100; it must be between 1024 and 65536, or -1 for no limit"),
    ],
)
def test_value_outside_its_limits_is_refused_under_the_name_of_its_flag(
    rsmqctl: Run, queue: Queue, flag: str, value: str, text: str
):
    assert rsmqctl("queue", "set", "-n", "jobs", flag, value).errors == f"Error: {text}\n"


def test_times_of_queues_may_be_stored_in_milliseconds(rsmqctl: Run, server: PrivateServer, client: Client):
    rsmqctl("--vt-unit", "ms", "queue", "create", "-n", "rust", "-t", "30")
    rsmqctl("message", "send", "-n", "rust", "-m", "x")
    rsmqctl("--vt-unit", "ms", "message", "receive", "-n", "rust")

    assert server.redis.hget("rsmq:rust:Q", "vt") == b"30000"
    assert rsmqctl("--vt-unit", "ms", "queue", "describe", "-n", "rust").json["vt"] == 30.0
    pass_time(Queue("rust", client), seconds=31)
    assert rsmqctl("message", "peek", "-n", "rust").json["rc"] == 1


# -- Pause ------------------------------------------------------------------------------------------------------------


def test_pause_lasts_until_resume(rsmqctl: Run, queue: Queue):
    assert rsmqctl("queue", "pause", "-n", "jobs").output == "paused jobs\n"
    assert rsmqctl("queue", "pause", "-n", "jobs").output == "jobs was already paused\n"
    assert rsmqctl("queue", "paused").json == ["jobs"]
    assert queue.client.run(paused(queue.client.namespace)) == {"jobs"}

    assert rsmqctl("queue", "resume", "-n", "jobs").output == "resumed jobs\n"
    assert rsmqctl("--json", "queue", "resume", "-n", "jobs").json == {
        "queue": "jobs",
        "paused": False,
        "changed": False,
    }
    assert rsmqctl("queue", "paused").json == []


def test_pause_of_an_unknown_queue_fails(rsmqctl: Run, queue: Queue):
    assert rsmqctl("queue", "pause", "-n", "jbos").exit_code == 1
    assert rsmqctl("queue", "paused").json == []


# -- Purge ------------------------------------------------------------------------------------------------------------


def test_purge_removes_the_messages_and_keeps_the_queue(rsmqctl: Run, queue: Queue):
    queue.send_many([b"x"] * 3)
    queue.receive()

    purged = rsmqctl("queue", "purge", "-n", "jobs", "--yes")

    assert purged.output == "removed 3 messages from jobs\n"
    assert queue.attributes().messages == 0


def test_purge_without_a_terminal_needs_yes(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    failed = rsmqctl("queue", "purge", "-n", "jobs")

    assert (failed.exit_code, failed.output) == (1, "")
    assert failed.errors == "Error: Delete 1 message of queue jobs? Cannot ask without a terminal: add --yes\n"
    assert queue.attributes().messages == 1


def test_purge_of_an_empty_queue_needs_no_leave(rsmqctl: Run, queue: Queue):
    assert rsmqctl("queue", "purge", "-n", "jobs").output == "removed 0 messages from jobs\n"


def test_dry_run_of_purge_changes_nothing(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    assert rsmqctl("queue", "purge", "-n", "jobs", "--dry-run").output == "would remove 1 message from jobs\n"

    assert queue.attributes().messages == 1


def test_help_of_delete_says_that_it_does_not_ask_without_a_terminal(rsmqctl: Run):
    text = " ".join(rsmqctl("queue", "delete", "--help").output.split())

    assert "Without a terminal it deletes without asking, like the original rsmqctl." in text


def test_dry_run_of_delete_changes_nothing(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    assert rsmqctl("queue", "delete", "-n", "jobs", "--dry-run").output == "would delete jobs with 1 message\n"

    assert queue.attributes().messages == 1


# -- Stats ------------------------------------------------------------------------------------------------------------


def test_stats_are_a_table_in_a_pipe(rsmqctl: Run, queue: Queue, client: Client):
    Queue("a", client).create()
    queue.send_many([b"x"] * 5)
    queue.receive_many(2)
    queue.send(b"x", delay_s=100)
    pass_time(queue, seconds=20)

    table = rsmqctl("queue", "stats").output.splitlines()

    assert table[0].split() == ["QUEUE", "READY", "DELAYED", "IN", "FLIGHT", "OLDEST", "SENT", "RECEIVED", "MEMORY"]
    assert table[1].split()[:7] == ["a", "0", "0", "0", "-", "0", "0"]
    assert table[2].split()[:4] == ["jobs", "3", "1", "2"]
    assert table[2].split()[5:7] == ["6", "2"]
    assert "\x1b" not in "".join(table)
    assert len({line.rindex(" ") for line in table[1:]}) == 1, "the last column is aligned on the right"


def test_stats_of_one_queue_as_json(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    shown = rsmqctl("--json", "queue", "stats", "-n", "jobs").json

    assert (shown["queue"], shown["messages"], shown["ready"], shown["estimated"]) == ("jobs", 1, 1, False)
    assert set(shown) > {"delayed", "in_flight", "oldest_ready_s", "total_sent", "total_received", "size_bytes"}


def test_stats_of_all_queues_as_json_are_a_list(rsmqctl: Run, client: Client):
    for number in range(120):
        Queue(f"q{number:03}", client).create()

    assert [row["queue"] for row in rsmqctl("--json", "queue", "stats").json] == [f"q{n:03}" for n in range(120)]


def test_broken_queue_does_not_hide_the_others(rsmqctl: Run, queue: Queue, server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "broken", "with \x1b[31m")

    table = rsmqctl("queue", "stats").output.splitlines()
    shown = rsmqctl("--json", "queue", "stats").json

    assert table[1].split() == ["broken", "broken"]
    assert table[3].split() == ["with", "\\x1b[31m", "broken"]
    assert [row.get("error") for row in shown] == ["queueNotFound", None, "queueNotFound"]


def test_stats_of_a_queue_that_is_not_there_fail(rsmqctl: Run):
    assert rsmqctl("queue", "stats", "-n", "nope").errors.startswith("Error: queue not found: nope; ")


@pytest.mark.slow
def test_watch_shows_rates_until_ctrl_c(environment: None, queue: Queue):
    words = [SCRIPT, "--json", "queue", "stats", "-n", "jobs", "--watch", "--interval", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        first = json.loads(watch.stdout.readline())
        queue.send(b"x")
        later = next(row for row in map(json.loads, watch.stdout) if row["ready"])
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()  # who closes it before the end may interrupt a line

    assert (first["ready"], later["ready"]) == (0, 1)
    assert watch.returncode == 0


# -- --json -----------------------------------------------------------------------------------------------------------


def test_commands_without_output_print_their_result_as_json(rsmqctl: Run):
    assert rsmqctl("--json", "queue", "create", "-n", "q").json == {"queue": "q", "created": True}
    assert rsmqctl("queue", "purge", "-n", "q", "--json").json == {"queue": "q", "removed": 0}
    assert rsmqctl("queue", "delete", "-n", "q", "--json").json == {"queue": "q", "deleted": True}
