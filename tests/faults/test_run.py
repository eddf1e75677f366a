"""What a run waits for before it reads what became of the calls."""

from __future__ import annotations

import json

import pytest

from tests.faults import run
from tests.faults.history import Entry
from tests.faults.world import World


def test_faults_begin_when_each_sender_has_sent_and_calls_have_ended():
    ticks = [Entry(1.0, "end", f"tick-{number}", "tick", 7) for number in range(30)]
    sent = [Entry(2.0, "sent", "a", "plain", pid) for pid in (1, 2)]
    ended = [Entry(3.0, "end", f"call-{number}", "plain", 7) for number in range(20)]

    assert not run._work_began([*ticks, *sent])
    assert not run._work_began([*ticks, sent[0], *ended])
    assert run._work_began([*sent, *ended])


def test_results_of_calls_whose_process_was_killed_after_their_end_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    replies: list[dict[str, object]] = [{"a": "a"}, {"a": "a", "b": "RUNNING"}, {"a": "a", "b": "b"}]
    monkeypatch.setattr(run, "_ask", lambda *words, given: json.dumps(replies.pop(0)))

    kept = [Entry(1.0, "sent", name, "kept", more={"id": name * 32}) for name in ("a", "b")]
    results = run._results(World.__new__(World), kept, 90)

    assert results == {"a": "a", "b": "b"}
