"""Builds the distributions into `dist/` and tries them as a user would, on the oldest and the newest Python found here.

    python3 -m tools.release              build and try
    python3 -m tools.release --tag v0.1.0 the same; the package and CHANGELOG.md must have the version of the tag
    python3 -m tools.release --free-threaded
                                          try the clone on a Python without a global lock, such as 3.14t

Each distribution is built twice, and both must be the same bytes. Then it is installed into an empty environment
outside the clone, where a new project sends a task to a server in a wheel, a worker runs it, and the result is read.
Needs only Python; the tools that it uses are installed into `.venv-release/`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from pathlib import Path

from tools.matrix import ROOT, Missing, find_python

TOOLS = ROOT / ".venv-release"
DIST = ROOT / "dist"
REQUIREMENTS = ("build==1.6.1", "check-wheel-contents==0.6.3", "twine==7.0.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
FREE_THREADED = ("3.15t", "3.14t")
#: A migration cannot be imported by its name. Spark finds its data source by the name of a module beside the package.
EXPECTED = "W004,W009"

PROJECT = {
    "settings.py": """
        from pathlib import Path
        BASE_DIR = Path(__file__).parent
        SECRET_KEY = "for a test"
        INSTALLED_APPS = [{backport}"rsmq_django", "shop"]
        DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}}}
        RSMQ = {{"CONNECTIONS": {{"default": {{"EMBEDDED": True}}}}, "QUEUES": {{"default": {{}}}}}}
        TASKS = {{"default": {{"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}}}}
        """,
    "shop/__init__.py": "",
    "shop/tasks.py": """
        import sys, sysconfig
        from rsmq_django.tasks import task

        @task(timeout_s=30)
        def receipt(number: int) -> str:
            # A module in C that is not made for it turns the global lock on.
            assert not sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled()
            return f"receipt {number}"
        """,
    "try_it.py": """
        import os, django
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        django.setup()
        from django.core.management import call_command
        from shop.tasks import receipt
        call_command("check")
        sent = receipt.enqueue(7)
        try:
            call_command("rsmq_worker", burst=True, reload=False, processes=1)
        except SystemExit as end:
            assert end.code == 0, end.code
        sent.refresh()
        assert sent.return_value == "receipt 7", sent
        print("a worker ran the task:", sent.return_value)
        """,
}


class Refused(Exception):
    """The distributions are not ready."""


def run(*command: object, **options: object) -> str:
    """Run a command and return what it printed. Raises Refused with its output when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise Refused(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
    return str(done.stdout)


def check_tag(tag: str) -> None:
    """Raise Refused unless the package and the changelog have the version of the tag, and all changes are in it."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "rsmq_django" / "__init__.py").read_text(), re.M)
    if version is None or tag != f"v{version[1]}":
        raise Refused(f"the tag is {tag}, but __version__ is {version and version[1]}")
    changes = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version[1])}\] - \d{{4}}-\d\d-\d\d$", changes, re.M):
        raise Refused(f"CHANGELOG.md has no heading '## [{version[1]}] - <date>'")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)^## ", changes, re.M | re.S)
    if unreleased is not None and unreleased[1].strip():
        raise Refused(f"CHANGELOG.md has changes under 'Unreleased'; the tag would contain them: move them to {tag}")


def build() -> list[Path]:
    """Build into dist/ and return the paths. Raises Refused when a second build differs, or PyPI would refuse one."""
    python = TOOLS / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", TOOLS)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS)
    shutil.rmtree(DIST, ignore_errors=True)
    dated = {"env": os.environ | {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()}}
    with tempfile.TemporaryDirectory() as second:
        for directory in (DIST, second):
            run(python, "-m", "build", "--outdir", directory, ROOT, **dated)
        built = sorted(DIST.iterdir())
        for path in built:
            if path.read_bytes() != (Path(second) / path.name).read_bytes():
                raise Refused(f"two builds of {path.name} differ")
    run(python, "-m", "twine", "check", "--strict", *built)
    run(TOOLS / "bin" / "check-wheel-contents", "--ignore", EXPECTED, *DIST.glob("*.whl"))
    return built


def try_installation(distribution: Path, python: str) -> str:
    """Install into an empty environment and let a new project run a task. Returns what that printed last."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        run(python, "-m", "venv", directory / "environment")
        own = directory / "environment" / "bin" / "python"
        run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{distribution}[embedded]")
        django = run(own, "-c", "import django; print(django.__version__)").strip()
        return f"Django {django}: {try_project(directory / 'project', own, django)}"


def try_project(directory: Path, python: Path, django: str) -> str:
    """Let a worker of a new project run a task. Returns the line that says so."""
    for name, source in PROJECT.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        backport = '"django_tasks", ' if django < "6" else ""
        path.write_text(textwrap.dedent(source.format(backport=backport) if name == "settings.py" else source))
    printed = run(python, "try_it.py", cwd=directory)
    (seen,) = (line for line in printed.splitlines() if line.startswith("a worker ran"))
    return seen


def try_demo(distribution: Path, python: str) -> str:
    """Play a day of the demo from an unpacked source distribution. Returns how many messages were settled."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        with tarfile.open(distribution) as archive:
            archive.extractall(directory, filter="data")
        (unpacked,) = directory.iterdir()
        printed = run("make", "demo", "ONCE=1", "DAY=2013-02-08", f"PYTHON={python}", cwd=unpacked)
        return read_demo(printed)


def read_demo(printed: str) -> str:
    """Return the line of the demo's summary that counts its messages. Raises Refused when there is none."""
    counted = re.search(r"^[\d,]+ messages settled in .+$", printed, re.M)
    if counted is None:
        raise Refused(f"the demo ended without a summary:\n{printed}")
    return counted[0]


def pythons() -> dict[str, str]:
    """Return the oldest and the newest supported Python of this machine, by version."""
    found = {}
    for version in PYTHONS:
        try:
            found[version] = find_python(version)
        except Missing:
            continue
    return {version: found[version] for version in (min(found, key=PYTHONS.index), max(found, key=PYTHONS.index))}


def try_free_threaded() -> int:
    """Let a worker of the clone run a task on a Python without a global lock. Returns the exit status."""
    for version in FREE_THREADED:
        try:
            python = find_python(version)
        except Missing:
            continue
        print(f"Python {version}, {try_installation(ROOT, python)}")
        return 0
    print(f"SKIPPED the trial without a global lock: no Python {' or '.join(FREE_THREADED)} with venv")
    return 1 if os.environ.get("CI") else 0


def main() -> int:
    """Build and try; print what was seen."""
    parser = argparse.ArgumentParser(description="Build the distributions and try them.")
    parser.add_argument("--tag", help="the tag of the release, like v0.1.0")
    parser.add_argument("--free-threaded", action="store_true", help="only try the clone without a global lock")
    options = parser.parse_args()
    tag = options.tag
    try:
        if options.free_threaded:
            return try_free_threaded()
        if tag:
            check_tag(tag)
        built = build()
        for path in built:
            print(
                f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB, the same when it is built again",
                flush=True,
            )
        for version, python in pythons().items():
            for path in built:
                print(f"{path.suffix[1:]} on Python {version}, {try_installation(path, python)}", flush=True)
        (source,) = DIST.glob("*.tar.gz")
        print(f"demo of the source distribution: {try_demo(source, python)}")
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
