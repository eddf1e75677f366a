"""What may import what, and the rules that every Lua file keeps. Read from the source and from a fresh interpreter."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rsmq_django

PACKAGE = Path(rsmq_django.__file__).parent
CORE = PACKAGE / "core"
WITHOUT_DJANGO = sorted(
    [*CORE.rglob("*.py"), *(PACKAGE / "spark").rglob("*.py"), *PACKAGE.glob("cli.py"), PACKAGE / "__init__.py"]
)
LUA_FILES = sorted(CORE.rglob("*.lua"))
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


@pytest.mark.parametrize("path", WITHOUT_DJANGO, ids=named)
def test_parts_without_django_do_not_import_it(path: Path):
    django_side = ("django", "django_redis", "django_tasks")

    wrong = {name for name in imported_modules(path) if name.split(".")[0] in django_side}

    assert not wrong


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=named)
def test_core_imports_nothing_of_ours_but_itself(path: Path):
    ours = {name for name in imported_modules(path) if name.split(".")[0] == "rsmq_django"}

    assert all(name.startswith("rsmq_django.core") for name in ours), ours


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=named)
def test_core_needs_redis_py_and_the_standard_library_only(path: Path):
    allowed = sys.stdlib_module_names | {"redis", "rsmq_django"}

    foreign = {name for name in imported_modules(path) if name.split(".")[0] not in allowed}

    assert not foreign


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


def test_there_are_scripts_to_look_at():
    assert {"queue/send", "queue/receive"} <= {
        str(path.relative_to(CORE / "lua").with_suffix("")) for path in LUA_FILES
    }


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_opens_with_a_comment_that_says_what_it_does(path: Path):
    first = path.read_text("utf-8").splitlines()[0]

    assert re.match(r"-- [A-Z].{15,}", first), first


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_is_short(path: Path):
    assert len(path.read_text("utf-8").splitlines()) <= MAX_LUA_LINES


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_has_no_flags_line(path: Path):
    # A server at its memory limit refuses a flagged script whole, and Redis 6.2 does not know the flags.
    assert not path.read_text("utf-8").startswith("#!")


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_never_walks_the_keyspace(path: Path):
    commands = set(re.findall(r'redis\.p?call\(\s*"(\w+)"', code_of(path), re.I))

    assert not {command.upper() for command in commands} & {"KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"}


@pytest.mark.parametrize(
    "path", [path for path in LUA_FILES if path.parent.name in ("queue", "shared", "worker")], ids=named
)
def test_script_on_a_queue_never_reads_its_whole_hash(path: Path):
    # The hash holds every body: reading it takes most of a second where there are a hundred thousand messages.
    assert not re.search(r"HGETALL|HKEYS|HVALS", code_of(path), re.I)
    # The record of what one worker holds is small, and is read in slices.
    assert all('"HSCAN", holds, ' in line for line in code_of(path).splitlines() if "HSCAN" in line.upper())


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_never_parses_a_payload(path: Path):
    assert not re.search(r"cjson|cmsgpack|loadstring|\bos\.|math\.random", code_of(path))


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_names_only_commands_that_stand_in_its_text(path: Path):
    # A computed command could not be checked against an access list.
    calls = re.findall(r"redis\.p?call\(\s*(.)", code_of(path))

    assert set(calls) <= {'"'}


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_builds_no_key(path: Path):
    """Every key is declared: the argument after a command's name is a variable or KEYS[n], never an expression."""
    keyed = re.findall(r'redis\.p?call\(\s*"(\w+)"\s*,\s*([^,)]+)', code_of(path))

    built = [(command, key) for command, key in keyed if ".." in key or '"' in key]

    assert not built
    assert not re.search(r"KEYS\[[^\]]*\]\s*\.\.", code_of(path))


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_script_bounds_its_loops(path: Path):
    assert not re.search(r"\bwhile\s+true\b|\brepeat\b|\bgoto\b", code_of(path))


@pytest.mark.parametrize("path", LUA_FILES, ids=named)
def test_included_files_exist(path: Path):
    for name in re.findall(r"^--#include (\S+)$", path.read_text("utf-8"), re.MULTILINE):
        assert (CORE / "lua" / f"{name}.lua").is_file(), name


@pytest.mark.parametrize("path", [path for path in LUA_FILES if path.parent.name == "shared"], ids=named)
def test_shared_part_gets_its_keys_as_parameters(path: Path):
    assert "KEYS" not in code_of(path)
