"""OPTIONS of the backend in Django's `TASKS`: defaults for tasks, and what their calls wait for."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

import tests
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import exponential, fixed
from rsmq_django.tasks.backend_options import TASK_OPTIONS, read_backend_options
from rsmq_django.tasks.options import DEFAULT_BACKOFF, TaskOptions
from tests.worker.workshop import Configure, declare

BACKEND = "rsmq_django.tasks.backend.RSMQBackend"
slowly = fixed(60)


def configure_backend(settings: Any, **backends: dict[str, Any]) -> None:
    settings.TASKS = {
        alias: {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options} for alias, options in backends.items()
    }


def waiting() -> int:
    return ensure_queue("default").attributes().messages


def test_options_of_the_backend_are_defaults_of_its_tasks(project: Configure, settings: Any):
    configure_backend(
        settings,
        default={
            "max_attempts": 9,
            "backoff": slowly,
            "retry_on": ["builtins.OSError"],
            "give_up_on": KeyError,
            "timeout_s": 30,
            "hard_timeout_s": 60,
            "result_ttl_s": 0,
            "expires_in_s": 3600,
            "ack": "each",
        },
    )

    options = declare(lambda: None).options

    assert options == TaskOptions(
        max_attempts=9,
        backoff=slowly,
        retry_on=(OSError,),
        give_up_on=KeyError,
        timeout_s=30,
        hard_timeout_s=60,
        result_ttl_s=0,
        expires_in_s=3600,
        ack="each",
    )
    assert all(getattr(options, name) != getattr(TaskOptions(), name) for name in TASK_OPTIONS)


def test_option_of_a_task_takes_precedence_over_its_backend(project: Configure, settings: Any):
    configure_backend(settings, default={"max_attempts": 9, "backoff": slowly})
    own = exponential()

    options = declare(max_attempts=2, backoff=own)(lambda: None).options

    assert (options.max_attempts, options.backoff) == (2, own)
    assert declare(lambda: None).using(max_attempts=3).options.max_attempts == 3


BUILT_IN: dict[str, Any] = {
    "max_attempts": None,
    "backoff": DEFAULT_BACKOFF,
    "retry_on": BaseException,
    "give_up_on": (),
    "timeout_s": None,
    "hard_timeout_s": None,
    "result_ttl_s": None,
    "expires_in_s": None,
    "ack": "batch",
}
OTHERS: dict[str, Any] = {
    "max_attempts": 9,
    "backoff": slowly,
    "retry_on": OSError,
    "give_up_on": KeyError,
    "timeout_s": 30,
    "hard_timeout_s": 60,
    "result_ttl_s": 0,
    "expires_in_s": 3600,
    "ack": "each",
}


@pytest.mark.parametrize("name", TASK_OPTIONS)
def test_option_that_a_task_names_has_the_built_in_value_when_that_is_written(
    project: Configure, settings: Any, name: str
):
    configure_backend(settings, default={name: OTHERS[name]})

    declared = declare(**{name: BUILT_IN[name]})(lambda: None)

    assert getattr(declared.options, name) == BUILT_IN[name]
    assert getattr(declared.using(priority=5).options, name) == BUILT_IN[name], "also in copies"
    assert getattr(pickle.loads(pickle.dumps(declared.using(tags=["a"]))).options, name) == BUILT_IN[name]
    assert getattr(declare(lambda: None).options, name) == OTHERS[name]


def test_single_call_can_have_the_built_in_value_of_an_option(project: Configure, settings: Any):
    configure_backend(settings, default={"expires_in_s": 3600})
    declared = declare(lambda: None)

    assert declared.using(expires_in_s=None).using(tags=["a"]).options.expires_in_s is None
    assert declared.options.expires_in_s == 3600


@pytest.mark.parametrize("path", ["..", "..x", "", ".", "a..b", "os.path.nope", "tests.raises_at_import.backoff"])
@pytest.mark.parametrize("name", ["backoff", "retry_on"])
def test_path_that_cannot_be_imported_is_a_problem_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str
):
    (tmp_path / "raises_at_import.py").write_text("1 / 0\n")
    monkeypatch.setattr("tests.__path__", [*tests.__path__, str(tmp_path)])

    found = read_backend_options("default", {name: [path] if name == "retry_on" else path})

    ((said, hint),) = found.problems
    assert said == f"TASKS['default']['OPTIONS'][{name!r}] cannot be used"
    assert hint.startswith(f"{path!r} is not the dotted path of a function or class: ")
    assert found.task_defaults == {}


def test_task_that_is_sent_by_another_backend_has_the_options_of_that_one(project: Configure, settings: Any):
    configure_backend(settings, default={"max_attempts": 9}, patient={"max_attempts": 100}, plain={})
    declared = declare(lambda: None)

    assert declared.using(backend="patient").options.max_attempts == 100
    assert declared.using(backend="plain").options.max_attempts is None


def test_backoff_is_named_by_its_dotted_path_or_given(project: Configure, settings: Any):
    configure_backend(settings, default={"backoff": "tests.tasks.test_backend_options.slowly"})

    assert declare(lambda: None).options.backoff(1) == 60


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("of_project", "of_backend"), [(False, True), (True, False)])
def test_backend_decides_whether_its_calls_wait_for_the_commit(
    project: Configure, settings: Any, of_project: bool, of_backend: bool
):
    project(on_commit=of_project)
    configure_backend(settings, default={"enqueue_on_commit": of_backend}, other={})
    declared = declare(lambda: None)

    with transaction.atomic():
        declared.enqueue()
        declared.enqueue_many([[], []])
        of_default = waiting()
        declared.using(backend="other").enqueue()
        of_other = waiting() - of_default

    assert of_default == (0 if of_backend else 3)
    assert of_other == (0 if of_project else 1)
    assert waiting() == 4


def test_call_with_wrong_options_of_its_backend_is_refused_with_all_of_them(project: Configure, settings: Any):
    configure_backend(settings, default={"max_atempts": 9, "timeout_s": -1})
    declared = declare(lambda: None)

    with pytest.raises(
        ImproperlyConfigured, match=r"unknown option 'max_atempts': Did you mean 'max_attempts'.*'timeout_s'"
    ):
        declared.enqueue()


def test_right_options_beside_a_wrong_one_are_read():
    found = read_backend_options("default", {"max_attempts": 3, "timeout_s": "soon", "enqueue_on_commit": False})

    assert (found.task_defaults, found.enqueue_on_commit) == ({"max_attempts": 3}, False)
    assert len(found.problems) == 1
