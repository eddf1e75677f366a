"""The documentation runs: its code blocks work, and the files that it names exist."""

import importlib.util
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from django.core.management import load_command_class

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.management.cli.entrance import Entrance
from tests.documentation import JSON_BLOCK, NAMED_BLOCK, PAGES, PYTHON_BLOCK, ROOT, Project
from tests.redis_server import PrivateServer


def test_the_five_minute_start_of_the_readme_works(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "README.md", server.url)
    task_id = project.python("from shop.orders import place_order; print(place_order(7))").strip()

    project.run("-m", "django", "rsmq_worker", "--batch")

    status = f"from shop.status import receipt_status; print(receipt_status({task_id!r}))"
    assert project.python(status).strip() == "SUCCESSFUL"
    mail = Queue("mail", Client(Connection(server.url, timeout_s=15)))
    assert mail.attributes().hidden_messages == 1, "the second receipt is due in an hour"


def test_the_blocks_of_the_tasks_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "tasks.md", server.url)
    queues = "{'default': {}, 'mail': {}, 'sensor-raw': {}, 'readings': {}, 'index': {}}"
    project.write("settings.py", (tmp_path / "settings.py").read_text() + f"RSMQ['QUEUES'] = {queues}\n")
    client = Client(Connection(server.url, timeout_s=15))
    project.python("""
from shop.sending import from_an_async_view
from shop.tasks import fetch_rates
import asyncio
asyncio.run(from_an_async_view())
fetch_rates.enqueue()
""")
    sensor = Queue("sensor-raw", client)
    sensor.create()
    sensor.send_many([b"21.5", b"no number"])

    project.run("-m", "django", "rsmq_worker", "--burst", "--queues", "default")
    project.run("-m", "django", "rsmq_worker", "--batch", "--queues", "sensor-raw")
    project.run("-m", "django", "rsmq_worker", "--batch", "--queues", "mail")

    assert Queue("default", client).attributes().messages == 0
    assert Queue("default", client).attributes().total_sent == 2502
    assert Queue("mail", client).attributes().hidden_messages == 1, "the one that is due in five minutes"
    assert sensor.attributes().messages == 1, "the second attempt at what is no number"

    said = project.python("""
from rsmq_django.queues import ensure_queue
from rsmq_django.worker.worker import WorkerOptions, make_worker
from shop import batches, consumers
ensure_queue("readings").send_many([b"21.5", b"no number", b"19"])
batches.index_products.enqueue_many([{"product_id": number} for number in (7, 13)])
options = WorkerOptions(threads=1, async_tasks=1, poll_interval_s=1, shutdown_timeout_s=5, until_drained=True)
make_worker(["readings", "index"], options).run()
print(consumers.stored, consumers.seen, batches.indexed)
""")
    assert said.strip() == "[21.5, 19.0] [b'21.5', b'no number', b'19'] [7, 13]"
    assert Queue("readings", client).attributes().messages == 1, "the second attempt at what is no number"
    assert Queue("index", client).attributes().messages == 1, "the one that is being edited"


@pytest.mark.slow
def test_the_blocks_of_the_limits_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "limits.md", server.url)
    project.python("""
from shop.tasks import fetch_rates, sync_orders, transfer
sync_orders.enqueue_many([[1], [1], [2]])
fetch_rates.enqueue_many([["monday"]] * 8)
transfer.enqueue_many([[5]] * 8)
""")

    project.run("-m", "django", "rsmq_worker", "--batch")

    waiting = Queue("default", Client(Connection(server.url, timeout_s=15))).attributes()
    assert 6 <= waiting.messages <= 8, "ten of the sixteen calls of the bank have run, and most of the others"


