"""Runs targets of the Makefile one after the other, whatever becomes of each, and says at the end how all of them went.

    python3 tools/run_parts.py lint test-default test-spark+test-browser

Targets that are joined by "+" run side by side. The exit status is 0 when that of every target is. Needs nothing but
Python: it is what starts the environments that have more.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from threading import Thread

#: The last line of pytest: "3 failed, 4786 passed, 1 error in 239.05s (0:03:59)".
SUMMARY = re.compile(rb"^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b")
#: What the Makefile says; pytest lists skipped tests as "SKIPPED [1] tests/...".
LEFT_OUT = re.compile(rb"^(?:SKIPPED|LEFT OUT:) ([^\[].*)")
COLUMNS = ("passed", "failed", "skipped")


@dataclass
class Part:
    """A command, by default the target of its name: its output goes to ours, and what it says of itself is kept."""

    name: str
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    status: int | None = None
    seconds: float = 0.0

    def run(self) -> None:
        """Run the command to its end."""
        began = time.monotonic()
        command = self.command or ["make", "-s", "--no-print-directory", self.name]
        environment = os.environ | self.environment
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
            assert process.stdout is not None
            line = b""
            while chunk := os.read(process.stdout.fileno(), 65536):
                sys.stdout.buffer.write(chunk)  # at once: a line of dots grows slowly
                sys.stdout.buffer.flush()
                *lines, line = (line + chunk).split(b"\n")
                for each in lines:
                    self._read(each)
        self.status, self.seconds = process.returncode, time.monotonic() - began

    def _read(self, line: bytes) -> None:
        if found := SUMMARY.match(line):
            # A part may run pytest more than once.
            for count, word in re.findall(r"(\d+) ([a-z]+)", found[1].decode()):
                name = "failed" if word.startswith("error") else word
                self.counts[name] = self.counts.get(name, 0) + int(count)
        elif found := LEFT_OUT.match(line):
            self.left_out.append(found[1].decode(errors="replace"))

    @property
    def row(self) -> str:
        numbers = "".join(f"{self.counts.get(name, 0) if self.counts else '':>9}" for name in COLUMNS)
        failed = f"FAILED ({self.status})" if self.status else "ok" if self.seconds else "left out"
        result = "did not run" if self.status is None else failed
        minutes, seconds = divmod(round(self.seconds), 60)
        left_out = "".join(f"  left out: {what}" for what in self.left_out)
        return f"{result:<12}{numbers}{minutes:>6}:{seconds:02}{left_out}"


def print_table(parts: list[Part]) -> None:
    """Print how each part went."""
    width = max(16, *(len(part.name) for part in parts)) + 2
    heads = "".join(f"{name:>9}" for name in COLUMNS)
    rows = (f"{part.name:<{width}}{part.row}" for part in parts)
    print(f"\n{'part':<{width}}{'result':<12}{heads}{'time':>9}", *rows, sep="\n", flush=True)


def main(groups: list[str]) -> int:
    """Run all groups of targets and return the exit status of all."""
    side_by_side = [[Part(target) for target in group.split("+")] for group in groups]
    parts = [part for group in side_by_side for part in group]
    interrupted = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for group in side_by_side:
            threads = [Thread(target=part.run) for part in group]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except KeyboardInterrupt:  # the targets have got it, too
        interrupted = True
        for thread in threads:
            thread.join()
    print_table(parts)
    return 130 if interrupted else int(any(part.status != 0 for part in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
