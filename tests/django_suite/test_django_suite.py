"""Django's own tests of its Tasks framework, with RSMQBackend in the place of Django's dummy and immediate backends.

`make test-django-suite` gets them from the source distribution of Django, and names its folder `tests` in DJANGO_SUITE.
Without it there is no test here.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from django.test import TransactionTestCase

from tests.django_suite.backends import RecordingBackend, WorkingBackend

SUITE = os.environ.get("DJANGO_SUITE")
#: Tests about what only the dummy or the immediate backend does. test_custom_backend.py is left out, because it tests
#: backends of its own.
LEFT_OUT = {
    # The dummy backend returns the very object that it keeps, which these tests change.
    "DummyBackendTestCase": ("test_refresh_result", "test_refresh_result_async"),
    "ImmediateBackendTestCase": (
        # The immediate backend cannot do these; ours can.
        "test_cannot_get_result",
        "test_cannot_pass_run_after",
        "test_cannot_refresh_result",
        # The caller of the immediate backend is interrupted. A worker is stopped by signals, and KeyboardInterrupt of a
        # task is the error of its call, like any other exception.
        "test_throws_keyboard_interrupt",
    ),
}
#: A line about what only the immediate backend does. Django's log line of a failure has no traceback here: foreign text
#: in it could forge lines. Our own line has it, with control characters escaped.
LINES_LEFT_OUT = {"test_immediate_backend": "self.assertIn(message, captured_logs.output[0])"}
PLACES = {
    "django.tasks.backends.dummy": ("DummyBackend", RecordingBackend),
    "django.tasks.backends.immediate": ("ImmediateBackend", WorkingBackend),
}


def load(module_name: str, class_name: str, *replaced: str) -> type:
    """Return a class of the suite, without the tests that are left out; ours is in the place of these backends."""
    assert SUITE is not None, "these tests are run by `make test-django-suite`"
    if SUITE not in sys.path:
        sys.path.insert(0, SUITE)
    import_module("tasks.tasks")
    path = Path(SUITE, "tasks", f"{module_name}.py")
    source = path.read_text()
    left_out = LINES_LEFT_OUT.get(module_name, "")
    assert left_out in source, "Django has changed it"
    source = source.replace(left_out, "", 1)
    for place in replaced:
        name, ours = PLACES[place]
        source = source.replace(f"{place}.{name}", f"{ours.__module__}.{ours.__qualname__}")
        source = source.replace(
            f"from {place} import {name}", f"from {ours.__module__} import {ours.__qualname__} as {name}"
        )
    module = ModuleType(f"tasks.{module_name}")
    module.__package__ = "tasks"
    exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - tests of Django
    found: type = getattr(module, class_name)
    for test_name in LEFT_OUT.get(class_name, ()):
        delattr(found, test_name)  # AttributeError: Django has renamed it
    if issubclass(found, TransactionTestCase):
        found.available_apps = ["rsmq_django"]  # instead of none
    return found


if SUITE is not None:
    TaskTestCase = load("test_tasks", "TaskTestCase", "django.tasks.backends.dummy")
    DummyBackendTestCase = load("test_dummy_backend", "DummyBackendTestCase", "django.tasks.backends.dummy")
    ImmediateBackendTestCase = load(
        "test_immediate_backend", "ImmediateBackendTestCase", "django.tasks.backends.immediate"
    )
    DummyBackendTransactionTestCase = load(
        "test_dummy_backend", "DummyBackendTransactionTestCase", "django.tasks.backends.dummy"
    )
    ImmediateBackendTransactionTestCase = load(
        "test_immediate_backend", "ImmediateBackendTransactionTestCase", "django.tasks.backends.immediate"
    )
