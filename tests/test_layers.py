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


# -- Inside of the worker ------------------------------------------------------------------------------------------

#: Folders and modules of the worker, from the top down.
WORKER_FLOORS = (
    {"supervise"},
    {"worker"},
    {"stopping"},
    {"sources"},
    {"fetch"},
    {"lease"},
    {"execute"},
    {"report"},
    {"outcomes"},
    {"delivery"},
    {"health"},
)
WORKER = PACKAGE / "worker"


def worker_modules() -> dict[str, Path]:
    """Return the files of the worker by the names of their modules, without those of packages."""
    found = (path for path in sorted(WORKER.rglob("*.py")) if path.name != "__init__.py")
    return {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in found}


MODULES = worker_modules()


def modules_in(path: Path) -> Iterator[str]:
    """Yield the modules of the worker that a file imports, also inside functions and for types only."""
    package = ["rsmq_django", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = (base, *(f"{base}.{alias.name}" for alias in node.names))
            yield from (name for name in names if name in MODULES)


WORKER_EDGES = {name: set(modules_in(path)) for name, path in MODULES.items()}


@pytest.mark.parametrize("name", sorted(WORKER_EDGES))
def test_modules_of_the_worker_import_their_own_floor_and_lower_ones(name: str):
    floor = {part: number for number, parts in enumerate(WORKER_FLOORS) for part in parts}

    above = {each for each in WORKER_EDGES[name] if floor[each.split(".")[2]] < floor[name.split(".")[2]]}

    assert not above


def test_no_module_of_the_worker_imports_one_that_imports_it():
    left = {name: set(imported) for name, imported in WORKER_EDGES.items()}
    while ready := {name for name, imported in left.items() if not imported & left.keys()}:
        for name in ready:
            del left[name]

    assert not left, "these import each other, directly or through others"


def test_imports_of_the_worker_were_found():
    assert "rsmq_django.worker.sources.queues" in WORKER_EDGES["rsmq_django.worker.worker"]
    assert all(imported for name, imported in WORKER_EDGES.items() if ".supervise.supervisor" in name)
