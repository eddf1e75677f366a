"""Compiling the C of the benchmarks, once for each version of a source file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from .places import BUILD_DIR


class NoCompiler(RuntimeError):
    """There is no C compiler here."""


@cache
def compiled(source: Path, *options: str, name: str) -> Path:
    """Return what a source file is compiled to; `{}` in its name stands for the version of the source.

    Raises NoCompiler, or CalledProcessError when it cannot be compiled.
    """
    target = BUILD_DIR / name.format(hashlib.sha256(source.read_bytes()).hexdigest()[:12])
    if target.exists():
        return target
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler named cc (Debian: apt-get install gcc libc6-dev)")
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=BUILD_DIR) as directory:  # of its own: other threads and processes may compile, too
        unfinished = Path(directory) / target.name
        subprocess.run([compiler, *options, "-O2", "-o", str(unfinished), str(source)], check=True)
        unfinished.replace(target)
    return target
