"""Write docs/reference/api.md: what projects may import, with the first line of each docstring.

Usage: python -m tools.api_page
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

import django
from django.conf import settings

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "api.md"
INTRODUCTION = """\
# What projects import

This page is generated from the modules by `python -m tools.api_page`. These names stay as they are between minor
versions; everything else may change with any version. Settings are in [settings.md](settings.md), commands in
[rsmqctl.md](rsmqctl.md).
"""
DJANGOS = "Django's own, or that of its backport on Django 5.2."
#: The modules by chapter.
MODULES = {
    "Tasks": ["tasks", "tasks.middleware", "tasks.compat", "schedules", "signals"],
    "Queues and topics": ["queues", "reliable_queues", "topics", "redrive"],
    "Tests of projects": ["testing"],
    "Admin, metrics, logs": [
        "admin",
        "models",
        "outbox.models",
        "telemetry.metrics",
        "telemetry.logs",
        "telemetry.task_logs",
        "telemetry.instrumentor",
    ]
    + ["contrib.sentry"],
    "Web pages": ["views"],
    "Without Django": ["core", "core.topic", "core.reliable", "core.errors", "core.doctor"],
    "Statistics and the event log": [
        "core.stats.history",
        "core.stats.counters",
        "core.stats.events",
        "core.stats.runs",
    ],
    "Pipeline": ["spark.session", "spark.job", "spark.runs", "pipeline.config", "pipeline.history", "pipeline.meter"]
    + ["pipeline.publish"],
}


def page() -> str:
    """Return the text of the page."""
    lines = [INTRODUCTION]
    for chapter, names in MODULES.items():
        lines += [f"## {chapter}", ""]
        for name in names:
            module = import_module(f"rsmq_django.{name}")
            lines += [f"### {module.__name__}", "", first_line(module), "", "| name | what it is |", "|---|---|"]
            lines += [f"| `{public}` | {what_is(module, public)} |" for public in public_names(module)]
            lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names of a module that projects import; its submodules are not among them."""
    return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]


def first_line(thing: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n")[0].replace("|", "\\|")


def what_is(module: ModuleType, name: str) -> str:
    """Return the first line that describes a name: of its docstring, or of the comment above a value."""
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return first_line(thing) if thing.__module__.startswith("rsmq_django") else DJANGOS
    return comment_above(module, name)


def comment_above(module: ModuleType, name: str) -> str:
    """Return the comment that begins with `#:` above a value, where the value is defined."""
    source = inspect.getsource(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and any(name in (each.asname, each.name) for each in node.names):
            package = module.__name__ if hasattr(module, "__path__") else module.__package__
            origin = resolve_name("." * node.level + (node.module or ""), package)
            return comment_above(import_module(origin), name) if origin.startswith("rsmq_django") else DJANGOS
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(each, ast.Name) and each.id == name and node.col_offset == 0 for each in targets):
            above: list[str] = []
            for line in reversed(source.splitlines()[: node.lineno - 1]):
                if not line.startswith("#:"):
                    break
                above.insert(0, line.removeprefix("#:").strip())
            if above:
                return " ".join(above).replace("|", "\\|")
    raise LookupError(f"{name} of {module.__name__} has no comment")


if __name__ == "__main__":
    settings.configure(
        INSTALLED_APPS=[
            *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.messages", "django.contrib.admin"),
            *("rsmq_django", "rsmq_django.outbox", "rsmq_django.pipeline"),
        ],
        RSMQ={"CONNECTIONS": {"default": {"URL": "redis://localhost"}}},
    )
    django.setup()
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE}")