@pytest.mark.slow
def test_the_blocks_of_the_migrating_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "migrating.md", server.url)
    queues = "{'default': {}, 'mail': {}, 'thumbs': {}, 'sensor-raw': {}}"
    project.write("settings.py", (tmp_path / "settings.py").read_text() + f"RSMQ['QUEUES'] = {queues}\n")
    project.run("-m", "django", "check")

    said = project.python("""
from rsmq_django.testing import Kit
from shop import consumers, orders, sensors, tasks
kit = Kit()
for do in (orders.place_order, orders.upload, sensors.report):
    do(7)
kit.pass_time(6)
kit.run()
later = {call.task.rpartition(".")[2] for call in kit.enqueued()}
print(tasks.mailed, sorted(later), consumers.seen)
""")

    assert said.strip() == "[7] ['make_album', 'send_receipt'] [7]"

    said = project.python("""
from rsmq_django.testing import Kit
from shop import canvas, others
kit = Kit()
names = ("a_chain", "a_chord", "with_an_error_callback", "an_immutable_signature", "many_items", "chains_in_a_group",
    "a_group", "a_callback", "a_chord_with_a_next_step")
flows = [getattr(canvas, name)() for name in names]
ids = others.send_all()
kit.pass_time(11)
kit.run()
print(*(flow.status().state for flow in flows))
print(flows[0].results(), flows[3].results(), flows[6].results(), flows[7].results(), len(ids))
last = canvas.square_of_total.get_result(flows[8].status().then_id).return_value
squared = canvas.square.get_result(last).return_value
print(sorted(canvas.ends, key=str), sorted(others.done), squared)
sums = canvas.pairs()
kit.run()
print([canvas.add.get_result(id).return_value for id in sums])

from concurrent.futures import ThreadPoolExecutor
from shop import results
with ThreadPoolExecutor(1) as pool:
    waiting = pool.submit(results.sum_of, 2, 3)
    while not waiting.done():
        kit.run()
again = results.run_failed_calls_again()
print(waiting.result(), results.stop(others.count.enqueue().id), results.stop_all_of(7), again)
""")

    addresses = [f"{name}@example.org" for name in ("0", "1", "2", "a", "b")] + ["stock 7"]
    assert said.splitlines() == [
        "succeeded succeeded failed" + 6 * " succeeded",
        "[8] [16] [0, 2, 4] [16] 5",
        f"""[36, 90, "unsupported operand type(s) for +: 'int' and 'str'"] {addresses} 36""",
        "[3, 7]",
        "5 True 1 1",
    ]


def test_the_blocks_of_the_start_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "README.md", server.url)
    project.write(
        "settings.py", (tmp_path / "settings.py").read_text() + "RSMQ['QUEUES'] = {'default': {}, 'mail': {}}\n"
    )

    said = project.python("""
from rsmq_django.tasks import get_workflow
from rsmq_django.testing import Kit
from shop.tasks import place_order
flow = place_order(7, "ada@example.org")
Kit().run()
print(get_workflow(flow).results())
""")

    assert said.strip() == "['receipt of order 7 sent to ada@example.org']"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_readme_names_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    table = (ROOT / "README.md").read_text("utf-8").split("| extra | for |")[1].split("\n\n")[0]

    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == sorted(extras)


@pytest.mark.slow
def test_the_blocks_of_the_middleware_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "middleware.md", server.url)

    said = project.python("""
from rsmq_django.tasks import progress_of
from rsmq_django.testing import Kit
from shop import middleware, tasks, tenants
tenants.tenant.set("acme")
result = tasks.import_products.enqueue(3)
later = tasks.sync_with_partner.enqueue(is_open=False)
tenants.tenant.set("other")
runs = Kit().run()
print(tasks.seen, progress_of(result.id).note, [type(run.outcome).__name__ for run in runs], middleware.failures)
""")

    assert said.strip() == "[(1, 'acme')] page 3 ['Succeeded', 'Postponed'] []"


@pytest.mark.slow
def test_the_blocks_of_the_workflows_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "workflows.md", server.url)

    lines = project.python("""
from rsmq_django.testing import Kit
from shop import tasks
from shop.pictures import *
started = [renew(7), renew(13), renew_all([1, 2]), renew_what_is_possible([12, 13]), resize_very_many(500)]
Kit().run()
print(*map(how_far, started), *map(str, sorted(tasks.said, key=str)), sep="\\n")
""").splitlines()

    assert lines == [
        "chain succeeded: 2 of 2, 0 failed",
        "chain failed: 1 of 2, 1 failed",
        "group succeeded: 4 of 4, 0 failed",
        "group failed: 3 of 4, 1 failed",
        "map succeeded: 500 of 500, 0 failed",
        "500 pictures are done",
        "['picture 1 in 800', 'picture 2 in 800']",
        "['picture 12 in 800']",
        "['shop.tasks.resize not a picture']",
    ]


def test_the_blocks_of_the_queues_page_run_in_order(server: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "queues.md").read_text("utf-8")
    namespace = {"REDIS_URL": server.url}

    for block in PYTHON_BLOCK.findall(page):
        exec(block, namespace)  # noqa: S102 - our own documentation

    assert "its lease is lost, so nothing was changed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_blocks_of_the_schedules_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "schedules.md", server.url)
    project.run("-m", "django", "check")

    lines = project.python(
        "from shop.reminders import *; print(*remind_every_quarter_of_an_hour(), sep='\\n')"
    ).splitlines()

    assert [line.split(":")[0] for line in lines] == [
        "monthly-report",
        "nightly-report",
        "prices-of-europe",
        "quarterly-prices",
        "shop.tasks.refresh_prices",
    ]
    assert "quarterly-prices: */15 8-18 * * * (America/New_York), next 20" in "\n".join(lines)
    assert Queue("default", Client(Connection(server.url, timeout_s=15))).attributes().messages == 1, (
        "the one that was run now"
    )


