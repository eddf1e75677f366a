"""Every block of code in the documentation is run by a test: those of pages without a project, and the list of all.

Blocks below a file name, `shop/tasks.py`, make a project of their page (tests/documentation.py).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core import checks
from django.http import HttpRequest, HttpResponse
from django.template import Context, Engine
from django.test import override_settings
from django.urls import path

from rsmq_django.core.errors import NotConfirmed
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Durability, task
from rsmq_django.tasks.shards import shard_of_key
from tests.documentation import PAGES, ROOT
from tests.worker.workshop import Configure, configure, declare, own_registries, project, send_raw, work  # noqa: F401

BLOCK = re.compile(r"^```(python|yaml|js|html)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOREIGN = {"# Celery", "# django-rq", "# PyRSMQ"}  # the first lines of code that other libraries run

#: How many blocks a page has in a language, and the test that runs them. A new block needs a test, and its number here.
RUN_BY = {
    "README.md": {"python": (4, "test_docs.py"), "js": (1, "test_docs_blocks.py")},
    "docs/README.md": {"python": (1, "test_docs.py")},
    "docs/getting-started/tutorial.md": {"python": (10, "test_tutorial.py")},
    "docs/how-to/admin.md": {"python": (2, "admin/test_docs.py")},
    "docs/how-to/doctor.md": {"python": (1, "core/doctor/test_examine.py")},
    "docs/how-to/durability.md": {"python": (3, "test_docs_blocks.py")},
    "docs/how-to/events.md": {"python": (3, "test_docs_blocks.py")},  # what reads events: test_docs.py
    "docs/how-to/files.md": {"python": (2, "test_docs.py")},
    "docs/how-to/limits.md": {"python": (1, "test_docs.py")},
    "docs/how-to/managed_redis.md": {"python": (1, "test_docs.py")},
    "docs/how-to/metrics.md": {"python": (5, "test_docs.py")},
    "docs/how-to/middleware.md": {"python": (4, "test_docs.py")},
    "docs/how-to/migrating.md": {"python": (7, "test_docs.py")},
    "docs/how-to/monitoring.md": {"python": (1, "test_docs.py")},
    "docs/how-to/operations.md": {"python": (2, "test_docs_blocks.py"), "yaml": (2, "test_docs_blocks.py")},
    "docs/how-to/outbox.md": {"python": (3, "test_docs.py")},
    "docs/how-to/pipeline.md": {"python": (5, "spark/engine/test_docs.py")},
    "docs/how-to/progress_bars.md": {"python": (3, "test_docs.py"), "html": (2, "test_docs_blocks.py")},
    "docs/how-to/queues.md": {"python": (4, "test_docs.py")},
    "docs/how-to/reliable_queues.md": {
        "python": (9, "test_reliable_docs.py"),
        "js": (1, "interop/test_reliable_functions.py"),
    },
    "docs/how-to/schedules.md": {"python": (3, "test_docs.py")},
    "docs/how-to/security.md": {
        "python": (3, "test_docs_blocks.py"),
        "js": (1, "worker/execute/test_sealed_queues.py"),
    },
    "docs/how-to/sentry.md": {"python": (1, "contrib/test_sentry_process.py")},
    "docs/how-to/shards.md": {"python": (4, "test_docs_blocks.py")},
    "docs/how-to/tasks.md": {"python": (11, "test_docs_blocks.py")},  # those of files: test_docs.py
    "docs/how-to/tenants.md": {"python": (4, "test_docs.py")},
    "docs/how-to/testing.md": {"python": (5, "test_testing.py")},
    "docs/how-to/topics.md": {"python": (8, "test_docs.py"), "js": (1, "interop/test_topic_in_javascript.py")},
    "docs/how-to/web_apis.md": {"python": (7, "test_docs.py")},
    "docs/how-to/workflows.md": {"python": (2, "test_docs.py")},
    "docs/reference/coding_agents.md": {"python": (2, "test_docs.py")},
    "docs/reference/message_format.md": {"js": (1, "test_docs_blocks.py")},
    "docs/reference/settings.md": {"python": (5, "test_checks.py")},
}


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language, without those that other libraries run."""
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [text for of, text in found if of == language and text.partition("\n")[0] not in FOREIGN]


