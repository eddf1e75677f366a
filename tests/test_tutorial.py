"""The tutorial works: its files and commands make a project, step by step, in the order of the page."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import PrivateServer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "getting-started" / "tutorial.md").read_text("utf-8")
STEP = re.compile(r"(?:^(Add to )?`([\w/]+\.py)`:\n\n```python\n|^```console\n)(.*?)^```", re.MULTILINE | re.DOTALL)
#: What the environment of the tests has already.
LEFT_OUT = ("python3 -m venv", "pip install")


class Reader:
    """Who does what the page says, in a folder."""

    def __init__(self, folder: Path, server: PrivateServer) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment["PYTHONPATH"] = str(ROOT)
        self.of_the_test = f"\nRSMQ['CONNECTIONS'] = {{'default': {{'URL': {server.url!r}, 'TIMEOUT_S': 15}}}}\n"
        if importlib.util.find_spec("django.tasks") is None:
            self.of_the_test += "INSTALLED_APPS.append('django_tasks')\n"

    def write(self, name: str, text: str, *, add: bool) -> None:
        path = self.folder / name
        if name.endswith("settings.py"):
            text += self.of_the_test
        path.write_text((path.read_text() + "\n" if add else "") + text)

    def type(self, transcript: str) -> None:
        for part in transcript.split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            if not command.startswith(LEFT_OUT):
                assert shown.strip() in self.run(command), command

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.slow
@pytest.mark.deadline(400)
def test_the_tutorial_builds_a_board_whose_flights_have_gates(tmp_path: Path, server: PrivateServer):
    reader = Reader(tmp_path, server)

    for add, name, text in STEP.findall(PAGE):
        if name:
            reader.write(name, text, add=bool(add))
        else:
            reader.type(text)

    look = "from django.test import Client; print(Client().get('/', HTTP_HOST='localhost').content.decode())"
    page = reader.run(f'python manage.py shell -c "{look}"')
    assert "<td>DL 461<td>Atlanta<td>" in page
    assert not page.rstrip().endswith("<td></table>"), "each flight has a gate"
    assert PAGE.count("```python") + PAGE.count("```console") == len(STEP.findall(PAGE)), "each block is a step"
