"""The pages under themes for Django's admin, which have templates of their own. A theme needs a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.deadline(660)]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("theme", ["unfold", "jazzmin"])
def test_every_page_can_be_used_with_a_theme(theme: str):
    check = ROOT / "tests" / "browser" / "themes" / "check_pages.py"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "browser", f"--ds=tests.browser.themes.{theme}", str(check)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
