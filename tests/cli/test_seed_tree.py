"""The tree of commands that scripts for the first rsmqctl rely on: same flags, same output, same exit codes."""

import json
import os
import re
from collections.abc import Callable

import pytest

from rsmq_django.core import Client, Queue
from tests.cli.conftest import Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]

ID = re.compile(r"[0-9a-z]{10}[0-9A-Za-z]{22}\n")


# -- The transcripts of the storage format's description, as the installed script ----------------------------------


def test_session_of_the_storage_format_description(script: Run):
    assert script("queue", "list").output == "[]\n"

    created = script("queue", "create", "-n", "test-queue")
    assert (created.exit_code, created.output, created.errors) == (0, "", "")
    assert script("queue", "list").output == '["test-queue"]\n'

    sent = script("message", "send", "-n", "test-queue", "-m", "Hello, World")
    assert ID.fullmatch(sent.output)
    message_id = sent.output.strip()

    received = script("message", "receive", "-n", "test-queue")
    ts = received.json["ts"]
    assert received.output == f'{{"id": "{message_id}", "message": "Hello, World", "rc": 1, "ts": {ts}}}\n'

    changed = script("message", "visibility", "-n", "test-queue", "-i", message_id, "-t", "600")
    assert changed.output == f"Message ID: {message_id} visibility timeout set to 600s\n"


@pytest.mark.slow
def test_long_flags_mean_the_same(rsmqctl: Run):
    options = ("--visibility-timeout", "5", "--delay", "0", "--maxsize", "65535")
    assert rsmqctl("queue", "create", "--name", "q", *options).exit_code == 0

    assert rsmqctl("message", "send", "--name", "q", "--message", "x", "--delay", "0").exit_code == 0
    message_id = rsmqctl("message", "receive", "--name", "q", "--visibility-timeout", "9").json["id"]
    flags = ("--name", "q", "--message-id", message_id)
    assert rsmqctl("message", "visibility", *flags, "--visibility-timeout", "0").exit_code == 0
    assert rsmqctl("message", "delete", *flags).exit_code == 0
    assert rsmqctl("message", "pop", "--name", "q").exit_code == 0
    assert rsmqctl("queue", "describe", "--name", "q").json["maxsize"] == 65535
    assert rsmqctl("queue", "delete", "--name", "q").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-r", "--redis-url", "--url"])
def test_server_is_named_by_a_flag_or_by_the_environment(
    rsmqctl: Run, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, flag: str
):
    rsmqctl("queue", "create", "-n", "here")
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")

    assert rsmqctl(flag, server.url, "queue", "list").output == '["here"]\n'
    assert rsmqctl("queue", "list").exit_code == 1


# -- Each command ---------------------------------------------------------------------------------------------------


def test_list_is_sorted(rsmqctl: Run):
    for name in ("b", "a", "C"):
        rsmqctl("queue", "create", "-n", name)

    assert rsmqctl("queue", "list").output == '["C", "a", "b"]\n'


def test_create_without_flags_uses_the_defaults_of_the_reference(rsmqctl: Run, client: Client):
    rsmqctl("queue", "create", "-n", "q")

    attributes = Queue("q", client).attributes()
    assert (attributes.visibility_timeout_s, attributes.delay_s, attributes.max_size_bytes) == (30, 0, 65536)


def test_describe_prints_the_attributes_in_their_order_and_form(rsmqctl: Run, queue: Queue):
    queue.send(b"x", delay_s=60)
    queue.send(b"y")
    queue.receive()
    queue.send(b"z")

    described = rsmqctl("queue", "describe", "-n", "jobs")

    created = described.json["created"]
    assert described.output == (
        '{"vt": 30.0, "delay": 0.0, "maxsize": 65536, "totalrecv": 1, "totalsent": 3, '
        f'"created": {created}, "modified": {created}, "msgs": 3, "hiddenmsgs": 2}}\n'
    )
    assert isinstance(created, int)


