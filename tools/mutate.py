"""Changes the code at random places, one at a time, and reports the changes that no test notices.

    python tools/mutate.py --count 40 --seed 7                 # of all files under test
    python tools/mutate.py --count 20 rsmq_django/worker       # of some
    python tools/mutate.py --lua --count 40

Works in a copy of the tree. A first run of the tests notes the lines that each of them executes, also in the processes
that it starts (`--notes` keeps that for the next time); then each mutant meets the
tests that execute its line, those first that execute little else, and at last the slow ones. The exit status is 0 when
at least `--at-least` percent were noticed, not counting those of `equivalent_mutants.toml`. Needs Python 3.12 or newer.

Left out is what cannot matter, and what a test could only repeat: log lines, warnings, `__repr__`, numbers that are
constants of a module, and migrations, because a test compares them with the models.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain
from operator import itemgetter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import leftovers
from tests.scripts import FILES
from tools.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[1]
#: What the fast tests hold: not what needs Spark or a browser, nor commands for development.
PARTS = ["core", "worker", "tasks", "outbox"]
MARKERS = "not long and not spark and not spark_slow and not browser"
#: Most mutants are noticed by the first tests, so the files of the others need not be collected.
FIRST_TESTS = 6
#: Run time on unchanged code of the fast tests that come next, and of all others, fast and slow, that come at last.
FAST_TESTS_S = 40
LAST_TESTS_S = 120
#: Deadline of one test, and of the tests of one round beyond twice their run time.
DEADLINE_S = 60
HANGS_AFTER_S = 300
NOTICED = ("failed", "hung", "does not start")
#: Mutants that behave like the code, each with the reason.
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")


class Moved:
    """The lines of today for those of the tree in which notes were made: of a changed line, all that replaced it."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._by_path: dict[str, dict[int, Sequence[int]]] = {}

    def lines(self, path: str, numbers: Iterable[int]) -> Iterable[int]:
        if path not in self._by_path:
            self._by_path[path] = dict(self._compared(path)) if (self._tree / path).is_file() else {}
        moved = self._by_path[path]
        return chain.from_iterable(moved.get(number, (number,)) for number in numbers)

    def _compared(self, path: str) -> Iterator[tuple[int, Sequence[int]]]:
        before = (self._tree / path).read_text("utf-8").splitlines()
        today = (ROOT / path).read_text("utf-8").splitlines() if (ROOT / path).is_file() else []
        for tag, begin, end, first, last in SequenceMatcher(None, before, today, autojunk=False).get_opcodes():
            for at in range(begin, end):
                yield at + 1, [first + at - begin + 1] if tag == "equal" else range(first + 1, last + 1)