@pytest.mark.slow
def test_the_blocks_of_the_outbox_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "outbox.md", server.url)
    in_a_file = (tmp_path / "settings.py").read_text().replace("':memory:'", "'db'").replace('":memory:"', '"db"')
    project.write("settings.py", in_a_file)
    project.run("-m", "django", "migrate")

    project.python("from shop.orders import place_order; place_order(7)")

    assert "invoices: 1 message unsent" in project.run("-m", "django", "rsmq_outbox", "status")
    project.run("-m", "django", "rsmq_worker", "--burst", "--processes", "1")
    rows = "from django.contrib.contenttypes.models import ContentType as Row; "
    found = f"{rows} print(Row.objects.filter(model='7').count())"
    assert project.python(found).strip() == "2", "the order and its invoice"
    assert "inbox: 1 task with once=True recorded as done" in project.run("-m", "django", "rsmq_outbox", "status")


def test_the_blocks_of_the_topics_page_run_in_order(server: PrivateServer) -> None:
    page = (ROOT / "docs" / "how-to" / "topics.md").read_text("utf-8")
    namespace = {"REDIS_URL": server.url}

    for block in PYTHON_BLOCK.findall(NAMED_BLOCK.sub("", page)):
        exec(block, namespace)  # noqa: S102 - our own documentation


@pytest.mark.slow
def test_the_project_of_the_topics_page_works(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "topics.md", server.url)
    queues = "{'default': {}, 'orders-node': {'FOR_OTHERS': True}}"
    project.write("settings.py", (tmp_path / "settings.py").read_text() + f"RSMQ['QUEUES'] = {queues}\n")
    project.python("from shop.orders import place; place('one'); place('two')")

    said = project.run("-m", "django", "rsmq_worker", "--batch", "--processes", "1")

    # Not as lines, because threads that print at once may share one.
    for words in ("billing ['one', 'two']", "telling one", "telling two"):
        assert words in said
    assert Queue("orders-node", Client(Connection(server.url, timeout_s=15))).attributes().messages == 2


@pytest.mark.slow
def test_the_blocks_of_the_metrics_and_events_pages_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "metrics.md", server.url)
    project.write("settings.py", (tmp_path / "settings.py").read_text() + "RSMQ['EVENTS'] = {'RECORD': 'all'}\n")
    project.write(
        "shop/tasks.py",
        "from rsmq_django.tasks import task\n\n@task(max_attempts=1)\ndef send(n):\n    assert n < 2, 'too many'\n",
    )
    project.python("import shop.urls\nfrom shop.tasks import send\nsend.enqueue_many([[n] for n in range(3)])")

    project.run("-m", "django", "rsmq_worker", "--batch")

    seen = project.python("from shop.reading import summary; print(summary('default'))")
    assert "2 succeeded, 1 failed" in seen
    said = project.python(
        "import logging.config, sys\nfrom shop.logging_settings import LOGGING\n"
        "LOGGING['handlers']['console']['stream'] = sys.stdout\nlogging.config.dictConfig(LOGGING)\n"
        "logging.getLogger('shop').warning('hello')\n"
        "import shop.structured, structlog\nstructlog.get_logger().info('hi')"
    )
    assert said.splitlines() == ["WARNING -/- hello", '{"event": "hi"}']
    log, runs = [
        t for t in PYTHON_BLOCK.findall((ROOT / "docs" / "how-to" / "events.md").read_text()) if "RSMQ" not in t
    ]
    assert "shop.tasks.send 1 builtins.AssertionError too many" in project.python(log)
    assert "shop.tasks.send too many 1" in project.python(runs)


def test_the_view_of_the_monitoring_page_takes_its_token_from_a_file(
    tmp_path: Path, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "monitoring.md", server.url)
    project.write("token", "s3cret\n")
    monkeypatch.setenv("METRICS_TOKEN_FILE", str(tmp_path / "token"))

    said = project.python(
        "from django.test import RequestFactory\nfrom shop.urls import urlpatterns\n"
        "for given in ('s3cret', 'other'):\n"
        "    request = RequestFactory().get('/metrics', headers={'Authorization': f'Bearer {given}'})\n"
        "    print(urlpatterns[0].callback(request).status_code)"
    )

    assert said.split() == ["200", "401"]

    monkeypatch.delenv("METRICS_TOKEN_FILE")
    assert project.python("from shop.urls import urlpatterns\nprint(urlpatterns)") == "[]\n", "a worker has no token"


