"""Common mistakes: the error has the cause and the next step."""

from __future__ import annotations

import copy
import pickle
import uuid
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from rsmq_django.tasks import Concurrency, Task, Unique, call, chain, cron, every, group, schedule, task, topic_task
from rsmq_django.tasks.compat import InvalidTask, task_backends
from rsmq_django.tasks.middleware import Carried
from rsmq_django.tasks.topic_task import check_topic_tasks
from rsmq_django.tasks.unknown_task import why_unknown
from rsmq_django.topics import get_topic, publish
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, work


@pytest.fixture
def paint(project: Configure) -> Any:
    """A task in the queue "default"."""
    return declare(lambda colour, *, on="wall": None)


# -- Words of other task queues ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "way"),
    [
        ("delay", r"\.enqueue\("),
        ("delay_on_commit", r"\.enqueue\("),
        ("send", r"\.enqueue\("),
        ("defer", r"\.enqueue\("),
        ("apply_async", r"\.using\(run_after="),
        ("apply", r"\.call\("),
        ("s", r"rsmq_django\.tasks\.call"),
        ("si", r"rsmq_django\.tasks\.call"),
        ("signature", r"rsmq_django\.tasks\.call"),
        ("retry", r"raise rsmq_django\.tasks\.Retry"),
        ("AsyncResult", r"\.get_result\("),
        ("map", "enqueue_many"),
    ],
)
def test_words_of_other_task_queues_name_ours(paint: Task[..., Any], word: str, way: str):
    with pytest.raises(AttributeError, match=way):
        getattr(paint, word)
    assert not hasattr(paint, word)


def test_misspelt_methods_are_suggested(paint: Task[..., Any]):
    with pytest.raises(AttributeError, match=r"no attribute 'enqeue'\. Did you mean 'enqueue'\?"):
        paint.enqeue  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("misspelt", "right"),
    [("queue", "queue_name"), ("queue_nam", "queue_name"), ("backnd", "backend"), ("timeout", "timeout_s")],
)
def test_misspelt_options_of_a_task_are_suggested(project: Configure, misspelt: str, right: str):
    with pytest.raises(TypeError, match=f"a task has no option '{misspelt}'. Did you mean '{right}'"):
        declare(lambda: None, **{misspelt: "default"})


@pytest.mark.parametrize(
    ("word", "way"),
    [
        ("max_retries", "max_attempts=.*, which counts the first attempt, too"),
        ("retries", "max_attempts="),
        ("time_limit", "hard_timeout_s="),
        ("soft_time_limit", "timeout_s="),
        ("bind", "takes_context=True"),
        ("ignore_result", "result_ttl_s=0"),
        ("rate_limit", r"limits=\[Rate\("),
        ("default_retry_delay", r"backoff=fixed\("),
        ("retry", "max_attempts="),
        ("retry_backoff", r"backoff=fixed\("),
        ("max_age", "expires_in_s="),
        ("name", "aliases="),
        ("acks_late", "always"),
        ("lock", r"Concurrency\(1\)"),
        ("queueing_lock", r"Unique\(scope=\"pending\"\)"),
        ("cron", "above @task"),
        ("on_success", r"chain\(\)"),
        ("throws", "give_up_on="),
        ("run_after", r"\.using\(run_after="),
    ],
)
def test_options_of_other_task_queues_name_ours(project: Configure, word: str, way: str):
    with pytest.raises(TypeError, match=f"a task has no option '{word}': .*{way}"):
        declare(lambda: None, **{word: 3})


@pytest.mark.parametrize("word", ["link", "depends_on", "task_id"])
def test_options_of_calls_of_other_task_queues_name_ours(paint: Task[..., Any], word: str):
    with pytest.raises(TypeError, match=rf"using\(\) has no option '{word}': .*(chain\(\)|Unique)"):
        paint.using(**{word: 3})


@pytest.mark.parametrize("word", ["countdown", "eta"])
def test_delays_of_other_task_queues_name_ours(paint: Task[..., Any], word: str):
    with pytest.raises(TypeError, match=rf"using\(\) has no option '{word}': .*\.using\(run_after=timedelta\("):
        paint.using(**{word: 3})


def test_calling_a_task_directly_explains_how_to_enqueue_it(paint: Task[..., Any]):
    with pytest.raises(TypeError, match=r"\.enqueue\(\.\.\.\) sends it to a worker, .*\.call\(\.\.\.\) runs it here"):
        paint("red")  # type: ignore[operator]


def test_mock_of_a_method_leads_to_the_testing_kit(paint: Task[..., Any]):
    with (
        pytest.raises(FrozenInstanceError, match=r"'enqueue' cannot be replaced or mocked; .* assert_enqueued\(\)"),
        mock.patch.object(paint, "enqueue"),
    ):
        pass


