"""Python processes that Spark starts import the installed pyspark, which is compiled already, and not the zip of it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rsmq_django.spark
from rsmq_django.spark.session import DEFAULTS, batch_options, few_words, settings_of
from tests.spark.plain import PlainSpark

STARTUP = Path(rsmq_django.spark.__file__).with_name("startup")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A place with packages of these names, and a neighbour that wants to be run at the start, too."""
    for name in ("pyspark", "py4j"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("")
    (tmp_path / "site" / "sitecustomize.py").write_text("print('neighbour', end=' ')")
    return tmp_path / "site"


def pack(place: Path) -> Path:
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "pyspark.zip", "w") as packed:
        packed.writestr("pyspark/__init__.py", "")
    return place / "pyspark.zip"


def imported(*path: Path) -> str:
    """Return what a process with this path prints and imports."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_installed_package_goes_before_the_zip_in_it_and_the_neighbour_is_run(site: Path):
    packed = pack(site / "pyspark" / "python" / "lib")

    assert imported(packed, STARTUP, site) == f"neighbour {site / 'pyspark' / '__init__.py'}"


def test_spark_starts_without_a_word_unless_its_logging_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    option, _, place = few_words()["spark.driver.extraJavaOptions"].partition("=file://")
    assert option == "-Dlog4j2.configurationFile"
    assert "rootLogger.level = error" in Path(place).read_text()

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert few_words()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").touch()
    assert few_words() == {}


def test_zip_of_another_spark_stays_first(site: Path, tmp_path: Path):
    packed = pack(tmp_path / "spark-3.9" / "python" / "lib")

    assert imported(packed, STARTUP, site) == f"neighbour {packed / 'pyspark' / '__init__.py'}"


def test_options_of_spark_submit_take_precedence_over_the_json_and_that_over_our_defaults():
    said = {"spark.master": "spark://head:7077", "spark.executor.memory": "8g", "spark.sql.session.timeZone": "CET"}

    settings = settings_of("yarn", {"spark.executor.memory": "1g", "spark.log.level": "INFO"}, said)

    assert (settings["spark.master"], settings["spark.log.level"]) == ("spark://head:7077", "INFO")
    assert not {"spark.executor.memory", "spark.sql.session.timeZone"} & settings.keys()
    assert settings["spark.driver.memory"] == DEFAULTS["spark.driver.memory"]


@pytest.mark.parametrize("said", [{}, {"spark.master": "local[*]"}])
def test_without_a_master_of_spark_submit_that_of_the_json_is_used(said: dict[str, str]):
    assert settings_of("spark://head:7077", {}, said)["spark.master"] == "spark://head:7077"


def test_spark_chooses_the_tasks_of_a_shuffle_except_on_one_machine():
    name = "spark.sql.shuffle.partitions"

    assert settings_of("local[8]", {}, None)[name] == "2"
    assert settings_of("local[8]", {name: "16"}, None)[name] == "16"
    assert name not in settings_of("spark://head:7077", {}, None)
    assert name not in settings_of("local[2]", {}, {"spark.master": "yarn"})


@pytest.mark.parametrize(("cores", "rows"), [(1, "50000"), (2, "50000"), (40, "1000000")])
def test_batch_has_a_task_for_each_core(cores: int, rows: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PlainSpark, "defaultParallelism", cores)

    assert batch_options(PlainSpark()) == {"maxRowsPerBatch": rows}
