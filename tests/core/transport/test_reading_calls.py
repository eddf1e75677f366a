"""A call that only reads is sent again when its reply was lost: that is harmless, and its caller sees no error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import rsmq_django
from rsmq_django.core.transport.call import commands_of_script
from tests.redis_server import PrivateServer
from tests.scripts import FILES

PACKAGE = Path(rsmq_django.__file__).parent


def calls() -> Iterator[tuple[str, str, bool]]:
    """Yield the place, the script or command, and whether it may be repeated, of each call that names its script."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Call":
                script = ast.unparse(node.args[0])
                given = [*node.args[4:5], *(word.value for word in node.keywords if word.arg == "repeatable")]
                is_repeated = bool(given) and ast.unparse(given[0]) != "False"
                if isinstance(node.args[0], ast.Constant):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", ast.literal_eval(script), is_repeated


def test_every_call_that_only_reads_is_repeated(server: PrivateServer):
    flags = {name.lower(): words["flags"] for name, words in server.redis.command().items()}
    not_repeated, seen = [], 0
    for place, script, is_repeated in calls():
        if not script.isupper() and script not in FILES:
            continue  # only a word of error messages
        commands = [script.lower()] if script.isupper() else commands_of_script(script)
        if not any("write" in flags[name.partition("|")[0]] for name in commands):
            seen += 1
            if not is_repeated:
                not_repeated.append(f"{place} {script}")

    assert seen > 50
    assert not_repeated == []