def test_delete_prints_nothing_and_takes_the_messages_along(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    deleted = rsmqctl("queue", "delete", "-n", "jobs")

    assert (deleted.exit_code, deleted.output, deleted.errors) == (0, "", "")
    assert rsmqctl("queue", "list").output == "[]\n"


@pytest.mark.parametrize("command", ["receive", "pop"])
def test_empty_queue_is_reported_on_stdout_and_succeeds(rsmqctl: Run, queue: Queue, command: str):
    empty = rsmqctl("message", command, "-n", "jobs")

    assert (empty.exit_code, empty.output, empty.errors) == (0, "No messages on queue: jobs\n", "")


def test_pop_prints_and_removes(rsmqctl: Run, queue: Queue):
    message_id = queue.send("grüße")

    popped = rsmqctl("message", "pop", "-n", "jobs")

    assert popped.json == {"id": message_id, "message": "grüße", "rc": 1, "ts": popped.json["ts"]}
    assert popped.errors == ""
    assert queue.attributes().messages == 0


def test_ts_is_the_time_of_the_first_receive(rsmqctl: Run, queue: Queue):
    queue.send(b"x")
    first = rsmqctl("message", "receive", "-n", "jobs", "-t", "0").json

    again = next(
        found for _ in range(1000) if (found := rsmqctl("message", "receive", "-n", "jobs", "-t", "0").json)["rc"] > 3
    )

    assert again["ts"] == first["ts"]


def test_delete_of_a_message_prints_nothing(rsmqctl: Run, queue: Queue):
    message_id = queue.send(b"x")

    deleted = rsmqctl("message", "delete", "-n", "jobs", "-i", message_id)

    assert (deleted.exit_code, deleted.output, deleted.errors) == (0, "", "")
    assert queue.attributes().messages == 0


# -- Failures: exit 1, one line on stderr, which names the thing ----------------------------------------------------

UNKNOWN = "x" * 32


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "delete", "-n", "nope"),
        ("queue", "describe", "-n", "nope"),
        ("message", "send", "-n", "nope", "-m", "x"),
        ("message", "receive", "-n", "nope"),
        ("message", "pop", "-n", "nope"),
        ("message", "delete", "-n", "nope", "-i", UNKNOWN),
        ("message", "visibility", "-n", "nope", "-i", UNKNOWN, "-t", "1"),
    ],
    ids=" ".join,
)
def test_queue_that_is_not_there_fails_in_one_line(rsmqctl: Run, words: tuple[str, ...]):
    failed = rsmqctl(*words)

    assert (failed.exit_code, failed.output) == (1, "")
    assert re.fullmatch(r"Error: queue not found: nope; create it, [^\n]+\n", failed.errors)


def test_existing_queue_is_not_created_again(rsmqctl: Run, queue: Queue):
    failed = rsmqctl("queue", "create", "-n", "jobs", "-t", "5")

    assert (failed.exit_code, failed.output) == (1, "")
    assert re.fullmatch(r"Error: queue exists: jobs; [^\n]+\n", failed.errors)
    assert queue.attributes().visibility_timeout_s == 30


@pytest.mark.parametrize("words", [("delete",), ("visibility", "-t", "1")], ids=str)
def test_message_that_is_not_there_fails_in_one_line(rsmqctl: Run, queue: Queue, words: tuple[str, ...]):
    failed = rsmqctl("message", *words, "-n", "jobs", "-i", UNKNOWN)

    assert (failed.exit_code, failed.output) == (1, "")
    assert re.fullmatch(rf"Error: message not found: {UNKNOWN}; [^\n]+\n", failed.errors)


def test_error_of_a_too_long_message_has_its_size_and_the_limit(rsmqctl: Run, queue: Queue):
    queue.set_attributes(max_size_bytes=1024)

    failed = rsmqctl("message", "send", "-n", "jobs", "-m", "x" * 1025)

    assert failed.exit_code == 1
    assert failed.errors.startswith("Error: message too long: 1025 bytes, maximum 1024; 'queue set -n jobs -m -1'")


