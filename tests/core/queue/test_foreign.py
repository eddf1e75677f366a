"""What clients in other languages store, replayed byte for byte: our methods read it and never crash.

Each case names the client whose habit it replays.
"""

import pytest

from rsmq_django.core import Client, Queue, list_queues
from rsmq_django.core.errors import BrokenQueue, LeaseLost
from tests.redis_server import PrivateServer

PLAIN = {"vt": "30", "delay": "0", "maxsize": "65536", "created": "1645019600", "modified": "1645019601"}
GOOD_ID = "g73zkl38qz" + "AbCdEfGhIjKlMnOpQrStUv"


def foreign_queue(server: PrivateServer, client: Client, **fields: str | None) -> Queue:
    """Write a queue as another client would; a field of None is left out."""
    stored = {name: value for name, value in {**PLAIN, **fields}.items() if value is not None}
    server.redis.hset("rsmq:foreign:Q", mapping=stored)
    server.redis.sadd("rsmq:QUEUES", "foreign")
    return Queue("foreign", client)


def add_message(server: PrivateServer, *, message_id: str = GOOD_ID, body: bytes = b"x", **fields: str) -> None:
    server.redis.zadd("rsmq:foreign", {message_id: server.redis.time()[0] * 1000 - 10_000})
    server.redis.hset(
        "rsmq:foreign:Q", mapping={message_id: body, **{f"{message_id}:{k}": v for k, v in fields.items()}}
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"created": None, "modified": None}, (None, None), id="rsmqx: none"),
        pytest.param({"created": "2026-03-01T12:00:00Z"}, (1772366400, 1645019601), id="ebuckley: RFC 3339"),
        pytest.param({"created": "2026-03-01T13:00:00+01:00"}, (1772366400, 1645019601), id="ebuckley: with offset"),
        pytest.param({"modified": "1645019601123"}, (1645019600, 1645019601.123), id="semihbkgr: milliseconds"),
        pytest.param({"created": "soon", "modified": ""}, (None, None), id="nonsense"),
        pytest.param({"created": "1e999", "modified": "nan"}, (None, None), id="no finite number"),
    ],
)
def test_times_in_every_known_form_are_read(
    server: PrivateServer, client: Client, fields: dict[str, str | None], expected: tuple[float | None, float | None]
):
    attributes = foreign_queue(server, client, **fields).attributes()

    assert (attributes.created_s, attributes.modified_s) == expected


@pytest.mark.parametrize("created", ["2026-03-01T12:00:00.123456789Z", "2026-03-01T12:00:00.123456789+00:00"])
def test_times_with_nanoseconds_are_read(server: PrivateServer, client: Client, created: str):
    # ebuckley writes Go's RFC 3339 text.
    attributes = foreign_queue(server, client, created=created).attributes()

    assert attributes.created_s == pytest.approx(1772366400.123456)


def test_float_attributes_keep_their_fraction(server: PrivateServer, client: Client):
    # PyRSMQ stores floats.
    queue = foreign_queue(server, client, vt="0.5", delay="1.5")

    attributes = queue.attributes()
    assert (attributes.visibility_timeout_s, attributes.delay_s) == (0.5, 1.5)


def test_float_visibility_timeout_hides_for_that_fraction(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client, vt="0.5")
    add_message(server)

    message = queue.receive()

    assert message is not None and message.first_received_ms is not None
    assert server.redis.zscore("rsmq:foreign", message.id) == message.first_received_ms + 500


def test_float_delay_delays_by_that_fraction(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client, delay="1.5")

    message_id = queue.send(b"x")

    assert server.redis.zscore("rsmq:foreign", message_id) == int(message_id[:10], 36) // 1000 + 1500


def test_maxsize_above_the_limit_of_the_format_is_read(server: PrivateServer, client: Client):
    # PyRSMQ's default is a typo: 65565.
    queue = foreign_queue(server, client, maxsize="65565")

    queue.send(b"x" * 65_565)

    assert queue.attributes().max_size_bytes == 65_565


def test_totals_of_zero_are_read(server: PrivateServer, client: Client):
    attributes = foreign_queue(server, client, totalsent="0", totalrecv="0").attributes()

    assert (attributes.total_sent, attributes.total_received) == (0, 0)


def test_milliseconds_in_vt_are_read_unchanged(server: PrivateServer, client: Client):
    # rsmq_async up to 18. The hash alone cannot tell 30000 ms from 30000 s.
    assert foreign_queue(server, client, vt="30000").attributes().visibility_timeout_s == 30_000


def test_attributes_that_are_not_numbers_do_not_break_the_description(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client, vt="abc", delay="", maxsize="big", totalsent="x", totalrecv="-")

    assert queue.attributes().messages == 0


def test_visibility_timeout_that_is_not_a_number_is_reported_and_takes_nothing(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client, vt="abc")
    add_message(server)

    with pytest.raises(BrokenQueue, match="(?s)foreign.*abc"):
        queue.receive()

    message = queue.receive(visibility_timeout_s=30)
    assert message is not None and message.receive_count == 1


