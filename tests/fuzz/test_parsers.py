"""Random bytes for every parser of data of other programs: only documented errors, and none on a page or in a list.

FUZZ=100 makes a long run; what it finds becomes a test of its own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.conf.schedules import from_json, signature_in
from rsmq_django.conf.settings import QueueSettings
from rsmq_django.core.queue import browse, dead_letters, retry_plans
from rsmq_django.core.queue.replies import read_attributes, read_messages
from rsmq_django.core.reliable import replies as reliable
from rsmq_django.core.stats import events, history
from rsmq_django.core.stats.counts import Counts
from rsmq_django.core.tasks import processes, stacks, workflow_records
from rsmq_django.core.tasks import schedules as schedule
from rsmq_django.core.topic import replies as topics
from rsmq_django.live.messages import Cursor
from rsmq_django.live.places import message_place_of, place_of
from rsmq_django.tasks.compat import TaskResultDoesNotExist
from rsmq_django.tasks.envelope import Envelope, Unreadable, decode
from rsmq_django.tasks.membership import membership_of
from rsmq_django.tasks.results import _read_fields, task_result
from rsmq_django.tasks.sealing import seal, unseal
from rsmq_django.tasks.workflow_shape import read_shape
from rsmq_django.tasks.workflow_state import read_outcome
from rsmq_django.worker.fetch import exchange as steps
from rsmq_django.worker.lease import inflight as holds
from tests.fuzz.budget import examples

#: Numbers at which readers stumble: no number, infinite, larger than a float or than Python reads.
NUMBERS = st.sampled_from(
    "0 1 -1 1.5 1e400 inf -inf nan 1_0 0x10 9007199254740993 9223372036854775808 1e14 -1e17 99999999999999999".split()
    + ["", " 7 ", "٣", "9" * 400, "9" * 5000, "-" + "9" * 400]
)
DEEP = st.sampled_from(["[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500])
TEXTS = st.one_of(st.text(max_size=20), NUMBERS, st.sampled_from(["\ud800", "\0", "a\nb", "a\x1b[2J", "a:b", "*"]))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([10**400, -(10**400)])


def values(words: str = "") -> st.SearchStrategy[Any]:
    """Return JSON values whose objects mostly have these fields."""
    names = st.sampled_from(words.split()) | st.text(max_size=5) if words else st.text(max_size=5)
    return st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6), max_leaves=6
    )


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode() if not isinstance(value, bytes) else value


def documents(words: str = "") -> st.SearchStrategy[bytes]:
    """Return JSON, something like JSON, and other bytes."""
    names = st.sampled_from(words.split()) if words else st.text(max_size=5)
    objects = st.dictionaries(names, values(words), max_size=8)
    return st.one_of(
        objects.map(encoded),
        values(words).map(encoded),
        DEEP.map(str.encode),
        st.binary(max_size=60),
        NUMBERS.map(str.encode),
    )


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


WORDS = st.one_of(TEXTS.map(bytes_of), NUMBERS.map(str.encode), st.binary(max_size=20), documents())


def hashes(names: str) -> st.SearchStrategy[dict[bytes, bytes]]:
    """Return hashes of Redis with some of these fields, and others."""
    return st.dictionaries(st.sampled_from(names.split()).map(str.encode) | WORDS, WORDS, max_size=10)


def flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [word for pair in fields.items() for word in pair]


# -- Messages ---------------------------------------------------------------------------------------------------------

CALL = "task id args kwargs meta v workflow member step takes next then on_failure"


@examples(50)
@given(body=documents(CALL), message_id=TEXTS)
def test_envelope_is_a_call_or_unreadable(body: bytes, message_id: str):
    try:
        envelope = decode(body, message_id=message_id)
    except Unreadable as error:
        assert error.reason in ("undecodable", "unknown_version")
    else:
        assert type(envelope) is Envelope and type(envelope.args) is list and type(envelope.kwargs) is dict
        membership_of(envelope.meta)


MAIL: dict[str, Any] = {"name": "mail", "max_attempts": 1, "dead_letter": None}
SEALED = (
    QueueSettings(**MAIL, signing_keys=("k" * 32,)),
    QueueSettings(**MAIL, signing_keys=("k" * 32,), old_signatures_until="2999-01-01"),
    QueueSettings(**MAIL, encryption_keys=(Fernet.generate_key().decode(),)),
)


@examples(50)
@given(
    body=documents("signed signature signature_v2 encrypted"),
    queue=st.sampled_from(SEALED),
    at=st.integers(0, 400),
    byte=st.binary(max_size=2),
)
def test_seal_that_no_key_made_is_unreadable(body: bytes, queue: QueueSettings, at: int, byte: bytes):
    real = seal(b'{"task": "a.b"}', queue, name="mail", namespace="rsmq")
    for each in (body, real[:at] + byte + real[at + 1 :]):
        try:
            opened = unseal(each, queue, name="mail", namespace="rsmq")
        except Unreadable as error:
            assert error.reason in ("unsigned", "bad_signature", "not_decrypted")
        else:
            assert opened == b'{"task": "a.b"}'


MEMBERSHIP = values("id member step takes next then on_failure result results")


@examples(40)
@given(words=MEMBERSHIP)
def test_membership_is_read_or_none(words: Any):
    membership_of({"workflow": words})


# -- Schedules and workflows ------------------------------------------------------------------------------------------


@examples(40)
@given(name=TEXTS, text=documents("TASK EVERY_S CRON ARGS KWARGS QUEUE TIME_ZONE CATCH_UP SIGNATURE signature ENABLED"))
def test_schedule_is_read_or_a_value_error(name: str, text: bytes):
    for read in (from_json, signature_in):
        try:
            read(name, text.decode("utf-8", "surrogateescape"))
        except ValueError:
            pass


@examples(40)
@given(rows=st.lists(st.tuples(WORDS, NUMBERS, WORDS), max_size=3), next_ms=NUMBERS, synced=WORDS)
def test_due_schedules_are_read_with_any_scores(rows: list[Any], next_ms: str, synced: bytes):
    words = [word for name, score, text in rows for word in (name, score.encode(), text)]
    listed = [
        word for name, _, text in rows for word in (name, text, *[next_ms.encode()] * 6, next_ms.encode(), synced)
    ]

    schedule._read_listing([b"1700000000000", *listed])
    if all(_is_score(score) for _, score, _ in rows):
        schedule._read_moment([b"1700000000000", synced, next_ms.encode(), *words])


def _is_score(text: str) -> bool:
    """Tell whether a sorted set can have this score, as the server writes it."""
    try:
        return text.isascii() and float(text) == float(text) and "_" not in text and text.strip() == text
    except ValueError:
        return False


@examples(50)
@given(fields=hashes("status kind name shape sealed keeps then on_failure " + " ".join(workflow_records.NUMBERS)))
def test_hash_of_a_workflow_is_read(fields: dict[bytes, bytes]):
    workflow_records._status("w", flat(fields))


@examples(50)
@given(
    text=documents("runs ids then on_failure"),
    value=WORDS,
    failure=WORDS | documents("task_id task reason error message"),
)
def test_shape_and_outcomes_of_a_workflow_are_read(text: bytes, value: bytes, failure: bytes):
    read_shape(text.decode("utf-8", "replace"))
    read_outcome(0, value, failure)
    read_outcome(0, value, b"")


# -- Records for people -----------------------------------------------------------------------------------------------


@examples(50)
@given(record=documents("reason queue task task_id error message traceback worker attempts died_ms history"))
def test_failure_record_is_read_or_none(record: bytes):
    browse.read_failure(record)
    dead_letters.lives_of(record)
    stacks._read(record)


@examples(50)
@given(fields=hashes("v g e q t i m a s w r b k x y"), entry=WORDS, tags=WORDS)
def test_event_is_read(fields: dict[bytes, bytes], entry: bytes, tags: bytes):
    for words in (flat(fields) or [b"v", b""], [b"v", entry], [b"v", entry, b"g", tags]):
        events.read_events([(b"1700000000000-0", words)])


@examples(50)
@given(fields=hashes("sent:a wait:0:a wait:x:a wait:-1:a run:99999:a wait_us:a started: =sent =ready =oldest_ms"))
def test_counters_are_read(fields: dict[bytes, bytes]):
    for counts in history.read_counts(history._read_numbers(flat(fields))).values():
        assert isinstance(counts, Counts)
        Counts().add(counts)
        for histogram in (counts.wait, counts.run):
            histogram.quantile_us(0.5)


@examples(40)
@given(words=st.lists(WORDS, min_size=12, max_size=12))
def test_record_of_a_process_is_read(words: list[bytes]):
    processes._record(1_700_000_000_000, words)
    holds._read_page((b"0", words[:10]))
    processes._read_held((b"0", words[:10]))


@examples(40)
@given(fields=hashes("state limit rate created_ms score message source sent failed succeeded"), last=WORDS)
def test_plan_of_retries_is_read(fields: dict[bytes, bytes], last: bytes):
    retry_plans._read_plan("p", [b"1700000000000", 0, 0, b"", flat(fields)])


@examples(50)
@given(words=st.lists(WORDS, min_size=9, max_size=9), size=st.integers(-1, 2**60))
def test_message_and_attributes_of_another_client_are_read(words: list[bytes], size: int):
    message_id, rc, fr, body, failure, score = words[:6]
    browse.read_page([b"1700000000000", message_id, b"inf", rc, fr, size, body, failure])
    read_messages([message_id, body, b"1", fr])
    read_attributes("s")([*words[:7], 0, 0])
    read_attributes("ms")([*words[:7], 0, 0])
    steps._read_history(b"1 0 0 " + fr.replace(b" ", b"") + b" -1")


RESULT = "status queue message value error:1 error:2 error:x worker:1 worker:x started_ms finished_ms attempted_ms"
STATES = st.sampled_from([b"READY", b"RUNNING", b"FAILED", b"SUCCESSFUL"])


@examples(50)
@given(fields=hashes(RESULT), status=STATES | WORDS, body=st.just(b"") | documents(CALL))
def test_result_record_is_read(fields: dict[bytes, bytes], status: bytes, body: bytes):
    record = _read_fields(flat({**fields, b"status": status}))
    with contextlib.suppress(TaskResultDoesNotExist):
        task_result("A" * 22, record, body, backend="default")


# -- Topics and reliable queues ---------------------------------------------------------------------------------------


@examples(40)
@given(headers=documents("a b"), key=WORDS | st.none(), body=WORDS)
def test_entry_of_a_topic_is_read_and_headers_are_texts(headers: bytes, key: bytes | None, body: bytes):
    batch = topics.read_batch([body, key, headers, 1, 0, 0, 0, 1, 1])

    (message,) = batch.messages
    assert all(isinstance(word, str) for pair in message.headers.items() for word in pair)


@examples(40)
@given(words=st.lists(WORDS, min_size=3, max_size=3))
def test_message_of_a_reliable_queue_is_read(words: list[bytes]):
    message_id, body, consumer = words
    reliable.read_popped([1_700_000_000_000, -1, 0, b"", b"q", message_id, body, 1, 1])
    reliable.read_stored([message_id, body, 1, 1, 1, consumer, len(body)])


# -- Cursors and addresses --------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[str], Any]] = {
    "cursor": Cursor.from_text,
    "queue": place_of,
    "message": message_place_of,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@examples(40)
@given(
    text=TEXTS
    | st.lists(NUMBERS | st.text("0123456789abcdef"), max_size=5).map("-".join)
    | st.from_regex(r"[%0-9a-f/:-]{0,30}")
)
def test_text_of_an_address_is_read_or_none(read: Callable[[str], Any], text: str):
    read(text)
