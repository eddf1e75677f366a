"""The mutants of tools/mutate.py: small, real, and never in comments or docstrings."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools.mutants import Mutant, mutants_of
from tools.mutate import (
    FAST_TESTS_S,
    LAST_TESTS_S,
    ROOT,
    Moved,
    Notes,
    _is_gone,
    _is_told_of,
    _key_of,
    reasons_of_equivalents,
    report,
)

PYTHON = '''
"""A module that is 1 year old."""
LIMIT_S = 30
FIRST, LAST_S = 1, 60 * 2

def pick(numbers: list[int], least: int = 2) -> int | None:
    """Return 7 or less."""
    logger.info("of %d", 5)
    assert least > 0
    for number in numbers:
        if number >= least and not number == 4:
            return number
    pairs = zip(numbers, numbers, strict=True)
    report(least)
    return None
'''
LUA = """
-- 1 comment
local LONGEST_MS, MOST = 1000, 20 * 50 -- 2 reasons
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


@pytest.mark.parametrize("path", ["rsmq_django/worker/sources/queues.py", "rsmq_django/tasks/unique.py"])
def test_mutants_of_python_can_be_compiled(path: str):
    root = Path(__file__).parents[1]
    text = (root / path).read_text()
    unchanged = ast.dump(ast.parse(text))

    for mutant in list(mutants_of(root, path))[::5]:
        assert ast.dump(ast.parse(mutant.applied_to(text))) != unchanged, mutant


def test_failure_of_a_test_is_distinguished_from_that_of_one_whose_name_begins_alike():
    output = "FAILED tests/test_a.py::test_one_more - assert 1 == 2\nERROR tests/test_a.py::test_last\n1 failed"
    names = ["test_one", "test_one_more", "test_last"]

    assert [_is_told_of(f"tests/test_a.py::{name}", output) for name in names] == [False, True, True]


def test_test_that_is_no_longer_there_is_recognised():
    file = "ERROR: file or directory not found: tests/test_a.py::test_one[x]"
    function = "1 test collected\nERROR: not found: /x/tests/test_b.py::test_one\n(no match in any of [<Module>])"
    tests = ["tests/test_a.py::test_one[x]", "tests/test_b.py::test_one[x (y)]", "tests/test_b.py::test_one_more"]

    assert [_is_gone(test, file) for test in tests] == [True, False, False]
    assert [_is_gone(test, function) for test in tests] == [False, True, False]


def write_notes(directory: Path, *tests: tuple[str, bool, float]) -> None:
    lines = {"rsmq_django/a.py": [7]}
    notes = [
        {"test": name, "slow": slow, "seconds": seconds, "lines": lines, "scripts": ["send"]}
        for name, slow, seconds in tests
    ]
    (directory / "1.jsonl").write_text("\n".join(map(json.dumps, notes)))


def test_most_particular_tests_of_a_line_come_first_and_long_and_slow_ones_at_last(tmp_path: Path):
    long, slow = ("long", False, FAST_TESTS_S - 1), ("slow", True, 50)
    write_notes(tmp_path, slow, long, ("fast", False, 1), ("late", False, 2), ("endless", True, LAST_TESTS_S))
    mutant = Mutant("rsmq_django/a.py", 7, 0, 1, "1", "2")

    notes = Notes.read([tmp_path], {})

    assert notes.rounds_for(mutant) == [["fast", "late"], ["long", "slow"]], "there is no time for the endless one"
    write_notes(tmp_path, slow)
    assert Notes.read([tmp_path], {}).rounds_for(mutant) == [["slow"]]


def test_tests_in_a_file_that_is_called_like_the_mutants_come_first(tmp_path: Path):
    in_another, in_its_own = "tests/core/test_ids.py::test_a", "tests/worker/test_a.py::test_ids"
    write_notes(tmp_path, (in_another, False, 1), (in_its_own, False, 2))

    (chosen,) = Notes.read([tmp_path], {}).rounds_for(Mutant("rsmq_django/a.py", 7, 0, 1, "1", "2"))

    assert chosen == [in_its_own, in_another]


def test_tests_whose_names_have_words_of_the_change_come_early(tmp_path: Path):
    others = [(f"tests/test_{name}.py::test_one", False, 1) for name in "bcdefghijk"]
    about = "tests/test_z.py::test_call_has_an_expiry"
    write_notes(tmp_path, *others, (about, False, 2))

    mutant = Mutant("rsmq_django/a.py", 7, 0, 1, "tags or expires_in_s", "tags")
    first, _ = Notes.read([tmp_path], {}).rounds_for(mutant)

    assert about in first[:2]


def test_each_file_has_its_turn(tmp_path: Path):
    tests = [f"tests/test_{name}.py::test_{number}" for name in "bc" for number in range(3)]
    write_notes(tmp_path, *[(test, False, 1) for test in tests])

    (chosen,) = Notes.read([tmp_path], {}).rounds_for(Mutant("rsmq_django/a.py", 7, 0, 1, "1", "2"))

    assert chosen[:3] == ["tests/test_b.py::test_0", "tests/test_b.py::test_1", "tests/test_c.py::test_0"]
    assert sorted(chosen) == tests


