"""Message ids: their form, the time in them, and the probability of two equal ones."""

import re
import string
from collections import Counter

import pytest

from rsmq_django.core import Message, Queue
from rsmq_django.core.errors import InvalidMessageId
from rsmq_django.core.ids import checked_id, random_suffix, random_suffixes, sent_ms
from tests.redis_server import PrivateServer

SUFFIX = "AbCdEfGhIjKlMnOpQrStUv"


def test_id_has_ten_digits_of_time_and_22_random_characters(queue: Queue):
    message_id = queue.send(b"x")

    assert re.fullmatch(r"[0-9a-z]{10}[A-Za-z0-9]{22}", message_id)


def test_time_in_an_id_is_the_time_of_the_server_in_microseconds(server: PrivateServer, queue: Queue):
    before_s, before_us = server.redis.time()
    message_id = queue.send(b"x")
    after_s, after_us = server.redis.time()

    assert before_s * 1_000_000 + before_us <= int(message_id[:10], 36) <= after_s * 1_000_000 + after_us


def test_sent_time_of_a_known_id():
    assert sent_ms("g73zkl38qz" + SUFFIX) == 1645019600667.659


def test_capital_digits_carry_the_same_time():
    assert sent_ms("G73ZKL38QZ" + SUFFIX) == 1645019600667.659


@pytest.mark.parametrize(
    "message_id",
    [
        "",
        SUFFIX,
        "g73zkl38qz",
        "g73zkl38qz" + SUFFIX + "x",
        "g73zkl38qz" + SUFFIX[:-1],
        "0000000000" + SUFFIX,
        "zzzzzzzzzz" + SUFFIX,
        "g73zkl38q:" + SUFFIX,
        "+73zkl38qz" + SUFFIX,
        " 73zkl38qz" + SUFFIX,
        "g7_zkl38qz" + SUFFIX,
        "g73zkl38q٣" + SUFFIX,
    ],
)
def test_ids_without_a_plausible_time_have_none(message_id: str):
    assert sent_ms(message_id) is None
    assert Message(message_id, b"", 1, None).sent_ms is None


def test_id_of_a_reliable_queue_has_the_time_of_its_push_in_milliseconds():
    assert sent_ms("1645019600667-12") == 1645019600667.0
    assert sent_ms("1645019600667-x") is None
    assert sent_ms("164501960066-1") is None


@pytest.mark.parametrize("message_id", ["g73zkl38qz" + SUFFIX, "x" * 32, ":" * 32])
def test_ids_of_the_reference_are_accepted(message_id: str):
    assert checked_id(message_id) == message_id


@pytest.mark.parametrize(
    "message_id", ["", "vt", "x" * 31, "x" * 33, "x" * 32 + "\n", "x" * 31 + "é", "x" * 31 + "_", b"x" * 32, None]
)
def test_other_ids_are_refused(message_id: object):
    with pytest.raises(InvalidMessageId):
        checked_id(message_id)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 5000])
def test_the_requested_number_of_distinct_suffixes_is_created(count: int):
    suffixes = list(random_suffixes(count))

    assert len(suffixes) == len(set(suffixes)) == count
    assert all(re.fullmatch(r"[A-Za-z0-9]{22}", suffix) for suffix in suffixes)


def test_all_62_characters_are_drawn_equally_often():
    drawn = Counter("".join(random_suffixes(10_000)))

    assert set(drawn) == set(string.ascii_letters + string.digits)
    # 220,000 characters: about 3,548 of each; nine standard deviations are 530.
    assert max(drawn.values()) - min(drawn.values()) < 1_060


def test_single_suffix_is_never_the_one_before():
    assert len({random_suffix() for _ in range(1000)}) == 1000
