"""Changes the code at random places, one at a time, and says which changes no test notices.

    python tools/mutate.py --count 40 --seed 7                 # of all files under test
    python tools/mutate.py --count 20 rsmq_django/worker       # of some
    python tools/mutate.py --lua --count 40

Works in a copy of the tree. First it runs the fast tests once there and notes which lines each executes (`--notes`
keeps that for the next time); then each change is met by the tests that execute its line, those first that execute
little else. Needs Python 3.12 or newer. The exit status is 0 when at least `--at-least` percent were noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[1]
#: What the fast tests hold: not what needs Spark or a browser, nor commands for development.
PARTS = ["core", "worker", "tasks", "outbox"]
FAST = "not slow and not long and not spark and not spark_slow and not browser"
#: The tests of one mutant take at most that long on the code as it is; a run that takes as much more hangs.
SECONDS_PER_MUTANT = 40
HANGS_AFTER_S = 240
NOTICED = ("failed", "hung", "does not start")


@dataclass
class Notes:
    """What each test executes, as an earlier run has found it."""

    seconds: dict[str, float] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    by_line: defaultdict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    by_file: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls, directory: Path, includes: dict[str, list[str]], mutants: Sequence[Mutant]) -> Notes:
        """Read what is of use for these mutants."""
        notes, wanted = cls(), {(mutant.path, mutant.line) for mutant in mutants}
        for line in (line for path in directory.glob("*.jsonl") for line in path.open()):
            note = json.loads(line)
            test = note["test"]
            notes.seconds[test], notes.size[test] = note["seconds"], sum(map(len, note["lines"].values()))
            for path, numbers in note["lines"].items():
                notes.by_file[path].add(test)
                for number in numbers:
                    if (path, number) in wanted:
                        notes.by_line[path, number].add(test)
            for script in note["scripts"]:
                for path in includes.get(script, ()):
                    notes.by_file[path].add(test)
        return notes

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the line, as many as there is time for; of a line of a module, of its file."""
        found = self.by_line.get((mutant.path, mutant.line)) or self.by_file.get(mutant.path, set())
        chosen, left_s = [], float(SECONDS_PER_MUTANT)
        for test in sorted(found, key=lambda test: (self.size[test], self.seconds[test], test)):
            if self.seconds[test] <= left_s:
                chosen.append(test)
                left_s -= self.seconds[test]
        return chosen


class Copy:
    """A copy of the tree, in which one mutant at a time takes the place of the code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: By test that failed with a mutant, whether it passes on the code as it is.
        self._passes: dict[str, bool] = {}
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines():
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)

    def pytest(self, *arguments: str, within_s: float | None = None, **environment: str) -> tuple[int | None, str]:
        """Run pytest here; returns its status, None when it takes too long, and its output."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", FAST, *arguments]
        variables = {**os.environ, "PYTHONPATH": str(self.directory), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        with subprocess.Popen(
            command, cwd=self.directory, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=within_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, ""
        return process.returncode, output

    def verdict(self, mutant: Mutant, tests: list[str]) -> str:
        """Say what becomes of the tests with this mutant in the place of the code."""
        while tests := [test for test in tests if self._passes.get(test, True)]:
            path = self.directory / mutant.path
            text = path.read_text("utf-8")
            path.write_text(mutant.applied_to(text), "utf-8")
            try:
                status, output = self._run(tests)
            finally:
                path.write_text(text, "utf-8")
            failed = [test for test in tests if _is_told_of(test, output)]
            if status != 1 or not failed or self._passes_as_it_is(failed[0]):
                return {None: "hung", 0: "SURVIVED", 1: "failed"}.get(status, "does not start")
        return "not executed"

    def _passes_as_it_is(self, test: str) -> bool:
        if test not in self._passes:
            self._passes[test] = self._run([test])[0] == 0
        return self._passes[test]

    def _run(self, tests: list[str]) -> tuple[int | None, str]:
        names = self.directory / "tests-of-a-mutant"
        names.write_text("\n".join(tests))
        return self.pytest("-x", "-p", "no:randomly", f"@{names}", within_s=HANGS_AFTER_S)


def _is_told_of(test: str, output: str) -> bool:
    """Say whether this test failed, not one whose name only begins like it."""
    beginnings = (f"FAILED {test}", f"ERROR {test}")
    return any(line.partition(" - ")[0] in beginnings or line in beginnings for line in output.splitlines())


def scripts_including() -> dict[str, list[str]]:
    """Return the files of each script: its own, and those it includes."""
    lua = ROOT / "rsmq_django/core/lua"

    def files_of(name: str) -> list[str]:
        text = (lua / f"{name}.lua").read_text("utf-8")
        parts = [line.split()[1] for line in text.splitlines() if line.startswith("--#include ")]
        return [f"rsmq_django/core/lua/{name}.lua", *(path for part in parts for path in files_of(part))]

    names = (str(path.relative_to(lua).with_suffix("")) for path in lua.rglob("*.lua"))
    return {name: files_of(name) for name in names}


def sample(arguments: argparse.Namespace) -> list[Mutant]:
    """Choose mutants, each as likely as any other."""
    suffix = "*.lua" if arguments.lua else "*.py"
    places = arguments.paths or [f"rsmq_django/{part}" for part in PARTS]
    files = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob(suffix)] if path.is_file()]
    mutants = [mutant for path in sorted(files) for mutant in mutants_of(ROOT, str(path.relative_to(ROOT)))]
    return random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))


