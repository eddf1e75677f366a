"""In development a worker starts again when a source file changes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.worker.supervise.reload import Watcher
from tests.support import wait_until
from tests.worker.processes import StartWorker, WorkerProcess
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = pytest.mark.slow

SMALL = ("--processes", "1", "--threads", "1", "--reload")
TASKS = """
from rsmq_django.tasks import task
from tests.worker.site.journal import note

@task
def say():
    note("said", "{word}")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tasks.py of an app that a test may edit."""
    app = tmp_path / "reloaded_shop"
    app.mkdir()
    (app / "__init__.py").touch()
    settings = "from tests.worker.site.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded_shop']\n"
    (app / "settings.py").write_text(settings)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a second edit in the same second has the same age
    return app / "tasks.py"


def start(start_worker: StartWorker, *arguments: str) -> WorkerProcess:
    return start_worker(*SMALL, "--settings", "reloaded_shop.settings", *arguments)


def edit(path: Path, text: str) -> None:
    """Write a file so that its age differs from before, however coarse the file system's clock is."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    if path.exists():
        age = path.stat().st_mtime + 5
        os.utime(draft, (age, age))
    draft.replace(path)  # in one step: whoever looks meanwhile sees one change, not two


def say() -> None:
    ensure_queue("default").send('{"task": "reloaded_shop.tasks.say"}')


def test_changed_task_runs_with_its_present_options(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    say()
    wait_until(lambda: journal.names("said") == ["one"])

    edit(shop, TASKS.format(word="two"))
    wait_until(lambda: worker.output.count("works on default") == 2)
    say()

    wait_until(lambda: journal.names("said") == ["one", "two"])
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_half_an_edit_stops_nothing(project: Configure, start_worker: StartWorker, journal: Journal, shop: Path):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    wait_until(lambda: "started process" in worker.output)

    edit(shop, "def (")
    wait_until(lambda: "tasks.py has changed, but cannot be imported" in worker.output)
    say()

    wait_until(lambda: journal.names("said") == ["one"])
    edit(shop, TASKS.format(word="two"))
    wait_until(lambda: worker.output.count("works on default") == 2)


def test_error_that_is_saved_while_it_restarts_is_survived(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    wait_until(lambda: "started process" in worker.output)

    edit(shop, "raise RuntimeError('saved too early')")  # it can be compiled, so nothing tells it from a good one
    wait_until(lambda: worker.output.count("it restarts after a change") >= 1)
    assert "saved too early" in worker.output
    edit(shop, TASKS.format(word="two"))
    wait_until(lambda: worker.output.count("works on default") == 2)
    say()

    wait_until(lambda: journal.names("said") == ["two"])
    edit(shop, TASKS.format(word="three"))
    wait_until(lambda: worker.output.count("works on default") == 3)
    say()
    wait_until(lambda: journal.names("said") == ["two", "three"])
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_restarted_worker_does_not_outlive_the_first_process(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    wait_until(lambda: "started process" in worker.output)
    edit(shop, TASKS.format(word="two"))
    wait_until(lambda: worker.output.count("started process") == 2)

    worker.send(signal.SIGKILL)

    wait_until(lambda: worker.output.count("ended with exit status 0") == 2)


def test_worker_that_failed_starts_again_after_a_change(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    edit(shop, TASKS.format(word="one"))
    ensure_queue("default").set_attributes(visibility_timeout_s=30_000)
    worker = start(start_worker)
    wait_until(lambda: "it restarts after a change" in worker.output)

    get_queue("default").set_attributes(visibility_timeout_s=30)
    edit(shop, TASKS.format(word="two"))
    say()

    wait_until(lambda: journal.names("said") == ["two"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_it_and_lets_tasks_end(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path, number: signal.Signals
):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    wait_until(lambda: "started process" in worker.output)

    worker.send(number)

    assert worker.wait() == 0
    assert f"{number.name}: tasks may run" in worker.output


def test_worker_does_not_outlive_its_supervisor(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    edit(shop, TASKS.format(word="one"))
    worker = start(start_worker)
    wait_until(lambda: "started process" in worker.output)

    worker.send(signal.SIGKILL)

    wait_until(lambda: "ended with exit status 0" in worker.output)


def test_reload_is_off_for_a_burst_worker(project: Configure, start_worker: StartWorker, shop: Path):
    edit(shop, TASKS.format(word="one"))

    worker = start(start_worker, "--batch")

    assert worker.wait() == 0
    assert "--reload ignored" in worker.output


def test_edit_while_the_worker_imports_its_tasks_is_noticed(
    project: Configure, start_worker: StartWorker, journal: Journal, shop: Path
):
    """The module edits itself, after its old text was read."""
    edits_itself = f"""
import os
from pathlib import Path

draft = Path(__file__).with_suffix(".draft")
draft.write_text({TASKS.format(word="new")!r})
age = Path(__file__).stat().st_mtime + 5
os.utime(draft, (age, age))
draft.replace(__file__)
"""
    edit(shop, edits_itself + TASKS.format(word="old"))

    worker = start(start_worker)
    # The first worker may be told to end before it has said anything.
    wait_until(lambda: "works on default" in worker.output.partition("the worker restarts")[2])
    say()

    wait_until(lambda: journal.names("said") == ["new"])
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.parametrize(
    ("status", "is_stopping", "is_failure"), [(0, False, False), (3, False, True), (3, True, False)]
)
def test_only_a_worker_that_failed_before_a_stop_is_logged(
    status: int, is_stopping: bool, is_failure: bool, caplog: pytest.LogCaptureFixture
):
    watcher = Watcher(lambda lifeline: status, {}, lifeline=None)
    watcher._is_stopping = is_stopping
    try:
        watcher._pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {status}"], {})
        wait_until(lambda: watcher._is_over() or watcher._pid is None)

        assert ("the worker ended with status" in caplog.text) is is_failure
        assert watcher._is_over() is not is_failure, "after a failure it waits for a change"
    finally:
        watcher._wakeup.close()
        os.close(watcher._lifeline)
        os.close(watcher._lifeline_writer)