def test_tasks_are_copied_and_pickled_as_before(paint: Task[..., Any]):
    assert copy.copy(paint) == paint
    assert pickle.loads(pickle.dumps(paint)) == paint


@pytest.mark.parametrize(
    ("word", "way"),
    [("get", "wait"), ("await", "await_end"), ("result", "return_value"), ("state", "status"), ("ready", "is_finished"),
     ("successful", "status"), ("revoke", "cancel"), ("traceback", "errors")],
)  # fmt: skip
@pytest.mark.parametrize("is_read", [False, True])
def test_words_of_other_results_name_ours(paint: Task[..., Any], word: str, way: str, is_read: bool):
    result = paint.enqueue("red")
    if is_read:
        result = task_backends["default"].get_result(result.id)

    with pytest.raises(AttributeError, match=way):
        getattr(result, word)


def test_results_are_copied_and_pickled_as_before(paint: Task[..., Any]):
    result = task_backends["default"].get_result(paint.enqueue("red").id)

    assert copy.copy(result) == result
    assert pickle.loads(pickle.dumps(result)) == result


# -- Arguments that JSON lacks -------------------------------------------------------------------------------------


TENANT: ContextVar[Any] = ContextVar("TENANT")


class Colour(Enum):
    RED = "red"


@dataclass
class Wall:
    height: int = 3


class Customer:
    """Looks like a row."""

    pk = 7


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Customer(), r"argument 'colour' is a Customer, which JSON lacks; pass its primary key \(\.pk\)"),
        (datetime(2026, 1, 1, tzinfo=UTC), r"argument 'colour' is a datetime, .* pass its text \(\.isoformat\(\)\)"),
        (date(2026, 1, 1), r"argument 'colour' is a date, .*\.isoformat\(\)"),
        (Decimal("1.5"), r"argument 'colour' is a Decimal, .* pass its text \(str\(value\)\)"),
        (uuid.UUID(int=7), r"argument 'colour' is a UUID, .* \(str\(value\)\)"),
        ({1, 2}, r"argument 'colour' is a set, .* pass a list \(list\(value\)\)"),
        (b"x", r"argument 'colour' is a bytes, .* pass text, or store it and pass its id"),
        ({"by": [1, Customer()]}, r"argument 'colour'\['by'\]\[1\] is a Customer, .*\.pk"),
        (float("nan"), r"argument 'colour' is nan, which JSON lacks; pass None"),
        ({(1, 2): 3}, r"argument 'colour' has the key \(1, 2\), which JSON lacks; keys are texts"),
        (gettext_lazy("red"), r"argument 'colour' is a __proxy__, .* pass its text \(str\(value\)\)$"),
        (object(), r"argument 'colour' is an object, which JSON lacks; pass ids, numbers, text, lists, dicts"),
    ],
)
def test_argument_that_json_cannot_represent_is_reported_with_an_alternative(
    paint: Task[..., Any], value: Any, said: str
):
    with pytest.raises((TypeError, ValueError), match=said):
        paint.enqueue(value)


@pytest.mark.parametrize(
    "value", [date(2026, 1, 1), timedelta(1), Decimal(1), uuid.UUID(int=7), User(pk=7), Colour.RED, Wall(), [Wall()]]
)
def test_types_that_an_annotation_makes_possible_are_known_to_be_so(paint: Task[..., Any], value: Any):
    with pytest.raises(TypeError, match=r"or annotate the parameter with its type$"):
        paint.enqueue(value)


def test_keyword_argument_that_json_lacks_is_named(paint: Task[..., Any]):
    with pytest.raises(TypeError, match=r"argument 'on' is a Customer"):
        paint.enqueue("red", on=Customer())


def test_context_variable_that_json_lacks_is_named(paint: Task[..., Any], settings: Any):
    variable = f"{__name__}.{TENANT.name}"
    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": [lambda: Carried(variable)]}
    token = TENANT.set(Customer())
    try:
        with pytest.raises(
            TypeError, match=rf"context of a call .*'carried'\]\['{variable}'\] is a Customer, .* \(\.pk\)"
        ):
            paint.enqueue("red")
    finally:
        TENANT.reset(token)


def test_argument_behind_the_context_has_its_own_name(project: Configure):
    declared = declare(takes_context=True)(lambda context, colour: None)

    with pytest.raises(TypeError, match=r"argument 'colour' is a Customer"):
        declared.enqueue(Customer())


def test_argument_that_makes_a_call_unique_is_named_as_well(project: Configure):
    declared = declare(unique=Unique())(lambda colour: None)

    with pytest.raises(TypeError, match=r"the key\[1\].* is a Customer, which JSON lacks; pass its primary key"):
        declared.enqueue(Customer())


