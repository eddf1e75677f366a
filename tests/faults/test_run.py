"""What a run waits for before it reads what became of the calls."""

from __future__ import annotations

import json

import pytest

from tests.faults import run
from tests.faults.history import Entry
from tests.faults.world import World


def test_results_of_calls_whose_process_was_killed_after_their_end_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    replies: list[dict[str, object]] = [{"a": "a"}, {"a": "a", "b": "RUNNING"}, {"a": "a", "b": "b"}]
    monkeypatch.setattr(run, "_ask", lambda *words, given: json.dumps(replies.pop(0)))

    kept = [Entry(1.0, "sent", name, "kept", more={"id": name * 32}) for name in ("a", "b")]
    results = run._results(World.__new__(World), kept, 90)

    assert results == {"a": "a", "b": "b"}
