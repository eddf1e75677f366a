"""Texts are in plain English: the phrases of tools/plain_english.py are rare in source and documentation."""

from __future__ import annotations

import pytest

from tools.plain_english import DEFAULT, PATTERNS, count

#: Phrases per 1,000 lines over everything. Only ever lowered; the goal is 1.5.
LIMIT = 12.4
#: Texts that have been rewritten: each of these groups stays below the second limit.
CLEAN = (
    ("docs", "README.md", "CHANGELOG.md", "SECURITY.md", "example_project"),
    ("rsmq_django/cli", "rsmq_django/management"),
    ("rsmq_django/admin", "rsmq_django/models", "rsmq_django/templates", "rsmq_django/templatetags"),
    ("rsmq_django/outbox", "rsmq_django/embedded", "rsmq_django/testing"),
    ("rsmq_django/spark", "rsmq_django/pipeline", "pyspark_rsmq.py"),
    ("rsmq_django/core/topics", "rsmq_django/core/reliable"),
    ("rsmq_django/core/lua/topic", "rsmq_django/core/lua/reliable"),
    ("rsmq_django/tasks",),
    ("rsmq_django/worker",),
    ("rsmq_django/core/doctor",),
    ("rsmq_django/live",),
    ("rsmq_django/core/lua",),
)
CLEAN_LIMIT = 1.5


def assert_at_most(limit: float, paths: tuple[str, ...]) -> None:
    """Fail with the worst files and their first places when these paths have more phrases than that."""
    counted = count(paths)
    if counted.rate <= limit:
        return
    lines = [f"{counted.rate:.2f} phrases per 1,000 lines, {limit} are allowed (python tools/plain_english.py --list):"]
    for path, number in list(counted.worst().items())[:10]:
        lines.append(f"{path}: {number}")
        lines += [f"    {hit}" for hit in counted.hits if hit.path == path][:3]
    pytest.fail("\n".join(lines), pytrace=False)


def test_phrases_that_are_not_plain_english_do_not_become_more():
    assert_at_most(LIMIT, DEFAULT)


@pytest.mark.parametrize("paths", CLEAN, ids=lambda paths: paths[0])
def test_rewritten_texts_stay_in_plain_english(paths: tuple[str, ...]):
    assert_at_most(CLEAN_LIMIT, paths)


@pytest.mark.parametrize(
    "sentence",
    [
        "Whatever a task raises is logged.",
        "somebody else holds the message",
        "recover what was lost",
        "{!r} is no number",
        "The doctor mends it.",
        "waits for so long",
        "kept for ever",
        "It lies in the dead-letter queue.",
        "Only those that fail are repeated.",
        "It is sent all the same.",
    ],
)
def test_each_kind_of_phrase_is_found(sentence: str):
    assert [advice for advice, pattern in PATTERNS.items() if pattern.search(sentence)]


def test_plain_sentences_are_not_counted():
    plain = "Another worker holds the lease, so this message is not a dead letter. What is a lease? See the glossary."
    assert [advice for advice, pattern in PATTERNS.items() if pattern.search(plain.replace("What is a", "A"))] == []
