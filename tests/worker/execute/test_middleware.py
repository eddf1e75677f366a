"""Middleware: in order, around functions and coroutines, and never in the way of what becomes of a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.utils import translation
from django.utils.translation import trans_real

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Postpone, current_task, fixed
from rsmq_django.tasks.middleware import Carried, ErrorReport, chain
from tests.support import pass_time
from tests.worker.workshop import Configure, declare, the_dead_letter, work

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
TENANT = "tests.worker.execute.test_middleware.tenant"


class Recorder:
    """Notes what it is told, in the list that all of one test share."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    @contextmanager
    def around(self, run: Any) -> Iterator[None]:
        self.seen.append(f"{self.name} enter")
        try:
            yield
        finally:
            self.seen.append(f"{self.name} exit")

    def before(self, run: Any) -> None:
        self.seen.append(f"{self.name} before")

    def after(self, run: Any, outcome: Any) -> None:
        self.seen.append(f"{self.name} after {type(outcome).__name__}")

    def on_retry(self, run: Any, outcome: Any) -> None:
        self.seen.append(f"{self.name} retry {run.attempt}")

    def on_dead_letter(self, run: Any, outcome: Any) -> None:
        self.seen.append(f"{self.name} dead {run.attempt}")


@pytest.fixture
def seen(project: Configure, settings: Any) -> list[Any]:
    """What the middleware "a" and "b" were told, in this order."""
    seen: list[Any] = []
    use(settings, Recorder("a", seen), Recorder("b", seen))
    return seen


def use(settings: Any, *members: Any) -> None:
    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": list(members)}


async def a_coroutine() -> None:
    current_task()


@pytest.mark.parametrize("function", [lambda: current_task() and None, a_coroutine], ids=["function", "coroutine"])
def test_the_first_one_is_the_outermost(seen: list[Any], function: Any):
    declare(function).enqueue()

    work()

    assert seen == [
        "a enter", "b enter", "a before", "b before", "b exit", "a exit", "a after Succeeded", "b after Succeeded",
    ]  # fmt: skip


def test_they_are_informed_of_retries_and_of_the_end(seen: list[Any]):
    declare(max_attempts=2, backoff=fixed(0))(lambda: 1 / 0).enqueue()

    work(threads=1)  # two could tell of the second attempt first

    told = [line for line in seen if line.startswith("a ") and ("retry" in line or "dead" in line)]
    assert told == ["a retry 1", "a dead 2"]


def test_exception_in_before_counts_as_raised_by_the_task(project: Configure, settings: Any):
    class Closed:
        def before(self, run: Any) -> None:
            raise Postpone(after_s=60) if run.attempt == 1 and not ran else ValueError

    ran: list[str] = []
    use(settings, Closed())
    declare(max_attempts=1)(lambda: None).enqueue()

    work(until_empty=False, until_drained=True)
    assert get_queue("default").attributes().hidden_messages == 1

    ran.append("once")
    pass_time(get_queue("default"), seconds=61)
    work()
    assert the_dead_letter()[1]["error"] == "builtins.ValueError"


def test_later_failure_changes_nothing(project: Configure, settings: Any, caplog: pytest.LogCaptureFixture):
    class Broken:
        def after(self, run: Any, outcome: Any) -> None:
            raise RuntimeError("broken")

    use(settings, Broken())
    result = declare(lambda: 7).enqueue()

    work()

    result.refresh()
    assert result.return_value == 7
    assert "the task is not concerned" in caplog.text


def test_nothing_is_sent_when_sending_fails(project: Configure, settings: Any):
    class Strict:
        def sending(self, call: Any) -> None:
            raise PermissionError("no tenant")

    use(settings, Strict())
    declared = declare(lambda: None)

    with pytest.raises(PermissionError, match="no tenant"):
        declared.enqueue()
    with pytest.raises(PermissionError):
        declared.enqueue_many([[]])


