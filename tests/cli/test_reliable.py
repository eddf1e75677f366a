"""`rsmqctl reliable`: a reliable queue from the command line."""

import base64
from collections.abc import Callable

import pytest

from rsmq_django.core import Client
from rsmq_django.core.reliable import ReliableQueue, list_reliable_queues
from tests.cli.conftest import Result
from tests.redis_server import PrivateServer

Run = Callable[..., Result]


@pytest.fixture
def orders(client: Client) -> ReliableQueue:
    return ReliableQueue("orders", client)


def test_message_is_pushed_popped_and_acknowledged(rsmqctl: Run, orders: ReliableQueue):
    pushed = rsmqctl("reliable", "push", "--create", "-n", "orders", "-m", "order 7")

    popped = rsmqctl("reliable", "pop", "-n", "orders")
    message = popped.json
    acked = rsmqctl("reliable", "ack", "-n", "orders", "-i", message["receipt"])

    assert pushed.output.strip() == message["id"]
    assert (message["queue"], message["message"], message["deliveries"]) == ("orders", "order 7", 1)
    assert (acked.exit_code, acked.output, acked.errors) == (0, "", "")
    assert orders.info() == ["undelivered", 0, "delivered", 0]


def test_push_to_a_queue_that_does_not_exist_names_the_nearest_one(rsmqctl: Run, orders: ReliableQueue, client: Client):
    orders.push("1")

    misspelt = rsmqctl("reliable", "push", "-n", "ordres", "-m", "a")
    other = rsmqctl("reliable", "push", "-n", "stock", "-m", "a")

    assert (misspelt.exit_code, misspelt.errors) == (
        1,
        "Error: reliable queue not found: ordres; did you mean orders?\n",
    )
    assert other.exit_code == 1 and "'reliable push --create' creates one" in other.errors
    assert list_reliable_queues(client) == ["orders"]
    assert rsmqctl("reliable", "push", "-n", "orders", "-m", "a").exit_code == 0


def test_first_queue_comes_first_and_the_count_is_a_total(rsmqctl: Run, client: Client):
    ReliableQueue("hi", client).push("1", "2")
    ReliableQueue("lo", client).push("3", "4")

    popped = rsmqctl("reliable", "pop", "-n", "hi", "-n", "lo", "-c", "3", "--consumer", "anna").json_lines

    assert [(line["queue"], line["message"]) for line in popped] == [("hi", "1"), ("hi", "2"), ("lo", "3")]
    assert ReliableQueue("hi", client).statistics().consumers == {"anna": 2}


def test_pop_from_an_empty_queue_is_not_an_error(rsmqctl: Run):
    assert rsmqctl("reliable", "pop", "-n", "a", "-n", "b", "--wait", "0.05").output == "No messages on: a, b\n"
    assert rsmqctl("--json", "reliable", "pop", "-n", "a").json is None
    assert rsmqctl("reliable", "recover", "-n", "a", "-e", "0").output == "No messages to recover on: a\n"


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["-m", "a", "-m", "b"], b"", [b"a", b"b"]),
        (["--stdin"], b"two\nlines", [b"two\nlines"]),
        (["--lines"], b"one\r\n\ntwo\n", [b"one", b"two"]),
    ],
)
def test_bodies_come_from_options_or_input(
    rsmqctl: Run, orders: ReliableQueue, words: list[str], stdin: bytes, expected: list[bytes]
):
    done = rsmqctl("reliable", "push", "--create", "-n", "orders", *words, "--json", stdin=stdin)

    assert [line["id"] for line in done.json_lines] == [row[0] for row in orders.inspect(0, 9)]
    assert [row[1] for row in orders.inspect(0, 9)] == expected


def test_thousands_of_lines_keep_their_order(rsmqctl: Run, orders: ReliableQueue):
    rsmqctl("reliable", "push", "--create", "-n", "orders", "--lines", stdin=b"\n".join(b"%d" % n for n in range(2500)))

    assert [int(row[1]) for row in orders.inspect(0, 1000) + orders.inspect(2400, 100)] == [
        *range(1000),
        *range(2400, 2500),
    ]


def test_body_that_is_not_a_text_is_shown_in_base64(rsmqctl: Run, orders: ReliableQueue):
    orders.push(b"\xff\x00")

    shown = rsmqctl("reliable", "inspect", "-n", "orders", "--json").json

    assert shown["encoding"] == "base64" and base64.b64decode(shown["message"]) == b"\xff\x00"