@dataclass
class Notes:
    """The lines that each test executes, from an earlier run."""

    seconds: dict[str, float] = field(default_factory=dict)
    size: Counter[str] = field(default_factory=Counter)
    slow: set[str] = field(default_factory=set)
    by_line: defaultdict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    by_file: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, directories: Sequence[Path], includes: dict[str, list[str]]) -> Notes:
        """Read the notes of pytest and of the processes that tests started; later directories tell more of a test."""
        notes = cls()
        for directory in reversed(directories):
            notes._read(directory, includes)
        return notes

    def _read(self, directory: Path, includes: dict[str, list[str]]) -> None:
        known, moved = set(self.seconds), Moved(directory / "tree")
        for line in (line for path in directory.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()):
            note = json.loads(line)
            test = note["test"]
            if test in known:
                continue
            self.seconds[test] = note["seconds"]
            if note["slow"]:
                self.slow.add(test)
            for path, numbers in note["lines"].items():
                self._add(test, path, *moved.lines(path, numbers))
            for script in note["scripts"]:
                for path in includes.get(script, ()):
                    self._add(test, path)
        for child in directory.glob("*.child"):
            test, *lines = child.read_text("utf-8").splitlines()
            for path, _, number in (
                line.rpartition(":") for line in lines if test in self.seconds and test not in known
            ):
                self._add(test, path, *moved.lines(path, [int(number)]))

    def _add(self, test: str, path: str, *lines: int) -> None:
        self.size[test] += len(lines)
        self.by_file[path].add(test)
        for line in lines:
            self.by_line[path, line].add(test)

    def rounds_for(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests that execute the line: a few, the other fast ones, and at last all others, slow ones too.

        Instead of the line its statement counts if that is noted, and outside of functions the file. In turn one in a
        file that is called like that of the mutant, one whose name has words of the changed code, and one of any other
        file; of each, first those that execute little else. At last first those that take little time.
        """
        found = self._tests_that_execute(mutant)
        words = _words_of(mutant.path)
        particular = sorted(found, key=lambda test: (test in self.slow, self.size[test], self.seconds[test], test))
        alike = sorted(particular, key=lambda test: (test in self.slow, -len(words & _words_of(_file_of(test)))))
        changed = _stems_of(mutant.before) - _stems_of(mutant.after) or _stems_of(mutant.before)
        about = sorted(particular, key=lambda test: (test in self.slow, -len(changed & _stems_of(test))))
        places = defaultdict[str, int](int)
        of_each_file = list[tuple[bool, int, str]]()
        for test in particular:
            places[_file_of(test)] += 1
            of_each_file.append((test in self.slow, places[_file_of(test)], test))
        spread = [test for *_, test in sorted(of_each_file, key=itemgetter(0, 1))]
        in_turn = dict.fromkeys(chain.from_iterable(zip(alike, about, spread, strict=True)))
        soon = self._within(FAST_TESTS_S, [test for test in in_turn if test not in self.slow])
        last = sorted(found - {*soon}, key=lambda test: self.seconds[test])
        rounds = [soon[:FIRST_TESTS], soon[FIRST_TESTS:], self._within(LAST_TESTS_S, last)]
        return [tests for tests in rounds if tests]

    def _tests_that_execute(self, mutant: Mutant) -> set[str]:
        if found := self.by_line.get((mutant.path, mutant.line)):
            return found
        if mutant.places:
            return set[str]().union(*(self.by_line.get((mutant.path, line), ()) for line in mutant.places))
        return self.by_file.get(mutant.path, set())

    def _within(self, seconds: float, tests: Iterable[str]) -> list[str]:
        chosen = list[str]()
        for test in tests:
            if self.seconds[test] <= seconds:
                chosen.append(test)
                seconds -= self.seconds[test]
        return chosen


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _words_of(path: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall("[a-z]+", path)} - {"test", "py"}


def _stems_of(text: str) -> set[str]:
    """Return the beginnings of words, so that "expires" is like "expiry"."""
    return {word[:5] for word in re.findall("[a-z]{4,}", text.lower())}


@dataclass(frozen=True)
class Verdict:
    """The result of the tests of one mutant."""

    name: str
    #: The test that failed.
    test: str = ""

    @property
    def is_noticed(self) -> bool:
        return self.name in NOTICED


class Copy:
    """A copy of the tree, in which one mutant at a time takes the place of the code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mutants = 0
        #: Tests that fail on unchanged code, or are no longer there.
        self.failing = set[str]()
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines():
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)

    def pytest(self, *arguments: str, within_s: float | None = None, **environment: str) -> tuple[int | None, str]:
        """Run pytest here and return its exit status and output; the status is None if it takes too long."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", MARKERS, *arguments]
        variables = {**os.environ, "PYTHONPATH": str(self.directory), **environment}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        with subprocess.Popen(
            command, cwd=self.directory, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                output, _ = process.communicate(timeout=within_s)
            except subprocess.TimeoutExpired:
                leftovers.end_all_but(set())
                return None, ""
        leftovers.end_all_but(set())
        return process.returncode, output

    def verdict(self, mutant: Mutant, notes: Notes) -> Verdict:
        """Return the result of the tests with this mutant: of one round, and only if that passes, of the next."""
        verdict = Verdict("not executed")
        for tests in notes.rounds_for(mutant):
            if left := [test for test in tests if test not in self.failing]:
                verdict = self._verdict_of(
                    mutant, left, within_s=HANGS_AFTER_S + 2 * sum(notes.seconds[test] for test in left)
                )
            if verdict.is_noticed:
                break
        return verdict

    def _verdict_of(self, mutant: Mutant, tests: list[str], *, within_s: float) -> Verdict:
        with self._changed(mutant):
            status, output = self._run(tests, within_s=within_s)
        if status == 0:  # a change can end the process as if all was well, before pytest tells the result
            return Verdict("SURVIVED" if " passed" in output else "failed")
        if status is None:
            return Verdict("hung" if self._run(tests, within_s=within_s)[0] is not None else "too slow")
        if status > 1:
            status, output = self._run(tests, "--collect-only")
            if status == 0:
                return Verdict("does not start")
            gone = {test for test in tests if _is_gone(test, output)}
            self.failing |= gone
            left = [test for test in tests if test not in gone]
            return self._verdict_of(mutant, left, within_s=within_s) if gone and left else Verdict("not found")
        return Verdict("failed", next((test for test in tests if _is_told_of(test, output)), ""))

    def find_failing(self, tests: set[str]) -> set[str]:
        """Return those of these tests that fail on unchanged code, so that a mutant is not noticed by them."""
        found = set[str]()
        while left := sorted(tests - found):
            status, output = self._run(left)
            failed = {test for test in left if _is_told_of(test, output)}
            found |= failed
            if status == 0 or not failed:
                break
        self.failing |= found
        return found

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        """Put the mutant in place, with a modification time of its own: byte code is kept by time and size."""
        path = self.directory / mutant.path
        text, modified_ns = path.read_text("utf-8"), path.stat().st_mtime_ns
        path.write_text(mutant.applied_to(text), "utf-8")
        self._mutants += 1
        os.utime(path, ns=(modified_ns, modified_ns + self._mutants * 10**9))
        try:
            yield
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(modified_ns, modified_ns))

    def _run(self, tests: list[str], *options: str, within_s: float = HANGS_AFTER_S) -> tuple[int | None, str]:
        names = self.directory / "tests-of-a-mutant"
        names.write_text("\n".join(tests))
        words = ("-x", "-p", "no:randomly", f"@{names}", *options)
        return self.pytest(*words, within_s=within_s, RSMQ_DEADLINE_S=str(DEADLINE_S))


def _is_told_of(test: str, output: str) -> bool:
    """Say whether this test failed, not one whose name only begins like it."""
    beginnings = (f"FAILED {test}", f"ERROR {test}")
    return any(line.partition(" - ")[0] in beginnings or line in beginnings for line in output.splitlines())


def _is_gone(test: str, output: str) -> bool:
    """Say whether pytest does not find this test; it tells the file, or the function without parameters."""
    names = [line.partition("not found: ")[2] for line in output.splitlines() if line.startswith("ERROR: ")]
    return any(name == test or name.endswith("/" + test.partition("[")[0]) for name in names)


def scripts_including() -> dict[str, list[str]]:
    """Return the files of each script: its own, and those it includes."""

    def files_of(name: str) -> list[str]:
        path = FILES[name]
        parts = [line.split()[1] for line in path.read_text("utf-8").splitlines() if line.startswith("--#include ")]
        return [str(path.relative_to(ROOT)), *(path for part in parts for path in files_of(part))]

    return {name: files_of(name) for name in FILES}


def sample(arguments: argparse.Namespace) -> list[Mutant]:
    """Choose mutants, each as likely as any other."""
    suffix = "*.lua" if arguments.lua else "*.py"
    places = arguments.paths or [f"rsmq_django/{part}" for part in PARTS]
    files = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob(suffix)] if path.is_file()]
    names = [str(path.relative_to(ROOT)) for path in sorted(files) if path.parent.name != "migrations"]
    mutants = [mutant for name in names for mutant in mutants_of(ROOT, name)]
    return random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))


def reasons_of_equivalents() -> dict[tuple[str, str, str], str]:
    """Return why a mutant behaves like the code, by its path, its source line and its change."""
    entries = tomllib.loads(EQUIVALENT.read_text("utf-8"))["mutant"]
    return {(entry["path"], entry["line"], entry["change"]): entry["reason"] for entry in entries}


def _key_of(mutant: Mutant) -> tuple[str, str, str]:
    line = (ROOT / mutant.path).read_text("utf-8").splitlines()[mutant.line - 1]
    return mutant.path, line.strip(), mutant.change


def main() -> int:
    """See the head of this file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("paths", nargs="*", help="files and directories (default: core, worker, tasks, outbox)")
    options.add_argument("--count", type=int, default=40, help="number of mutants (default: 40)")
    options.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    options.add_argument("--lua", action="store_true", help="mutants of Lua instead of Python")
    options.add_argument(
        "--notes",
        type=Path,
        action="append",
        help="directory that keeps the lines that each test executes (repeatable)",
    )
    options.add_argument(
        "--tests", nargs="+", default=["tests"], help="tests of a run that notes lines (default: tests)"
    )
    options.add_argument("--minutes", type=float, default=1e9, help="take no further mutant after that time")
    options.add_argument("--at-least", type=float, default=90, help="percent to be noticed (default: 90)")
    options.add_argument("--processes", default="2", help="test processes of the first run (default: 2)")
    arguments = options.parse_args()
    leftovers.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rsmq-mutants-") as directory:
        copy = Copy(Path(directory))
        kept = [path.resolve() for path in arguments.notes or [copy.directory / "notes"]]
        for missing in [path for path in kept if not path.exists()]:
            _note_lines_of(arguments.tests, copy, missing, processes=arguments.processes)
        notes = Notes.read(kept, scripts_including())
        verdicts = try_all(copy, sample(arguments), notes, within_s=60 * arguments.minutes)
    return report({mutant: verdict.name for mutant, verdict in verdicts.items()}, at_least=arguments.at_least)


