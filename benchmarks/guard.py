"""`python -m benchmarks.guard`: fails when sending or running a task takes more instructions than recorded.

Counts sending and work (fetch, execute, settle) of a plain task, and of a task with each feature. The recorded counts
are in benchmarks/baselines/, one file for each version of Python and kind of processor. `--record` writes them anew:
after a change that is meant to cost more, or after one that made something cheaper, so that it stays cheap.
`--against COMMIT` compares with the counts of that commit instead, which it takes here: machines for which nothing is
recorded, such as those of a public host, can compare, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from .features import SHORT, count, each
from .instructions import CannotCount
from .places import BENCHMARKS, ROOT

BASELINES = BENCHMARKS / "baselines"
RECORD = "make record-instructions"
#: By how much a figure may grow.
MOST_GROWTH = 0.03
#: Features whose costs are guarded, in two groups that are counted side by side.
GROUPS = (
    (
        *("none of them", "result", "unique", "limit", "tags", "priority", "timeout_s", "topic", "topic, one by one"),
        *("value", "result with a value", "coroutine", "coroutine, timeout_s"),
    ),
    (
        "all events",
        "signed queue",
        "middleware",
        "batch of 10",
        "reliable queue",
        "expiry",
        "fair_by",
        "topic, batch of 10",
    ),
)

Figures = Mapping[str, float]


def main() -> None:
    """Count; compare, or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the counts into the baseline")
    parser.add_argument("--against", metavar="COMMIT", help="compare with the counts of that commit on this machine")
    options = parser.parse_args()
    if problem := cannot_count():
        sys.exit(f"cannot count: {problem}") if options.record else print(f"LEFT OUT: counting instructions: {problem}")
        return
    path = BASELINES / f"{baseline_name()}.json"
    if not options.record and not options.against and not path.exists():
        print(f"LEFT OUT: comparing instructions: there is no {path.name}; record it with: {RECORD}")
        return
    try:
        before = counted_at(options.against) if options.against else {}
        figures = measure()
    except CannotCount as error:
        sys.exit(f"cannot count: {error}")
    if options.record:
        write(path, figures)
        print(f"{path}: {len(figures)} figures")
        return
    if options.against:
        print(table(figures, before))
        fail_if_any(
            grown({name: now for name, now in figures.items() if name in before}, before), "say why in the commit"
        )
        return
    recorded = json.loads(path.read_text())
    print(table(figures, recorded["figures"]))
    if recorded["made with"] != made_with():
        different = [name for name, value in made_with().items() if recorded["made with"].get(name) != value]
        print(f"LEFT OUT: comparing instructions: other {', '.join(different)} than in {path.name} ({RECORD})")
        return
    fail_if_any(grown(figures, recorded["figures"]), f"record it: {RECORD}")


def fail_if_any(failures: Sequence[str], remedy: str) -> None:
    """End with status 1 and these lines, if there are any, and with what to do when that is intended."""
    if failures:
        print("", *failures, f"If that is intended, {remedy}", sep="\n")
        sys.exit(1)


def counted_at(commit: str) -> dict[str, float]:
    """Return the figures of another commit, counted on this machine. Raises CannotCount."""
    with tempfile.TemporaryDirectory() as directory:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
        if packed.returncode:
            raise CannotCount(f"there is no commit {commit!r}: {packed.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", directory], input=packed.stdout, check=True)
        command = [sys.executable, "-m", "benchmarks.guard", "--record"]
        done = subprocess.run(command, cwd=directory, env=os.environ | {"PYTHONPATH": directory}, check=False)
        path = Path(directory) / BASELINES.relative_to(ROOT) / f"{baseline_name()}.json"
        if done.returncode or not path.exists():
            raise CannotCount(f"the instructions of commit {commit} cannot be counted")
        figures: dict[str, float] = json.loads(path.read_text())["figures"]
        return figures


def cannot_count() -> str | None:
    """Return why nothing can be counted here; None when it can."""
    missing = [name for name in ("valgrind", "cc") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} here (Debian: apt-get install valgrind gcc libc6-dev)" if missing else None


def baseline_name() -> str:
    """Return the name of this Python and processor, such as "cpython-3.11-x86_64"."""
    return f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}-{platform.machine()}"


def made_with() -> dict[str, str]:
    """Return everything outside this project that changes the counts."""
    return {
        "python": platform.python_version(),
        "compiler": platform.python_compiler(),
        "libc": "-".join(platform.libc_ver()),
        **{name: version(name) for name in ("django", "redis", "hiredis")},
    }


def measure() -> dict[str, float]:
    """Return thousands of instructions by figure. Raises CannotCount."""
    with ThreadPoolExecutor() as pool:
        groups = pool.map(lambda names: count(names, only_used=True, numbers=SHORT), GROUPS)
        parts = {name: number for group in groups for name, number in group.items()}
    figures = {}
    for key in dict.fromkeys("/".join(name.split("/")[:3]) for name in parts):
        feature, _, what = key.split("/")
        cost = each(parts, key)
        assert cost is not None
        name = "plain task" if feature == "none of them" else feature
        figures[f"{name}: {'send' if what == 'send' else 'work'}"] = round(cost, 2)
    return figures


def write(path: Path, figures: Figures) -> None:
    """Write a baseline."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"made with": made_with(), "figures": figures}, indent=2) + "\n")


def grown(figures: Figures, recorded: Figures) -> list[str]:
    """Return a line for each figure that is above its limit, or not recorded."""
    lines = []
    for name, now in figures.items():
        if name not in recorded:
            lines.append(f"{name}: {now:.1f} thousand instructions, not recorded yet")
        elif now > (limit := recorded[name] * (1 + MOST_GROWTH)):
            lines.append(
                f"{name}: {now:.1f} thousand instructions, {now / recorded[name] - 1:+.1%}; recorded are"
                f" {recorded[name]:.1f}, the limit is {limit:.1f}"
            )
    return lines


def table(figures: Figures, recorded: Figures) -> str:
    """Return the figures beside the recorded ones."""
    lines: Sequence[str] = [
        f"{name:<24}{now:>8.1f}{_change(now, recorded.get(name)):>9}" for name, now in figures.items()
    ]
    return "\n".join([f"{'thousand instructions':<24}{'now':>8}{'change':>9}", *lines])


def _change(now: float, recorded: float | None) -> str:
    return "new" if recorded is None else f"{now / recorded - 1:+.1%}"


if __name__ == "__main__":
    main()
