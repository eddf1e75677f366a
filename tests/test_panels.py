"""The dashboard and the alert rules, asked by Prometheus about a day of the demo."""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.example.demo_process import BLIZZARD, REPOSITORY, demo_command, demo_environment, read_until
from tests.support import wait_until
from tests.test_operations_files import DASHBOARD, RULES, panels

PROMETHEUS = shutil.which("prometheus")
#: Panels that are empty for the demo, because its workers run each schedule in time.
EMPTY = {"Overdue schedules"}
#: Panels that are 0 when all is done and nothing went wrong.
ZERO = {"Ready messages", "Age of the oldest ready message", "Busy slots of workers", "Lost attempts and interruptions"}


class Prometheus:
    """What a running Prometheus answers."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer; None while it does not answer."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}") as answer:  # noqa: S310 - our own address
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it begins
                return None
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except OSError:
            return None

    def numbers(self, expression: str) -> list[float]:
        """Return the numbers that an expression of a panel has now, without NaN."""
        for variable, value in (("$__rate_interval", "5m"), ("$connection", ".*"), ("$queue", ".*")):
            expression = expression.replace(variable, value)
        found = self.get("query", query=expression)
        numbers = [float(each["value"][1]) for each in found["result"]] if found else []
        return [number for number in numbers if not math.isnan(number)]

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return the state of each alert rule."""
        found = self.get("rules") or {"groups": []}
        return {rule["name"]: rule for group in found["groups"] for rule in group["rules"]}


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a program for the block."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment | {"PYTHONUNBUFFERED": "1"}, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> str:
    return str(secrets.choice(range(10_001, 32_000)))


@contextmanager
def watching(directory: Path, target: str) -> Iterator[Prometheus]:
    """Let Prometheus ask a target each second, with the alert rules."""
    assert PROMETHEUS is not None
    seconds = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    scrape = {"job_name": "rsmq", "static_configs": [{"targets": [target]}]}
    configuration = directory / "prometheus.yml"
    configuration.write_text(json.dumps({"global": seconds, "rule_files": [str(RULES)], "scrape_configs": [scrape]}))
    port = free_port()
    options = [f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'series'}"]
    with running([PROMETHEUS, *options, f"--web.listen-address=127.0.0.1:{port}"], {}):
        yield Prometheus(int(port))


def is_shown(panel: str, numbers: list[float]) -> bool:
    """Return whether a panel shows these numbers after a day of the demo."""
    return not numbers if panel in EMPTY else bool(numbers) if panel in ZERO else any(numbers)


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is missing (Debian: apt-get install prometheus)")
def test_every_panel_and_alert_is_answered_from_the_metrics_of_the_demo(tmp_path: Path) -> None:
    environment = demo_environment(RSMQ_STATE_DIR=str(tmp_path / "state"))
    manage = [sys.executable, str(REPOSITORY / "manage.py")]
    with (
        running(
            demo_command("--day", BLIZZARD, "--limit", "40", "--speed", "0", "--port", free_port()), environment
        ) as demo,
        running([*manage, "rsmq_metrics", "--port", "0"], environment) as metrics,
    ):
        read_until(demo, "The site is still there")
        (target,) = re.findall(r"http://(\S+)/metrics", read_until(metrics, "metrics on"))
        with watching(tmp_path, target) as prometheus:
            wait_until(lambda: prometheus.numbers("rsmq_attempts_total"))
            # Only what grows between two scrapes has a rate.
            again = ["replay_day", "--day", BLIZZARD, "--limit", "40"]
            subprocess.run([*manage, *again], env=environment, check=True, capture_output=True)

            queries = {(panel["title"], each["expr"]) for panel in panels() for each in panel["targets"]}
            assert EMPTY | ZERO < {title for title, _ in queries}
            wait_until(
                lambda: not [title for title, query in queries if not is_shown(title, prometheus.numbers(query))]
            )
            variables = json.loads(DASHBOARD.read_text("utf-8"))["templating"]["list"][1:]
            for metric, label in (re.findall(r"\((rsmq_\w+).*, (\w+)\)", each["definition"])[0] for each in variables):
                assert prometheus.get(f"label/{label}/values", **{"match[]": metric}), label

            wait_until(lambda: prometheus.alerts().get("RsmqDeadLetters", {}).get("state") == "firing")
            assert {rule["health"] for rule in prometheus.alerts().values()} == {"ok"}