@pytest.mark.parametrize(
    ("message_id", "sent_ms"),
    [
        pytest.param(GOOD_ID, 1645019600667.659, id="32 characters"),
        pytest.param("AbCdEfGhIjKlMnOpQrStUv", None, id="ebuckley: 22 characters, no time"),
        pytest.param("kz1q8d4y" + "AbCdEfGhIjKlMnOpQrStUv", None, id="rsmq_async 8: 30 characters"),
        pytest.param("6f1e1c5a-7b0e-4a5e-9d5b-1f0b2c3d4e5f", None, id="rsmq4s: UUID"),
        pytest.param("zzzzzzzzzz" + "AbCdEfGhIjKlMnOpQrStUv", None, id="a time in the far future"),
        pytest.param("0000000001" + "AbCdEfGhIjKlMnOpQrStUv", None, id="a time before RSMQ"),
        pytest.param("grüß", None, id="not ASCII"),
        pytest.param("x", None, id="one character"),
    ],
)
def test_messages_with_every_known_kind_of_id_are_received_extended_and_deleted(
    server: PrivateServer, client: Client, message_id: str, sent_ms: float | None
):
    queue = foreign_queue(server, client)
    add_message(server, message_id=message_id, body=b"hello")

    message = queue.receive()

    assert message is not None
    assert (message.id, message.body, message.sent_ms) == (message_id, b"hello", sent_ms)
    assert queue.change_visibility(message, 60) is True
    assert queue.delete(message) is True
    assert queue.attributes().messages == 0


def test_message_whose_id_is_not_valid_utf8_can_be_received_and_deleted(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client)
    server.redis.zadd("rsmq:foreign", {b"\xff\xfe": 1})
    server.redis.hset("rsmq:foreign:Q", b"\xff\xfe", b"hello")

    message = queue.receive()

    assert message is not None and message.body == b"hello"
    assert queue.delete(message) is True
    assert queue.attributes().messages == 0


@pytest.mark.parametrize(
    ("first_received", "expected"),
    [("1645019600667", 1645019600667), ("1645019600667123", 1645019600667), ("1.645019600667e12", 1645019600667)],
)
def test_first_receive_is_read_in_milliseconds_and_microseconds(
    server: PrivateServer, client: Client, first_received: str, expected: int
):
    queue = foreign_queue(server, client)
    add_message(server, rc="1", fr=first_received)

    message = queue.receive()

    assert message is not None
    assert (message.receive_count, message.first_received_ms) == (2, expected)


def test_first_receive_that_is_missing_stays_unknown(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client)
    add_message(server, rc="4")

    message = queue.receive()

    assert message is not None
    assert (message.receive_count, message.first_received_ms) == (5, None)


@pytest.mark.parametrize("count", ["1e20", "99999999999999999999", "nan", "inf", "-3", "1.5", "many", ""])
def test_invalid_receive_count_restarts_and_distinguishes_leases(server: PrivateServer, client: Client, count: str):
    queue = foreign_queue(server, client)
    add_message(server, rc=count)

    first = queue.receive(visibility_timeout_s=0)
    second = queue.receive_many(5)

    assert first is not None and [first.receive_count, *(message.receive_count for message in second)] == [1, 2]
    with pytest.raises(LeaseLost):
        queue.delete(first)
    assert queue.delete(second[0])


def test_orphaned_counts_and_foreign_fields_are_left_alone(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client, createdby="go", msgs="3", hiddenmsgs="0")
    orphans = {"x" * 32 + ":rc": "2", "x" * 32 + ":fr": "1645019600667", "y" * 32: "a body that nothing points at"}
    server.redis.hset("rsmq:foreign:Q", mapping=orphans)
    add_message(server, meta='{"a": 1}')

    message = queue.receive()
    assert message is not None
    queue.delete(message)

    left = server.redis.hgetall("rsmq:foreign:Q")
    assert {field.decode() for field in left} >= {"createdby", "msgs", "hiddenmsgs", *orphans, f"{GOOD_ID}:meta"}


@pytest.mark.parametrize("unit", [1, 1_000_000], ids=["seconds", "microseconds"])
def test_scores_in_foreign_units_do_not_crash(server: PrivateServer, client: Client, unit: int):
    queue = foreign_queue(server, client)
    server.redis.zadd("rsmq:foreign", {GOOD_ID: server.redis.time()[0] * unit})
    server.redis.hset("rsmq:foreign:Q", GOOD_ID, "x")

    # Seconds look like the distant past, so the message is ready; microseconds like the distant future.
    assert (queue.receive() is not None) == (unit == 1)
    assert queue.attributes().messages == 1


@pytest.mark.parametrize("score", ["inf", "-inf"])
def test_infinite_scores_do_not_crash(server: PrivateServer, client: Client, score: str):
    queue = foreign_queue(server, client)
    server.redis.zadd("rsmq:foreign", {GOOD_ID: float(score)})
    server.redis.hset("rsmq:foreign:Q", GOOD_ID, "x")

    assert (queue.receive() is not None) == (score == "-inf")
    assert queue.attributes().messages == 1


def test_bare_id_of_a_foreign_form_is_refused_while_its_receipt_works(server: PrivateServer, client: Client):
    queue = foreign_queue(server, client)
    add_message(server, message_id="AbCdEfGhIjKlMnOpQrStUv")
    message = queue.receive()
    assert message is not None

    with pytest.raises(ValueError, match="32 characters"):
        queue.delete(message.id)

    assert queue.delete(message) is True


def test_queue_with_a_name_that_only_pyrsmq_allows_is_listed(server: PrivateServer, client: Client):
    server.redis.hset("rsmq:a b:Q", mapping=PLAIN)
    server.redis.sadd("rsmq:QUEUES", "a b", "trailing\n")

    assert list_queues(client) == ["a b", "trailing\n"]
