"""A wait for replicas that is repeated behind a part of its request counts for the whole of it."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from rsmq_django.core.transport.waits import lesser, some_done, waits_of

REFUSED, LATE = redis.ResponseError("READONLY"), redis.ResponseError("timeout")


def test_waits_are_found_among_the_commands_of_a_request():
    assert waits_of([("WAIT", 1, 0), ("EVALSHA", "x"), ("WAITAOF", 1, 0, 0), ("SET", "WAIT", 1)]) == [0, 2]


@pytest.mark.parametrize(
    ("replies", "is_done"),
    [
        ({"EVALSHA": 1}, True),
        ({"EVALSHA": None}, True),
        ({"EVALSHA": REFUSED}, False),
        ({"EVALSHA": REFUSED, "WAIT": 1}, False),
        ({"EVALSHA": REFUSED, "WAITAOF": [1, 1]}, False),
        ({"SCRIPT": b"digest", "EVALSHA": REFUSED, "WAIT": 1}, False),
        ({"SCRIPT": b"digest", "EVALSHA": REFUSED, "EVAL": 1, "WAIT": 1}, True),
    ],
)
def test_first_wait_counts_if_a_command_was_carried_out_that_may_write(replies: dict[str, Any], is_done: bool):
    assert some_done(list(replies), list(replies.values())) is is_done


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (1, 2, 1),
        (2, 1, 1),
        ([1, 2], [2, 0], [1, 0]),
        (REFUSED, 2, REFUSED),
        (2, LATE, LATE),
        (REFUSED, LATE, REFUSED),
    ],
)
def test_two_waits_confirm_what_the_lower_of_them_does(first: Any, second: Any, together: Any):
    assert lesser(first, second) == together
