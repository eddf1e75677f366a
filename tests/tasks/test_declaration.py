"""Declaring tasks and consumers: their options, and mistakes that are refused at the declaration."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import django
import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.core import Message
from rsmq_django.tasks import Task, consumer, exponential, fixed, registry, task
from rsmq_django.tasks.compat import HAS_NATIVE_TASKS, InvalidTask
from rsmq_django.tasks.task import find_task, registered_tasks
from tests.worker.workshop import Configure, declare

FRAMEWORK = "django.tasks" if HAS_NATIVE_TASKS else "django_tasks"
stock_task: Any = import_module(FRAMEWORK).task


def paint(colour: str) -> None: ...


async def paint_slowly(colour: str) -> None: ...


def paint_with_context(context: object, colour: str) -> None: ...


def read(message: Message) -> None: ...


def read_too(message: Message) -> None: ...


# -- Tasks ---------------------------------------------------------------------------------------------------------


def test_bare_declaration_takes_the_defaults(project: Configure):
    declared = task(paint)

    assert isinstance(declared, Task)
    assert (declared.queue_name, declared.backend, declared.max_attempts) == ("default", "default", None)
    assert declared.module_path == "tests.tasks.test_declaration.paint"


def test_declared_task_can_still_be_called(project: Configure):
    doubled = declare(lambda number: number * 2)

    assert doubled.call(21) == 42


def test_options_are_kept(project: Configure):
    project(mail={}, graveyard={})
    backoff = exponential(first_s=1, factor=3, max_s=20)

    declared = task(
        queue_name="mail",
        max_attempts=7,
        backoff=backoff,
        retry_on=(OSError,),
        give_up_on=ValueError,
        timeout_s=1.5,
        dead_letter_queue="graveyard",
        result_ttl_s=60,
    )(paint)

    policy = declared.options.retry_policy(5)
    assert declared.queue_name == "mail"
    assert (policy.max_attempts, policy.backoff) == (7, backoff)
    assert (policy.retry_on, policy.give_up_on) == ((OSError,), (ValueError,))
    assert (declared.options.timeout_s, declared.options.dead_letter_queue) == (1.5, "graveyard")
    assert declared.options.result_ttl_s == 60


@pytest.mark.parametrize("function", [paint, paint_slowly])
def test_stock_decorator_makes_our_tasks(project: Configure, function):
    declared = stock_task(function)

    assert isinstance(declared, Task)
    assert declared.options.retry_policy(5).max_attempts == 5


def test_stock_decorator_passes_our_options_on_but_for_that_of_django_6_0(project: Configure):
    decorate = partial(stock_task, max_attempts=3, backoff=fixed(1))

    if django.VERSION[:2] == (6, 0):  # it takes Django's own options only, and says so
        with pytest.raises(TypeError, match="max_attempts"):
            decorate()
    else:
        assert decorate()(paint).options.retry_policy(5).max_attempts == 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", True),
        ("max_attempts", "3"),
        ("timeout_s", 0),
        ("timeout_s", timedelta(seconds=30)),
        ("limits", 5),
        ("timeout_s", float("nan")),
        ("timeout_s", 1e9),
        ("hard_timeout_s", float("inf")),
        ("expires_in_s", 1e9),
        ("result_ttl_s", -1),
        ("result_ttl_s", 0.5),
        ("result_ttl_s", 10**12),
        ("backoff", 5),
        ("retry_on", [OSError]),
        ("retry_on", (OSError, "ValueError")),
        ("give_up_on", (int,)),
        ("dead_letter_queue", ""),
        ("dead_letter_queue", 7),
    ],
)
@pytest.mark.parametrize("make", [lambda **options: task(**options)(paint), lambda **o: consumer("default", **o)(read)])
def test_option_that_cannot_work_is_refused_by_name(project: Configure, make, option, value):
    with pytest.raises(ValueError, match=option):
        make(**{option: value})


@pytest.mark.parametrize("option", ["fair_by", "shard_by"])
def test_names_of_arguments_are_a_list_and_no_text(project: Configure, option: str):
    with pytest.raises(ValueError, match=rf"{option} is the text 'name'; write a list of names, {option}=\['name'\]"):
        task(**{option: "name"})(paint)  # type: ignore[call-overload]


def test_option_that_does_not_exist_is_refused_by_name(project: Configure):
    with pytest.raises(TypeError, match="max_atempts"):
        task(max_atempts=3)(paint)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="max_atempts"):
        consumer("default", max_atempts=3)(read)


@pytest.mark.parametrize(
    "make", [lambda: exponential(first_s="2"), lambda: exponential(factor=-1), lambda: fixed(None)]
)
def test_backoff_that_cannot_work_is_refused_where_it_is_written(make):
    with pytest.raises(ValueError, match="must be a number"):
        make()


def test_consumer_without_a_queue_is_refused(project: Configure):
    with pytest.raises(TypeError, match="name the queue"):
        consumer(read)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["timeout_s", "hard_timeout_s", "limits"])
def test_options_that_workers_read_from_the_declaration_are_refused_for_one_call(project: Configure, option: str):
    with pytest.raises(ValueError, match=f"workers read {option} from the declaration"):
        task(paint).using(**{option: 3})
    with pytest.raises(ValueError, match=f"workers read {option} from the declaration"):
        task(paint).using(max_attempts=2, **{option: 3})


def test_option_that_no_call_has_is_refused_with_those_there_are(project: Configure):
    with pytest.raises(TypeError, match="'cost'.*'run_after'"):
        task(paint).using(cost=60)  # type: ignore[call-arg]


def test_invalid_time_is_refused_with_its_name(project: Configure):
    with pytest.raises(InvalidTask, match="run_after is 60"):
        task(paint).using(run_after=60).enqueue("red")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda **options: task(**options)(paint), lambda **o: consumer(**o)(read)])
def test_unknown_queue_is_refused_with_the_nearest_name(project: Configure, make):
    project(notices={})

    with pytest.raises(InvalidTask, match=r"'notice' is not in RSMQ\['QUEUES'\].*notices"):
        make(queue_name="notice")
    with pytest.raises(InvalidTask, match=r"'graveyard' is not in RSMQ\['QUEUES'\]"):
        make(queue_name="notices", dead_letter_queue="graveyard")


def test_dead_letter_queue_on_another_server_is_refused(project: Configure, settings, redis_url):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15},
            "far": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "far"},
        },
        "QUEUES": {"default": {}, "distant": {"CONNECTION": "far"}},
    }

    with pytest.raises(InvalidTask, match="'distant' is on another connection than queue 'default'"):
        task(dead_letter_queue="distant")(paint)


def test_function_inside_a_function_is_refused(project: Configure):
    def inner() -> None: ...

    with pytest.raises(InvalidTask):
        task(inner)


def test_context_must_be_the_first_argument(project: Configure):
    assert task(takes_context=True)(paint_with_context).takes_context

    with pytest.raises(InvalidTask):
        task(takes_context=True)(paint)


@pytest.mark.parametrize("priority", [101, -101, 5.5, "high"])
def test_priority_is_a_whole_number_from_minus_100_to_100(project: Configure, priority: Any):
    assert task(priority=-100)(paint).priority == -100

    with pytest.raises(InvalidTask):
        task(priority=priority)(paint)


def test_declaring_needs_no_server(project: Configure):
    project(url="unix:///nowhere/at/all")

    assert task(paint).queue_name == "default"


def test_another_backend_gets_djangos_options_only(project: Configure, settings):
    dummy = {"BACKEND": f"{FRAMEWORK}.backends.dummy.DummyBackend"}
    settings.TASKS = {**settings.TASKS, "dummy": dummy}

    declared = task(backend="dummy", max_attempts=3, takes_context=True)(paint_with_context)

    assert type(declared) is not Task
    assert (declared.backend, declared.takes_context) == ("dummy", True)


# -- The registry --------------------------------------------------------------------------------------------------


def test_declared_task_is_found_by_its_dotted_path(project: Configure):
    declared = task(paint)

    assert find_task("tests.tasks.test_declaration.paint") is declared
    assert registered_tasks() == {"tests.tasks.test_declaration.paint": declared}
    assert find_task("tests.tasks.test_declaration.paint_slowly") is None


def test_copy_for_another_queue_does_not_replace_the_declared_task(project: Configure):
    project(default={}, mail={})
    declared = task(paint)

    copy = declared.using(queue_name="mail")

    assert copy.queue_name == "mail"
    assert find_task(declared.module_path) is declared


def test_declaring_again_replaces_the_function_as_a_reloaded_module_does(project: Configure):
    first = declare(lambda: 1)

    second = declare(lambda: 2)

    assert first.module_path == second.module_path
    assert find_task(first.module_path) is second


# -- Consumers -----------------------------------------------------------------------------------------------------


def test_consumer_stays_an_ordinary_function(project: Configure):
    declared = consumer("default", max_attempts=2)(read)

    found = registry.find_consumer("default")
    assert declared is read
    assert found is not None and found.func is read
    assert found.options.max_attempts == 2


def test_second_consumer_of_a_queue_is_refused_with_the_name_of_the_first(project: Configure):
    consumer("default")(read)

    with pytest.raises(InvalidTask, match=r"'default' has a consumer already: tests\.tasks\.test_declaration\.read;"):
        consumer("default")(read_too)


def test_consumer_of_a_reloaded_module_replaces_itself(project: Configure):
    consumer("default")(read)

    consumer("default", max_attempts=9)(read)

    found = registry.find_consumer("default")
    assert found is not None and found.options.max_attempts == 9


@pytest.mark.parametrize("primary", [True, False])
def test_task_on_the_queue_of_a_consumer_is_refused(project: Configure, primary: bool):
    project(default={}, readings={})
    consumer("readings", primary=primary)(read)
    elsewhere = task(paint)

    said = r"queue 'readings' has the consumer tests\.tasks\.test_declaration\.read, which gets every message"
    with pytest.raises(InvalidTask, match=said):
        task(queue_name="readings")(paint_slowly)
    with pytest.raises(InvalidTask, match=said):
        elsewhere.using(queue_name="readings")


@pytest.mark.parametrize("primary", [True, False])
def test_consumer_of_a_queue_with_a_task_is_refused(project: Configure, primary: bool):
    project(readings={})
    task(queue_name="readings")(paint)

    with pytest.raises(
        InvalidTask, match=r"calls of tests\.tasks\.test_declaration\.paint are sent; give the consumer"
    ):
        consumer("readings", primary=primary)(read)

    assert registry.find_consumer("readings") is None
    assert registry.find_followers("readings") == []


def test_consumer_that_takes_calls_may_share_its_queue_with_tasks(project: Configure):
    project(default={}, audit={})
    consumer("audit", takes_calls=True)(read)

    assert task(paint).using(queue_name="audit").queue_name == "audit"


def test_second_consumer_cannot_take_calls(project: Configure):
    with pytest.raises(ValueError, match="takes_calls is for the primary consumer of 'default'"):
        consumer("default", primary=False, takes_calls=True)


def test_task_can_be_declared_with_wrong_settings_so_that_checks_can_report_them(settings):
    settings.RSMQ = {"CONECTIONS": {}}

    declared = declare(lambda: None, queue_name="nowhere")

    with pytest.raises(ImproperlyConfigured, match="CONNECTIONS"):
        declared.enqueue()


def test_task_on_a_queue_that_tasks_does_not_allow_is_refused_with_the_setting_to_change(project, settings):
    project(mail={})
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["other"]}}

    with pytest.raises(InvalidTask, match=r"Queue 'mail' is not valid for backend. Add it .* TASKS\['default'\]"):
        declare(lambda: None, queue_name="mail")


@pytest.mark.parametrize("option", ["queue_name", "dead_letter_queue"])
def test_a_priority_band_cannot_be_named_as_a_queue(project: Configure, option: str):
    with pytest.raises(InvalidTask, match="'default-p5' is a priority band of 'default'"):
        declare(**{option: "default-p5"})(lambda: None)
