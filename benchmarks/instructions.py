"""Counting the instructions of parts of a program: times depend on what else a machine does, instructions do not.

The program runs in callgrind, some fifty times slower, and says itself where a part begins and ends. Needs valgrind
with its headers and a C compiler (Debian: apt-get install valgrind gcc libc6-dev).
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .compiling import NoCompiler, compiled
from .places import BENCHMARKS

_TRIGGER = re.compile(r"^desc: Trigger: Client Request: (.+)$", re.M)
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.M)


class CannotCount(RuntimeError):
    """Something that counting needs is not there."""


@contextmanager
def part(name: str) -> Iterator[None]:
    """Count what runs in the block, on all threads."""
    requests = ctypes.CDLL(str(library()))
    requests.begin_part()
    yield
    requests.end_part(name.encode())


def count_parts(command: Sequence[str], directory: Path, *, environment: Mapping[str, str]) -> dict[str, int]:
    """Run a program in callgrind; return how many instructions each part took."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("there is no valgrind here (Debian: apt-get install valgrind)")
    library()
    counting = [
        valgrind,
        "--tool=callgrind",
        "--quiet",
        "--instr-atstart=no",
        f"--callgrind-out-file={directory / 'part'}",
    ]
    done = subprocess.run([*counting, *command], env=dict(environment), check=False)
    if done.returncode != 0:
        raise CannotCount(f"the measured program ended with {done.returncode}")
    parts = sorted(directory.glob("part.*"), key=lambda path: int(path.suffix[1:]))
    return dict(_read(path) for path in parts if _TRIGGER.search(path.read_text()))


def _read(path: Path) -> tuple[str, int]:
    text = path.read_text()
    name, total = _TRIGGER.search(text), _TOTAL.search(text)
    assert name is not None and total is not None
    return name[1], int(total[1])


def library() -> Path:
    """Return the compiled requests to callgrind."""
    try:
        return compiled(BENCHMARKS / "instructions.c", "-shared", "-fPIC", name="instructions-{}.so")
    except NoCompiler as error:
        raise CannotCount(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise CannotCount("the requests to callgrind cannot be compiled: are valgrind's headers installed?") from error
