"""System checks of the tag "rsmq", and the page that explains settings and checks."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from django.core import checks, mail
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from rsmq_django import checks as rsmq_checks
from rsmq_django.checks import check_cache_databases, check_project, check_redis_version
from rsmq_django.conf import settings as conf
from rsmq_django.conf.options import option_rules
from rsmq_django.conf.settings import get_settings
from rsmq_django.tasks import registry, task_modules

PACKAGE = Path(conf.__file__).parents[1]
PAGE = PACKAGE.parent / "docs" / "reference" / "settings.md"
SERVER = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}
OURS = "rsmq_django.tasks.backend.RSMQBackend"


@pytest.fixture(autouse=True)
def _a_project_without_mistakes(settings):
    settings.RSMQ = SERVER
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": []}}


def found() -> list[checks.CheckMessage]:
    """Run the checks as `manage.py check --tag rsmq` does."""
    return checks.run_checks(tags=["rsmq"])


def the_only_one() -> checks.CheckMessage:
    (message,) = found()
    return message


# -- The settings --------------------------------------------------------------------------------------------------


def test_a_project_without_mistakes_has_nothing_to_report():
    assert found() == []


def test_missing_settings_are_an_error_with_the_settings_to_add(settings):
    del settings.RSMQ

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.E001", checks.ERROR)
    assert "Add RSMQ = " in message.hint


def test_every_problem_of_the_settings_is_an_error_of_its_own(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {"DELAY": 5, "MAX_ATTEMPTS": 0}}}

    messages = found()

    assert [(message.id, message.level) for message in messages] == [
        ("rsmq.E002", checks.ERROR),
        ("rsmq.E003", checks.ERROR),
    ]
    assert messages[0].hint == "Did you mean 'DELAY_S'?"


def test_a_misspelt_option_stops_the_check_command(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {"VISIBILITY_TIMEOUT": 5}}}

    with pytest.raises(SystemCheckError, match="Did you mean 'VISIBILITY_TIMEOUT_S'"):
        call_command("check", "--tag", "rsmq")


def test_checks_need_no_server(settings):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "unix:///nowhere/at/all"}}}

    assert found() == []


# -- Other settings ------------------------------------------------------------------------------------------------


def test_a_cache_that_does_not_exist_is_an_error(settings):
    settings.RSMQ = {"CONNECTIONS": {"default": {"CACHE": "redsi"}}}
    settings.CACHES = {"redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://h"}}

    message = the_only_one()

    assert message.id == "rsmq.E008"
    assert "Did you mean 'redis'?" in message.hint


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://s1:26379,s2:26379",
        "redis+sentinel:///mymaster/0",
        "redis+sentinel://s1:0,s2/mymaster/0",
        "redis+sentinel://s1,,s2/mymaster/0",
        "redis+sentinel://::1:26379/mymaster/0",
        "redis+sentinel://s1/my master/0",
        "redis+sentinel://s1/mymaster/zero",
        "redis+sentinel://s1/mymaster/0?db=3",
        "redis+sentinel://u:geheim/x@s1/mymaster/0",
        "redis+sentinel://s1/mymaster/0?sentinel_db=3",
        "redis+sentinel://s1/mymaster/0?sentinel_ssl=perhaps",
        "rediss+sentinel://s1/mymaster/0?ssl_cret_reqs=none",
        "rediss+sentinel://s1/mymaster/0?sentinel_ssl_cret_reqs=none",
    ],
)
def test_a_url_with_sentinels_that_cannot_be_used_is_an_error(settings, url):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": url}}}

    message = the_only_one()

    assert message.id == "rsmq.E003" and "redis+sentinel://" in message.hint
    assert "geheim" not in f"{message.msg} {message.hint}"


@pytest.mark.parametrize("query", ["", "?sentinel_password=geheim", "?ssl_ca_certs=/a&sentinel_ssl_certfile=/b"])
def test_three_sentinels_are_nothing_to_report(settings, query):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": f"rediss+sentinel://s1,[::1]:1,s3:2/mymaster/0{query}"}}}

    assert found() == []


@pytest.mark.parametrize(
    "connection", [{"URL": "redis+sentinel://u:geheim@s1/mymaster/0"}, {"CACHE": "default"}], ids=["url", "cache"]
)
def test_a_single_sentinel_is_a_warning(settings, connection):
    options = {"SENTINELS": [("s1", 26379)], "PASSWORD": "geheim"}
    backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://mymaster/0", "OPTIONS": options}
    settings.RSMQ, settings.CACHES = {"CONNECTIONS": {"default": connection}}, {"default": backend}

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W007", checks.WARNING)
    assert "s1:26379" in message.msg and "geheim" not in message.msg


def test_a_cache_that_is_not_redis_is_an_error(settings):
    settings.RSMQ = {"CONNECTIONS": {"default": {"CACHE": "default"}}}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

    message = the_only_one()

    assert message.id == "rsmq.E008"
    assert "not a Redis cache" in message.hint


def test_a_cache_whose_backend_is_no_class_is_an_error(settings):
    settings.RSMQ = {"CONNECTIONS": {"default": {"CACHE": "default"}}}
    settings.CACHES = {"default": {"BACKEND": "os.path.join"}}

    message = the_only_one()

    assert message.id == "rsmq.E008"
    assert message.hint is not None and "is not a Redis cache but os.path.join" in message.hint


def test_an_entry_of_tasks_that_is_no_dictionary_is_named(settings):
    settings.TASKS = {"default": OURS}

    message = the_only_one()

    assert message.id == "rsmq.W006"
    assert message.msg.endswith("no task is sent to RSMQ: 'default' is of type str.")


def test_a_queue_of_tasks_must_be_configured(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {}}}
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": ["mail", "mial"]}}

    message = the_only_one()

    assert message.id == "rsmq.E009"
    assert "'mial'" in message.msg
    assert "Did you mean 'mail'?" in message.hint


def test_an_unknown_option_of_the_backend_is_an_error_with_the_nearest_one(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {}}}
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"max_atempts": 3}}}

    message = the_only_one()

    assert message.id == "rsmq.E014"
    assert "'max_atempts'" in message.msg
    assert message.hint == "Did you mean 'max_attempts'?"


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        (["max_attempts"], "['OPTIONS'] is of type list", "It must be a dictionary."),
        ({"max_attempts": 0}, "['OPTIONS']['max_attempts'] cannot be used", "max_attempts is 0"),
        ({"backoff": "tests.missing.wait"}, "['OPTIONS']['backoff'] cannot be used", "No module named"),
        ({"backoff": 5}, "['OPTIONS']['backoff'] cannot be used", "write fixed(5)"),
        ({"retry_on": ["builtins.print"]}, "['OPTIONS']['retry_on'] cannot be used", "must be an exception class"),
        ({"enqueue_on_commit": "archive"}, "['OPTIONS']['enqueue_on_commit'] cannot be used", "an alias in DATABASES"),
        ({"timeout_s": 9, "hard_timeout_s": 5}, "['OPTIONS'] cannot be used", "it must be longer"),
    ],
)
def test_an_option_of_the_backend_with_a_wrong_value_is_an_error_that_names_it(settings, options, said, hint):
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": options}}

    message = the_only_one()

    assert message.id == "rsmq.E014"
    assert said in message.msg
    assert hint in message.hint


def test_the_queue_that_django_allows_by_default_must_be_configured(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {}}}
    settings.TASKS = {"default": {"BACKEND": OURS}}

    message = the_only_one()

    assert message.id == "rsmq.E009"
    assert "'default'" in message.msg


def test_queues_of_another_backend_are_not_ours_to_check(settings):
    foreign = {"BACKEND": "django.tasks.backends.dummy.DummyBackend", "QUEUES": ["elsewhere"]}
    settings.TASKS = {"default": {"BACKEND": OURS, "QUEUES": []}, "other": foreign}

    assert found() == []


@pytest.mark.parametrize("tasks", [{}, {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}])
def test_project_whose_tasks_do_not_use_our_backend_is_warned(settings, tasks):
    settings.TASKS = tasks

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W006", checks.WARNING)
    assert OURS in message.hint


@pytest.mark.parametrize(("option", "value"), [("CONNECTION", "defualt"), ("CONNECTIONS", ["default", "defualt"])])
def test_a_connection_of_the_pipeline_that_does_not_exist_is_an_error(settings, option: str, value: str | list[str]):
    settings.RSMQ = {**SERVER, "PIPELINE": {option: value}}

    message = the_only_one()

    assert message.id == "rsmq.E006"
    assert message.msg == f"RSMQ['PIPELINE']['{option}'] has 'defualt', which is not in RSMQ['CONNECTIONS']."
    assert message.hint == "Did you mean 'default'?"


def test_a_project_without_a_pipeline_needs_no_connection_for_it(settings):
    settings.RSMQ = {"CONNECTIONS": {"redis": SERVER["CONNECTIONS"]["default"]}, "QUEUES": {}}
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "rsmq_django.pipeline"]

    assert found() == []


def test_enqueueing_after_the_commit_of_an_unknown_database_is_an_error(settings):
    settings.RSMQ = {**SERVER, "TASKS": {"ENQUEUE_ON_COMMIT": "defualt"}}

    message = the_only_one()

    assert message.id == "rsmq.E010"
    assert message.hint == "Did you mean 'default'?"


@pytest.fixture
def tasks_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings) -> Iterator[Callable[[str], None]]:
    """Return the function that gives the project an app whose module `tasks` has this text."""
    names = [f"app_of_check_{tmp_path.name.lower()}"]

    def write(text: str) -> None:
        (app := tmp_path / names[0]).mkdir()
        (app / "__init__.py").touch()
        (app / "tasks.py").write_text(text)
        settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, names[0]]

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(import_module("rsmq_django.tasks.task"), "_tasks", {})
    for registered in ("_consumers", "_followers"):
        monkeypatch.setattr(registry, registered, {})
    yield write
    for name in [each for each in sys.modules if each.split(".")[0] in names]:
        del sys.modules[name]


TASK_AND_CONSUMER = """
from rsmq_django.tasks import consumer, task

