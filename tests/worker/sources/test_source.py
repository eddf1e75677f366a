"""The worker and its sources: the main loop knows what `Source` names, and no structure."""

from __future__ import annotations

import ast
from pathlib import Path

from rsmq_django.worker import worker

#: What the main loop may import of the sources.
KNOWN = {"making", "source"}


def test_the_main_loop_imports_no_source():
    tree = ast.parse(Path(worker.__file__).read_text("utf-8"))
    imported = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}

    assert {name.removeprefix("sources.") for name in imported if name.startswith("sources.")} <= KNOWN


def test_the_main_loop_asks_no_source_for_its_class():
    tree = ast.parse(Path(worker.__file__).read_text("utf-8"))
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    asked = [ast.unparse(call) for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance"]

    assert not [text for text in asked if "ource" in text or "sink" in text]
