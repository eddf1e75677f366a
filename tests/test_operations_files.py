"""The files in contrib/: alert rules, dashboard, manifests and units refer to what this package has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from rsmq_django.core.stats.counters import report
from rsmq_django.core.tasks.processes import ProcessRecord, SlotUse, describe
from rsmq_django.core.tasks.schedules import put_entry
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.telemetry.metrics import registry
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parent.parent
CONTRIB = ROOT / "contrib"
RULES = CONTRIB / "prometheus" / "rsmq.rules.yml"
DASHBOARD = CONTRIB / "grafana" / "rsmq.json"
PROMTOOL = shutil.which("promtool")
SYSTEMD = shutil.which("systemd-analyze")
NEEDS_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing (Debian: apt-get install prometheus)")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
#: Alerts that must not be lost.
ALERTS = (
    "RsmqQueueLate",
    "RsmqNoWorker",
    "RsmqDeadLetters",
    "RsmqLeasesLost",
    "RsmqTicksMissed",
    "RsmqServerDown",
    "RsmqEventsLost",
)


def rules() -> dict[str, str]:
    """Return the expressions of the alert rules by name."""
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", RULES.read_text("utf-8")))


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def expressions() -> dict[str, str]:
    """Return all expressions, by where they are."""
    found = {f"rule {name}": expression for name, expression in rules().items()}
    for panel in panels():
        found |= {f"panel {panel['title']} {each['refId']}": each["expr"] for each in panel["targets"]}
    for path in sorted((CONTRIB / "kubernetes").glob("*.yaml")):
        queries = re.findall(r"(?:query|metricsQuery): (.+)", path.read_text("utf-8"))
        found |= {f"{path.name} {number}": query for number, query in enumerate(queries)}
    return found


@pytest.fixture
def exported(settings: Any, server: PrivateServer, db: None) -> dict[str, frozenset[str]]:
    """The labels of each metric that a scrape exports."""
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}}
    found: dict[str, frozenset[str]] = {}
    for family in registry().collect():
        assert isinstance(family, Metric)
        labels = {"le"} if family.type == "histogram" else set()
        labels |= set(getattr(family, "_labelnames", ()))
        found |= {f"{family.name}{suffix}": frozenset(labels) for suffix in SUFFIXES[family.type]}
    return found


def test_metrics_of_all_expressions_are_exported_with_the_labels_that_they_select(
    exported: dict[str, frozenset[str]],
) -> None:
    wrong = []
    for where, expression in expressions().items():
        used = re.findall(r"(rsmq_\w+)(?:\{([^}]*)\})?", expression)
        assert used, where
        for name, selectors in used:
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selectors or ""))
            if name not in exported or labels - exported[name]:
                wrong.append((where, name, labels))
        grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
        known = frozenset[str]().union(*(exported.get(name, frozenset()) for name, _ in used))
        wrong += [(where, "by", label) for labels in grouped for label in labels.split(", ") if label not in known]

    assert wrong == []


def test_there_is_an_alert_for_each_trouble_and_each_has_a_summary() -> None:
    text = RULES.read_text("utf-8")

    assert set(ALERTS) <= rules().keys()
    assert text.count("- alert:") == len(rules()) == text.count("summary:") == text.count("severity:")


def test_summaries_name_labels_that_their_expression_keeps(exported: dict[str, frozenset[str]]) -> None:
    for block in RULES.read_text("utf-8").split("- alert:")[1:]:
        expression = re.search(r"expr: (.+)", block)
        assert expression is not None
        named = set(re.findall(r"\$labels\.(\w+)", block))
        grouped = re.search(r"by \(([^)]*)\)", expression[1])
        (first, *_others) = re.findall(r"rsmq_\w+", expression[1])
        kept = set(grouped[1].split(", ")) if grouped else exported[first]
        assert named <= kept, block


SOURCE = {"type": "prometheus", "uid": "${source}"}
#: What Grafana reads of a dashboard: types, ranges, patterns, tuples of allowed values, and the same of parts.
DASHBOARD_SCHEMA: dict[str, Any] = {
    "title": str,
    "uid": re.compile(r"[\w-]{1,40}"),
    "tags": [str],
    "schemaVersion": int,
    "version": int,
    "editable": bool,
    "refresh": re.compile(r"\d+[smh]"),
    "time": {"from": re.compile("now-.+"), "to": ("now",)},
    "annotations": {"list": list},
    "templating": {"list": [{"name": re.compile(r"\w+"), "type": ("datasource", "query"), "query": (str, dict)}]},
    "panels": [
        {
            "id": int,
            "type": ("timeseries", "stat"),
            "title": re.compile(".+"),
            "description": str,
            "datasource": SOURCE,
            "gridPos": {"x": range(24), "y": range(1000), "w": range(1, 25), "h": range(1, 25)},
            "fieldConfig": {"defaults": {"unit": ("short", "s", "ops", "percentunit")}, "overrides": list},
            "options": dict,
            "targets": [{"refId": re.compile("[A-Z]"), "datasource": SOURCE, "expr": str}],
        }
    ],
}


def mistakes(value: Any, schema: Any, where: str = "dashboard") -> list[str]:
    """Return what a value has other than its schema says."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        return [
            each
            for key, inner in schema.items()
            for each in (
                mistakes(value[key], inner, f"{where}.{key}") if key in value else [f"{where}.{key} is missing"]
            )
        ]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{where} is no list, or empty"]
        return [each for at, one in enumerate(value) for each in mistakes(one, schema[0], f"{where}[{at}]")]
    if isinstance(schema, re.Pattern):
        fits = isinstance(value, str) and schema.fullmatch(value) is not None
    elif isinstance(schema, type):
        fits = type(value) is schema
    elif isinstance(schema, tuple):
        fits = value in schema or type(value) in schema
    else:
        fits = value in schema if isinstance(schema, range) else value == schema
    return [] if fits else [f"{where} is {value!r}"]