@task
def paint(): ...

@consumer("default")
def read(message): ...
"""


def test_task_and_consumer_on_one_queue_are_an_error(tasks_module: Callable[[str], None]):
    tasks_module(TASK_AND_CONSUMER)

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.E012", checks.ERROR)
    assert "tasks.read: it would get every message of queue 'default'" in message.msg


def test_tasks_that_cannot_be_imported_are_a_warning(tasks_module: Callable[[str], None]):
    tasks_module("1 / 0")

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W030", checks.WARNING)
    assert "division by zero" in message.msg


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("bridge_topic('orders', group='copy', queue='defualt')", "Queue 'defualt' is not in RSMQ['QUEUES'],"),
        ("bridge_topic('ordres', group='copy', queue='default')", "Topic 'ordres' is not in RSMQ['TOPICS']."),
    ],
)
def test_bridge_of_a_misspelt_topic_or_queue_is_an_error(
    tasks_module: Callable[[str], None], settings, monkeypatch: pytest.MonkeyPatch, declaration: str, said: str
):
    monkeypatch.setattr(import_module("rsmq_django.tasks.topic_task"), "_tasks", {})
    settings.RSMQ = SERVER | {"TOPICS": ["orders"]}
    tasks_module(f"from rsmq_django.tasks import bridge_topic\n{declaration}")

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.E015", checks.ERROR)
    assert message.msg.startswith(said)


JOBS = """
from rsmq_django.tasks import task

