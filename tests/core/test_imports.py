"""Allowed imports, and the rules for every Lua file. Read from the source and from a fresh interpreter."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rsmq_django
from rsmq_django.core.transport.call import script_path
from tests.scripts import FILES

PACKAGE = Path(rsmq_django.__file__).parent
CORE = PACKAGE / "core"
WITHOUT_DJANGO = sorted([*CORE.rglob("*.py"), *(PACKAGE / "spark").rglob("*.py"), PACKAGE / "__init__.py"])
MAX_LUA_LINES = 66


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


# -- Python --------------------------------------------------------------------------------------------------------


def imported_modules(path: Path) -> set[str]:
    """Return the absolute names of all modules that a file imports, also inside functions."""
    package = ("rsmq_django", *path.relative_to(PACKAGE).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def imports_of(paths: list[Path]) -> dict[str, set[str]]:
    """Return the names that each file imports."""
    return {named(path): imported_modules(path) for path in paths}


def test_parts_without_django_do_not_import_it():
    django_side = ("django", "django_redis", "django_tasks")

    wrong = {
        (file, name)
        for file, names in imports_of(WITHOUT_DJANGO).items()
        for name in names
        if name.split(".")[0] in django_side
    }

    assert not wrong


def test_core_imports_nothing_of_ours_but_itself_and_else_redis_py_hiredis_and_the_standard_library_only():
    allowed = sys.stdlib_module_names | {"redis", "hiredis"}

    wrong = {
        (file, name)
        for file, names in imports_of(sorted(CORE.rglob("*.py"))).items()
        for name in names
        if name.split(".")[0] not in allowed and not name.startswith("rsmq_django.core")
    }

    assert not wrong


def test_walk_sees_imports_of_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "core" / "x.py"
    source.parent.mkdir()
    source.write_text(
        "def f():\n    from django.conf import settings\nfrom ..tasks import a\nfrom .b import c\nimport d.e\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)

    assert imported_modules(source) >= {"django.conf", "rsmq_django.tasks.a", "rsmq_django.core.b.c", "d.e"}


@pytest.mark.slow
def test_core_works_where_django_is_not_installed():
    blocker = (
        "import sys\n"
        "class NoDjango:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0].startswith('django'): raise ImportError(f'{name} is blocked')\n"
        "sys.meta_path.insert(0, NoDjango())\n"
    )
    program = blocker + (
        "import rsmq_django\n"
        "from rsmq_django.core import Client, Connection, Queue\n"
        "Queue('mail', Client(Connection('redis://127.0.0.1:1')))\n"
        "loaded = [name for name in sys.modules if name.split('.')[0].startswith('django')]\n"
        "assert not loaded, loaded\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent
    )

    assert done.returncode == 0, done.stderr


def test_package_itself_imports_nothing_at_all():
    program = (
        "import sys; before = set(sys.modules); import rsmq_django\n"
        "new = set(sys.modules) - before - {'rsmq_django'}\n"
        "assert not new, new\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)

    assert done.returncode == 0, done.stderr


# -- Lua -----------------------------------------------------------------------------------------------------------


def code_of(path: Path) -> str:
    """Return a script without its comments, each string literal kept."""
    return re.sub(r"--(?!\[\[)[^\n]*", "", path.read_text("utf-8"))


def scripts_with(is_wrong: Callable[[str], object], *folders: str) -> list[str]:
    """Return the names of the scripts, of some folders or of all, whose code is wrong."""
    looked_at = {name: path for name, path in FILES.items() if not folders or name.rpartition("/")[0] in folders}
    assert looked_at
    return [name for name, path in looked_at.items() if is_wrong(code_of(path))]


def test_no_thread_of_ours_keeps_a_process_from_ending():
    threads = [
        (path.name, {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Thread")
    ]

    assert len(threads) > 5
    assert not [name for name, words in threads if words.get("daemon") != "True"]


def test_there_are_scripts_to_check():
    assert {"queue/send", "queue/receive", "parts/clock", "topic/parts/append"} <= FILES.keys()


def test_scripts_open_with_a_comment_about_their_purpose():
    first_lines = {name: path.read_text("utf-8").splitlines()[0] for name, path in FILES.items()}

    assert not {name: line for name, line in first_lines.items() if not re.match(r"-- [A-Z].{15,}", line)}


def test_scripts_are_short():
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in FILES.items()}

    assert not {name: count for name, count in lines.items() if count > MAX_LUA_LINES}


def test_every_script_is_more_than_one_plain_command():
    # Such a call names the command itself, see Call.
    argument = r'(KEYS\[1\]|unpack\(ARGV\)|ARGV\[\d\]|"[^"]*"|\d+)'

    def is_plain(code: str) -> bool:
        return bool(re.fullmatch(rf'return redis\.call\("\w+"(, {argument})*\)', code.strip()))

    assert is_plain('return redis.call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", 7)')
    assert not scripts_with(is_plain)


def test_no_script_has_a_flags_line():
    # A server at its memory limit refuses a flagged script whole, and Redis 6.2 does not know the flags.
    assert not scripts_with(lambda code: code.startswith("#!"))


def test_no_script_walks_the_keyspace():
    walking = {"KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"}

    def walks(code: str) -> bool:
        commands = re.findall(r'redis\.p?call\(\s*"(\w+)"', code, re.I)
        return bool({command.upper() for command in commands} & walking)

    assert not scripts_with(walks)


def test_no_script_on_a_queue_reads_its_whole_hash():
    # The hash holds every body: reading it takes most of a second where there are a hundred thousand messages.
    folders = ("queue", "parts", "tasks/worker", "tasks/worker/parts")
    assert not scripts_with(lambda code: re.search(r"HGETALL|HKEYS|HVALS", code, re.I), *folders)

    def reads_other_than_the_record_of_holds(code: str) -> bool:
        # The record of what one worker holds is small, and is read in slices.
        return any('"HSCAN", holds, ' not in line for line in code.splitlines() if "HSCAN" in line.upper())

    assert not scripts_with(reads_other_than_the_record_of_holds, *folders)


def test_no_script_parses_a_payload():
    assert not scripts_with(lambda code: re.search(r"cjson|cmsgpack|loadstring|\bos\.|math\.random", code))


def test_scripts_name_only_commands_in_their_text():
    # A computed command could not be checked against an access list.
    assert not scripts_with(lambda code: set(re.findall(r"redis\.p?call\(\s*(.)", code)) - {'"'})


def test_no_script_builds_a_key():
    """Every key is declared: the argument after a command's name is a variable or KEYS[n], never an expression."""

    def builds(code: str) -> bool:
        keyed = re.findall(r'redis\.p?call\(\s*"\w+"\s*,\s*([^,)]+)', code)
        return any(".." in key or '"' in key for key in keyed) or bool(re.search(r"KEYS\[[^\]]*\]\s*\.\.", code))

    assert not scripts_with(builds)


def test_scripts_bound_their_loops():
    assert not scripts_with(lambda code: re.search(r"\bwhile\s+true\b|\brepeat\b|\bgoto\b", code))


def included() -> set[str]:
    """Return the names that scripts include."""
    texts = [path.read_text("utf-8") for path in FILES.values()]
    return {name for text in texts for name in re.findall(r"^--#include (\S+)$", text, re.M)}


def test_included_files_exist():
    assert included()
    assert not included() - FILES.keys()


def test_exactly_the_files_in_folders_called_parts_are_included():
    library = {"reliable/parts/library"}  # one text of Redis functions, which is put together in Python

    assert {name for name in FILES if "parts" in name.split("/")} - library == included() - library


def test_every_script_is_where_its_name_says():
    assert {name: CORE / script_path(name) for name in FILES} == FILES


def test_shared_parts_get_their_keys_as_parameters():
    assert not scripts_with(lambda code: "KEYS" in code, "parts")
