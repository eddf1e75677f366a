"""What spark-submit needs: the package as a zip, the configuration without secrets, and the entry point."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .config import JobConfig
from .errors import PipelineError
from .job import ALL_STEPS, STEPS

PACKAGE = Path(__file__).resolve().parents[1]
#: What the steps import. They need neither Django nor the rest of the package.
PARTS = ("__init__.py", "core", "spark")
ARCHIVE, CONFIG, ENTRY = "rsmq_django.zip", "job.json", "submit.py"


def write_submission(folder: Path, config: JobConfig) -> None:
    """Write the three files. The zip of the same version is always the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
        for file in _files():
            entry = zipfile.ZipInfo(str(file.relative_to(PACKAGE.parent)))  # of 1980, whatever the file says
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    (folder / CONFIG).write_text(config.to_json(), "utf-8")
    shutil.copyfile(Path(__file__).with_name(ENTRY), folder / ENTRY)


def _files() -> Iterator[Path]:
    yield PACKAGE.parent / "pyspark_rsmq.py"
    for part in PARTS:
        place = PACKAGE / part
        yield from [place] if place.is_file() else sorted(file for file in place.rglob("*") if _is_needed(file))


def _is_needed(file: Path) -> bool:
    return file.suffix in (".py", ".lua") and file.parent.name != "startup"  # those are of processes of one machine


def submit_words(folder: Path, config: JobConfig, steps: str, options: Sequence[str] = ()) -> list[str]:
    """Return the words of the command line, `spark-submit` first. Raises PipelineError for an unknown step."""
    names = [name.strip() for name in steps.split(",") if name.strip()] or list(ALL_STEPS)
    if unknown := [name for name in names if name not in STEPS]:
        raise PipelineError(f"spark-submit cannot run {', '.join(unknown)}; its steps are {', '.join(STEPS)}")
    # The rest of the settings is in the JSON: these are too late when it is read.
    early = [f"--conf={name}={value}" for name, value in config.conf.items() if name.startswith("spark.driver.")]
    files = ["--py-files", str(folder / ARCHIVE), str(folder / ENTRY), str(folder / CONFIG)]
    return ["spark-submit", "--master", config.master, *early, *files, *names, *options]


def find_program() -> str:
    """Return the path of spark-submit: that of SPARK_HOME, on PATH, or of the installed pyspark."""
    home = os.environ.get("SPARK_HOME")
    found = shutil.which("spark-submit", path=f"{home}/bin") if home else shutil.which("spark-submit")
    if found is None:
        import pyspark

        found = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    return found
