"""The files for spark-submit: the same bytes at each run, and all that the steps import."""

import os
import subprocess
import sys
from pathlib import Path

from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.submission import write_submission


def test_zip_of_the_package_is_the_same_bytes_at_each_run(tmp_path: Path):
    for name in ("one", "other"):
        write_submission(tmp_path / name, JobConfig(lake="lake"))

    assert (tmp_path / "one" / "rsmq_django.zip").read_bytes() == (tmp_path / "other" / "rsmq_django.zip").read_bytes()


def test_zip_contains_all_that_the_steps_import_and_their_scripts(tmp_path: Path):
    write_submission(tmp_path, JobConfig(lake="lake"))
    probe = """
import sys, pkgutil, importlib
from rsmq_django.core.transport.call import load_script
import rsmq_django.spark as spark
load_script("queue/bulk/step")
for found in pkgutil.iter_modules(spark.__path__):
    if found.name not in ("source", "readers", "writers", "submit"):
        importlib.import_module(f"rsmq_django.spark.{found.name}")
print(spark.__file__, "django" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "rsmq_django.zip")}
    done = subprocess.run([sys.executable, "-c", probe], env=environment, cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout.split() == [f"{tmp_path}/rsmq_django.zip/rsmq_django/spark/__init__.py", "False"], done.stderr
