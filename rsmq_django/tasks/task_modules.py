"""Modules that declare tasks and that no worker imports, found by their source without importing them.

A worker imports the modules named `tasks` of the installed apps and their imports. A task declared in another module
can be sent by a view that imports it, but is unknown to workers.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from django.apps import AppConfig, apps
from django.conf import settings
from django.urls import get_resolver

#: Maximum number of files searched per app.
MAX_FILES = 2000
#: Modules that workers are not meant to import.
LEFT_OUT = frozenset({"tests", "test", "migrations", "node_modules"})
_IMPORTS = re.compile(rb"^from (?:rsmq_django\.tasks|django\.tasks|django_tasks) import ", re.MULTILINE)
_DECLARES = re.compile(rb"^@(?:task|consumer|topic_task)\b", re.MULTILINE)


def unimported_modules() -> list[tuple[AppConfig, str]]:
    """Return the app and dotted path of each module of the project that declares tasks and is not imported.

    Call this after the modules named `tasks` were imported.
    """
    found = list(_candidates())
    if any(name not in sys.modules for _, name in found) and getattr(settings, "ROOT_URLCONF", None):
        with suppress(Exception):  # Django's own checks report errors in URLs
            get_resolver().check()  # a worker runs the checks, too, and thereby imports all views
    return [(app, name) for app, name in found if name not in sys.modules]


def project_modules() -> Iterator[Path]:
    """Yield the files with source of the project's apps, without importing them."""
    libraries = [Path(place) for place in {*site.getsitepackages(), sysconfig.get_path("stdlib")}]
    for app in apps.get_app_configs():
        place = Path(app.path)
        if not any(place.is_relative_to(library) for library in libraries):
            yield from islice(_modules_in(place), MAX_FILES)


def _candidates() -> Iterator[tuple[AppConfig, str]]:
    libraries = [Path(place) for place in {*site.getsitepackages(), sysconfig.get_path("stdlib")}]
    seen: set[Path] = set()
    # Nested apps come first: their modules do not belong to the outer app.
    for app in sorted(apps.get_app_configs(), key=lambda app: len(Path(app.path).parts), reverse=True):
        place = Path(app.path)
        if any(place.is_relative_to(library) for library in libraries):
            continue
        for file in islice(_modules_in(place), MAX_FILES):
            if file not in seen and _declares_tasks(file):
                yield (
                    app,
                    ".".join([app.name, *file.relative_to(place).with_suffix("").parts]).removesuffix(".__init__"),
                )
            seen.add(file)


def _modules_in(place: Path) -> Iterator[Path]:
    """Yield importable files. Other directories, such as node_modules, may be very large."""
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name not in LEFT_OUT)
        for name in sorted(names):
            stem, dot, ending = name.partition(".")
            is_test = stem in LEFT_OUT or stem == "conftest" or stem.startswith("test_")
            if (dot + ending) == ".py" and stem.isidentifier() and not is_test:
                yield Path(folder, name)


def _declares_tasks(file: Path) -> bool:
    try:
        text = file.read_bytes()
    except OSError:
        return False
    return _IMPORTS.search(text) is not None and _DECLARES.search(text) is not None