@pytest.mark.parametrize(
    "options",
    [{}, {"unique": Unique()}, {"fair_by": ["colour"]}, {"limits": [Concurrency(1, by=["colour"])]}],
    ids=["plain", "unique", "fair", "limited"],
)
def test_nan_is_a_value_error_that_names_it_whatever_the_options_are(project: Configure, options: dict[str, Any]):
    declared = declare(**options)(lambda colour: None)

    with pytest.raises(ValueError, match=r"(argument 'colour'|the key.*) is nan, which JSON lacks; pass None"):
        declared.enqueue(float("nan"))


# -- Options and declarations --------------------------------------------------------------------------------------


def test_number_as_backoff_names_fixed(project: Configure):
    with pytest.raises(ValueError, match=r"backoff is 5; .* write fixed\(5\)"):
        declare(backoff=5)(lambda: None)
    with pytest.raises(InvalidTask, match=r"backoff is 5; .* write fixed\(5\)"):
        topic_task("orders", group="billing", backoff=5)(lambda message: None)  # type: ignore[arg-type]


def test_period_without_a_unit_is_refused(project: Configure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "_declared", {})
    with pytest.raises(TypeError, match=r"every\(5\) has no unit; write @every\(minutes=5\)"):
        every(5)
    with pytest.raises(TypeError, match=r"write @every\(minutes=5\) above @task"):
        every(lambda: None)
    with pytest.raises(TypeError, match=r"write @cron\('30 3 \* \* \*'\) above @task"):
        cron(lambda: None)  # type: ignore[arg-type]


def test_unknown_option_of_a_schedule_is_named_as_it_was_written(project: Configure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "_declared", {})
    with pytest.raises(TypeError, match=r"every\(\) has no option 'minute'\. Did you mean 'minutes'\?$"):
        every(minute=5)
    with pytest.raises(TypeError, match=r"cron\(\) has no option 'timezone'\. Did you mean 'time_zone'\?$"):
        cron("0 3 * * *", timezone="UTC")


def test_limit_of_a_number_has_no_exponent(paint: Task[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedule, "_declared", {})
    with pytest.raises(ValueError, match="It must be seconds from 1 to 31622400"):
        every(minutes=0)(paint)


def generates():
    yield 1


async def generates_async():
    yield 1


@pytest.mark.parametrize("function", [generates, generates_async])
def test_generator_is_no_task(project: Configure, function: Any):
    with pytest.raises(InvalidTask, match=f"{function.__name__} is a generator; let the task return a list"):
        declare(function)


@pytest.mark.parametrize("wrong", ["mail", partial(print, 1), 7])
def test_decorator_that_gets_no_function_says_how_it_is_written(project: Configure, wrong: Any):
    with pytest.raises(InvalidTask, match=r"is not a function; write @task or @task\(queue_name=\.\.\.\) above a def$"):
        task(wrong)


def without_wraps(function: Any) -> Any:
    def wrapper() -> None:
        function()

    return wrapper


@without_wraps
def wrapped() -> None: ...


def test_decorator_without_wraps_is_explained(project: Configure):
    with pytest.raises(InvalidTask, match=r"without_wraps\.<locals>\.wrapper is inside .* use functools\.wraps"):
        task(wrapped)


def test_task_is_declared_once(paint: Task[..., Any]):
    with pytest.raises(InvalidTask, match="is a task already; write @task once$"):
        task(paint)  # type: ignore[call-overload]


def test_default_that_may_be_a_secret_is_shown_as_dots(project: Configure):
    with pytest.raises(TypeError, match=r"\(colour, key: 'str' = \.\.\.\).*missing"):
        declare(_with_a_default).enqueue()


def _with_a_default(colour, key: str = "secret") -> None: ...


def test_list_of_steps_is_not_a_step(paint: Task[..., Any]):
    steps: Any = [call(paint, "red"), call(paint, "blue")]
    with pytest.raises(TypeError, match=r"a list is not a step of a chain: write chain\(\*steps\)$"):
        chain(steps)
    for members in (steps[0], chain(*steps)):
        with pytest.raises(TypeError, match=r"a group takes a list: write group\(\[\.\.\.\]\)$"):
            group(members)


def test_sent_call_cannot_be_a_step_of_a_workflow(paint: Task[..., Any]):
    sent: Any = paint.enqueue("red")
    for make in (lambda: chain(sent), lambda: group([sent]), lambda: chain(call(paint, "red"), on_failure=sent)):
        with pytest.raises(TypeError, match=r"enqueue\(\) has sent already .*write call\(task, \.\.\.\)"):
            make()


def test_reliable_queue_is_not_a_queue_of_a_task(paint: Task[..., Any], settings: Any):
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"orders": {}}}

    with pytest.raises(
        InvalidTask, match=r"'orders' is a reliable queue; .*get_reliable_queue\('orders'\)\.push\(task_body"
    ):
        paint.using(queue_name="orders")