def test_mutant_outside_of_functions_is_met_by_all_tests_of_its_file(tmp_path: Path):
    write_notes(tmp_path, ("one", False, 1))

    notes = Notes.read([tmp_path], {"send": ["send.lua", "shared/clock.lua"]})

    assert notes.rounds_for(Mutant("rsmq_django/a.py", 3, 0, 1, "1", "2")) == [["one"]]
    assert notes.rounds_for(Mutant("shared/clock.lua", 3, 0, 1, "1", "2")) == [["one"]]
    assert notes.rounds_for(Mutant("rsmq_django/b.py", 3, 0, 1, "1", "2")) == []


def test_notes_of_an_earlier_tree_tell_the_lines_of_today(tmp_path: Path):
    path = "tools/run_parts.py"
    today = (ROOT / path).read_text().splitlines(keepends=True)
    (tmp_path / "tree/tools").mkdir(parents=True)
    (tmp_path / "tree" / path).write_text("".join(["import a\n", *today[:4], *today[7:9], "b\n", *today[12:]]))

    lines = [list(Moved(tmp_path / "tree").lines(path, [at])) for at in (1, 2, 6, 8, 9)]

    assert lines == [[], [1], [8], [10, 11, 12], [13]]
    assert list(Moved(tmp_path).lines(path, [3, 4])) == [3, 4]


def test_later_notes_of_a_test_count_instead_of_earlier_ones(tmp_path: Path):
    mutant = Mutant("rsmq_django/a.py", 7, 0, 1, "1", "2")
    for name, seconds in (("earlier", 3), ("later", 30)):
        (tmp_path / name).mkdir()
        write_notes(tmp_path / name, ("one", name == "later", seconds), (name, False, 1))

    notes = Notes.read([tmp_path / "earlier", tmp_path / "later"], {})

    assert notes.seconds == {"one": 30, "earlier": 1, "later": 1}
    assert notes.rounds_for(mutant) == [["earlier", "later"], ["one"]]


def test_mutant_inside_of_a_function_is_met_by_tests_of_its_line_or_statement_only(tmp_path: Path):
    write_notes(tmp_path, ("one", False, 1))

    notes = Notes.read([tmp_path], {})

    assert notes.rounds_for(Mutant("rsmq_django/a.py", 9, 0, 1, "1", "2", places=(7,))) == [["one"]]
    assert notes.rounds_for(Mutant("rsmq_django/a.py", 9, 0, 1, "1", "2", places=(8,))) == []


def test_place_of_a_default_is_its_function_and_that_of_any_other_part_its_statement(tmp_path: Path):
    (tmp_path / "a.py").write_text("""
LEAST = pick([3])

def pick(least: int = 1):
    if least:
        return find(
            least,
            2,
        )
    try:
        return 4
    except IndexError:
        del least
""")

    places = {mutant.before: mutant.places for mutant in mutants_of(tmp_path, "a.py")}

    assert places["1"] == tuple(range(5, 14))
    assert (places["2"], places["3"], places["del least"]) == ((6,), (), (13,))


def test_a_factor_of_a_unit_is_left_out_since_one_more_makes_no_difference(tmp_path: Path):
    assert ("1000", "(1)") in changes(tmp_path, "a.py", "def ms(s): return s * 1000")
    assert ("1000", "(1001)") in changes(tmp_path, "a.py", "def ms(s): return s + 1000")
    assert ("1000", "1") in changes(tmp_path, "a.lua", "local ms = s * 1000")
    assert ("1000", "1001") in changes(tmp_path, "a.lua", "local ms = s + 1000")


def test_equivalent_mutants_do_not_count(capsys: pytest.CaptureFixture[str]):
    mutants = [Mutant("rsmq_django/core/a.py", line, 0, 1, "1", "2") for line in range(10)]
    verdicts = dict(zip(mutants, ["failed"] * 7 + ["hung", "SURVIVED", "equivalent"], strict=True))

    assert (report(verdicts, at_least=88), report(verdicts, at_least=89)) == (0, 1)
    assert capsys.readouterr().out.splitlines()[3].split() == ["all", "10", "8", "1", "1", "88.9%"]


def test_mutant_is_identified_by_its_line_and_change_at_any_line_number():
    (mutant, *_) = mutants_of(ROOT, "tools/run_parts.py")

    path, line, change = _key_of(mutant)

    assert line in (ROOT / path).read_text() and change == mutant.change


def test_each_equivalent_mutant_is_exactly_one_of_the_code():
    entries = reasons_of_equivalents()
    found = Counter(_key_of(mutant) for path in {path for path, _, _ in entries} for mutant in mutants_of(ROOT, path))

    assert {entry: found[entry] for entry in entries if found[entry] != 1} == {}


if sys.version_info >= (3, 12):  # which can tell at little cost what lines are executed

    def test_process_that_a_test_starts_notes_its_lines_and_scripts_for_the_test(tmp_path: Path):
        write_notes(tmp_path, ("tests/test_a.py::test_one[x (y)]", True, 1))
        program = (
            "import os; from rsmq_django.core.transport.call import load_script; load_script('queue/send'); os._exit(3)"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'tools/children'}{os.pathsep}{ROOT}",
            "RSMQ_FOOTPRINTS": str(tmp_path),
            "PYTEST_CURRENT_TEST": "tests/test_a.py::test_one[x (y)] (call)",
        }

        assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 3

        notes = Notes.read([tmp_path], {})
        (script,) = (path for path in notes.by_file if path.endswith("queue/lua/send.lua"))
        assert notes.by_file[script] == {"tests/test_a.py::test_one[x (y)]"}
        assert any(path == "rsmq_django/core/transport/call.py" for path, _ in notes.by_line)
