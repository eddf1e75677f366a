"""What a task of a benchmark does: it counts itself. The same for every Python candidate, so it costs each the same.

One record per BENCH_TICK_EVERY runs is appended to a file: process, sending time, starting time. A write of that size
to an O_APPEND descriptor is atomic between threads and processes and takes about a microsecond. Times are of the
monotonic clock, which all processes of a machine share, in whatever language.
"""

from __future__ import annotations

import itertools
import os
import struct
import time

RECORD = struct.Struct("<qdd")
_every = int(os.environ.get("BENCH_TICK_EVERY", "1"))
# Without a file nothing is measured: the module is only imported to name its tasks.
_file = os.open(os.environ.get("BENCH_TICKS", os.devnull), os.O_WRONLY | os.O_APPEND)
_runs = itertools.count(1)  # atomic between threads


def ran(sent_at: float) -> None:
    """Count one run of a task that was sent at this time."""
    if next(_runs) % _every == 0:
        os.write(_file, RECORD.pack(os.getpid(), sent_at, time.monotonic()))
