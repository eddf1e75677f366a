"""Runs the threads of a program one at a time, with a clock of its own: the same work takes the same instructions.

Threads that wake each other at moments of the kernel's choosing change a count by a tenth. Here a thread runs until it
waits: for a lock, an item of a queue, a file, or a time. Then the first thread in line that can go on does so. Time
passes only where all threads wait, so nothing is done because a second of a slow machine is over.

Knows the waits of the standard library: `threading`, `queue.SimpleQueue`, `select.poll`, event loops, sockets outside
the main thread, and `time.sleep`. Another wait would keep the turn; HANGS_AFTER_S after the last call of limit_time(),
the program ends with an error.
"""

from __future__ import annotations

import faulthandler
import math
import queue
import select
import selectors
import socket
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

#: Each look at the clock takes this long.
STEP_S = 1e-6
#: A feature takes half a minute in callgrind, many times as long on a busy machine. One that takes this long hangs.
HANGS_AFTER_S = 1800

_poll = select.poll


class Waiting:
    """A thread that waits for its turn."""

    def __init__(self) -> None:
        self.go: LockType = allocate_lock()
        self.go.acquire()
        #: Whether it can go on; None when it waits for files or a time only.
        self.can_go_on: Callable[[], bool] | None = None
        self.files: Sequence[int] = ()
        self.until = math.inf
        self.was_late = False
        self.has_ended = False


class Turns:
    """Whose turn it is, and the time."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self._epoch = time.time() - self.now
        self._line: list[Waiting] = []
        self._of_threads: dict[int, Waiting] = {threading.get_ident(): Waiting()}

    def monotonic(self) -> float:
        """Return the time of time.monotonic()."""
        self.now += STEP_S
        return self.now

    def time(self) -> float:
        """Return the time of time.time()."""
        return self._epoch + self.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let the others run until this time has passed."""
        self.wait(until=self.now + seconds)

    def wait(
        self, can_go_on: Callable[[], bool] | None = None, *, files: Sequence[int] = (), until: float = math.inf
    ) -> bool:
        """Let the others run until this thread can go on; return False when the time came first."""
        own = self._of_threads[threading.get_ident()]
        own.can_go_on, own.files, own.until, own.was_late = can_go_on, files, until, False
        self._line.append(own)
        following = self._take_next()
        if following is not own:
            following.go.release()
            own.go.acquire()
        return not own.was_late

    def _take_next(self) -> Waiting:
        found = next((each for each in self._line if each.can_go_on is not None and each.can_go_on()), None)
        found = found or self._take_time()
        self._line.remove(found)
        return found

    def _take_time(self) -> Waiting:
        """Wait outside this program: for the first readable file, or the first time that is over."""
        first = min(self._line, key=lambda each: each.until)
        poll = _poll()
        owners: dict[int, Waiting] = {}
        for each in self._line:
            for file in each.files:
                poll.register(file, select.POLLIN)
                owners.setdefault(file, each)
        if first.until == math.inf and not owners:
            raise RuntimeError("all threads wait for each other")
        wait_ms = None if first.until == math.inf else max(0, math.ceil((first.until - self.now) * 1000))
        ready = {owners[file] for file, _ in poll.poll(wait_ms)} if owners else set()
        if ready:
            return next(each for each in self._line if each in ready)
        self.now = max(self.now, first.until)
        first.was_late = True
        return first

    def start(self, begin: Callable[[], None]) -> Callable[[], None]:
        """Put a new thread into the line; return what it has to run."""
        new = Waiting()
        new.can_go_on = lambda: True
        self._line.append(new)

        def run() -> None:
            new.go.acquire()
            self._of_threads[threading.get_ident()] = new
            try:
                begin()
            finally:
                new.has_ended = True
                self._take_next().go.release()

        return run


turns = Turns()