def test_health_of_web_processes_is_the_one_of_the_operations_page(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "operations.md", server.url)
    settings = (tmp_path / "settings.py").read_text("utf-8")
    project.write("settings.py", f"{settings}ROOT_URLCONF = 'shop.urls'\nALLOWED_HOSTS = ['testserver']\n")

    said = project.python("""
from django.test import Client
from rsmq_django import views
views.HEALTH_WITHIN_S = 15
print(Client().get("/health/redis").json())
""")

    assert said.strip() == "{'status': 'ok', 'connections': {'default': 'ok'}}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_in_the_documentation_is_json(page: Path) -> None:
    for block in JSON_BLOCK.findall(page.read_text("utf-8")):
        for line in block.strip().splitlines():
            json.loads(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_pages_that_the_documentation_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"`(rsmq_django/[\w/.]+)`", text)
    linked = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]

    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [link for link in linked if not (page.parent / link).exists()] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")

    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]} - {"README.md"}

    assert {page for page in pages if f"({page})" not in index and not page.startswith("decisions/")} == set()


@pytest.mark.parametrize("command", ["rsmq_worker", "rsmq_redrive", "rsmq_cancel", "rsmq_doctor"])
def test_options_that_the_operations_page_shows_exist(command: str) -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
    loaded = load_command_class("rsmq_django", command)
    parser = loaded.create_parser("manage.py", command)

    shown = {
        option
        for line in page.splitlines()
        for words in re.findall(rf"{command}\b([^`|]*)", line)
        for option in re.findall(r"--[a-z-]+", words)
    }

    own = {option for each in loaded.command.params for option in each.opts} if isinstance(loaded, Entrance) else set()
    assert shown <= set(parser._option_string_actions) | own


def test_every_reason_of_a_dead_letter_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "message_format.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \| ", page.partition("| reason | the message |")[2], re.MULTILINE))

    sources = "".join(path.read_text("utf-8") for path in (ROOT / "rsmq_django").rglob("*.py"))
    given = set(re.findall(r'\b(?:Unreadable|Dead|give_up)\(\s*"(\w+)"', sources))

    assert len(given) > 10
    assert given - documented == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_no_example_gives_a_key_a_default_value(page: Path) -> None:
    assert not re.findall(
        r"""environ\.get\(\s*["'][A-Z_]*(?:KEY|SECRET|PASSWORD|TOKEN)[A-Z_]*["']\s*,""", page.read_text("utf-8")
    )


@pytest.mark.slow
def test_the_blocks_of_the_files_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "files.md", server.url)

    said = project.python("""
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from rsmq_django.testing import Kit
from shop.uploads import receive
receive(ContentFile(b"name,price\\na,1.50\\nb,2\\n"))
Kit().run()
folders = {name: default_storage.listdir(name)[1] for name in ("uploads", "reports")}
print(folders["uploads"], default_storage.open("reports/" + folders["reports"][0]).read())
""")

    assert said.strip() == "[] b'3.50'"


@pytest.mark.slow
def test_the_blocks_of_the_tenants_page_work_together(tmp_path: Path, server: PrivateServer) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "tenants.md", server.url)
    project.write("settings.py", (tmp_path / "settings.py").read_text() + "ALLOWED_HOSTS = ['.localhost']\n")

    said = project.python("""
from django.test import RequestFactory
from rsmq_django.testing import Kit
from shop import tasks, tenants, views

def view(request):
    views.export(request, "may")
    return views.export(request, "may")

for host in ("acme.localhost", "other.localhost"):
    tenants.TenantOfTheHost(view)(RequestFactory().get("/", HTTP_HOST=host))
Kit().run()
print(sorted(tasks.written))
""")

    assert said.strip() == "[('acme', 'may'), ('other', 'may')]"