def try_all(copy: Copy, mutants: list[Mutant], notes: Notes, *, within_s: float) -> dict[Mutant, Verdict]:
    """Try one mutant after the other until the time is over, and those again whose test also fails without them."""
    verdicts: dict[Mutant, Verdict] = {}
    reasons, ends_at = reasons_of_equivalents(), time.monotonic() + within_s
    for mutant in mutants:
        if time.monotonic() >= ends_at:
            print(f"time is over after {len(verdicts)} mutants", flush=True)
            break
        verdicts[mutant] = _try(copy, mutant, notes, reasons)
    while failing := copy.find_failing({verdict.test for verdict in verdicts.values() if verdict.test}):
        print("these fail on unchanged code:", *sorted(failing), sep="\n    ", flush=True)
        for mutant in [mutant for mutant, verdict in verdicts.items() if verdict.test in failing]:
            verdicts[mutant] = _try(copy, mutant, notes, reasons)
    return verdicts


def _note_lines_of(tests: list[str], copy: Copy, directory: Path, *, processes: str) -> None:
    shutil.copytree(copy.directory / "rsmq_django", directory / "tree/rsmq_django")
    print("noting the lines that each test executes ...", flush=True)
    path = f"{copy.directory / 'tools/children'}{os.pathsep}{copy.directory}"
    words = ("-p", "tools.footprints", "-n", processes, *tests)
    _, output = copy.pytest(*words, RSMQ_FOOTPRINTS=str(directory), PYTHONPATH=path)
    print(output[-3000:], flush=True)


