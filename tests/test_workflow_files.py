"""The workflows of the public host run what can be run anywhere: targets of the Makefile and scripts of the clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def matrix(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.matrix", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_target_that_a_workflow_makes_is_in_the_makefile(workflow: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))

    made = re.findall(r"run: .*?\bmake ([a-z-]+)", workflow.read_text())
    scripts = re.findall(r"run: (?:sh )?(\S+\.sh|\.ci/run)", workflow.read_text())

    assert made or scripts
    assert set(made) <= targets
    assert all((ROOT / script).exists() for script in scripts)


def test_every_part_of_a_test_run_is_a_target_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    found = subprocess.run(["make", "-s", "print-TEST_PARTS", "SLOW=1"], cwd=ROOT, capture_output=True, text=True)
    parts = found.stdout.replace("+", " ").split()

    assert {"test-default", "test-other", "browser-default", "browser-other", "browser-django60"} < {*parts}
    assert {*parts} <= {*re.findall(r"^([a-z0-9-]+):", makefile, re.M)}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_of_others_are_named_by_their_commit(workflow: Path):
    used = re.findall(r"uses: (\S+)@(\S+)", workflow.read_text())

    assert used
    for action, version in used:
        assert re.fullmatch(r"[0-9a-f]{40}", version) or action == "pypa/gh-action-pypi-publish"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_ends_within_the_six_hours_of_a_public_runner(workflow: Path):
    text = workflow.read_text()
    limits = re.findall(r"^    timeout-minutes: (\d+)$", text, re.M)
    asked = [int(minutes) for minutes in re.findall(r"\bMINUTES=(\d+)", text)]

    assert len(limits) == text.count("runs-on:")
    assert all(int(limit) < 360 for limit in limits)
    assert all(minutes < max(map(int, limits)) for minutes in asked)


def test_audit_checks_each_file_that_a_host_or_containers_read_by_a_schema():
    audit = (ROOT / "Makefile").read_text()
    lines = re.findall(r"^\t@(?:\$\(SCHEMA\)|\S+/kubernetes-validate) (.+)", audit, re.M)
    checked = {
        path for line in lines for word in line.split() if "/" in word or "." in word for path in ROOT.glob(word)
    }
    expected = {*(ROOT / ".github").rglob("*.yml"), *(ROOT / "contrib").rglob("*.yaml"), ROOT / "compose.yaml"}

    # No Python package has a schema of KEDA's own kinds, or of what Grafana reads.
    without_schema = {*(ROOT / "contrib" / "grafana").rglob("*.yaml"), ROOT / "contrib" / "kubernetes" / "keda.yaml"}
    assert expected - checked == without_schema


def test_every_word_with_which_a_workflow_chooses_combinations_is_in_the_name_of_one():
    text = "".join(workflow.read_text() for workflow in WORKFLOWS)
    lists = re.findall(r"tools\.matrix --json ([^)]+)\)", text) + re.findall(r"test-matrix CELLS=(\w\S*)", text)

    assert len(lists) == 2
    for word in " ".join(lists).split():
        assert matrix("--json", word, DJANGO_MAIN="any").returncode == 0, word


def test_combinations_contain_every_version_that_the_package_names():
    classifiers = re.findall(r"(?:Python|Django) :: ([0-9]\.[0-9]+)", (ROOT / "pyproject.toml").read_text())

    names = [cell["name"] for cell in json.loads(matrix("--json").stdout)]

    assert len(classifiers) >= 8
    assert all(re.search(rf"(py|django){re.escape(version)}-", " ".join(names)) for version in classifiers)


def test_words_choose_combinations_by_their_names():
    names = [cell["name"] for cell in json.loads(matrix("--json", "django6.0", "redis-6.2").stdout)]

    assert names
    assert all("django6.0" in name or "redis-6.2" in name for name in names)


def test_word_that_no_combination_has_is_an_error_that_says_where_they_are_listed():
    done = matrix("py2.7")

    assert done.returncode == 2
    assert "py2.7" in done.stdout and "--list" in done.stdout