def test_dashboard_has_what_grafana_reads() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))

    assert mistakes(dashboard, DASHBOARD_SCHEMA) == []
    for panel in dashboard["panels"]:
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids), panel["title"]


@pytest.mark.parametrize(
    ("path", "value", "mistake"),
    [
        (("panels", 0, "type"), "timeserie", "dashboard.panels[0].type is 'timeserie'"),
        (("panels", 1, "id"), "2", "dashboard.panels[1].id is '2'"),
        (("panels", 2, "gridPos", "w"), 25, "dashboard.panels[2].gridPos.w is 25"),
        (("panels", 3, "targets"), [], "dashboard.panels[3].targets is no list, or empty"),
        (("panels", 4, "datasource", "uid"), "own", "dashboard.panels[4].datasource.uid is 'own'"),
        (("time", "to"), None, "dashboard.time.to is None"),
        (("templating",), {}, "dashboard.templating.list is missing"),
    ],
)
def test_mistake_in_the_dashboard_is_noticed(path: tuple[Any, ...], value: Any, mistake: str) -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text("utf-8"))
    part = dashboard
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value

    assert mistakes(dashboard, DASHBOARD_SCHEMA) == [mistake]


def test_panels_of_the_dashboard_do_not_overlap_and_ask_the_chosen_source() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["datasource"]["uid"] == "${source}"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


