"""End the processes of a demo whose own process was killed.

A tiny program, started by `stage.py`, that reads process ids from a pipe: "+123" a process group started, "-123" it
has ended. The pipe closes when the demo ends, in any way (kill -9 too); the remaining processes are then asked to
stop, and killed if they do not. Knows nothing of Django, so that it starts in no time.
"""

import os
import signal
import sys
import time

GRACE_S = 5.0
POLL_S = 0.1


def read_left_over() -> set[int]:
    """Read until the pipe closes and return the process groups that still exist."""
    groups: set[int] = set()
    for line in sys.stdin:
        sign, group = line[0], int(line[1:])
        if sign == "+":
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def stop(groups: set[int]) -> None:
    """Ask, wait, kill."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        groups = {group for group in groups if is_alive(group)}
        for group in groups:
            os.killpg(group, number)
        deadline = time.monotonic() + GRACE_S
        while any(map(is_alive, groups)) and time.monotonic() < deadline:
            time.sleep(POLL_S)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop(read_left_over())
