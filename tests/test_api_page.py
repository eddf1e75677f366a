"""The public modules: their `__all__`, the page that lists them, and what the docs import agree."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tools.api_page import MODULES, PAGE, page, public_names

ROOT = Path(__file__).parents[1]
PUBLIC = [f"rsmq_django.{name}" for names in MODULES.values() for name in names]
#: Pages for people who use the package; those for its developers name its parts, too.
PAGES = [
    ROOT / "README.md",
    *sorted(
        page for name in ("getting-started", "how-to", "reference") for page in (ROOT / "docs" / name).glob("*.md")
    ),
]
_IMPORT = re.compile(r"^ *from (rsmq_django[\w.]*) import (\([^)]*\)|[^\n`#]*)", re.MULTILINE)


def imported(path: Path) -> set[tuple[str, str]]:
    """Return the modules and names that the Python blocks of a page import."""
    blocks = re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
    return {
        (module, name.split(" as ")[0].strip())
        for block in blocks
        for module, names in _IMPORT.findall(block)
        for name in names.strip("() \n").split(",")
        if name.strip()
    }


def test_page_of_the_api_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "run python -m tools.api_page"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_list_their_names_and_each_of_them_exists(name: str):
    module = import_module(name)

    assert public_names(module)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []


def test_docs_import_only_what_the_page_of_the_api_lists():
    listed = {(name, each) for name in PUBLIC for each in public_names(import_module(name))}
    listed |= {(above, last) for above, _, last in (name.rpartition(".") for name in PUBLIC)}
    used = {(path.name, *each) for path in PAGES for each in imported(path)}

    assert len(used) > 30
    assert {each for each in used if each[1:] not in listed} == set()