def _try(copy: Copy, mutant: Mutant, notes: Notes, reasons: dict[tuple[str, str, str], str]) -> Verdict:
    began = time.monotonic()
    verdict = Verdict("equivalent") if _key_of(mutant) in reasons else copy.verdict(mutant, notes)
    seconds, count = time.monotonic() - began, sum(map(len, notes.rounds_for(mutant)))
    print(f"{verdict.name:<15} {seconds:5.0f} s {count:4} tests  {mutant}  {verdict.test}", flush=True)
    return verdict


def report(verdicts: dict[Mutant, str], *, at_least: float) -> int:
    """Print a table by directory, and the mutants that no test noticed. Equivalent mutants do not count."""
    tables: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, verdict in verdicts.items():
        name = "lua" if mutant.path.endswith(".lua") else mutant.path.split("/")[1]
        tables[name]["noticed" if verdict in NOTICED else "equivalent" if verdict == "equivalent" else "survived"] += 1
    print(f"\n{'part':<12}{'mutants':>9}{'noticed':>9}{'survived':>10}{'equivalent':>12}{'':>9}")
    total = sum(tables.values(), Counter[str]())
    for name, counts in [*sorted(tables.items()), ("all", total)]:
        rate = 100 * counts["noticed"] / max(counts["noticed"] + counts["survived"], 1)
        numbers = f"{counts['noticed']:>9}{counts['survived']:>10}{counts['equivalent']:>12}"
        print(f"{name:<12}{counts.total():>9}{numbers}{rate:>8.1f}%")
    for mutant, verdict in verdicts.items():
        if verdict not in NOTICED:
            print(f"{verdict}: {mutant}")
    return int(100 * total["noticed"] < at_least * (total["noticed"] + total["survived"]))


if __name__ == "__main__":
    sys.exit(main())
