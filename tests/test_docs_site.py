"""The site of the docs: where pages are in it, how they link, and what is made of docstrings. `make docs` builds it."""

from __future__ import annotations

import dataclasses
import re
from importlib import import_module
from pathlib import Path

import pytest

from rsmq_django.tasks import Task
from rsmq_django.tasks.options import TaskOptions
from tools.api_page import MODULES, public_names
from tools.docs_site import (
    api_pages,
    as_restructured_text,
    contents,
    linked_for_the_site,
    llms_text,
    stage,
    with_readable_defaults,
)

ROOT = Path(__file__).parents[1]
INDEX = (ROOT / "docs" / "README.md").read_text("utf-8")


def test_links_between_pages_stay_and_those_to_pages_of_the_root_lead_to_their_place_in_the_site():
    text = "[tasks](tasks.md#declaring), [start](../../README.md), [all](../README.md), [why](../decisions/)"

    changed = linked_for_the_site(text, "docs/how-to/limits.md")

    assert changed == (
        "[tasks](tasks.md#declaring), [start](../getting-started/five_minutes.md), [all](../index.md), "
        "[why](../decisions/README.md)"
    )


def test_links_to_files_that_are_not_in_the_site_become_their_names():
    changed = linked_for_the_site("[the server](../tests/redis_server.py), [web](https://redis.io)", "docs/README.md")

    assert changed == "`tests/redis_server.py`, [web](https://redis.io)"


def test_every_page_is_in_the_contents_of_the_site(tmp_path: Path):
    stage(tmp_path)

    index = (tmp_path / "index.md").read_text("utf-8")
    listed = set(re.findall(r"^[^:|`].* <(.+)>$", index, re.MULTILINE))
    pages = {page.relative_to(tmp_path).with_suffix("").as_posix() for page in tmp_path.rglob("*.md")}
    assert {page for page in pages - listed if not page.startswith("decisions/0")} == {"index"}
    assert "reference/modules" in listed


def test_pages_that_no_longer_exist_leave_the_site(tmp_path: Path):
    (tmp_path / "how-to").mkdir()
    (tmp_path / "how-to" / "gone.md").touch()

    stage(tmp_path)

    assert not (tmp_path / "how-to" / "gone.md").exists()
    assert (tmp_path / "how-to" / "tasks.md").exists()


def test_contents_have_the_chapters_of_the_index():
    captions = [line for line in contents(INDEX).splitlines() if line.startswith(":caption:")]

    assert captions[0] == ":caption: Getting started"
    assert len(captions) == INDEX.count("\n## ")


def test_list_for_language_models_has_every_page_of_the_index_with_its_description():
    text = llms_text("# A\n\nIt does\nthings.\n\n## First\n\n| page | |\n|---|---|\n| [Tasks](a/tasks.md) | how |\n")

    assert text == "# rsmq_django\n\n> It does things.\n\n## First\n\n- [Tasks](_sources/a/tasks.md.txt): how\n"


def test_addresses_in_the_list_for_language_models_lead_to_pages(tmp_path: Path):
    stage(tmp_path)

    addresses = re.findall(r"\]\(([^)]+)\)", (tmp_path / "llms.txt").read_text("utf-8"))
    sources = [address.removeprefix("_sources/").removesuffix(".txt") for address in addresses]
    assert [page for page in sources if not (tmp_path / page.replace(".html", ".rst")).is_file()] == []
    pages = {
        page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.md") if page.parent.name != "decisions"
    }
    assert pages - set(sources) == {"index.md"}


def test_names_in_the_rules_for_coding_agents_exist():
    page = (ROOT / "docs" / "reference" / "coding_agents.md").read_text("utf-8")
    spans = re.findall(r"`([^`]+)`", page.split("## Which page")[0].replace("\n", " "))
    said = {word for span in spans for word in re.findall(r"[A-Za-z_]+", span)}

    ours = {field.name for field in dataclasses.fields(TaskOptions)} | set(dir(Task))
    for module in (name for names in MODULES.values() for name in names):
        ours |= set(public_names(import_module(f"rsmq_django.{module}")))
    files = set("_sources llms txt tasks py manage check rsmq_django RSMQ TASKS QUEUES default".split())
    others = set("rsmq _s run_after after_s transaction on_commit time sleep timedelta".split())
    assert said - ours - files - others == {"from", "import", "raise", "except", "True"}


def test_each_public_module_has_a_page_with_its_names():
    pages = dict(api_pages())

    assert {f"reference/modules/{name}.rst" for names in MODULES.values() for name in names} <= set(pages)
    tasks = pages["reference/modules/tasks.rst"]
    assert ".. autofunction:: rsmq_django.tasks.progress_of" in tasks
    assert ".. autoclass:: rsmq_django.tasks.Task\n   :members:" in tasks
    assert ".. autoclass:: rsmq_django.tasks.options.TaskOptions" in tasks


@pytest.mark.parametrize(
    ("signature", "readable"),
    [
        ("(wait: ~datetime.timedelta = <factory>, run: int = 0)", "(wait: ~datetime.timedelta = ..., run: int = 0)"),
        ("(on: type = <class 'BaseException'>, of=<class 'a.b.C'>)", "(on: type = BaseException, of=C)"),
        ("(of: ~typing.Any = <function <lambda>>, *, by=<built-in function f>)", "(of: ~typing.Any = ..., *, by=...)"),
        (None, None),
    ],
)
def test_defaults_in_signatures_are_python(signature: str | None, readable: str | None):
    assert with_readable_defaults(signature) == readable


def test_indented_blocks_of_a_docstring_are_literal():
    lines = ["Do it.", "", "    do(1)", "    do(2)", "", "More text."]

    assert as_restructured_text(lines) == ["Do it.", "", "::", "", "    do(1)", "    do(2)", "", "More text."]
