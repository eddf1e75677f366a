"""A pytest plugin that notes the lines of Python and the scripts that each test executes (Python 3.12 or newer).

Each pytest process appends one line of JSON per test to a file in the directory that RSMQ_FOOTPRINTS names. A Python
process that a test starts writes a file of its own there, because it may be killed: `tools/children` on PYTHONPATH
makes it do so. Code of modules and classes is left out: it runs in the test that happens to import it first.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tools.children.sitecustomize import note_lines, note_this_process

_seen: set[tuple[str, int]] = set()
_scripts: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    note_lines(lambda path, line: _seen.add((path, line)))
    # A test that forks would note the lines of the copy in the copy's memory.
    os.register_at_fork(after_in_child=note_this_process)


def pytest_collection_finish(session: pytest.Session) -> None:
    from rsmq_django.core.transport import call

    load = call.load_script

    def load_and_note(name: str) -> Any:
        _scripts.add(name)
        return load(name)

    for module in list(sys.modules.values()):
        if getattr(module, "load_script", None) is load:
            module.load_script = load_and_note  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _seen.clear()
    _scripts.clear()
    sys.monitoring.restart_events()  # type: ignore[attr-defined,unused-ignore]
    began = time.monotonic()
    answer = yield
    seconds, lines = time.monotonic() - began, defaultdict[str, list[int]](list)
    for path, number in _seen:
        lines[path].append(number)
    note = {
        "test": item.nodeid,
        "slow": item.get_closest_marker("slow") is not None,
        "seconds": round(seconds, 2),
        "lines": lines,
        "scripts": sorted(_scripts),
    }
    with (Path(os.environ["RSMQ_FOOTPRINTS"]) / f"{os.getpid()}.jsonl").open("a") as notes:
        notes.write(json.dumps(note) + "\n")
    return answer
