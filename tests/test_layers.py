"""Allowed imports between parts of the package: all imports, also those inside functions and for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rsmq_django

PACKAGE = Path(rsmq_django.__file__).parent

#: Folders and modules of the package, from the top down. A part imports only parts on lower lines, and itself.
LAYERS = (
    {"management", "apps", "pytest_plugin"},
    {"pipeline", "checks"},
    {"testing", "templatetags"},
    {"admin", "telemetry"},
    {"models"},
    {"live"},
    {"worker"},
    {"outbox"},
    {"redrive", "schedules", "topics"},
    {"reliable_queues"},
    {"tasks"},
    {"signals"},
    {"queues"},
    {"conf"},
    {"cli", "spark"},
    {"embedded"},
    {"core"},
)
#: Imports that run upwards, each inside a function, and why.
UPWARDS = {
    ("tasks", "outbox"): "the outbox is an application of its own, which few projects install",
}
LEVEL = {part: len(LAYERS) - number for number, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str:
    """Return the folder or module of the package in which a module is."""
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[str]:
    """Yield the absolute names of the modules of this package that a file imports."""
    package = ["rsmq_django", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("rsmq_django"))
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base == "rsmq_django":
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "__version__")
            elif base.startswith("rsmq_django."):
                yield base


def edges() -> dict[tuple[str, str], list[str]]:
    """Return the files by the two parts that their imports join."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] == "__init__" or "management" in parts or "migrations" in parts:
            continue  # commands of any application are at the top
        for module in imports(path):
            if part_of(module) != parts[0]:
                found.setdefault((parts[0], part_of(module)), []).append("/".join(parts))
    return found


EDGES = edges()


def test_every_part_has_its_layer():
    assert {part for edge in EDGES for part in edge} <= LEVEL.keys()


@pytest.mark.parametrize("edge", sorted(EDGES), ids="-".join)
def test_parts_import_lower_parts_only(edge: tuple[str, str]):
    importing, imported = edge
    assert LEVEL[importing] > LEVEL[imported] or edge in UPWARDS, EDGES[edge]


def test_exceptions_are_still_needed():
    assert UPWARDS.keys() <= EDGES.keys()
