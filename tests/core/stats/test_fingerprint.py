"""Failures are grouped by their cause, without the data in their texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core.queue.browse import FailureRecord
from rsmq_django.core.stats.fingerprint import LONGEST_PATTERN, fingerprint, fingerprint_of, pattern_of


def failure(**fields: str) -> FailureRecord:
    texts = {"reason": "gave_up", "queue": "", "task": "a.b", "task_id": "", "error": "E", "message": "", "worker": ""}
    return FailureRecord(**{**texts, "traceback": "", **fields}, attempts=1, died_ms=None)


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
    for some in (
        ["Flight 1 is gone", "Flight 22 is gone"],
        ["no row 7 in 0x7f3a", "no row 12345 in 0xdeadbeef"],
        ["gone: 6f1c7a60-8d2e-4b39-9a51-0242ac120002", "gone: 00000000-0000-4000-8000-000000000000"],
        ["no row 'a'", "no row 'b'\nDETAIL: 7"],
    ):
        assert len({fingerprint("send", "ValueError", message) for message in some}) == 1


@pytest.mark.parametrize("other", [("b", "E", "x"), ("a", "F", "x"), ("a", "E", "y")])
def test_other_failures_have_other_fingerprints(other: tuple[str, str, str]):
    assert fingerprint("a", "E", "x") != fingerprint(*other)


def test_reasons_do_not_split_groups_that_are_one_group_in_the_event_log():
    assert fingerprint_of(failure(reason="gave_up")) == fingerprint_of(failure(reason="attempts_used_up"))


@given(st.text(max_size=700))
def test_any_text_has_a_fingerprint(text: str):
    assert len(fingerprint(text, text, text)) == 32


def test_odd_records_have_a_fingerprint_too():
    assert fingerprint_of(None) == "none"
    assert len(fingerprint_of(failure(message="half a pair: \ud800"))) == 32