# -- Mistakes in the command line: exit 2 with a usage text ---------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "create"),
        ("queue", "create", "-n", "q", "-t", "soon"),
        ("queue", "create", "-n", "q", "-t", "0.5"),
        ("queue", "create", "-n", "q", "--colour", "red"),
        ("queue", "crate", "-n", "q"),
        ("message", "send", "-n", "q"),
        ("message", "visibility", "-n", "q", "-i", UNKNOWN),
        ("message", "delete", "-n", "q"),
        ("--bogus", "queue", "list"),
    ],
    ids=" ".join,
)
def test_mistakes_in_the_command_line_exit_2_with_the_usage(rsmqctl: Run, words: tuple[str, ...]):
    wrong = rsmqctl(*words)

    assert (wrong.exit_code, wrong.output) == (2, "")
    assert wrong.errors.startswith("Usage: rsmqctl ")


@pytest.mark.parametrize("words", [(), ("queue",), ("message",), ("queue", "create"), ("message", "send")], ids=str)
def test_every_level_has_help(rsmqctl: Run, words: tuple[str, ...]):
    shown = rsmqctl(*words, "--help")

    assert (shown.exit_code, shown.errors) == (0, "")
    assert shown.output.startswith(f"Usage: rsmqctl {' '.join(words)}".strip())


# -- The thirteen faults of the first rsmqctl -----------------------------------------------------------------------


def test_1_send_without_delay_takes_the_queues_own(rsmqctl: Run, client: Client):
    rsmqctl("queue", "create", "-n", "slow", "-d", "60")

    rsmqctl("message", "send", "-n", "slow", "-m", "x")
    assert Queue("slow", client).attributes().hidden_messages == 1

    rsmqctl("message", "send", "-n", "slow", "-m", "x", "-d", "0")
    assert Queue("slow", client).attributes().hidden_messages == 1