def test_tasks_run_in_the_language_of_their_sender(project: Configure, settings: Any):
    use(settings, "rsmq_django.tasks.middleware.Language")
    seen: list[str | None] = []
    declared = declare(lambda: seen.append(translation.get_language()))
    with translation.override("de"):
        declared.enqueue()

    work()

    assert seen == ["de"]


@pytest.mark.parametrize(
    ("sent", "active"),
    [("de", "de"), ("de-at", "de"), ("sr-RS", "en-us"), ("xx", "en-us"), (["de"], "en-us"), (None, None)],
)
def test_only_languages_of_the_settings_are_activated(project: Configure, settings: Any, sent: Any, active: str | None):
    class Forged:
        def sending(self, call: Any) -> None:
            call.context["language"] = sent

    use(settings, "rsmq_django.tasks.middleware.Language", Forged())
    settings.LANGUAGES = [("de", "German"), ("en", "English")]
    seen: list[str | None] = []
    declare(lambda: seen.append(translation.get_language())).enqueue()

    work()

    assert seen == [active]


def test_languages_that_only_messages_name_take_no_memory(project: Configure, settings: Any):
    class Forged:
        def sending(self, call: Any) -> None:
            call.context["language"] = f"xx-{call.ids[0]}"

    use(settings, "rsmq_django.tasks.middleware.Language", Forged())
    declared = declare(lambda: None)
    for _ in range(5):
        declared.enqueue()
    languages = vars(trans_real)["_translations"]  # all that were ever activated
    before = len(languages)

    work()

    assert len(languages) <= before + 1  # that of LANGUAGE_CODE


def test_context_variables_travel_along_and_are_reset(project: Configure, settings: Any):
    use(settings, lambda: Carried(TENANT))
    seen: list[str] = []
    declared = declare(lambda: seen.append(tenant.get()))
    token = tenant.set("acme")
    declared.enqueue()
    tenant.reset(token)
    declared.enqueue()

    work(threads=1)

    assert seen == ["acme", "nobody"]


def test_final_failures_are_reported(project: Configure, settings: Any):
    reported: list[BaseException] = []
    use(settings, lambda: ErrorReport(reported.append))
    declare(max_attempts=2, backoff=fixed(0))(lambda: 1 / 0).enqueue()

    work()

    assert [type(error) for error in reported] == [ZeroDivisionError]


@pytest.mark.django_db  # some of Django's own checks look at the database
@pytest.mark.parametrize("entry", ["shop.no.such.Thing", "builtins.object", 7])
def test_an_entry_that_cannot_be_used_is_found_before_a_worker_starts(project: Configure, settings: Any, entry: Any):
    use(settings, entry)

    with pytest.raises(ImproperlyConfigured, match="RSMQ\\['MIDDLEWARE'\\] has"):
        chain()
    with pytest.raises(SystemCheckError, match="rsmq.E011"):
        call_command("check")


@pytest.mark.parametrize("hook", ["before", "around"])
def test_an_async_hook_is_refused_because_nobody_would_await_it(project: Configure, settings: Any, hook: str):
    class Async:
        async def before(self, run: Any) -> None: ...

        @asynccontextmanager
        async def around(self, run: Any) -> AsyncIterator[None]:
            yield

    use(settings, SimpleNamespace(**{hook: getattr(Async(), hook)}))

    with pytest.raises(ImproperlyConfigured, match=f"whose {hook} is async; make it a plain function"):
        chain()


def test_middleware_that_fails_at_the_end_of_a_process_does_not_keep_others_from_it(
    project: Configure, settings: Any, caplog: pytest.LogCaptureFixture
):
    ended: list[str] = []

    class Failing:
        def flush(self) -> None:
            raise KeyError("nothing to send")

    class Sending:
        def flush(self) -> None:
            ended.append("sent")

    use(settings, Failing(), Sending())
    found = chain()
    assert found is not None

    found.flush()

    assert ended == ["sent"]
    assert "failed at the end of a process" in caplog.text
