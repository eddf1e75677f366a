"""The same job on one machine, on a cluster of processes, and on a standalone master with two workers."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.lake import Lake
from tests.redis_server import PrivateServer
from tests.spark.engine.child import MESSAGES, QUEUE
from tests.spark.engine.quick import QUICK
from tests.spark.engine.test_crashes import PATIENCE_S, Child, executors_of, wait_for_batch
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
    target = tmp_path_factory.mktemp("zip") / "rsmq_django.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in [ROOT / "pyspark_rsmq.py", *(ROOT / "rsmq_django").rglob("*")]:
            if file.suffix in (".py", ".lua"):
                archive.write(file, file.relative_to(ROOT))
    return target


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
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
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def test_standalone_cluster_that_gets_the_package_as_a_zip_gives_the_same(
    work, server: PrivateServer, tmp_path: Path, standalone: str, bare_python: Path, package_zip: Path
):
    words = ("everything", str(tmp_path / "lake"), "--master", standalone, "--py-files", str(package_zip))
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
