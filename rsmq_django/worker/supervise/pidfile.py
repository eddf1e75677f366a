"""The pid file of a supervisor, and its health in a file and on a port, for probes of other programs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.log_lines import get_logger
from ..fetch.wakeup import Wakeup
from ..health import MAX_AGE_S, HealthFile, Report
from .health_port import HealthPort

logger = get_logger(__name__)


class PidFileTaken(Exception):
    """Another supervisor holds the pid file."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The files and the address of the probes; None for none."""

    pid_file: Path | None = None
    health_file: Path | None = None
    #: Host and port.
    health_address: tuple[str, int] | None = None
    #: A process whose last successful fetch is older than this is not healthy.
    health_max_age_s: float = MAX_AGE_S


class PidFile:
    """A file with the pid of this process, locked as long as the process lives.

    The lock, not the number, proves that the process exists: the pid in an old file may belong to any other process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        while True:
            self._descriptor = _open_own(path)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pid = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                raise PidFileTaken(f"{path} is held by process {pid}, which runs; stop it first") from None
            if self._is_still_there():
                break
            os.close(self._descriptor)  # its last holder removed it between the two steps
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _is_still_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and release the lock."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)

    def leave_to_parent(self) -> None:
        """Close the copy that a fork made: the lock ends with its last copy."""
        os.close(self._descriptor)


def _open_own(path: Path) -> int:
    """Open a file of this user for writing. Raises OSError for a link, which may point to any file of this user."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    found = os.fstat(descriptor)
    wrong = ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "is not a file"
    elif found.st_uid != os.geteuid():
        wrong = f"belongs to user {found.st_uid}"
    elif found.st_nlink > 1:
        wrong = "has other names"
    if wrong:
        os.close(descriptor)
        raise PermissionError(f"{path} {wrong}; remove it, or choose a directory where only this user may write")
    return descriptor


class Probes:
    """The open probes; raises OSError or PidFileTaken before any work begins if one cannot be opened."""

    def __init__(self, options: ProbeOptions, report: Callable[[], Report]) -> None:
        self._report = report
        self._file_works = True
        self._pid_file = PidFile(options.pid_file) if options.pid_file else None
        self._port = HealthPort(options.health_address, report) if options.health_address else None
        self._health_file = HealthFile(options.health_file) if options.health_file else None
        if self._health_file is not None:
            self._health_file.show(report())

    def watch(self, wakeup: Wakeup) -> None:
        """Let a client of the health port end a sleep."""
        if self._port is not None:
            port = self._port

            def serve() -> None:
                port.serve()
                wakeup.watch(port.fileno(), serve)  # a watch works once

            wakeup.watch(port.fileno(), serve)
            host, number = port.address
            logger.info("health: http://%s:%d/health", f"[{host}]" if ":" in host else host, number)

    def look(self) -> None:
        """Update the file and drop clients that send nothing."""
        if self._port is not None:
            self._port.serve()
        if self._health_file is not None:
            try:
                self._health_file.show(self._report())
                self._file_works = True
            except OSError as error:  # a full disk is not a reason to stop, and a stale file shows the problem
                if self._file_works:
                    logger.error("cannot write the health file; this worker looks dead to its probes: %s", error)
                self._file_works = False

    def leave_to_parent(self) -> None:
        """Close all probes in a forked child."""
        if self._port is not None:
            self._port.leave_to_parent()
        if self._pid_file is not None:
            self._pid_file.leave_to_parent()

    def close(self) -> None:
        """Close and remove all probes: this worker ends."""
        if self._port is not None:
            self._port.close()
        if self._health_file is not None:
            self._health_file.remove()
        if self._pid_file is not None:
            self._pid_file.remove()
