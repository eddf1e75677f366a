"""The pages of the documentation, their blocks of code, and a project made of the blocks of one page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAMED_BLOCK = re.compile(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
JSON_BLOCK = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)

PROJECT_SETTINGS = """
SECRET_KEY = "only-for-tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
import importlib.util
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
"""


class Project:
    """A Django project made of a page's code blocks."""

    def __init__(self, directory: Path, page: Path, redis_url: str) -> None:
        self.directory = directory
        (directory / "shop").mkdir()
        (directory / "shop" / "__init__.py").touch()
        blocks = dict(NAMED_BLOCK.findall(page.read_text("utf-8")))
        settings = PROJECT_SETTINGS + blocks.pop("settings.py", "INSTALLED_APPS += ['rsmq_django']\n")
        # Patient, because a busy machine can stand still for more than a second.
        connections = {"default": {"URL": redis_url, "TIMEOUT_S": 15}}
        settings += f"\nRSMQ = {{**globals().get('RSMQ', {{}}), 'CONNECTIONS': {connections!r}}}\n"
        settings += "TASKS = {'default': {'BACKEND': 'rsmq_django.tasks.backend.RSMQBackend', 'QUEUES': []}}\n"
        self.write("settings.py", settings)
        for name, text in blocks.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, "utf-8")

    def run(self, *words: str) -> str:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{self.directory}:{ROOT}"}
        done = subprocess.run(
            [sys.executable, *words], cwd=self.directory, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python(self, code: str) -> str:
        return self.run("-c", f"import django; django.setup()\n{code}")
