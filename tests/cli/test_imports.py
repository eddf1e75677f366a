"""The command line needs neither Django nor a colour library, and nothing else needs the command line."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rsmq_django

PACKAGE = Path(rsmq_django.__file__).parent
CLI = sorted((PACKAGE / "cli").glob("*.py"))


@pytest.mark.parametrize("path", CLI, ids=lambda path: path.name)
def test_command_line_imports_core_and_itself_only(path: Path):
    found = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]

    assert {(node.module or "").split(".")[0] for node in found if node.level == 2} <= {"core", ""}
    assert all(
        (node.module or "").split(".")[0] in {*sys.stdlib_module_names, "click"} for node in found if not node.level
    )


@pytest.mark.slow
def test_command_line_works_where_django_is_not_installed():
    blocker = (
        "import sys\n"
        "class NoDjango:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0].startswith('django'): raise ImportError(f'{name} is blocked')\n"
        "sys.meta_path.insert(0, NoDjango())\n"
        "from rsmq_django.cli.app import main\n"
        "assert main(['--version']) == 0\n"
        "assert main(['-r', 'redis://127.0.0.1:1', 'queue', 'list']) == 1\n"
    )

    done = subprocess.run([sys.executable, "-W", "error", "-c", blocker], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{rsmq_django.__version__}\n"


def test_core_does_not_need_click():
    program = "import sys, rsmq_django.core; assert 'click' not in sys.modules"

    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("path", CLI, ids=lambda path: path.name)
def test_modules_are_small(path: Path):
    assert len(path.read_text("utf-8").splitlines()) <= 300