@task
def paint(): ...
"""


def test_module_with_tasks_that_no_worker_imports_is_a_warning(
    tasks_module: Callable[[str], None], tmp_path: Path, settings
):
    tasks_module("")
    (app,) = (place for place in tmp_path.iterdir() if place.is_dir())
    (app / "jobs.py").write_text(JOBS)
    (app / "plain.py").write_text("raise AssertionError('not imported')")
    (app / "tests").mkdir()
    (app / "tests" / "jobs.py").write_text(JOBS)

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W031", checks.WARNING)
    assert message.msg.startswith(f"{app.name}.jobs declares tasks, but workers do not import it")
    assert message.hint == f"Import it in ready() of the AppConfig of {app.name!r}, or in {app.name}.tasks."


def test_module_with_tasks_is_found_although_the_app_has_many_files_of_others(
    tasks_module: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(task_modules, "MAX_FILES", 20)
    tasks_module("")
    (app,) = (place for place in tmp_path.iterdir() if place.is_dir())
    for folder in ("node_modules", ".venv"):
        (app / folder / "inside").mkdir(parents=True)
        for number in range(20):
            (app / folder / "inside" / f"file{number}.py").touch()
    (app / "queued").mkdir()
    (app / "queued" / "jobs.py").write_text(JOBS)

    assert the_only_one().msg.startswith(f"{app.name}.queued.jobs declares tasks")


def test_module_with_tasks_is_that_of_the_innermost_app(tasks_module: Callable[[str], None], tmp_path: Path, settings):
    tasks_module("")
    (app,) = (place for place in tmp_path.iterdir() if place.is_dir())
    (app / "shop").mkdir()
    (app / "shop" / "__init__.py").touch()
    (app / "shop" / "jobs.py").write_text(JOBS)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, f"{app.name}.shop"]

    message = the_only_one()

    assert message.msg.startswith(f"{app.name}.shop.jobs declares tasks")
    assert message.hint is not None and message.hint.endswith(f"or in {app.name}.shop.tasks.")


@pytest.mark.parametrize("by", ["tasks", "urls"])
def test_module_with_tasks_that_something_imports_is_fine(
    tasks_module: Callable[[str], None], tmp_path: Path, settings, by: str
):
    tasks_module("")
    (app,) = (place for place in tmp_path.iterdir() if place.is_dir())
    (app / "jobs.py").write_text(JOBS)
    if by == "tasks":
        (app / "tasks.py").write_text("from . import jobs")
    else:
        (app / "urls.py").write_text(f"from {app.name} import jobs\nurlpatterns = []")
        settings.ROOT_URLCONF = f"{app.name}.urls"

    assert found() == []


def test_tasks_are_not_imported_where_no_backend_is_ours(tasks_module: Callable[[str], None], settings):
    settings.TASKS = {}
    tasks_module("1 / 0")

    assert [message.id for message in found()] == ["rsmq.W006"]


# -- Warnings ------------------------------------------------------------------------------------------------------


def test_an_embedded_server_in_production_is_a_warning_and_in_a_test_run_none(settings, monkeypatch):
    settings.RSMQ = {"CONNECTIONS": {"default": {"EMBEDDED": True}}}
    settings.BASE_DIR = "/project"
    settings.DEBUG = False
    assert found() == [], "test runners switch DEBUG off"

    monkeypatch.delattr(mail, "outbox")
    in_production = the_only_one()
    settings.DEBUG = True
    in_development = found()

    assert (in_production.id, in_production.level) == ("rsmq.W001", checks.WARNING)
    assert in_development == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"URL": "redis://h/0"}, {"URL": "redis://h/0"}),
        ({"URL": "redis://h/0"}, {"CACHE": "default"}),
        ({"EMBEDDED": True}, {"EMBEDDED": True}),
    ],
)
def test_two_connections_to_the_same_namespace_are_a_warning(settings, one, other):
    settings.BASE_DIR = "/project"
    settings.DEBUG = True
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://h/0"}}

    settings.RSMQ = {"CONNECTIONS": {"default": one, "other": other}}
    same = the_only_one()
    settings.RSMQ = {"CONNECTIONS": {"default": one, "other": {**other, "NAMESPACE": "other"}}}
    different = found()

    assert (same.id, same.level) == ("rsmq.W002", checks.WARNING)
    assert different == []


@pytest.mark.parametrize(
    ("connection", "location"),
    [
        ({"CACHE": "other"}, "redis://h/0"),
        ({"URL": "redis://user:secret@h:6379"}, "redis://h/0"),
        ({"URL": "unix:///run/redis.sock?db=2"}, "unix:///run/redis.sock?db=2"),
    ],
)
def test_a_connection_to_the_database_of_a_cache_is_a_warning_at_a_deployment(settings, connection, location):
    redis = "django.core.cache.backends.redis.RedisCache"
    local = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    settings.CACHES = {"default": local, "other": {"BACKEND": redis, "LOCATION": location}}
    settings.RSMQ = {"CONNECTIONS": {"default": connection}}

    (message,) = check_cache_databases(None)

    assert (message.id, message.level) == ("rsmq.W010", checks.WARNING)
    assert "CACHES['other']" in message.msg and "secret" not in message.msg
    assert check_project(None) == []


@pytest.mark.parametrize("url", ["redis://h/1", "redis://h:6380/0", "unix:///run/redis.sock"])
def test_a_connection_to_another_database_than_that_of_a_cache_is_none(settings, url):
    redis = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": redis, "LOCATION": "redis://h/0"}}
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": url}}}

    assert check_cache_databases(None) == []


def test_a_visibility_timeout_of_zero_is_a_warning(settings):
    settings.RSMQ = {**SERVER, "QUEUES": {"mail": {"VISIBILITY_TIMEOUT_S": 0}}}

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W003", checks.WARNING)
    assert "'mail'" in message.msg


def test_a_worker_that_takes_longer_to_stop_than_kubernetes_waits_is_a_warning(settings):
    settings.RSMQ = {**SERVER, "WORKER": {"SHUTDOWN_TIMEOUT_S": 30}}

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W004", checks.WARNING)


@pytest.mark.parametrize("version", ["4.6.0", "5.1.1", "9.0.0", "10.1"])
def test_a_redis_py_that_the_tests_have_not_seen_is_a_warning(version: str):
    (message,) = check_redis_version(version)

    assert (message.id, message.level) == ("rsmq.W005", checks.WARNING)
    assert version in message.msg


@pytest.mark.parametrize("version", ["5.2.0", "6.4.0", "8.1.0"])
def test_a_redis_py_that_the_tests_have_seen_is_fine(version: str):
    assert list(check_redis_version(version)) == []


# -- Documentation -------------------------------------------------------------------------------------------------

SECTION_TYPES = {
    "CONNECTIONS": conf.ConnectionSettings,
    "QUEUES": conf.QueueSettings,
    "TASKS": conf.TaskSettings,
    "WORKER": conf.WorkerSettings,
    "OUTBOX": conf.OutboxSettings,
    "ADMIN": conf.AdminSettings,
}


@pytest.mark.parametrize("section", SECTION_TYPES)
def test_the_page_has_a_row_for_each_option_with_its_default(section: str):
    chapter = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in chapter.splitlines() if line.startswith("| `")]
    shown = {row[1].strip("`"): row[3].replace("`", "").strip('"') for row in rows}

    defaults = {field.name.upper(): field.default for field in fields(SECTION_TYPES[section])}
    plain = {key: str(value) for key, value in defaults.items() if isinstance(value, bool | int | float | str)}

    assert list(shown) == list(option_rules(SECTION_TYPES[section]))
    inherited = {(key, value) for key, value in plain.items() if shown[key] == "that of the connection"}
    assert plain.items() - inherited <= shown.items()


@pytest.mark.parametrize(
    "option",
    [
        {"ALARM_EMAIL": "ops@example.org"},
        {"ALARM_EMAIL": []},
        {"ALARM_EMAIL": ["ops"]},
        {"ALARM_WEBHOOK": "file:///etc/passwd"},
        {"ALARM_WEBHOOK": "https://user:hunter2@hooks.example.org/"},
        {"ALARM_WEBHOOK": "https://hooks.example.org/\n"},
    ],
)
def test_wrong_receivers_of_alarms_are_an_error_without_their_secrets(settings, option: dict[str, object]):
    settings.RSMQ = {**SERVER, "PIPELINE": {"OBJECTIVES": {"mail": {"success": 0.99}}, **option}}

    message = the_only_one()

    assert message.id == "rsmq.E003"
    assert "hunter2" not in f"{message.msg} {message.hint}"


def test_alarms_that_reach_nobody_are_reported(settings):
    settings.RSMQ, settings.ADMINS = {**SERVER, "PIPELINE": {"ALARM_EMAIL": "admins"}}, []

    message = the_only_one()

    assert (message.id, message.level) == ("rsmq.W009", checks.WARNING)
    assert "RSMQ['PIPELINE']['OBJECTIVES'], ADMINS is missing" in message.msg
    settings.ADMINS = ["root@example.org"]
    objectives = {"OBJECTIVES": {"mail": {"success": 0.99}}}
    settings.RSMQ = {**SERVER, "PIPELINE": {"ALARM_EMAIL": "admins", "ALARM_WEBHOOK": "https://x.org/y", **objectives}}
    assert found() == []
    settings.ADMINS = []
    assert "not sent by e-mail: ADMINS is missing" in the_only_one().msg


def test_the_page_explains_each_check():
    sources = "".join((PACKAGE / name).read_text() for name in ("conf/problem_ids.py", "checks.py"))

    explained = re.findall(r"^\| `(rsmq\.[EW]\d{3})` \|", PAGE.read_text(), re.MULTILINE)

    assert sorted(explained) == sorted(set(re.findall(r"\"(rsmq\.[EW]\d{3})\"", sources)))


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_examples_of_the_page_are_right(settings, block: str):
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102 - our own page

    for name in ("RSMQ", "TASKS"):
        if name in names:
            setattr(settings, name, names[name])

    assert found() == []
    assert get_settings().queues
    assert rsmq_checks.TAG == "rsmq"
