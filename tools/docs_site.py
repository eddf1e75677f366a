"""Build the site of the docs: the pages of docs/, those of the root, and the API from the docstrings.

    python -m tools.docs_site [FOLDER]

The pages are copied into FOLDER/source (default: .docs-site) with links as the site needs them, and Sphinx makes
FOLDER/html of that, without the internet. A warning is an error: a missing page or anchor, a page that no other names.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType

import django
from django.conf import settings

from tools.api_page import DJANGOS, MODULES, first_line, public_names, what_is

ROOT = Path(__file__).resolve().parent.parent
#: Pages outside of docs/ -> their place in the site.
FROM_THE_ROOT = {
    "README.md": "getting-started/five_minutes.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
    "SECURITY.md": "reference/reporting.md",
}
LINK = re.compile(r"(?P<open>!?\[)(?P<text>[^\[\]]*)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
ENTRY = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<page>[^)]+\.md)\) \| (?P<about>.*) \|$", re.MULTILINE)
#: What `@task` takes is a type of its own, which projects do not import.
ALSO = {"rsmq_django.tasks": ["rsmq_django.tasks.options.TaskOptions"]}


def place(path: str) -> str | None:
    """Return where a file of the repository is in the site; None if it is not there."""
    if path in FROM_THE_ROOT:
        return FROM_THE_ROOT[path]
    if path == "docs/README.md":
        return "index.md"
    inside = path.removeprefix("docs/")
    return inside if inside != path and Path(path).suffix in {".md", ".webp"} else None


def linked_for_the_site(text: str, path: str) -> str:
    """Return the text of a page with links to the pages of the site; a link to another file becomes its text."""
    here = place(path)
    assert here is not None

    def changed(link: re.Match[str]) -> str:
        target = link["target"]
        if not target or "://" in target:
            return link[0]
        named = os.path.normpath(os.path.join(os.path.dirname(path), target))
        there = place(named if not target.endswith("/") else f"{named}/README.md")
        if there is None:
            return link["text"] if link["text"].startswith("`") else f"`{named}`"
        relative = os.path.relpath(there, os.path.dirname(here) or ".")
        return f"{link['open']}{link['text']}]({relative}{link['anchor'] or ''})"

    return LINK.sub(changed, text)


def contents(index: str) -> str:
    """Return the tables of contents of the site: one for each chapter of the index, with the pages of its tables."""
    lines = []
    for chapter in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages = [f"{entry['title']} <{entry['page'].removesuffix('.md')}>" for entry in ENTRY.finditer(chapter)]
        if chapter.startswith("Reference"):
            pages.append("The API from its docstrings <reference/modules>")
        if pages:
            lines += ["", "```{toctree}", ":hidden:", f":caption: {chapter.splitlines()[0]}", *pages, "```"]
    return "\n".join(lines) + "\n"


def llms_text(index: str) -> str:
    """Return the list of pages for language models, with addresses of their sources in the site."""
    introduction = index.split("\n## ")[0].split("\n\n")[1].strip().replace("\n", " ")
    lines = ["# rsmq_django", "", f"> {introduction}"]
    for chapter in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        entries = [f"- [{e['title']}](_sources/{e['page']}.txt): {e['about']}" for e in ENTRY.finditer(chapter)]
        if entries:
            lines += ["", f"## {chapter.splitlines()[0]}", "", *entries]
        if chapter.startswith("Reference"):
            names = ((name, first_line(import_module(f"rsmq_django.{name}"))) for name in chain(*MODULES.values()))
            lines += [f"- [rsmq_django.{name}](reference/modules/{name}.html): {about}" for name, about in names]
    return "\n".join(lines) + "\n"


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the API, which Sphinx fills from the docstrings: one for each public module, and the index."""
    index = ["API", "===", "", "What projects import. These names stay as they are between minor versions.", ""]
    shown: list[object] = []
    for chapter, names in MODULES.items():
        index += [chapter, "-" * len(chapter), "", ".. toctree::", "   :maxdepth: 1", ""]
        for name in names:
            module = import_module(f"rsmq_django.{name}")
            yield f"reference/modules/{name}.rst", "\n".join(api_page(module, shown)) + "\n"
            index.append(f"   modules/{name}")
        index.append("")
    yield "reference/modules.rst", "\n".join(index)


