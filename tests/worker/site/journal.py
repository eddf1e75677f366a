"""What tasks in other processes did: one line each, appended to a file in one write, so that no kill can lose it."""

from __future__ import annotations

import os
from pathlib import Path


def note(*words: object) -> None:
    """Append a line to the journal of this process."""
    descriptor = os.open(os.environ["RSMQ_TEST_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, " ".join(map(str, words)).encode() + b"\n")
    finally:
        os.close(descriptor)


class Journal:
    """The journal as the test reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, first_word: str = "") -> list[list[str]]:
        """Return the lines as words; only those that begin with `first_word`, without it, when it is given."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return [line[1:] for line in lines if line[0] == first_word] if first_word else lines

    def names(self, first_word: str) -> list[str]:
        """Return the second word of each line that begins with `first_word`."""
        return [line[0] for line in self.lines(first_word)]

    def open_gate(self) -> None:
        """Let all tasks end that wait at the gate."""
        gate_of(self.path).touch()


def gate_of(journal: Path) -> Path:
    """Return the file whose existence opens the gate."""
    return journal.with_suffix(".gate")