def names_of(block: str, **names: Any) -> dict[str, Any]:
    exec(block, names)  # noqa: S102 - our own documentation
    return names


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of tasks, which workers find by its name."""
    module = ModuleType("shop_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__dict__["task"] = task
    return module


def test_every_block_is_run_by_a_test():
    found: dict[str, dict[str, int]] = {}
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for language in ("python", "yaml", "js", "html"):
            count = len(blocks(name, language))
            if count:
                found.setdefault(name, {})[language] = count
    assert found == {page: {of: count for of, (count, _) in tests.items()} for page, tests in RUN_BY.items()}


@pytest.mark.parametrize("page", RUN_BY)
def test_the_test_of_a_page_names_it(page: str):
    for _, test in RUN_BY[page].values():
        assert Path(page).name in (ROOT / "tests" / test).read_text("utf-8")


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("page", [page for page, tests in RUN_BY.items() if "js" in tests])
def test_javascript_of_the_documentation_is_javascript(page: str, tmp_path: Path):
    for text in blocks(page, "js"):
        (tmp_path / "block.mjs").write_text(text, "utf-8")
        subprocess.run(["node", "--check", tmp_path / "block.mjs"], check=True, capture_output=True)


# -- Settings ----------------------------------------------------------------------------------------------------------

SETTINGS = [
    ("docs/how-to/durability.md", 0),
    ("docs/how-to/durability.md", 1),
    ("docs/how-to/events.md", 0),
    ("docs/how-to/security.md", 0),
    ("docs/how-to/security.md", 2),
    ("docs/how-to/shards.md", 0),
    ("docs/how-to/shards.md", 1),
    ("docs/how-to/tasks.md", 1),
]


@pytest.mark.parametrize(("page", "number"), SETTINGS)
def test_settings_of_the_documentation_pass_the_checks(page: str, number: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAYMENTS_KEY", "k" * 32)
    names = names_of(blocks(page, "python")[number], INSTALLED_APPS=[])
    given = {name: names[name] for name in ("RSMQ", "TASKS") if name in names}
    if "QUEUES" in names:
        given["RSMQ"] = {"QUEUES": names["QUEUES"]}
    given["RSMQ"].setdefault("CONNECTIONS", {"default": {"URL": "redis://localhost:6379/0"}})
    given.setdefault("TASKS", {"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}})

    with override_settings(**given):
        found = checks.run_checks(tags=["rsmq"])
    assert found == []


def test_the_backoff_of_the_tasks_page_ends_retries(project: Configure, settings: Any):  # noqa: F811
    names = names_of(blocks("docs/how-to/tasks.md", "python")[1])
    options = {**names["TASKS"]["default"]["OPTIONS"], "enqueue_on_commit": False}
    settings.TASKS = {"default": {**names["TASKS"]["default"], "OPTIONS": options}}
    errors = {"refused": ConnectionRefusedError, "other": OSError}

    def fail(kind: str) -> None:
        raise errors[kind]

    declared = declare(fail)
    refused, other = declared.enqueue("refused"), declared.enqueue("other")
    work(until_empty=False, until_drained=True)

    for result in (refused, other):
        result.refresh()
    assert (refused.status, other.status) == ("FAILED", "READY"), "the second is retried after 30 s"


# -- Tasks -------------------------------------------------------------------------------------------------------------


def test_options_of_the_tasks_page_are_right(project: Configure, shop: ModuleType):  # noqa: F811
    ack, aliases = (text for text in blocks("docs/how-to/tasks.md", "python") if text.startswith("@task("))
    exec(ack + aliases, shop.__dict__)  # noqa: S102 - our own documentation
    shop.pay_out.enqueue(7)
    send_raw(json.dumps({"task": "shop.tasks.mail_receipt", "kwargs": {"order_id": 7}}))

    assert work(), "each call has succeeded, also the one under the old name"
    assert get_queue("default").attributes().messages == 0


def test_the_task_with_limits_of_the_operations_page_is_right(project: Configure, shop: ModuleType):  # noqa: F811
    exec(blocks("docs/how-to/operations.md", "python")[1], shop.__dict__)  # noqa: S102 - as above

    assert (shop.render.options.timeout_s, shop.render.options.hard_timeout_s) == (60, 90)


def test_the_sender_of_the_durability_page_repeats_a_call_that_is_not_confirmed(project: Configure):  # noqa: F811
    block, ran = blocks("docs/how-to/durability.md", "python")[2], []

    def invoice(order_id: int) -> None:
        ran.append(order_id)

    declared = declare(durability=Durability(replicas=1, timeout_s=0.01))(invoice)
    with pytest.raises(NotConfirmed):  # there is no replica: of repeat()
        names_of(block, invoice=declared)["send_invoice"](7)
    assert names_of(block, invoice=declared.using(durability=False))["send_invoice"](8)
    work()
    assert ran == [7, 8], "one call, although it was sent twice"


def test_calls_of_a_customer_of_the_shards_page_are_in_one_shard(configure: Configure, shop: ModuleType):  # noqa: F811
    settings, _, visits, of_others = blocks("docs/how-to/shards.md", "python")
    configure(**names_of(settings)["RSMQ"]["QUEUES"])
    exec(visits, shop.__dict__)  # noqa: S102 - as above
    ids = [shop.note_visit.enqueue(customer, page).id for page in "ab" for customer in range(9)]
    ids.append(shop.rebuild_profile.enqueue(0).id)

    shards = [each[:2] for each in ids]
    assert shards[:9] == shards[9:18] and len(set(shards)) > 1 and shards[18] == shards[0]
    shard_of = names_of(of_others)["shard_of"]
    assert all(shard_of(text, 8) == shard_of_key(text, 8) for text in ("anna", "7", "[7]"))


@pytest.mark.django_db
def test_the_view_of_the_security_page_shows_authentic_results(configure: Configure):  # noqa: F811
    configure(default={}, payments={"SIGNING_KEYS": ["k" * 32]})

    def of_others(order_id: int) -> int:
        return order_id

    signed = declare(queue_name="payments")(lambda order_id: order_id)
    plain = declare(of_others)
    for charge, seen in ((signed, (200, b"7")), (plain, (404, b"not known"))):
        receipt = names_of(blocks("docs/how-to/security.md", "python")[1], charge=charge)["receipt"]
        task_id = charge.enqueue(7).id
        work()
        response = receipt(HttpRequest(), task_id)
        assert (response.status_code, response.content) == seen


# -- Other languages ---------------------------------------------------------------------------------------------------


@pytest.mark.interop
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("page", ["README.md", "docs/reference/message_format.md"])
def test_a_call_that_a_node_program_writes_runs(configure: Configure, shop: ModuleType, page: str):  # noqa: F811
    configure(mail={})
    got: list[int] = []
    shop.__dict__["send_receipt"] = lambda order_id: got.append(order_id)
    path = declare(queue_name="mail")(lambda order_id: got.append(order_id)).module_path
    client = "const send = call => console.log(JSON.stringify(call));"
    client += "const rsmq = {sendMessage: send, sendMessageAsync: send};"
    script = client + blocks(page, "js")[0].replace("shop.tasks.send_receipt", path)
    done = subprocess.run(["node", "--input-type=module", "-e", script], check=True, capture_output=True, text=True)

    for line in done.stdout.splitlines():
        sent = json.loads(line)
        assert sent["qname"] == "mail"
        send_raw(sent["message"], "mail")
    assert work()
    assert got and set(got) == {7}


def test_manifests_of_the_operations_page_fit_the_worker_and_the_view():
    yaml = pytest.importorskip("yaml")
    probe, deployment = map(yaml.safe_load, blocks("docs/how-to/operations.md", "yaml"))

    asked = probe["readinessProbe"]["httpGet"]
    view = names_of(blocks("docs/how-to/operations.md", "python")[0])["urlpatterns"][0]
    assert asked["path"] == f"/{view.pattern}"
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert container["command"][:3] == ["python", "manage.py", "rsmq_worker"]
    options = (ROOT / "rsmq_django" / "management" / "worker_arguments.py").read_text("utf-8")
    assert all(f'"{word}"' in options for word in container["command"] if word.startswith("--"))
    assert container["livenessProbe"]["httpGet"] == {"path": "/live", "port": 8080}


urlpatterns = [path(name, lambda request: HttpResponse(), name=name) for name in ("start", "products")]


def test_the_page_with_htmx_waits_for_the_event_of_the_bar(settings: Any):
    settings.ROOT_URLCONF = __name__
    (text,) = [each for each in blocks("docs/how-to/progress_bars.md", "html") if "hx-post" in each]

    shown = Engine().from_string(text).render(Context({"csrf_token": "token"}))
    assert 'hx-post="/start"' in shown and 'hx-get="/products"' in shown
    (event,) = re.findall(r'hx-trigger="(.*?)"', shown)
    script = (ROOT / "rsmq_django" / "static" / "rsmq" / "task_progress.js").read_text("utf-8")
    assert f'CustomEvent("{event}"' in script
    for target in re.findall(r'hx-target="#(.*?)"', shown):
        assert f'id="{target}"' in shown