def api_page(module: ModuleType, shown: list[object]) -> Iterator[str]:
    """Yield the lines of the page of a module. A class that an earlier page shows is in the index once."""
    title = module.__name__
    yield from (title, "=" * len(title), "", f".. py:module:: {title}", "", first_line(module), "")
    for name in public_names(module):
        thing = getattr(module, name)
        path = f"{title}.{name}"
        if what_is(module, name) == DJANGOS:
            yield from (f".. py:data:: {path}", "   :no-index:", "", f"   {DJANGOS}", "")
        elif inspect.isclass(thing):
            yield from (f".. autoclass:: {path}", "   :members:", *(["   :no-index:"] if thing in shown else []), "")
            shown.append(thing)
        elif inspect.isroutine(thing):
            yield from (f".. autofunction:: {path}", "")
        else:
            yield from (f".. py:data:: {path}", "", f"   {what_is(module, name)}", "")
    for path in ALSO.get(title, ()):
        yield from (f".. autoclass:: {path}", "   :members:", "")


def as_restructured_text(lines: list[str]) -> list[str]:
    """Return a docstring with its indented blocks marked as literal; the rest is the same in both notations."""
    result: list[str] = []
    literal = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and not literal and number and not lines[number - 1].strip():
            result += ["::", ""]
            literal = True
        elif line.strip() and not indented:
            literal = False
        result.append(line)
    return result


def stage(folder: Path) -> None:
    """Write the pages of the site into a folder; those that do not change are not written: Sphinx skips them."""
    paths = [*FROM_THE_ROOT, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*"))]
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = {
        there: linked_for_the_site((ROOT / path).read_text("utf-8"), path).encode()
        for path in paths
        if path.endswith(".md") and (there := place(path))
    }
    pages |= {there: (ROOT / path).read_bytes() for path in paths if path.endswith(".webp") and (there := place(path))}
    site_index = linked_for_the_site(index, "docs/README.md")
    pages["index.md"] = (site_index + contents(site_index)).encode()
    pages["decisions/README.md"] += b"\n```{toctree}\n:hidden:\n:glob:\n[0-9]*\n```\n"
    pages |= {path: text.encode() for path, text in api_pages()}
    pages["llms.txt"] = llms_text(site_index).encode()
    for old in folder.rglob("*"):
        if old.is_file() and old.relative_to(folder).as_posix() not in pages:
            old.unlink()
    for name, content in pages.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def with_readable_defaults(signature: str | None) -> str | None:
    """Return a signature whose defaults are all Python: Sphinx shows any other as it is, with raw names of types."""
    if signature is None:
        return None
    return re.sub(r"<[a-z][^<>]*(?:<lambda>)?>", "...", re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", signature))


def main(folder: Path) -> int:
    """Build the site and return the exit status of Sphinx."""
    from sphinx.cmd.build import build_main  # the other environments have no Sphinx, and test the rest of this file

    settings.configure(
        INSTALLED_APPS=[
            *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.messages", "django.contrib.admin"),
            *("rsmq_django", "rsmq_django.outbox", "rsmq_django.pipeline"),
        ],
        RSMQ={"CONNECTIONS": {"default": {"URL": "redis://localhost"}}},
    )
    django.setup()
    stage(folder / "source")
    options = ["-c", str(ROOT / "docs"), "-d", str(folder / "doctrees"), "-n", "-W", "--keep-going", "-q"]
    status = int(build_main(["-b", "html", *options, str(folder / "source"), str(folder / "html")]))
    if not status:
        shutil.copy(folder / "source" / "llms.txt", folder / "html")
        print(f"the site is {folder / 'html' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".docs-site").resolve()))