def main() -> int:
    """See the head of this file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("paths", nargs="*", help="files and directories (default: core, worker, tasks, outbox)")
    options.add_argument("--count", type=int, default=40, help="number of mutants (default: 40)")
    options.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    options.add_argument("--lua", action="store_true", help="mutants of Lua instead of Python")
    options.add_argument("--notes", type=Path, help="directory that keeps which test executes what")
    options.add_argument("--at-least", type=float, default=90, help="percent to be noticed (default: 90)")
    options.add_argument("--processes", default="2", help="test processes of the first run (default: 2)")
    arguments = options.parse_args()
    chosen = sample(arguments)
    with tempfile.TemporaryDirectory(prefix="rsmq-mutants-") as directory:
        copy = Copy(Path(directory))
        kept = (arguments.notes or copy.directory / "notes").resolve()
        if not kept.exists():
            kept.mkdir(parents=True)
            print("noting what each test executes ...", flush=True)
            _, said = copy.pytest("-p", "tools.footprints", "-n", arguments.processes, RSMQ_FOOTPRINTS=str(kept))
            print(said[-300:], flush=True)
        notes = Notes.read(kept, scripts_including(), chosen)
        verdicts = {mutant: _try(copy, mutant, notes) for mutant in chosen}
    return report(verdicts, at_least=arguments.at_least)


def _try(copy: Copy, mutant: Mutant, notes: Notes) -> str:
    began, tests = time.monotonic(), notes.tests_for(mutant)
    verdict = copy.verdict(mutant, tests)
    print(f"{verdict:<15} {time.monotonic() - began:5.0f} s {len(tests):4} tests  {mutant}", flush=True)
    return verdict


def report(verdicts: dict[Mutant, str], *, at_least: float) -> int:
    """Print a table by directory, and what nobody noticed."""
    tables: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, verdict in verdicts.items():
        name = "lua" if mutant.path.endswith(".lua") else mutant.path.split("/")[1]
        tables[name]["noticed" if verdict in NOTICED else "survived"] += 1
    print(f"\n{'part':<12}{'mutants':>9}{'noticed':>9}{'survived':>10}{'':>9}")
    total = Counter[str]()
    for name, counts in [*sorted(tables.items()), ("all", total)]:
        total += counts if name != "all" else Counter()
        rate = 100 * counts["noticed"] / max(counts.total(), 1)
        print(f"{name:<12}{counts.total():>9}{counts['noticed']:>9}{counts['survived']:>10}{rate:>8.0f}%")
    for mutant, verdict in verdicts.items():
        if verdict not in NOTICED:
            print(f"{verdict}: {mutant}")
    return int(100 * total["noticed"] < at_least * total.total())


if __name__ == "__main__":
    sys.exit(main())
