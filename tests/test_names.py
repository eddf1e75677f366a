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
