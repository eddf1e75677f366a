"""Explanations for an unknown task path: the text of an error. Checks names and files, and imports nothing."""

from __future__ import annotations

import difflib
import sys
from functools import lru_cache
from pathlib import Path

from django.apps import AppConfig, apps

from .task import registered_tasks


def why_unknown(path: str) -> str:
    """Return an explanation for a task that is not declared in this process, and the next step."""
    return _why(path, len(registered_tasks()))


@lru_cache(maxsize=100)  # a message may name anything, and so may many of them
def _why(path: str, _count: int) -> str:
    module = _module_of(path)
    close = difflib.get_close_matches(path, registered_tasks(), n=1, cutoff=0.8)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if module == "__main__":
        return "it is declared in a script; declare it in a module named tasks of an app"
    if module in sys.modules:
        return f"module {module} is imported and declares no such task; was it renamed?{hint}"
    app = _app_of(module)
    if app is None:
        return (
            f"no installed app has a module {module!r}: is its app in INSTALLED_APPS, was it renamed, or is it of "
            f"another project on this server, which needs a NAMESPACE of its own?{hint}"
        )
    if _exists(app, module):
        return (
            f"only modules named tasks are imported; {module} exists: import it in ready() of the AppConfig of "
            f"{app.name!r}, or in {app.name}.tasks"
        )
    return f"app {app.name!r} has no module {module}; was it renamed?{hint}"


def _module_of(path: str) -> str:
    """Return the module in a path, also in that of a function in a class."""
    module = path.rpartition(".")[0]
    outer = module.rpartition(".")[0]
    app = _app_of(outer)
    return outer if app is not None and _is_file(app, outer) else module


def _app_of(module: str) -> AppConfig | None:
    found = [app for app in apps.get_app_configs() if module == app.name or module.startswith(f"{app.name}.")]
    return max(found, key=lambda app: len(app.name), default=None)


def _exists(app: AppConfig, module: str) -> bool:
    return _is_file(app, module) or _is_file(app, f"{module}.__init__")


def _is_file(app: AppConfig, module: str) -> bool:
    words = module[len(app.name) :].strip(".").split(".")
    if not all(word.isidentifier() for word in words):  # a message may name anything
        return False
    return Path(app.path, *words).with_suffix(".py").is_file()
