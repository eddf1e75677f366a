"""Allowed imports inside of the package: all imports, also those inside functions and for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import rsmq_django

PACKAGE = Path(rsmq_django.__file__).parent

#: Folders and modules of the package, from the top down. A part imports only parts on lower lines, and itself.
LAYERS = (
    {"management", "apps", "pytest_plugin"},
    {"pipeline", "checks"},
    {"testing", "templatetags", "urls"},
    {"admin", "telemetry", "contrib", "views"},
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


# -- Modules -------------------------------------------------------------------------------------------------------


def package_modules() -> dict[str, Path]:
    """Return the files of the package by the names of their modules; `__init__.py` has the name of its folder."""
    found = {path.relative_to(PACKAGE.parent).with_suffix(""): path for path in PACKAGE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in sorted(found.items())}


MODULES = package_modules()


def modules_in(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a file imports, also inside functions and for types only."""
    package = ["rsmq_django", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else base for name in names if name in MODULES or base in MODULES)


#: The imported modules by the importing one. That an import of `a.b` also runs `a/__init__.py` does not count.
IMPORTS = {name: set(modules_in(path)) - {name} for name, path in MODULES.items()}


def in_cycles(imports: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that import each other, directly or through others, and those between two such cycles."""
    left = set(imports)
    while outside := {
        name for name in left if not imports[name] & left or not any(name in imports[other] for other in left)
    }:
        left -= outside
    return left


def test_no_module_imports_one_that_imports_it():
    assert not in_cycles(IMPORTS), "these import each other, directly or through others"


def test_cycles_of_imports_are_found():
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}
    assert in_cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()


def test_imports_were_found():
    assert {"rsmq_django.tasks.task", "rsmq_django.core"} <= IMPORTS["rsmq_django.tasks.outgoing"]
    assert "rsmq_django.outbox.writing" in IMPORTS["rsmq_django.tasks.sending"], "inside a function"
    assert "rsmq_django.tasks.outgoing" in IMPORTS["rsmq_django.outbox.writing"], "for types only"


# -- Inside of the worker ------------------------------------------------------------------------------------------

#: Folders and modules of the worker, from the top down.
WORKER_FLOORS = (
    {"supervise"},
    {"worker"},
    {"stopping", "side_by_side"},
    {"shared_polls"},
    {"sources"},
    {"fetch"},
    {"lease"},
    {"execute"},
    {"report"},
    {"outcomes"},
    {"delivery"},
    {"health"},
)


def is_of_worker(name: str) -> bool:
    """Return whether a module is in a folder of the worker, or beside these folders."""
    return name.startswith("rsmq_django.worker.")


WORKER_EDGES = {
    name: {each for each in imported if is_of_worker(each)} for name, imported in IMPORTS.items() if is_of_worker(name)
}


@pytest.mark.parametrize("name", sorted(WORKER_EDGES))
def test_modules_of_the_worker_import_their_own_floor_and_lower_ones(name: str):
    floor = {part: number for number, parts in enumerate(WORKER_FLOORS) for part in parts}

    above = {each for each in WORKER_EDGES[name] if floor[each.split(".")[2]] < floor[name.split(".")[2]]}

    assert not above


def test_imports_of_the_worker_were_found():
    assert "rsmq_django.worker.sources.making" in WORKER_EDGES["rsmq_django.worker.worker"]
    assert all(imported for name, imported in WORKER_EDGES.items() if ".supervise.supervisor" in name)
