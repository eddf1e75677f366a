"""Run the tests of the example project, in a process that has its settings."""

import os
import subprocess
import sys

import pytest


@pytest.mark.deadline(900)
def test_example_project_passes_its_tests_with_its_own_settings(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ds=tests.example.settings"]
    # What this run leaves out, that one leaves out as well.
    command += ["-m", request.config.option.markexpr]

    # It starts a server of its own, so it must not hear of this process's.
    env = {name: value for name, value in os.environ.items() if name != "RSMQ_TEST_URL"}

    done = subprocess.run([*command, "tests/example"], env=env, capture_output=True, text=True, timeout=900)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
