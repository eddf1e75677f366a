"""The licences of what the package installs: only known ones, and the page of the reference has them."""

from __future__ import annotations

import re
from importlib.metadata import Distribution

import pytest

from tools.licences_page import ALLOWED, INTRODUCTION, PAGE, ROOT, dependencies, is_allowed, licence_of, row

VERSIONS = set(re.findall(r"^([\w.-]+==[^;\s]+)", (ROOT / "constraints.txt").read_text("utf-8").lower(), re.MULTILINE))
#: Packages of other versions are those of a combination that is only tested; their metadata may have other words.
RELEASED = {name: of for name, of in dependencies().items() if f"{name.replace('_', '-')}=={of[0].version}" in VERSIONS}


def test_every_dependency_has_an_allowed_licence():
    assert {"django", "redis", "click"} <= dependencies().keys()
    assert {name: licence_of(found) for name, (found, _) in RELEASED.items() if not is_allowed(licence_of(found))} == {}


def test_the_page_has_the_licence_of_every_dependency():
    text = PAGE.read_text("utf-8")
    assert text.startswith(INTRODUCTION.format(allowed=", ".join(sorted(ALLOWED))))
    # What needs a package depends on the extras that are installed.
    rows = [row(name, *of).rpartition(" | ")[0] for name, of in RELEASED.items()]
    assert [each for each in rows if each not in text] == [], "run .venv-spark/bin/python -m tools.licences_page"


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [("MIT", True), ("Apache-2.0 OR BSD-3-Clause", True), ("MIT AND GPL-3.0-only", False), ("BSD", False), ("", False)],
)
def test_an_expression_is_allowed_when_all_its_names_are(expression: str, allowed: bool):
    assert is_allowed(expression) is allowed


class Package(Distribution):
    def __init__(self, metadata: str) -> None:
        self._text = metadata

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> object:  # type: ignore[override]  # it has no files
        raise FileNotFoundError(path)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: 0BSD\nLicense: MIT", "0BSD"),
        ("License: MIT License, and its whole text\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        ("License: GPL", "GPL"),
        ("Version: 1", ""),
    ],
)
def test_the_licence_is_an_spdx_name_or_that_of_a_classifier(metadata: str, licence: str):
    assert licence_of(Package(f"Metadata-Version: 2.4\nName: some-package\n{metadata}\n\n")) == licence