@NEEDS_PROMTOOL
def test_prometheus_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    check = subprocess.run([PROMTOOL, "check", "rules", RULES], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr + check.stdout
    shutil.copytree(CONTRIB / "prometheus", tmp_path / "prometheus")
    token = tmp_path / "token"
    token.write_text("secret")
    configuration = tmp_path / "prometheus" / "prometheus.yml"
    configuration.write_text(configuration.read_text().replace("/run/secrets/metrics-token", str(token)))
    check = subprocess.run([PROMTOOL, "check", "config", configuration], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr + check.stdout
    for where, expression in expressions().items():
        query = expression.replace("$__rate_interval", "5m").replace("<<.LabelMatchers>>", 'queue="mail"')
        query = query.replace("$connection", ".*").replace("$queue", ".*")
        rule = tmp_path / "one.yml"
        rule.write_text(f"groups: [{{name: one, rules: [{{record: one, expr: {json.dumps(query)}}}]}}]")
        check = subprocess.run([PROMTOOL, "check", "rules", rule], capture_output=True, text=True)
        assert check.returncode == 0, (where, check.stderr + check.stdout)


def promtool_tests(tmp_path: Path, *tests: dict[str, Any]) -> None:
    """Let promtool run tests of the rules and of expressions."""
    assert PROMTOOL is not None
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


READY = 'rsmq_queue_messages{connection="default",queue="mail",state="ready"}'
WORKERS = 'rsmq_queue_workers{connection="default",queue="mail"}'
SLOTS = 'rsmq_worker_slots{connection="default",queues="%s",kind="%s",state="%s"}'
AGE = 'rsmq_queue_oldest_ready_seconds{connection="default",queue="%s"}'
ATTEMPTS = 'rsmq_attempts_total{connection="default",queue="mail",task="shop.send",outcome="%s"}'
SUCCESS = 'rsmq_pipeline_last_success_timestamp_seconds{step="%s"}'
BURN = 'rsmq_slo_burn_rate{queue="mail",objective="success",window="%s"}'
OF_MAIL, OF_TASK = {"queue": "mail"}, {"queue": "mail", "task": "shop.send"}


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("alert", "series", "fires_with"),
    [
        ("RsmqServerDown", {'rsmq_up{connection="default"}': "0x60"}, {}),
        ("RsmqServerDown", {'rsmq_up{connection="default"}': "1x60"}, None),
        ("RsmqNoWorker", {READY: "3x60", WORKERS: "0x60"}, OF_MAIL),
        ("RsmqNoWorker", {READY: "0x60", WORKERS: "0x60"}, None),
        ("RsmqNoWorker", {READY: "3x60", WORKERS: "1x60"}, None),
        ("RsmqNoWorker", {READY: "3x60"}, None),
        ("RsmqQueueLate", {AGE % "mail": "400x60", WORKERS: "2x60"}, OF_MAIL),
        ("RsmqQueueLate", {AGE % "mail": "200x60", WORKERS: "2x60"}, None),
        ("RsmqQueueLate", {AGE % "mail-dead": "400x60", WORKERS: "2x60"}, None),
        ("RsmqDeadLetters", {ATTEMPTS % "dead": "0x50 1x10", ATTEMPTS % "discarded": "0x60"}, OF_TASK),
        ("RsmqDeadLetters", {ATTEMPTS % "dead": "7x60", ATTEMPTS % "lost": "0x50 1x10"}, None),
        ("RsmqLeasesLost", {ATTEMPTS % "lost": "0x50 1x10"}, OF_TASK),
        ("RsmqPipelineLate", {'rsmq_pipeline_lag_seconds{connection="default"}': "7200x60"}, {}),
        ("RsmqPipelineLate", {'rsmq_pipeline_lag_seconds{connection="default"}': "900x60"}, None),
        ("RsmqPipelineFailing", {SUCCESS % "publish": "-9000x60"}, {"step": "publish"}),
        ("RsmqPipelineFailing", {SUCCESS % "dlq": "-9000x60"}, None),
        ("RsmqEventLogFull", {'rsmq_pipeline_log_fill{connection="default"}': "0.6x60"}, {}),
        ("RsmqEventLogFull", {'rsmq_pipeline_log_fill{connection="default"}': "0.2x60"}, None),
        ("RsmqEventsLost", {'rsmq_events_lost_total{connection="default"}': "0x50 1x10"}, {}),
        ("RsmqEventsLost", {'rsmq_events_lost_total{connection="default"}': "7x60"}, None),
        ("RsmqBudgetBurns", {BURN % "1h": "15x60"}, OF_MAIL | {"window": "1h"}),
        ("RsmqBudgetBurns", {BURN % "1h": "7x60", BURN % "6h": "7x60"}, OF_MAIL | {"window": "6h"}),
        ("RsmqBudgetBurns", {BURN % "1h": "14x60", BURN % "6h": "5x60", BURN % "3d": "20x60"}, None),
        ("RsmqTicksMissed", {'rsmq_schedule_overdue_seconds{schedule="hourly"}': "180x60"}, {"schedule": "hourly"}),
        ("RsmqTicksMissed", {'rsmq_schedule_overdue_seconds{schedule="hourly"}': "0x60"}, None),
    ],
)
def test_alert_fires_when_and_only_when_there_is_trouble(
    tmp_path: Path, alert: str, series: dict[str, str], fires_with: dict[str, str] | None
) -> None:
    values = [
        {"series": name, "values": " ".join(f"{each.split('x')[0]}+0x{each.split('x')[1]}" for each in all_.split())}
        for name, all_ in series.items()
    ]
    count = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    expected: dict[str, Any]
    if fires_with is None:
        expected = {"expr": count, "eval_time": "55m", "exp_samples": []}
    else:
        labels = "".join(f',{name}="{value}"' for name, value in fires_with.items())
        expr = count.replace("}", labels + "}")
        expected = {"expr": expr, "eval_time": "55m", "exp_samples": [{"labels": "{}", "value": 1}]}

    promtool_tests(tmp_path, {"interval": "1m", "input_series": values, "promql_expr_test": [expected]})


@NEEDS_PROMTOOL
def test_workers_are_scaled_by_busy_slots_of_processes_that_consume_the_queue(tmp_path: Path) -> None:
    (query,) = [each for where, each in expressions().items() if where.startswith("keda") and "slots" in each]
    use = {"mail": 1, "mail,zoo": 2, "audit,mail": 4, "audit,mail,zoo": 8, "mailbox": 16, "audit,e-mail": 32}
    series = [
        {"series": SLOTS % (queues, kind, state), "values": f"{number * factor}+0x10"}
        for queues, number in use.items()
        for kind, state, factor in (("function", "busy", 1), ("coroutine", "busy", 100), ("function", "total", 1000))
    ]
    expected = {"expr": query, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 15}]}

    promtool_tests(tmp_path, {"interval": "1m", "input_series": series, "promql_expr_test": [expected]})


