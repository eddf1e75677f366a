"""Texts are in plain English: the phrases of tools/plain_english.py are rare in source and documentation."""

from __future__ import annotations

import pytest

from tools.plain_english import DEFAULT, PATTERNS, count

#: Phrases per 1,000 lines over source and documentation.
LIMIT = 1.5


def test_phrases_that_are_hard_to_read_are_rare():
    counted = count(DEFAULT)
    if counted.rate <= LIMIT:
        return
    lines = [f"{counted.rate:.2f} phrases per 1,000 lines, {LIMIT} are allowed (python tools/plain_english.py --list):"]
    for path, number in list(counted.worst().items())[:10]:
        lines.append(f"{path}: {number}")
        lines += [f"    {hit}" for hit in counted.hits if hit.path == path][:3]
    pytest.fail("\n".join(lines), pytrace=False)


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
