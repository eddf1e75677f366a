"""A plugin of pytest that notes which lines of Python and which scripts each test has executed (Python 3.12 or newer).

Each process of the run appends one line of JSON per test to a file of its own, in the directory that
RSMQ_FOOTPRINTS names. What other processes do that a test starts is not seen.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = str(Path(__file__).parents[1] / "rsmq_django") + os.sep
_seen: set[tuple[str, int]] = set()
_scripts: set[str] = set()


def _monitoring() -> Any:
    return sys.monitoring  # type: ignore[attr-defined,unused-ignore]


def pytest_configure(config: pytest.Config) -> None:
    monitoring = _monitoring()
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "footprints")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, _note_line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)


def pytest_collection_finish(session: pytest.Session) -> None:
    from rsmq_django.core import call

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
    _monitoring().restart_events()
    began = time.monotonic()
    answer = yield
    seconds, lines = time.monotonic() - began, defaultdict[str, list[int]](list)
    for path, number in _seen:
        lines[path].append(number)
    note = {"test": item.nodeid, "seconds": round(seconds, 2), "lines": lines, "scripts": sorted(_scripts)}
    with (Path(os.environ["RSMQ_FOOTPRINTS"]) / f"{os.getpid()}.jsonl").open("a") as notes:
        notes.write(json.dumps(note) + "\n")
    return answer


def _note_line(code: CodeType, line: int) -> Any:
    if code.co_filename.startswith(ROOT):
        _seen.add((code.co_filename[len(ROOT) - len("rsmq_django/") :], line))
    return _monitoring().DISABLE