def test_released_messages_wait_or_are_next(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a", "b")
    a, b = [message.id for message in orders.pop_messages(2)]

    assert rsmqctl("reliable", "nack", "-n", "orders", "-i", a, "--unused").exit_code == 0
    later = rsmqctl("reliable", "nack", "-n", "orders", "-i", b, "-d", "60", "--json")

    assert later.json == {"queue": "orders", "given_back": [b]}
    assert [m.attempt for m in orders.pop_messages(5)] == [1]
    assert [m.body for m in orders.messages("delayed")] == [b"b"]


def test_messages_of_dead_consumers_are_recovered(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a")
    orders.pop()

    recovered = rsmqctl("reliable", "recover", "-n", "orders", "-e", "0", "-c", "5").json

    assert (recovered["message"], recovered["deliveries"]) == ("a", 2)
    assert rsmqctl("reliable", "recover", "-n", "orders", "-e", "60").output.startswith("No messages")


def test_receipt_that_is_not_good_any_more_is_named_and_the_others_are_done(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a", "b")
    first, second = orders.pop_messages(2)
    orders.recover(1, 0)

    done = rsmqctl("reliable", "ack", "-n", "orders", "-i", first.receipt, "-i", second.receipt, "-i", "zzz", "--json")

    assert done.exit_code == 1 and done.json == {"queue": "orders", "acknowledged": [second.id]}
    assert '"messageNotFound"' in done.errors and f"{first.receipt}, zzz" in done.errors
    assert orders.info() == ["undelivered", 0, "delivered", 1]


def test_dead_messages_are_seen_and_get_another_chance(rsmqctl: Run, orders: ReliableQueue):
    rsmqctl("reliable", "set", "-n", "orders", "--max-deliveries", "1")
    orders.push("a", "b")
    taken = orders.pop_messages(2)
    rsmqctl("reliable", "nack", "-n", "orders", "-i", taken[0].receipt, "-i", taken[1].id)

    shown = rsmqctl("reliable", "inspect", "-n", "orders", "--kind", "dead")
    one = rsmqctl("reliable", "redrive", "-n", "orders", "-i", taken[1].id)
    rest = rsmqctl("reliable", "redrive", "-n", "orders", "--count", "9")
    missing = rsmqctl("reliable", "redrive", "-n", "orders", "-i", taken[1].id)

    header, *rows = shown.output.splitlines()
    assert header.split() == ["ID", "TRIES", "SINCE", "CONSUMER", "BODY"] and len(rows) == 2
    assert one.exit_code == 0 and rest.output == "redriven 1 message of orders\n"
    assert missing.exit_code == 1 and "--kind dead" in missing.errors
    assert [m.body for m in orders.messages("undelivered")] == [b"b", b"a"]


def test_extended_message_is_left_alone(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a")
    message = orders.pop_messages()[0]

    rsmqctl("reliable", "extend", "-n", "orders", "-i", message.receipt, "-s", "90")

    assert orders.recover(1, 0) == []
    assert "in 1m" in rsmqctl("reliable", "inspect", "-n", "orders", "--kind", "delivered").output


def test_numbers_and_names_of_queues(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a", "b")
    orders.pop()

    numbers = rsmqctl("reliable", "info", "-n", "orders").json

    assert rsmqctl("reliable", "list").json == ["orders"]
    assert (numbers["undelivered"], numbers["delivered"], numbers["total_pushed"]) == (1, 1, 2)
    assert numbers["deliveries"] == {"1": 1}
    assert list(numbers) == [
        "queue", "undelivered", "delayed", "delivered", "dead", "oldest_delivery_ms", "total_pushed", "total_popped",
        "total_acked", "total_recovered", "total_nacked", "total_buried", "max_deliveries", "deliveries", "consumers",
    ]  # fmt: skip


def test_queue_with_messages_is_deleted_only_when_that_is_meant(rsmqctl: Run, orders: ReliableQueue):
    orders.push("a")

    asked = rsmqctl("reliable", "delete", "-n", "orders")
    done = rsmqctl("reliable", "delete", "-n", "orders", "--yes", "--json")

    assert asked.exit_code == 1 and "1 message" in asked.errors
    assert done.json == {"queue": "orders", "deleted": True}
    gone = rsmqctl("reliable", "info", "-n", "orders")
    assert gone.exit_code == 1 and "not found: orders; 'reliable push --create' creates it" in gone.errors


def test_functions_are_loaded_for_other_languages(rsmqctl: Run, orders: ReliableQueue, server: PrivateServer):
    said = rsmqctl("reliable", "load-functions")

    assert "rq_push" in said.output
    assert len(server.redis.execute_command("FCALL", "rq_push", 9, *orders.keys, 0, "a")) == 1


@pytest.mark.parametrize(
    ("words", "exit_code", "complaint"),
    [
        (["push", "-n", "orders"], 2, "Missing option '-m'"),
        (["push", "-n", "orders", "-m", "a", "--stdin"], 2, "only one of"),
        (["push", "-n", "a:b", "-m", "a"], 1, "invalid queue name: 'a:b'"),
        (["push", "--create", "-n", "orders", "-m", "a", "-d", "-1"], 1, "--delay is -1"),
        (["pop", "-n", "orders", "-c", "0"], 2, "1<=x<=1000"),
        (["pop", "-n", "orders", "-c", "many"], 2, "not a valid integer"),
        (["recover", "-n", "orders", "-e", "-5"], 1, "elapsed_ms"),
        (["inspect", "-n", "orders", "--kind", "lost"], 2, "undelivered"),
        (["inspect", "-n", "orders"], 1, "reliable queue not found: orders; 'reliable push --create' creates it"),
        (["ack", "-n", "orders", "-i", "zzz"], 1, "not acknowledged: zzz"),
        (["redrive", "-n", "orders"], 2, "either -i or --count"),
        (["set", "-n", "orders", "--max-deliveries", "-1"], 2, "x>=0"),
    ],
)
def test_mistake_is_explained(rsmqctl: Run, words: list[str], exit_code: int, complaint: str):
    said = rsmqctl("reliable", *words)

    assert said.exit_code == exit_code and complaint in said.errors


def test_key_of_another_program_is_reported(rsmqctl: Run, server: PrivateServer):
    server.redis.set("rsmq::reliable:orders:state", "foreign")

    said = rsmqctl("reliable", "pop", "-n", "orders")

    assert said.exit_code == 1 and "wrong type" in said.errors


def test_help_shows_the_way_of_a_message(rsmqctl: Run):
    said = rsmqctl("reliable", "--help")

    assert all(f"rsmqctl reliable {command} " in said.output for command in ("push", "pop", "ack"))
    assert "in flight until it is acknowledged" in " ".join(said.output.split())
