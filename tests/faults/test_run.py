"""What a run waits for before it reads what became of the calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import run
from tests.faults.history import Entry
from tests.faults.world import SENDERS, WORKERS, World
from tests.leftovers import descendants
from tests.support import wait_until
from tests.worker.processes import ROOT


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


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 1 + 3 * WORKERS + SENDERS], ids=["starting", "running"])
def test_run_that_is_told_to_end_leaves_no_process_behind(tmp_path: Path, processes: int):
    words, own = [sys.executable, "-m", "tests.faults", "--only", "kills"], {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, **own}, stdout=subprocess.DEVNULL) as ended:
        wait_until(lambda: len(descendants(ended.pid)) >= processes)
        started = descendants(ended.pid)
        ended.terminate()

    assert ended.returncode == 1
    assert [pid for pid in started if runs(pid)] == []


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait to be collected."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout[:1] not in ("", "Z")
