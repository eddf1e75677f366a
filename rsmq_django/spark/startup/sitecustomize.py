"""Makes the Python processes that Spark starts on this machine import the installed pyspark.

Spark puts a zip of pyspark first on their path, and Python compiles modules in a zip again in every process: two
seconds instead of half a second, several times for each query. Python imports a module of this name at its start;
`session` puts its directory on the path of those processes. It has few imports, because every process executes them.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder


def prefer_installed(path: list[str]) -> list[str]:
    """Return the path with Spark's zips last if the same pyspark is installed; else the unchanged path."""
    zips = [place for place in path if place.endswith(("pyspark.zip", "-src.zip"))]
    rest = [place for place in path if place not in zips]
    spark, py4j = PathFinder.find_spec("pyspark", rest), PathFinder.find_spec("py4j", rest)
    if spark is None or py4j is None or spark.origin is None:
        return path
    # Only those of the installed package: SPARK_HOME may name another version.
    home = os.path.realpath(os.path.dirname(spark.origin))
    is_the_same = all(os.path.realpath(place).startswith(home + os.sep) for place in zips)
    return [*rest, *zips] if is_the_same else path


def run_the_next() -> None:
    """Run the next module of this name on the path, if there is one."""
    here = os.path.dirname(os.path.realpath(__file__))
    found = PathFinder.find_spec("sitecustomize", [place for place in sys.path if os.path.realpath(place) != here])
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


sys.path[:] = prefer_installed(sys.path)
run_the_next()
