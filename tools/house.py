"""How much a reader has to know: files and calls per message, import cycles, sizes, names. For comparing layouts.

Usage: python -m tools.house
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import django
from django.conf import settings

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rsmq_django"


# -- From the source --------------------------------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """Return the files of the package by the names of their modules."""
    files = [path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a module imports: at the top, in functions, and for types only."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                yield f"{base}.{each.name}" if f"{base}.{each.name}" in known else base
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def largest_cycle() -> int:
    """Return the number of modules in the largest group that import each other; 1 without one."""
    known = modules()
    edges = {name: set(imports(name, path, known)) & known.keys() - {name} for name, path in known.items()}
    reachable = {name: _reachable(name, edges) for name in edges}
    return max(sum(name in reachable[each] and each in reachable[name] for each in edges) for name in edges)


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        waiting += (new := edges[waiting.pop()] - found)
        found |= new
    return found


def twice_used_class_names() -> int:
    """Return how many names two classes have, but for those that Django gives."""
    seen: dict[str, int] = {}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in ("Command", "Meta"):
                seen[node.name] = seen.get(node.name, 0) + 1
    return sum(count > 1 for count in seen.values())


def lines(suffix: str) -> int:
    """Return the number of lines in the files of the package that end like this."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob(f"*{suffix}"))


# -- From a run -------------------------------------------------------------------------------------------------------


class Trace:
    """The files and functions of the package that ran, on all threads."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    @property
    def files(self) -> set[str]:
        """Return the files, without the test kit and the server that it starts."""
        return {file for file, _function in self.functions if not file.startswith(("testing/", "embedded/"))}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the block ends."""
        before = str(PACKAGE) + "/"

        def note(frame: FrameType, event: str, _argument: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(before):
                self.functions.add((frame.f_code.co_filename.removeprefix(before), frame.f_code.co_name))

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def do_nothing() -> None:
    """Be the task."""


def one_message() -> tuple[Trace, Trace]:
    """Enqueue one task and let a worker start, run it and stop; return what ran for each of the two."""
    from rsmq_django.queues import ensure_queue
    from rsmq_django.tasks import task
    from rsmq_django.testing import private_queues
    from rsmq_django.worker.worker import WorkerOptions, make_worker

    options = WorkerOptions(threads=1, async_tasks=1, poll_interval_s=0.1, shutdown_timeout_s=5, until_empty=True)
    sending, working = Trace(), Trace()
    nothing = task()(do_nothing)
    with private_queues():
        ensure_queue("default")
        nothing.enqueue()
        with sending.recording():
            nothing.enqueue()
        with working.recording():
            make_worker((), options).run()
    return sending, working


if __name__ == "__main__":
    settings.configure(
        INSTALLED_APPS=["rsmq_django"],
        TASKS={"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}},
        RSMQ={"CONNECTIONS": {"default": {"URL": "redis://localhost"}}},
    )
    django.setup()
    sending, working = one_message()
    worker = [name for name in modules() if name.startswith("rsmq_django.worker.")]
    print(f"files that run for one enqueue             {len(sending.files):>6}")
    print(f"files that run for a worker and one task   {len(working.files):>6}")
    print(f"functions that run for a worker and a task {len(working.functions):>6}")
    print(f"modules in worker/                         {len(worker):>6}")
    print(f"modules in the largest import cycle        {largest_cycle():>6}")
    print(f"class names with several meanings          {twice_used_class_names():>6}")
    print(f"lines of Python, Lua, templates            {lines('.py') + lines('.lua') + lines('.html'):>6}")
