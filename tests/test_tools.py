"""The project's own commands: all parts of the test run are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tools import matrix
from tools.release import try_project

ROOT = Path(__file__).parents[1]
MAKEFILE = """
fails:
	@echo '..F'; echo '1 failed, 2 passed, 3 skipped, 1 error in 0.12s'; exit 2
passes:
	@echo 'SKIPPED [1] tests/x.py: no node'; echo '4786 passed in 239.05s (0:03:59)'
beside:
	@echo 'SKIPPED the tests in a browser: they need Chromium'
checks:
	@true
counts:
	@echo 'LEFT OUT: counting instructions: no valgrind here'
"""


def run_parts(directory: Path, *parts: str) -> tuple[int, list[str]]:
    (directory / "Makefile").write_text(MAKEFILE)
    command = [sys.executable, ROOT / "tools" / "run_parts.py", *parts]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def rows(lines: list[str]) -> list[list[str]]:
    """Return the cells of each line; how long a part takes depends on the machine."""
    return [re.sub(r"\b\d+:\d\d\b", "M:SS", line).split() for line in lines]


def test_part_that_fails_stops_no_other_and_makes_the_whole_fail(tmp_path: Path):
    status, lines = run_parts(tmp_path, "checks", "fails", "passes+beside")

    assert status == 1
    assert "..F" in lines, "what a part says is shown"
    assert rows(lines[-5:]) == [
        ["part", "result", "passed", "failed", "skipped", "time"],
        ["checks", "ok", "M:SS"],
        ["fails", "FAILED", "(2)", "2", "2", "3", "M:SS"],
        ["passes", "ok", "4786", "0", "0", "M:SS"],
        ["beside", "ok", "M:SS", *"left out: the tests in a browser: they need Chromium".split()],
    ]


def test_check_that_is_left_out_is_listed_with_its_part(tmp_path: Path):
    status, lines = run_parts(tmp_path, "counts")

    assert status == 0
    assert rows(lines[-1:]) == [["counts", "ok", "M:SS", *"left out: counting instructions: no valgrind here".split()]]


def test_whole_passes_when_every_part_does(tmp_path: Path):
    status, _ = run_parts(tmp_path, "checks", "passes")

    assert status == 0


@pytest.mark.slow
def test_project_that_tries_a_release_runs_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")

    assert try_project(tmp_path, Path(sys.executable), django.__version__) == "a worker ran the task: receipt 7"


def test_list_of_combinations_downloads_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(command: list[str]) -> None:
        raise AssertionError(command)

    monkeypatch.setattr(matrix, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(matrix, "find_python", lambda version: "python")

    assert matrix.show(matrix.cells([])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "no redis-server" in line] == [
        cell.name for cell in matrix.cells(["redis-7.0", "redis-8.0"])
    ]


def test_python_with_a_global_lock_is_none_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("PATH", f"{sys.base_prefix}/bin", prepend=os.pathsep)
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"

    assert matrix.find_python(own).endswith(f"python{own}")
    with pytest.raises(matrix.Missing, match=f"no Python {own}t with venv"):
        matrix.find_python(f"{own}t")