class Lock:
    """threading.Lock."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._is_held:
            until = math.inf if timeout < 0 else turns.now + timeout
            if not blocking or not turns.wait(self._is_free, until=until):
                return False
        self._is_held = True
        return True

    def _is_free(self) -> bool:
        return not self._is_held

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False

    def locked(self) -> bool:
        return self._is_held

    def _at_fork_reinit(self) -> None:
        self._is_held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimpleQueue:
    """queue.SimpleQueue."""

    __class_getitem__ = classmethod(lambda cls, item: cls)

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self.put = self._items.append
        self.qsize = self._items.__len__

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = math.inf if timeout is None else turns.now + timeout
        if not self._items and not (block and turns.wait(self._has_items, until=until)):
            raise queue.Empty
        return self._items.popleft()

    def _has_items(self) -> bool:
        return bool(self._items)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class Poll:
    """select.poll."""

    def __init__(self) -> None:
        self._files: dict[int, None] = {}
        self._real = _poll()

    def register(self, file: Any, mask: int = select.POLLIN) -> None:
        self._files[file if isinstance(file, int) else file.fileno()] = None
        self._real.register(file, mask)

    def unregister(self, file: Any) -> None:
        self._files.pop(file if isinstance(file, int) else file.fileno(), None)
        self._real.unregister(file)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        if timeout != 0:
            until = math.inf if timeout is None or timeout < 0 else turns.now + timeout / 1000
            turns.wait(files=[*self._files], until=until)
        return self._real.poll(0)


def limit_time() -> None:
    """Let the program run for HANGS_AFTER_S from now on; then it prints where its threads are and ends with 1."""
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)


def install() -> None:
    """Change the standard library of this process. Before the modules are imported whose threads are to take turns."""
    limit_time()
    changed: dict[Any, dict[str, Any]] = {
        time: {"monotonic": turns.monotonic, "perf_counter": turns.monotonic, "time": turns.time, "sleep": turns.sleep},
        threading: {"Lock": Lock, "_allocate_lock": Lock, "RLock": threading._PyRLock},  # type: ignore[attr-defined]
        threading.Thread: {"_bootstrap": _bootstrap, "start": _start, "join": _join},
        queue: {"SimpleQueue": SimpleQueue},
        select: {"poll": Poll},
        selectors.DefaultSelector: {"select": _select},
        socket.socket: {name: _reading(getattr(socket.socket, name)) for name in ("recv", "recv_into")},
    }
    for where, what in changed.items():
        for name, value in what.items():
            setattr(where, name, value)


_real_bootstrap, _real_start = threading.Thread._bootstrap, threading.Thread.start  # type: ignore[attr-defined]
_real_select = selectors.DefaultSelector.select
_starts: dict[threading.Thread, Callable[[], None]] = {}
_ended: set[threading.Thread] = set()


def _start(thread: threading.Thread) -> None:
    def begin() -> None:
        try:
            _real_bootstrap(thread)
        finally:
            _ended.add(thread)

    _starts[thread] = turns.start(begin)
    _real_start(thread)


def _bootstrap(thread: threading.Thread) -> None:
    _starts.pop(thread)()


def _join(thread: threading.Thread, timeout: float | None = None) -> None:
    turns.wait(lambda: thread in _ended, until=math.inf if timeout is None else turns.now + timeout)


def _select(selector: Any, timeout: float | None = None) -> Any:
    if timeout is None or timeout > 0:
        turns.wait(files=[selector.fileno()], until=math.inf if timeout is None else turns.now + timeout)
    return _real_select(selector, 0)


def _reading(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a read of a socket that lets the others run meanwhile, except in the main thread."""
    main = threading.main_thread().ident

    def reading(sock: socket.socket, *arguments: Any) -> Any:
        if threading.get_ident() != main and sock.gettimeout() != 0:
            within_s = sock.gettimeout()
            if not turns.wait(files=[sock.fileno()], until=math.inf if within_s is None else turns.now + within_s):
                raise TimeoutError("timed out")
        return read(sock, *arguments)

    return reading