@NEEDS_PROMTOOL
def test_all_panels_show_something_for_a_project_that_has_run_tasks(
    tmp_path: Path, settings: Any, server: PrivateServer, db: None
) -> None:
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}, "QUEUES": {"mail": {}}}
    client = get_client()
    ensure_queue("mail").send(b"x")
    grown = {"started:shop.send": 1, "succeeded:shop.send": 1, "run:100:shop.send": 1, "wait:100:shop.send": 1}
    client.run(report("rsmq", "mail", reporter="w", number=1, at_s=time.time(), grown=grown))
    use = (SlotUse("function", 1, 8), SlotUse("coroutine", 0, 100))
    client.run(heartbeat_call(client, ["w"]))
    client.run(
        describe(client.namespace, "w", ProcessRecord("h", 1, "0", 0, None, "working", ("mail",), (), slots=use))
    )
    client.run(put_entry(client.namespace, "hourly", "{}", seen="", owner="", next_ms=1000))
    samples = [sample for family in registry().collect() for sample in family.samples]
    series = []
    for each in samples:
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in each.labels.items())
        series.append({"series": f"{each.name}{{{labels}}}", "values": f"{float(each.value)}+0x30"})
    shown = [
        {
            "expr": f"count({expression}) > bool 0".replace("$__rate_interval", "5m")
            .replace("$connection", ".*")
            .replace("$queue", ".*"),
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for where, expression in expressions().items()
        if where.startswith("panel")
    ]

    assert len(shown) >= len(panels())
    promtool_tests(tmp_path, {"interval": "1m", "input_series": series, "promql_expr_test": shown})


@pytest.mark.parametrize("path", sorted(CONTRIB.glob("systemd/*.service")), ids=lambda path: path.name)
def test_units_start_commands_of_this_package_with_options_that_they_have(path: Path) -> None:
    (command,) = re.findall(r"ExecStart=\S+/python manage.py (.+)", path.read_text("utf-8"))
    name, *arguments = command.split()
    module = ROOT / "rsmq_django" / "management" / "commands" / f"{name}.py"
    options = module.read_text("utf-8") + (ROOT / "rsmq_django/management/worker_arguments.py").read_text("utf-8")

    assert module.exists()
    assert [each for each in arguments if each.startswith("--") and each not in options] == []


@pytest.mark.parametrize("path", sorted(CONTRIB.glob("systemd/*.service")), ids=lambda path: path.name)
@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is missing (Debian: apt-get install systemd)")
def test_systemd_accepts_the_units(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    unit.write_text(path.read_text("utf-8").replace("/srv/shop/.venv/bin/python", sys.executable), "utf-8")

    done = subprocess.run([str(SYSTEMD), "verify", "--man=no", unit], capture_output=True, text=True)

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert path.name not in said


def test_unit_of_the_worker_is_the_one_of_the_documentation() -> None:
    unit = (CONTRIB / "systemd" / "shop-worker.service").read_text("utf-8")
    documented = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
    (block,) = re.findall(r"```ini\n(.*?)```", documented, re.DOTALL)

    assert set(block.splitlines()) <= set(unit.splitlines())


def test_files_that_the_compose_file_mounts_are_there() -> None:
    text = (CONTRIB / "compose" / "compose.yaml").read_text("utf-8")
    mounted = re.findall(r"- \./([\w/.]+):", text)

    assert mounted
    assert [name for name in mounted if not (CONTRIB / name).exists()] == []


def test_application_and_prometheus_of_the_compose_file_have_the_same_token() -> None:
    text = (CONTRIB / "compose" / "compose.yaml").read_text("utf-8")
    (of_application,) = re.findall(r"METRICS_TOKEN_FILE: (.+)", text)
    (of_prometheus,) = re.findall(r"credentials_file: (.+)", (CONTRIB / "prometheus/prometheus.yml").read_text("utf-8"))

    assert of_application == of_prometheus == "/run/secrets/metrics-token"
    assert text.count("secrets: [metrics-token]") == 2
    assert 'os.environ["METRICS_TOKEN_FILE"]' in (ROOT / "docs/how-to/monitoring.md").read_text("utf-8")


def test_grafana_finds_its_source_and_the_dashboard_where_the_compose_file_mounts_them() -> None:
    text = (CONTRIB / "compose" / "compose.yaml").read_text("utf-8")
    mounted = {inside: CONTRIB / here for here, inside in re.findall(r"- \./([\w/.]+):([\w/.-]+)", text)}
    provisioning = mounted["/etc/grafana/provisioning"]
    (source,) = (provisioning / "datasources").glob("*.yaml")
    (provider,) = (provisioning / "dashboards").glob("*.yaml")
    (interval,) = re.findall(r"scrape_interval: (\w+)", (CONTRIB / "prometheus/prometheus.yml").read_text("utf-8"))
    (path,) = re.findall(r"path: (.+)", provider.read_text("utf-8"))

    assert mounted[f"{path}/{DASHBOARD.name}"] == DASHBOARD
    assert f"timeInterval: {interval}\n" in source.read_text("utf-8")
    assert "url: http://prometheus:9090\n" in source.read_text("utf-8") and "  prometheus:\n" in text
