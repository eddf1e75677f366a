"""What spark-submit is told counts more than the JSON: another master in it would be waited for without end."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.engine.quick import QUICK

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
SCRIPT = """
from rsmq_django.spark.session import start_session

session = start_session("yarn", conf={"spark.sql.shuffle.partitions": "7", "spark.rsmq.ours": "kept"})
conf = session.sparkContext.getConf()
print(session.sparkContext.master, conf.get("spark.sql.shuffle.partitions"), conf.get("spark.rsmq.ours"))
"""


def test_options_of_spark_submit_win_over_those_of_the_json(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    options = {**QUICK, "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "3"}
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[1]"]
    command += [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run([*command, str(script)], env=variables, capture_output=True, text=True, timeout=100)

    assert done.stdout.splitlines()[-1:] == ["local[1] 3 kept"], done.stderr[-3000:]
