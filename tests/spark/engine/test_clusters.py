"""The same job on one machine, on a cluster of processes, and on a standalone master with two workers."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.submission import ARCHIVE, write_submission
from tests.redis_server import PrivateServer
from tests.spark.engine.child import MESSAGES, QUEUE
from tests.spark.engine.quick import CLUSTER, QUICK
from tests.spark.engine.test_crashes import PATIENCE_S, Child, executors_of, wait_for_batch
from tests.spark.plain import ids_in
from tests.spark.samples import log_events
from tests.support import wait_until

pytestmark = pytest.mark.spark_slow

ROOT = Path(__file__).parents[3]
EVENTS = 8_000
WANTED = {
    "seen": [MESSAGES, MESSAGES, 0],
    "archived": {"rows": EVENTS, "trimmed": EVENTS, "lost": 0},
    "distinct": EVENTS,
    "attempts": EVENTS,
    "drained": MESSAGES,
}


@pytest.fixture
def work(server: PrivateServer, client: Client) -> None:
    Queue(QUEUE, client).create()
    log_events(server.redis, EVENTS)


def test_cluster_of_processes_that_loses_an_executor_gives_the_same(work, server: PrivateServer, tmp_path: Path):
    words = ("everything", str(tmp_path / "lake"), "--master", "local-cluster[2,1,1024]")
    child = Child(server, *words, env={"SPARK_WORKER_DIR": str(tmp_path / "work")})
    try:
        wait_for_batch(child, Lake.at(tmp_path / "lake"), server)
        victim = wait_until(lambda: executors_of(child.process.pid), timeout_s=PATIENCE_S)[0]
        os.kill(victim, signal.SIGKILL)
        assert child.answer() == WANTED
    finally:
        child.kill()


# -- Standalone --------------------------------------------------------------------------------------------------------


def bare_environment() -> dict[str, str]:
    """An environment that knows neither our package nor Redis."""
    hidden = ("PYTHONPATH", "RSMQ_REDIS_URL", "RSMQ_TEST_URL", "VIRTUAL_ENV", "PYSPARK_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with everything but our package: a host on which nobody installed it."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    # A directory named in a .pth file is searched, but the .pth files in it (ours is one) are not read.
    (site / "packages.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = place / "bin" / "python"
    probe = "import pyspark, pyarrow, redis, importlib.util as u; print(u.find_spec('rsmq_django'))"
    done = subprocess.run([python, "-c", probe], capture_output=True, text=True, cwd=place, env=bare_environment())
    assert done.stdout.strip() == "None", done.stdout + done.stderr
    return python


@pytest.fixture(scope="module")
def package_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zip")
    write_submission(folder, JobConfig(lake="none"))
    return folder / ARCHIVE


@dataclass
class Cluster:
    """A standalone master with workers."""

    master: str
    #: Address of its web page.
    page: str

    def finished_applications(self) -> list[str]:
        """Return the names of the applications that have ended at this master."""
        with urllib.request.urlopen(f"{self.page}/json/") as answer:  # noqa: S310 - our own process
            return [each["name"] for each in json.load(answer)["completedapps"]]


@pytest.fixture
def in_s3(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of an object store, for all processes that are started from now on."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers from the pip package, in an environment that knows neither our package nor Redis."""
    home = Path(pyspark.__file__).parent
    started: list[subprocess.Popen[bytes]] = []
    environment = bare_environment() | {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "192m"}

    def daemon(name: str, *words: str) -> Path:
        log = tmp_path / f"{name}-{len(started)}.log"
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *words]
        with log.open("w") as out:
            started.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=tmp_path))
        return log

    try:
        # The system chooses the ports: one that we found free may be taken a moment later.
        log = daemon("master.Master", "--port", "0", "--webui-port", "0")
        started_at = re.compile(r"Starting Spark master at (spark://127.0.0.1:\d+)\s")
        address = wait_until(lambda: started_at.search(log.read_text()), timeout_s=PATIENCE_S)[1]
        for number in range(2):
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            daemon("worker.Worker", *size, "--work-dir", str(tmp_path / f"work-{number}"), address)
        wait_until(lambda: log.read_text().count("Registering worker") == 2, timeout_s=PATIENCE_S)
        port = re.search(r"Bound MasterWebUI to \S+ and started at \S+:(\d+)", log.read_text())[1]
        yield Cluster(address, f"http://127.0.0.1:{port}")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def test_standalone_cluster_that_gets_the_package_as_a_zip_gives_the_same(
    work, server: PrivateServer, tmp_path: Path, standalone: Cluster, bare_python: Path, package_zip: Path
):
    words = ("everything", str(tmp_path / "lake"), "--master", standalone.master, "--py-files", str(package_zip))
    variables = {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    child = Child(server, *words, env=variables)
    try:
        assert child.answer() == WANTED
    finally:
        child.kill()
        shutil.rmtree(tmp_path, ignore_errors=True)


def test_spark_submit_runs_the_steps_of_a_json_file(
    work, server: PrivateServer, tmp_path: Path, bare_python: Path, package_zip: Path
):
    config = JobConfig(lake=str(tmp_path / "lake"), master="yarn", objectives={"mail": {"success": 0.9}})
    (tmp_path / "job.json").write_text(config.to_json())
    home = Path(pyspark.__file__).parent
    variables = bare_environment() | {"SPARK_HOME": str(home)}
    variables |= {"PYSPARK_PYTHON": str(bare_python), "RSMQ_REDIS_URL": server.url}
    command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1"]
    command += [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
    command += ["--py-files", str(package_zip), str(ROOT / "rsmq_django" / "spark" / "submit.py")]

    steps = ["archive", "rollup", "analyse", "dlq"]
    done = subprocess.run(
        [*command, str(tmp_path / "job.json"), *steps],
        cwd=tmp_path, env=variables, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode()[-3000:]
    runs = {run["step"]: run for run in map(json.loads, done.stdout.decode().splitlines())}
    assert list(runs) == steps
    assert (runs["archive"]["rows_in"], runs["rollup"]["rows_in"], runs["analyse"]["error"]) == (EVENTS, EVENTS, "")


# -- As the page says --------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "how-to" / "pipeline.md").read_text("utf-8")
BLOCK = re.search(r"^## On a cluster\n.*?^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
MANAGE = """
import sys
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
SETTINGS = """
SECRET_KEY = "none"
USE_TZ = True
INSTALLED_APPS = ["rsmq_django"]
RSMQ = {{
    "CONNECTIONS": {{"default": {{"URL": {url!r}}}}},
    "QUEUES": {{"default": {{}}}},
    "PIPELINE": {{"LAKE": {lake!r}, "SPARK_CONF": {conf!r}}},
}}
"""


def run_block(folder: Path, server: PrivateServer, cluster: Cluster, lake: str, python: Path) -> list[dict[str, Any]]:
    """Run the block of the page in a project with this lake; return the records of the steps."""
    conf = QUICK | CLUSTER
    (folder / "shop_settings.py").write_text(SETTINGS.format(url=server.url, lake=lake, conf=conf))
    (folder / "manage.py").write_text(f"#!{sys.executable}\n{MANAGE}")
    (folder / "manage.py").chmod(0o755)
    variables = os.environ | {"DJANGO_SETTINGS_MODULE": "shop_settings", "PYSPARK_PYTHON": str(python)}
    variables |= {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": f"{folder}:{os.environ['PATH']}"}
    block = BLOCK.replace("spark://host:7077", cluster.master)
    done = subprocess.run(["sh", "-e", "-c", block], cwd=folder, env=variables, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]


def test_block_of_the_page_runs_the_steps_at_the_master(
    work, server: PrivateServer, tmp_path: Path, standalone: Cluster, bare_python: Path
):
    runs = run_block(tmp_path, server, standalone, str(tmp_path / "lake"), bare_python)

    assert [(run["step"], run["rows_in"], run["error"]) for run in runs[:2]] == [
        ("archive", EVENTS, ""),
        ("rollup", EVENTS, ""),
    ]
    assert (runs[2]["step"], runs[2]["error"]) == ("analyse", "")
    assert standalone.finished_applications() == ["rsmq"]
    assert len(set(ids_in(Lake.at(tmp_path / "lake")))) == EVENTS


def test_lake_in_an_object_store_needs_no_directory_that_hosts_share(
    work, server: PrivateServer, tmp_path: Path, in_s3: None, standalone: Cluster, bare_python: Path
):
    lake = f"s3://lakes/{tmp_path.name}"

    runs = run_block(tmp_path, server, standalone, lake, bare_python)

    assert [(run["step"], run["error"]) for run in runs] == [("archive", ""), ("rollup", ""), ("analyse", "")]
    assert standalone.finished_applications() == ["rsmq"]
    assert len(ids_in(Lake.at(lake))) == len(set(ids_in(Lake.at(lake)))) == EVENTS
    assert not list(tmp_path.rglob("*.parquet"))
