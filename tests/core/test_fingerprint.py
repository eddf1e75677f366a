"""Failures are grouped by what went wrong, not by what it went wrong with."""

import pytest

from rsmq_django.core.browse import Failure
from rsmq_django.core.fingerprint import LONGEST_PATTERN, fingerprint, pattern_of


def failure(**fields: str) -> Failure:
    texts = {"reason": "gave_up", "queue": "", "task": "a.b", "task_id": "", "error": "E", "message": "", "worker": ""}
    return Failure(**{**texts, "traceback": "", **fields}, attempts=1, died_ms=None)


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("Flight 1545 is gone", "Flight # is gone"),
        ("no such row: 'UA1545'\nmore", "no such row: '…'"),
        ("id 3f2b8c1e-77aa-4e0b-9f00-0123456789ab", "id #"),
        ("timed out after 2.5 s", "timed out after #.# s"),
        ("a bad face", "a bad face"),
        ("", ""),
    ],
)
def test_data_is_taken_out_of_a_text(message: str, pattern: str):
    assert pattern_of(message) == pattern


def test_a_pattern_of_a_long_text_is_short():
    assert len(pattern_of("x" * 100_000)) == LONGEST_PATTERN


def test_equal_failures_with_other_data_have_one_fingerprint():
    assert fingerprint(failure(message="Flight 1 is gone")) == fingerprint(failure(message="Flight 22 is gone"))


@pytest.mark.parametrize("other", [{"task": "a.c"}, {"error": "F"}, {"reason": "crashed"}, {"message": "no"}])
def test_other_failures_have_other_fingerprints(other: dict[str, str]):
    assert fingerprint(failure()) != fingerprint(failure(**other))


def test_odd_records_have_a_fingerprint_too():
    assert fingerprint(None) == "none"
    assert len(fingerprint(failure(message="half a pair: \ud800"))) == 12
