"""Python processes that Spark starts import the installed pyspark, which is compiled already, and not the zip of it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rsmq_django.spark
from rsmq_django.spark.session import few_words

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