@pytest.mark.slow
def test_the_blocks_of_the_page_about_web_apis_work_together(tmp_path: Path, server: PrivateServer) -> None:
    missing = [name for name in ("ninja", "rest_framework") if importlib.util.find_spec(name) is None]
    # Of Pydantic, which django-ninja needs, the newest Python may have no wheel.
    if missing and (not os.environ.get("CI") or sys.version_info >= (3, 15)):
        pytest.skip(f"not installed: {', '.join(missing)}")
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "web_apis.md", server.url)
    settings = (tmp_path / "settings.py").read_text()
    settings += "RSMQ['QUEUES'] = {'imports': {}}\nROOT_URLCONF = 'shop.urls'\nINSTALLED_APPS += ['rest_framework']\n"
    settings += "REST_FRAMEWORK = {'DEFAULT_AUTHENTICATION_CLASSES': [], 'UNAUTHENTICATED_USER': None}\n"
    settings += "ALLOWED_HOSTS = ['testserver']\nDATABASES['default']['ATOMIC_REQUESTS'] = True\n"
    project.write("settings.py", settings)

    said = project.python("""
from django.test import Client
from rsmq_django.testing import Kit
web = Client()
bar = web.post("/start", {"pages": 4}).content.decode()
rest = web.post("/rest/imports", {"pages": 4})
ninja = web.post("/ninja/imports", {"pages": 4}, content_type="application/json")
before = web.get(rest["Location"]).json()
Kit().run()
print(rest.status_code, ninja.status_code, before, web.get(rest["Location"]).json())
print(web.get("/ninja/" + ninja.json()["state"]).json(), web.get("/rest/imports/other").status_code)
again = bar.split('hx-get="')[1].split('"')[0]
print("delay" in bar, web.get(again).content.decode())
address = web.post("/imports", {"pages": 4})
before = web.get(address["Location"]).json()
Kit().run()
print(address.status_code, before["status"], web.get(address["Location"]).json())
""")

    done = "{'status': 'SUCCESSFUL', 'finished': True, 'percent': 100}"
    assert said.splitlines() == [
        f"202 202 {{'status': 'READY', 'finished': False, 'percent': 0}} {done}",
        f"{done} 404",
        'True <div  hx-swap="outerHTML"><progress max="100" value="100"></progress> SUCCESSFUL</div>',
        "202 READY {'status': 'SUCCESSFUL', 'finished': True, 'progress': {'done': 4, 'total': 4, 'note': ''}}",
    ]


@pytest.mark.slow
def test_the_blocks_of_the_page_about_progress_bars_work_together(tmp_path: Path, server: PrivateServer) -> None:
    page = ROOT / "docs" / "how-to" / "progress_bars.md"
    project = Project(tmp_path, page, server.url)
    template = re.findall(r"^`(shop/templates/[\w/.]+)`:\n\n```html\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    for name, text in template:
        (tmp_path / name).parent.mkdir(parents=True)
        project.write(name, text)
    settings = (tmp_path / "settings.py").read_text()
    settings += "ROOT_URLCONF = 'shop.urls'\nALLOWED_HOSTS = ['testserver']\nSTATIC_URL = 'static/'\n"
    settings += "INSTALLED_APPS += ['django.contrib.staticfiles', 'django.contrib.sessions']\n"
    settings += "MIDDLEWARE = ['django.contrib.sessions.middleware.SessionMiddleware']\n"
    settings += "MIDDLEWARE += ['django.middleware.csrf.CsrfViewMiddleware']\n"
    settings += "SESSION_ENGINE = 'django.contrib.sessions.backends.signed_cookies'\n"
    settings += "TEMPLATES = [{'BACKEND': 'django.template.backends.django.DjangoTemplates', 'APP_DIRS': True}]\n"
    project.write("settings.py", settings)

    said = project.python("""
import re
from django.contrib.staticfiles import finders
from django.test import Client
from rsmq_django.testing import Kit
web = Client(enforce_csrf_checks=True)
(token,) = re.findall('csrfmiddlewaretoken" value="(.*?)"', web.get("/imported").content.decode())
page = web.post("/start", {"csrfmiddlewaretoken": token}, follow=True).content.decode()
(source,), files = re.findall('data-src="(.*?)"', page), re.findall('"/static/(.*?)"', page)
before = web.get(source).json()
Kit().run()
after = web.get(source).json()
print(len(files), all(map(finders.find, files)), before["text"], after["text"], after["figures"], after["note"])
""")

    assert said.strip() == "2 True Waiting Done 10 of 10 page 10"


@pytest.mark.slow
def test_the_settings_of_the_page_about_managed_redis_are_valid(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "managed_redis.md"
    project = Project(tmp_path, page, "redis://nowhere.invalid")
    (block,) = PYTHON_BLOCK.findall(page.read_text("utf-8"))
    project.write("settings.py", (tmp_path / "settings.py").read_text() + block)

    assert "no issues" in project.run("-m", "django", "check")


@pytest.mark.slow
def test_the_project_of_the_page_for_coding_agents_passes_its_test(tmp_path: Path) -> None:
    project = Project(tmp_path, ROOT / "docs" / "reference" / "coding_agents.md", "redis://nowhere.invalid")
    project.write("settings.py", (tmp_path / "settings.py").read_text() + "RSMQ['QUEUES'] = {'mail': {}}\n")

    assert "1 passed" in project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop")
