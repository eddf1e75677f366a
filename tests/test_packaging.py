"""The installed package: all of its files, its licence, and requirements that can be met."""

import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rsmq_django

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = directory.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        yield wheel


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def requirements(metadata: Message, **environment: str) -> set[str]:
    """Return the names that a plain installation asks for, in that environment."""
    wanted = map(Requirement, metadata.get_all("Requires-Dist"))
    return {w.name for w in wanted if w.marker is None or w.marker.evaluate({"extra": "", **environment})}


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    on_disk = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rsmq_django").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {"pyspark_rsmq.py"}

    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert in_wheel == on_disk
    assert {"rsmq_django/py.typed", "rsmq_django/core/queue/lua/send.lua"} <= in_wheel


def test_wheel_carries_the_licence_by_its_identifier_and_its_text(wheel, metadata):
    assert metadata["License-Expression"] == "MIT"
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_version_of_the_wheel_is_the_version_of_the_package(metadata):
    assert metadata["Version"] == rsmq_django.__version__


def test_python_that_cannot_have_django_6_gets_the_tasks_backport(metadata):
    assert "django-tasks" in requirements(metadata, python_version="3.11")
    assert "django-tasks" not in requirements(metadata, python_version="3.12")


def test_plain_installation_brings_no_server_and_no_data(metadata):
    assert requirements(metadata, python_version="3.13") == {"click", "django", "django-redis", "redis"}


def test_source_distribution_holds_every_package_that_its_tests_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]

    sources = (path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    imported = {name for source in sources for name in re.findall(r"^(?:from|import) (\w+)", source, re.M)}

    ours = {name for name in imported if (ROOT / name / "__init__.py").exists()}
    assert {f"/{name}" for name in ours} <= set(included)
    assert {"rsmq_django", "tests", "benchmarks", "example_project"} <= ours


def test_importing_the_package_pulls_in_neither_django_nor_redis():
    program = "import rsmq_django, sys; print(*sorted({'django', 'redis'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_constraints_pin_exact_versions_and_name_no_index():
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    pins = [line for line in lines if not line.startswith("#")]

    assert pins
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+(; python_(full_)?version [<>=]+ '[0-9.]+')?", pin), pin


def test_entry_points_of_the_wheel_name_what_it_has(wheel: zipfile.ZipFile):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    found = dict(re.findall(r"^(\S+) = (\S+)$", wheel.read(name).decode(), re.MULTILINE))

    assert found["rsmq_django"] == "rsmq_django.telemetry.instrumentor:RsmqInstrumentor"
    for place in found.values():
        module, _, member = place.partition(":")
        assert not member or hasattr(importlib.import_module(module), member)
