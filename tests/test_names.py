"""Names and places: every package says what is in it, and a class name has one meaning."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rsmq_django

PACKAGE = Path(rsmq_django.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})
#: Folders that are not packages, and why.
NOT_PACKAGES = {"spark/startup": "a directory for PYTHONPATH: Python imports sitecustomize from it by itself"}


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


# -- Packages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_every_package_says_in_three_lines_what_is_in_it_and_what_is_not(folder: Path):
    if named(folder) in NOT_PACKAGES:
        return
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    first, *others = docstring.splitlines()

    assert first.endswith((".", ":")), "the first line is a sentence"
    assert 1 <= len([line for line in others if line]) <= 2, "and what is elsewhere, in one or two lines more"


# -- Classes -------------------------------------------------------------------------------------------------------
#: Names that Django gives to more than one class.
GIVEN_NAMES = {
    "Command": "Django looks for it in the module of a management command",
    "Meta": "Django looks for it in a model or form",
    "Migration": "Django looks for it in a migration",
}


def classes() -> dict[str, list[str]]:
    """Return the modules of each class by its name, without the models of the admin.

    Those have the name of what their rows show, as core has it: permissions and addresses are made of it.
    """
    found: dict[str, list[str]] = {}
    for path in MODULES:
        if not named(path).startswith("models/"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name not in GIVEN_NAMES:
                    found.setdefault(node.name, []).append(f"{named(path)}:{node.lineno}")
    return found


def test_a_class_name_has_one_meaning():
    found = classes()

    assert len(found) > 300, "the walk sees the classes"
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_names_that_are_given_are_still_used():
    used = {
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }

    assert GIVEN_NAMES.keys() <= used
