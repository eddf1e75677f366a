"""Each promise of docs/reference/guarantees.md names the tests that prove it; these and those of other pages exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "reference" / "guarantees.md").read_text("utf-8")
PROMISED, _, _ = PAGE.partition("## Not promised")
REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")
OTHER_PAGES = [page.read_text("utf-8") for page in sorted((TESTS.parent / "docs" / "explanation").glob("*.md"))]
REFERENCES = sorted({found for page in (PROMISED, *OTHER_PAGES) for found in REFERENCE.findall(page)})
PROMISES = re.findall(r"^- .*?(?=^- |^\S|\Z)", PROMISED, re.MULTILINE | re.DOTALL)


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize(("path", "name"), REFERENCES, ids=[name for _, name in REFERENCES])
def test_the_test_that_proves_a_promise_exists(path: str, name: str):
    assert name in names_in(path)


def test_every_promise_names_a_test_that_proves_it():
    assert len(PROMISES) > 30
    assert [promise for promise in PROMISES if not REFERENCE.search(promise)] == []
