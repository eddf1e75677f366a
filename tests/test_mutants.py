"""The mutants of tools/mutate.py: small, real, and never of what is for readers only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants import mutants_of
from tools.mutate import _is_told_of

PYTHON = '''
"""A module that is 1 year old."""
LIMIT_S = 30

def pick(numbers: list[int], least: int = 2) -> int | None:
    """Return 7 or less."""
    logger.info("of %d", 5)
    assert least > 0
    for number in numbers:
        if number >= least and not number == 4:
            return number
    report(least)
    return None
'''
LUA = """
-- 1 comment
local text = "2 == 2"
if count == 1 and not done then
  redis.call("DEL", key)
end
return -1
"""


def changes(tmp_path: Path, name: str, text: str) -> set[tuple[str, str]]:
    (tmp_path / name).write_text(text)
    return {(mutant.before.partition("  in  ")[0], mutant.after) for mutant in mutants_of(tmp_path, name)}


def test_python_is_changed_where_it_does_something(tmp_path: Path):
    assert changes(tmp_path, "pick.py", PYTHON) == {
        ("2", "(3)"),
        ("number >= least", "(number > least)"),
        ("number == 4", "(number != 4)"),
        ("4", "(5)"),
        ("not number == 4", "(number == 4)"),
        ("number >= least and not number == 4", "(number >= least or not number == 4)"),
        ("number >= least and not number == 4", "(not number == 4)"),
        ("number >= least and not number == 4", "(number >= least)"),
        ("number >= least and not number == 4", "(not (number >= least and (not number == 4)))"),
        ("number", "(None)"),
        ("report(least)", "pass"),
    }


def test_lua_is_changed_where_it_does_something(tmp_path: Path):
    assert changes(tmp_path, "pick.lua", LUA) == {
        ("==", "~="),
        ("1", "2"),
        ("and", "or"),
        ("not", ""),
        ('redis.call("DEL", key)', ""),
    }


@pytest.mark.parametrize("path", ["rsmq_django/worker/fetcher.py", "rsmq_django/tasks/unique.py"])
def test_mutants_of_python_can_be_compiled(path: str):
    root = Path(__file__).parents[1]
    text = (root / path).read_text()

    for mutant in mutants_of(root, path):
        assert ast.dump(ast.parse(mutant.applied_to(text))) != ast.dump(ast.parse(text)), mutant


def test_failure_of_a_test_is_told_from_that_of_one_whose_name_begins_alike():
    output = "FAILED tests/test_a.py::test_one_more - assert 1 == 2\nERROR tests/test_a.py::test_last\n1 failed"
    names = ["test_one", "test_one_more", "test_last"]

    assert [_is_told_of(f"tests/test_a.py::{name}", output) for name in names] == [False, True, True]
