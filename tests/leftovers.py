"""The processes and threads that a test has started, all of which end with it.

On Linux this process adopts every orphan among its descendants, so none can leave its sight: what is killed leaves its
own children behind as ours, until there are none. Elsewhere, the tree below this process is killed as it stands.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

IS_LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
#: A process that was killed is gone by then, unless the system itself hangs.
GONE_WITHIN_S = 60
_TASKS = Path("/proc/self/task")
_OUR_MODULES = ("rsmq_django", "tests", "example_project")

#: Children that more than one test uses.
_kept: set[int] = set()
#: Threads of fixtures that more than one test uses.
_kept_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    if IS_LINUX:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Keep the processes and threads of a fixture that more than one test uses."""
    if fixturedef.scope == "function":
        return (yield)
    before, threads_before = children(), set(threading.enumerate())
    value = yield
    keep(*children() - before)
    _kept_threads.update(set(threading.enumerate()) - threads_before)
    return value


def threads_begun_since(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads of a test that still run. Those of libraries (executors, Spark) end when these do."""
    return [
        each for each in threading.enumerate() if each not in before and each not in _kept_threads and _is_ours(each)
    ]


def _is_ours(thread: threading.Thread) -> bool:
    modules = type(thread).__module__, str(getattr(getattr(thread, "_target", None), "__module__", ""))
    return thread.name.startswith("rsmq-") or any(module.startswith(_OUR_MODULES) for module in modules)


def children() -> set[int]:
    """Return the pids of the children of this process, ended ones that nobody has waited for included."""
    if not IS_LINUX:
        return set(_children_by_parent()[os.getpid()])
    found: set[int] = set()
    for thread in os.listdir(_TASKS):
        try:
            found.update(map(int, (_TASKS / thread / "children").read_text().split()))
        except FileNotFoundError:  # the thread has ended
            continue
    return found


def keep(*pids: int) -> None:
    """Let these children live until the run ends."""
    _kept.update(pids)


def end_all_but(before: set[int]) -> None:
    """Kill all children but those and the kept ones, with all that they have started; return when they are gone."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while left := children() - before - _kept:
        for pid in left:
            end_tree(pid)
        assert time.monotonic() < deadline, f"processes that cannot be killed: {left}"


def end_tree(pid: int) -> None:
    """Kill a child and its descendants, and wait until it is gone."""
    for each in (pid, *descendants(pid)):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:  # somebody else has waited for it
        return


def descendants(pid: int) -> list[int]:
    """Return the pids of the children of a process, and of theirs."""
    by_parent, found, parents = _children_by_parent(), list[int](), [pid]
    while parents:
        parents = [child for parent in parents for child in by_parent[parent]]
        found += parents
    return found


def _children_by_parent() -> defaultdict[int, list[int]]:
    done = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    by_parent: defaultdict[int, list[int]] = defaultdict(list)
    for line in done.stdout.splitlines():
        pid, parent = map(int, line.split())
        by_parent[parent].append(pid)
    return by_parent