def test_2_receive_with_a_timeout_of_zero_hides_nothing(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    rsmqctl("message", "receive", "-n", "jobs", "-t", "0")

    assert queue.attributes().hidden_messages == 0


def test_3_negative_timeout_is_refused_with_the_range(rsmqctl: Run):
    failed = rsmqctl("queue", "create", "-n", "q", "-t", "-5")

    assert failed.exit_code == 1
    assert failed.errors == "Error: --visibility-timeout is -5; it must be whole seconds between 0 and 9999999\n"
    assert rsmqctl("queue", "list").output == "[]\n"


@pytest.mark.parametrize("name", ["a b", "a:b", "ümlaut", "", "a\n", "x" * 161])
def test_4_bad_queue_name_fails_on_stderr_only(rsmqctl: Run, name: str):
    failed = rsmqctl("queue", "create", "-n", name)

    assert (failed.exit_code, failed.output) == (1, "")
    assert failed.errors.startswith(f"Error: invalid queue name: {name!r}; use 1 to 160 characters")
    assert failed.errors.count("\n") == 1


def test_5_verbose_create_works(rsmqctl: Run):
    created = rsmqctl("-v", "queue", "create", "-n", "q")

    assert (created.exit_code, created.output, created.errors) == (0, "", "")


@pytest.mark.slow
def test_6_unreachable_server_is_one_line_without_the_password(script: Run):
    failed = script("queue", "list", REDIS_URL="redis://user:geheim@127.0.0.1:1/0")

    assert (failed.exit_code, failed.output) == (1, "")
    assert failed.errors.startswith("Error: cannot connect to redis://user:***@127.0.0.1:1/0")
    assert failed.errors.count("\n") == 1
    assert "geheim" not in failed.errors


def test_7_pop_leaks_no_warning(script: Run, queue: Queue):
    queue.send(b"x")

    assert script("message", "pop", "-n", "jobs", PYTHONWARNINGS="error").errors == ""


def test_8_empty_body_is_sent(rsmqctl: Run, queue: Queue):
    sent = rsmqctl("message", "send", "-n", "jobs", "-m", "")

    assert ID.fullmatch(sent.output)
    assert rsmqctl("message", "receive", "-n", "jobs").json["message"] == ""


@pytest.mark.parametrize("command", ["receive", "pop", "peek"])
def test_9_body_that_is_not_utf8_is_printed_as_base64(rsmqctl: Run, queue: Queue, command: str):
    queue.send(b"\xff\x00\xfe")

    printed = rsmqctl("message", command, "-n", "jobs")

    assert printed.exit_code == 0
    assert (printed.json["message"], printed.json["encoding"]) == ("/wD+", "base64")


def test_10_message_of_the_current_second_is_not_hidden(rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    assert rsmqctl("queue", "describe", "-n", "jobs").json["hiddenmsgs"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "describe"),
        ("message", "send", "-m", "x"),
        ("message", "receive"),
        ("message", "pop"),
        ("message", "delete", "-i", "FOUND"),
        ("message", "visibility", "-i", "FOUND", "-t", "5"),
    ],
    ids=" ".join,
)
def test_11_command_is_one_round_trip(rsmqctl: Run, queue: Queue, server: PrivateServer, words: tuple[str, ...]):
    message_id = queue.send(b"x")
    filled = [word.replace("FOUND", message_id) for word in words]
    rsmqctl(*filled, "-n", "jobs")  # the server knows the script from now on
    filled = [word.replace("FOUND", queue.send(b"x")) for word in words]
    server.redis.config_resetstat()

    assert rsmqctl(*filled, "-n", "jobs").exit_code == 0

    statistics = server.redis.info("commandstats")
    assert statistics["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in statistics


def test_12_default_maximum_size_is_that_of_the_reference(rsmqctl: Run):
    rsmqctl("queue", "create", "-n", "q")

    assert rsmqctl("queue", "describe", "-n", "q").json["maxsize"] == 65536


def test_13_namespaces_are_apart(rsmqctl: Run, server: PrivateServer):
    rsmqctl("--ns", "shop", "queue", "create", "-n", "q")

    assert rsmqctl("queue", "list").output == "[]\n"
    assert rsmqctl("--ns", "shop", "queue", "list").output == '["q"]\n'
    assert server.redis.exists("shop:QUEUES")


@pytest.mark.slow
def test_argument_that_is_not_utf8_is_sent_unchanged(environment: None, queue: Queue):
    import subprocess

    from tests.cli.conftest import SCRIPT

    subprocess.run(
        [os.fsencode(SCRIPT), b"message", b"send", b"-n", b"jobs", b"-m", b"\xff\xfe"], check=True, capture_output=True
    )

    received = queue.receive()
    assert received is not None
    assert received.body == b"\xff\xfe"


def test_output_is_ascii_and_json(rsmqctl: Run, queue: Queue):
    queue.send("\x1b[31m\u202e grün 🎉")

    printed = rsmqctl("message", "receive", "-n", "jobs")

    assert printed.output.isascii()
    assert json.loads(printed.output)["message"] == "\x1b[31m\u202e grün 🎉"


# -- What differs from the first rsmqctl ---------------------------------------------------------------------------


def test_body_above_the_maximum_is_refused(script: Run):
    script("queue", "create", "-n", "small", "-m", "1024")

    sent = script("message", "send", "-n", "small", "-m", "x" * 1025)

    assert (sent.exit_code, sent.output) == (1, "")
    assert sent.errors.startswith("Error: message too long: 1025 bytes, maximum 1024")


def test_pop_of_an_empty_queue_warns_of_nothing(script: Run):
    script("queue", "create", "-n", "empty")

    popped = script("message", "pop", "-n", "empty")

    assert (popped.exit_code, popped.output, popped.errors) == (0, "No messages on queue: empty\n", "")


@pytest.mark.parametrize("words", [(), ("queue",), ("message",)])
def test_without_a_subcommand_the_help_is_on_stderr_and_the_exit_code_is_2(script: Run, words: tuple[str, ...]):
    asked = script(*words)

    assert (asked.exit_code, asked.output) == (2, "")
    assert asked.errors.startswith("Usage: ")