# -- Topics --------------------------------------------------------------------------------------------------------


def test_topic_outside_of_the_settings_needs_an_option(project: Configure, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "TOPICS": ["orders"]}
    publish("orders", "a")

    for use in (lambda: publish("ordres", "a"), lambda: get_topic("ordres")):
        with pytest.raises(
            ImproperlyConfigured, match=r"Topic 'ordres' is not in RSMQ\['TOPICS'\]. Did you mean 'orders'"
        ):
            use()
    assert get_topic("orders.dlt").name == "orders.dlt"


def test_without_a_list_of_topics_every_name_is_one(project: Configure):
    publish("whatever", "a")


def test_worker_does_not_start_with_a_function_that_follows_an_unlisted_topic(project: Configure, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "TOPICS": ["orders"]}
    topic_task("ordres", group="billing")(lambda message: None)

    with pytest.raises(ImproperlyConfigured, match=r"Topic 'ordres' is not in RSMQ\['TOPICS'\]"):
        check_topic_tasks()


# -- Tasks that a worker does not know -----------------------------------------------------------------------------


def test_module_that_is_not_imported_is_reported_with_a_remedy(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (app := tmp_path / "app_with_jobs").mkdir()
    (app / "__init__.py").touch()
    (app / "jobs.py").write_text("raise AssertionError('nothing is imported because of a message')")
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "app_with_jobs"]

    assert why_unknown("app_with_jobs.jobs.send") == (
        "only modules named tasks are imported; app_with_jobs.jobs exists: import it in ready() of the AppConfig of "
        "'app_with_jobs', or in app_with_jobs.tasks"
    )
    assert why_unknown("app_with_jobs.jobs.Mail.send") == why_unknown("app_with_jobs.jobs.send")
    assert why_unknown("app_with_jobs.work.send").startswith("app 'app_with_jobs' has no module app_with_jobs.work")
    assert why_unknown("app_with_jobs/../x.send").startswith("no installed app has a module")


def test_task_of_a_script_is_explained():
    assert why_unknown("__main__.send") == "it is declared in a script; declare it in a module named tasks of an app"


def test_misspelt_task_is_suggested(project: Configure):
    declared = declare(lambda: None)
    path = declared.module_path.replace("lambda", "lamda")

    assert why_unknown(path).endswith(f"Did you mean {declared.module_path!r}?")


def test_dead_letter_of_an_unknown_task_has_the_reason(project: Configure):
    send_raw('{"task": "shopp.tasks.send"}')

    work()

    ((_, record),) = dead_letters()
    assert record["message"] == (
        "no task 'shopp.tasks.send' is declared in this worker: no installed app has a module 'shopp.tasks': "
        "is its app in INSTALLED_APPS, was it renamed, or is it of another project on this server, which needs a "
        "NAMESPACE of its own?"
    )


@pytest.mark.parametrize(
    ("name", "next_step"), [("defualt", "Did you mean 'default'?"), ("invoices", "Choose one of 'default', ")]
)
def test_queue_that_is_not_in_the_settings_is_named_with_the_place_to_add_it(
    paint: Task[..., Any], name: str, next_step: str
):
    with pytest.raises(InvalidTask) as refusal:
        paint.using(queue_name=name)

    assert f": Queue {name!r} is not in RSMQ['QUEUES'], where each queue needs an entry. {next_step}" in str(
        refusal.value
    )


@pytest.mark.parametrize("name", [7, b"default", ["default"]])
def test_queue_name_that_is_no_text_is_named(paint: Task[..., Any], name: Any):
    with pytest.raises(InvalidTask) as refusal:
        paint.using(queue_name=name)

    assert f": queue_name is {name!r}; it must be the name of a queue, a text" in str(refusal.value)


def test_backend_without_the_application_is_an_error(project: Configure, settings: Any):
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "rsmq_django"]

    (message,) = task_backends["default"].check()

    assert (message.id, message.level) == ("rsmq.E013", checks.ERROR)
    assert "'rsmq_django' is not in INSTALLED_APPS" in message.msg


def test_nothing_is_sent_without_the_application(paint: Task[..., Any], settings: Any):
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "rsmq_django"]

    with pytest.raises(ImproperlyConfigured, match=r"not in INSTALLED_APPS; nothing was sent\. Add it"):
        paint.enqueue("red")
    with pytest.raises(ImproperlyConfigured, match=r"not in INSTALLED_APPS; nothing was sent\. Add it"):
        paint.enqueue_many([(("red",), {})])


def test_backends_that_are_not_ours_are_named(project: Configure, settings: Any):
    settings.TASKS = {"default": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}}

    (message,) = [each for each in checks.run_checks(tags=["rsmq"]) if each.id == "rsmq.W006"]

    assert message.msg.endswith("'default' is django_tasks.backends.dummy.DummyBackend.")
