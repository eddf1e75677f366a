"""`message move`, `redrive`: what goes, what stays, and that stopping half way loses and doubles nothing."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from tests.cli.conftest import SCRIPT, Result
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

Run = Callable[..., Result]


@pytest.fixture
def mail(client: Client) -> Queue:
    """The queue that dead letters came from."""
    mail = Queue("mail", client)
    mail.create()
    return mail


@pytest.fixture
def dead(client: Client) -> Queue:
    """Their dead-letter queue."""
    dead = Queue("mail-dead", client)
    dead.create(max_size_bytes=-1)
    return dead


@pytest.fixture
def bury(dead: Queue, server: PrivateServer) -> Callable[..., str]:
    """Put a dead letter into the dead-letter queue and return its id."""

    def bury(body: bytes = b"x", *, died_s_ago: float = 0, **fields: Any) -> str:
        message_id = dead.send(body)
        record: dict[str, Any] = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.send"}
        record |= {"died_ms": round((time.time() - died_s_ago) * 1000), "error": "builtins.OSError", "task_id": "t"}
        server.redis.hset("rsmq:mail-dead:Q", f"{message_id}:rc", 5)
        server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps({**record, **fields}))
        return message_id

    return bury


def bodies(queue: Queue) -> list[bytes]:
    """Take all bodies out of a queue."""
    found: list[bytes] = []
    while batch := queue.receive_many(1000):
        found += [message.body for message in batch]
    return found


def has_at_least(queue: Queue, number: int) -> bool:
    """Say whether a queue has so many messages."""
    return queue.attributes().messages >= number


# -- Move -------------------------------------------------------------------------------------------------------------


def test_move_includes_ready_messages(rsmqctl: Run, mail: Queue, queue: Queue):
    ids = mail.send_many([b"1", b"2", b"3"])
    mail.send(b"later", delay_s=60)
    held = mail.receive()
    assert held is not None

    moved = rsmqctl("message", "move", "-n", "mail", "--to", "jobs")

    assert moved.output == "moved 2 messages from mail: 2 to jobs\n"
    assert [message.id for message in queue.receive_many(10)] == ids[1:]
    assert mail.delete(held)


def test_move_includes_hidden_messages_on_request_and_they_stay_hidden(rsmqctl: Run, mail: Queue, queue: Queue):
    mail.send(b"later", delay_s=60)
    mail.send(b"held")
    mail.receive()

    assert rsmqctl("--json", "message", "move", "-n", "mail", "--to", "jobs", "--hidden").json["moved"] == 2

    assert queue.attributes().hidden_messages == 2


def test_move_takes_the_messages_that_are_named(rsmqctl: Run, mail: Queue, queue: Queue):
    ids = mail.send_many([b"1", b"2", b"3"])

    moved = rsmqctl("message", "move", "-n", "mail", "--to", "jobs", "-i", ids[1], "-i", ids[1], "-i", "nobody")

    assert (moved.exit_code, moved.output) == (0, "moved 1 message from mail: 1 to jobs\n")
    assert moved.errors == "1 message not moved: 1 deleted meanwhile\n"
    assert bodies(queue) == [b"2"]


def test_move_stops_at_the_limit(rsmqctl: Run, mail: Queue, queue: Queue):
    mail.send_many(f"{n}" for n in range(700))

    rsmqctl("message", "move", "-n", "mail", "--to", "jobs", "--limit", "600")

    assert bodies(queue) == [f"{n}".encode() for n in range(600)]
    assert mail.attributes().messages == 100


def test_move_goes_through_queues_of_large_messages_in_small_slices(
    rsmqctl: Run, mail: Queue, queue: Queue, server: PrivateServer
):
    mail.send_many([b"x" * 60_000] * 60)
    server.redis.config_resetstat()

    rsmqctl("message", "move", "-n", "mail", "--to", "jobs")

    # One count for the bar, one for the end, one page, an empty page; the rest are slices of at most a megabyte.
    assert server.redis.info("commandstats")["cmdstat_zadd"]["calls"] >= 4
    assert queue.attributes().messages == 60


def test_dry_run_of_move_changes_nothing(rsmqctl: Run, mail: Queue, queue: Queue):
    mail.send_many([b"x"] * 3)

    shown = rsmqctl("message", "move", "-n", "mail", "--to", "jobs", "--limit", "2", "--dry-run")

    assert shown.output == "would move 2 messages from mail: 2 to jobs\n"
    assert (mail.attributes().messages, queue.attributes().messages) == (3, 0)


def test_move_of_a_too_long_message_fails_and_moves_the_rest(rsmqctl: Run, mail: Queue, queue: Queue):
    queue.set_attributes(max_size_bytes=1024)
    mail.send_many([b"x" * 1025, b"ok"])

    moved = rsmqctl("message", "move", "-n", "mail", "--to", "jobs")

    assert (moved.exit_code, moved.output) == (1, "moved 1 message from mail: 1 to jobs\n")
    assert moved.errors == "Error: 1 message not moved from mail: 1 too long for the target\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--hidden",)], ids=str)
def test_move_ends_although_the_queue_is_filled_as_fast_as_it_is_emptied(
    rsmqctl: Run, mail: Queue, queue: Queue, words: tuple[str, ...]
):
    mail.send_many([b"old"] * 1500)
    filling, enough = threading.Event(), threading.Event()

    def fill() -> None:
        for _ in range(200):  # a move that does not end by itself ends here
            mail.send_many([b"new"] * 1000)
            filling.set()
            if enough.is_set():
                return

    thread = threading.Thread(target=fill)
    thread.start()
    filling.wait(60)
    moved = rsmqctl("message", "move", "-n", "mail", "--to", "jobs", *words)
    ended_while_filling = thread.is_alive()
    enough.set()
    thread.join()

    assert moved.exit_code == 0
    assert ended_while_filling


@pytest.mark.parametrize("words", [("--to", "mail"), ("--to", "nowhere"), ("--to", "a b")], ids=str)
def test_impossible_target_of_a_move_is_refused(rsmqctl: Run, mail: Queue, words: tuple[str, ...]):
    mail.send(b"x")

    failed = rsmqctl("message", "move", "-n", "mail", *words)

    assert (failed.exit_code, failed.output) == (1, "")
    assert mail.attributes().messages == 1


# -- Redrive ----------------------------------------------------------------------------------------------------------


def test_redrive_sends_dead_letters_back_to_their_original_queues(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, queue: Queue, dead: Queue, server: PrivateServer
):
    old = bury(b'{"task": "shop.tasks.send", "id": "task-7"}')
    bury(b"of another queue", queue="jobs")

    redriven = rsmqctl("message", "redrive", "-n", "mail-dead")

    assert redriven.output == "redriven 2 messages from mail-dead: 1 to mail, 1 to jobs\n"
    received = mail.receive()
    assert received is not None
    assert (received.body, received.receive_count) == (b'{"task": "shop.tasks.send", "id": "task-7"}', 2)
    assert received.id != old
    assert bodies(queue) == [b"of another queue"]
    assert (dead.attributes().messages, server.redis.exists("rsmq::dead:mail-dead")) == (0, 0)


FILTERS = {
    "task": ("--task", "send"),
    "path of a task": ("--task", "shop.*"),
    "error": ("--error", "OSError"),
    "reason": ("--reason", "gave_up"),
    "since": ("--since", "2h"),
    "until": ("--until", "30m"),
    "both": ("--reason", "gave_up", "--error", "*.OSError"),
}


@pytest.mark.parametrize("words", FILTERS.values(), ids=FILTERS)
def test_redrive_includes_messages_that_match_the_filter(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, dead: Queue, words: tuple[str, ...]
):
    bury(b"wanted", died_s_ago=3600)
    other = {"task": "other.tasks.x", "error": "builtins.ValueError", "reason": "attempts_used_up"}
    bury(b"unwanted", died_s_ago=60 if words[0] == "--until" else 86_400, **other)

    redriven = rsmqctl("--json", "message", "redrive", "-n", "mail-dead", *words)

    assert redriven.json == {"redriven": 1, "targets": {"mail": 1}, "stayed": {}}
    assert bodies(mail) == [b"wanted"]
    assert dead.attributes().messages == 1


def test_limit_counts_what_fits_the_filter(rsmqctl: Run, bury: Callable[..., str], mail: Queue):
    for number in range(20):
        bury(f"{number}".encode(), reason="gave_up" if number % 2 else "undecodable")

    rsmqctl("message", "redrive", "-n", "mail-dead", "--reason", "gave_up", "--limit", "3")

    assert bodies(mail) == [b"1", b"3", b"5"]


def test_dry_run_of_redrive_groups_the_messages_to_redrive(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, dead: Queue
):
    for _ in range(3):
        bury()
    bury(reason="attempts_used_up", queue="sms", error="shop.Closed")

    shown = rsmqctl("message", "redrive", "-n", "mail-dead", "--dry-run")

    assert shown.output == (
        "COUNT  TO    TASK             REASON            ERROR\n"
        "    3  mail  shop.tasks.send  gave_up           builtins.OSError\n"
        "    1  sms   shop.tasks.send  attempts_used_up  shop.Closed\n"
        "would redrive 4 messages from mail-dead: 3 to mail, 1 to sms\n"
    )
    assert (mail.attributes().messages, dead.attributes().messages) == (0, 4)


def test_dead_letters_without_a_record_stay_unless_a_target_is_named(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, queue: Queue, dead: Queue
):
    dead.send(b"of a foreign client")
    bury(b"of a damaged record", queue="a b")
    bury(b"of the dead-letter queue itself", queue="mail-dead")
    bury(b"known")

    failed = rsmqctl("message", "redrive", "-n", "mail-dead")

    assert (failed.exit_code, failed.output) == (1, "redriven 1 message from mail-dead: 1 to mail\n")
    assert failed.errors == (
        "Error: 3 messages not moved from mail-dead: 3 without a record of their origin (name the target with --to)\n"
    )
    assert rsmqctl("message", "redrive", "-n", "mail-dead", "--to", "jobs").exit_code == 0
    assert bodies(queue) == [b"of a foreign client", b"of a damaged record", b"of the dead-letter queue itself"]


def test_redrive_to_a_missing_queue_reports_its_progress(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, dead: Queue
):
    bury()
    bury(queue="gone")

    failed = rsmqctl("message", "redrive", "-n", "mail-dead")

    assert failed.exit_code == 1
    assert failed.errors.startswith(
        "Error: queue not found: gone; create it, or name another target; 1 message redriven"
    )
    assert dead.attributes().messages == 1


def test_redrive_of_named_messages_takes_hidden_ones_too(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, dead: Queue
):
    wanted = bury(b"wanted")
    bury(b"unwanted")
    dead.receive()  # somebody looked at it this way, and hid it for 30 seconds

    rsmqctl("message", "redrive", "-n", "mail-dead", "-i", wanted)

    assert bodies(mail) == [b"wanted"]


def test_rate_spreads_messages_over_time(rsmqctl: Run, bury: Callable[..., str], mail: Queue):
    for number in range(5):
        bury(f"{number}".encode())

    began_s = time.monotonic()
    rsmqctl("message", "redrive", "-n", "mail-dead", "--rate", "20")

    # Slices of two: the second and third wait for a tenth of a second each. A lower bound, safe on slow machines.
    assert time.monotonic() - began_s >= 0.2
    assert mail.attributes().messages == 5


def test_lost_reply_reports_how_many_are_unknown_and_the_same_command_continues(
    rsmqctl: Run, bury: Callable[..., str], mail: Queue, dead: Queue, server: PrivateServer
):
    words = ("message", "redrive", "-n", "mail-dead")
    bury(b"first")
    rsmqctl(*words)  # the server knows the script from now on
    for number in range(3):
        bury(f"{number}".encode())
    with FaultProxy(server.url) as proxy:
        proxy.lose_reply_to(b"rsmq:rt:mail")

        failed = rsmqctl("-r", proxy.url, *words)

        assert failed.exit_code == 1
        assert failed.errors.endswith(
            "; 0 messages redriven, up to 3 more may have been; the same command continues with the rest\n"
        )
        assert rsmqctl("-r", proxy.url, *words).output == "redriven 0 messages from mail-dead\n"

    assert bodies(mail) == [b"first", b"0", b"1", b"2"]
    assert dead.attributes().messages == 0


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["move", "redrive"])
def test_killing_a_transfer_loses_and_doubles_nothing(
    environment: None, mail: Queue, queue: Queue, verb: str, server: PrivateServer
):
    mail.send_many(f"{n}" for n in range(20_000))
    ours = server.connections()
    words = [SCRIPT, "message", verb, "-n", "mail", "--to", "jobs"]
    for part in range(1, 4):
        transfer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until(partial(has_at_least, queue, part * 3000))
        transfer.send_signal(signal.SIGKILL)
        transfer.wait()
        wait_until(lambda: server.connections() <= ours)
        assert mail.attributes().messages + queue.attributes().messages == 20_000

    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    assert bodies(queue) == [f"{n}".encode() for n in range(20_000)]
    assert mail.attributes().messages == 0


def test_ctrl_c_reports_the_progress(environment: None, mail: Queue, queue: Queue):
    mail.send_many([b"x"] * 1000)
    words = [SCRIPT, "message", "move", "-n", "mail", "--to", "jobs", "--rate", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as moving:
        wait_until(lambda: queue.attributes().messages)
        moving.send_signal(signal.SIGINT)
        output, errors = moving.communicate(timeout=180)

    assert (moving.returncode, output) == (130, "")
    assert errors.startswith("Error: interrupted; ")
    assert "the same command continues with the rest" in errors
    assert mail.attributes().messages + queue.attributes().messages == 1000


@pytest.mark.slow
def test_transfers_of_a_second_process_meanwhile_double_nothing(environment: None, mail: Queue, queue: Queue):
    mail.send_many(f"{n}" for n in range(5000))
    words = [SCRIPT, "message", "redrive", "-n", "mail", "--to", "jobs"]

    both = [subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ) for _ in range(2)]
    assert [process.wait(180) for process in both] == [0, 0]

    assert sorted(map(int, bodies(queue))) == list(range(5000))
