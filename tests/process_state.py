"""The state of this process that no test may leave changed, because later tests would find it.

Each part is read before and after each test. A part that has changed is put back, and the test that changed it fails.
Both readings together take about a tenth of a millisecond.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from django import urls
from django.core.signals import request_finished, request_started
from django.db.backends.signals import connection_created
from django.dispatch import Signal
from django.test.signals import setting_changed
from django.utils import timezone, translation

from rsmq_django.signals import lease_lost, message_dead_lettered
from rsmq_django.tasks.compat import task_enqueued, task_finished, task_started
from rsmq_django.tasks.running import current_run

#: Loggers whose names begin with these are read, and the root logger.
LOGGERS = ("rsmq_django", "django", "asyncio")
_NEW_LOGGER = (logging.NOTSET, True, False, ())
#: Written by pytest for each phase of a test, and by tests/redis_server.py for each test.
_VARIABLES_OF_A_TEST = (b"PYTEST_CURRENT_TEST", b"RSMQ_TEST_URL")
#: Not SIGALRM: tests/deadline.py sets its handler for each phase of a test.
_SYSTEM_SIGNALS = tuple(signal.Signals[f"SIG{name}"] for name in "INT TERM HUP QUIT USR1 USR2 CHLD PIPE".split())
_DJANGO_SIGNALS = {
    "task_enqueued": task_enqueued,
    "task_started": task_started,
    "task_finished": task_finished,
    "message_dead_lettered": message_dead_lettered,
    "lease_lost": lease_lost,
    "setting_changed": setting_changed,
    "connection_created": connection_created,
    "request_started": request_started,
    "request_finished": request_finished,
}
#: The modules of the package, as they were first imported.
_modules: dict[str, ModuleType] = {}
_modules_then = 0


class Part(NamedTuple):
    """How to read a part of the state, and how to put back what was read."""

    read: Callable[[], Any]
    put_back: Callable[[Any], object]


def read() -> dict[str, Any]:
    """Return the state of this process, by part."""
    return {name: part.read() for name, part in PARTS.items()}


def put_back(before: Mapping[str, Any]) -> list[str]:
    """Put back what has changed since read(), and return its description."""
    found = []
    for name, now in read().items():
        if now != before[name]:
            found.append(f"{name}: {_difference(before[name], now)}")
            PARTS[name].put_back(before[name])
    return found


def _difference(before: Any, now: Any) -> str:
    if not isinstance(before, dict):
        return f"{before!r} became {now!r}"
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return ", ".join(f"{key!r}: {before.get(key)!r} became {now.get(key)!r}" for key in changed)


# -- Parts of several values -------------------------------------------------------------------------------------------


def _loggers() -> dict[str, tuple[Any, ...]]:
    """Return the loggers that differ from a new one."""
    known = list(logging.root.manager.loggerDict.values())
    ours = [each for each in known if isinstance(each, logging.Logger) and each.name.startswith(LOGGERS)]
    return {each.name: state for each in [logging.root, *ours] if (state := _state_of(each)) != _NEW_LOGGER}


def _state_of(logger: logging.Logger) -> tuple[Any, ...]:
    handlers = tuple(each for each in logger.handlers if not _is_of_pytest(each))
    return logger.level, logger.propagate, logger.disabled, handlers


def _is_of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("_pytest.")


def _put_loggers_back(before: dict[str, tuple[Any, ...]]) -> None:
    for name in {**_loggers(), **before}:
        logger = logging.getLogger(name)
        level, logger.propagate, logger.disabled, handlers = before.get(name, _NEW_LOGGER)
        logger.handlers = [*handlers, *filter(_is_of_pytest, logger.handlers)]
        logger.setLevel(level)  # loggers remember which levels are on: this makes them forget


def _environment() -> dict[bytes, bytes]:
    # The undecoded values: to decode all of them takes longer than everything else here.
    values: dict[bytes, bytes] = vars(os.environb)["_data"].copy()
    for name in _VARIABLES_OF_A_TEST:
        values.pop(name, None)
    return values


def _put_environment_back(before: dict[bytes, bytes]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environb[name]
    os.environb.update(before)


def _signal_handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in _SYSTEM_SIGNALS}


def _put_signal_handlers_back(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _receivers() -> dict[str, list[Any]]:
    """Return the receivers that stay until disconnect(), which are not weak references."""
    return {
        name: [receiver for _, receiver, *_ in each.receivers if not isinstance(receiver, weakref.ReferenceType)]
        for name, each in _DJANGO_SIGNALS.items()
    }


def _put_receivers_back(before: dict[str, list[Any]]) -> None:
    for name, left in _receivers().items():
        for receiver in left:
            if receiver not in before[name]:
                _disconnect(_DJANGO_SIGNALS[name], receiver)


def _disconnect(sender: Signal, receiver: Any) -> None:
    with sender.lock:
        sender.receivers = [each for each in sender.receivers if each[1] is not receiver]
        sender.sender_receivers_cache.clear()


def _replaced_modules() -> dict[str, str]:
    """Return the names of modules that were imported again: code that holds the old one would not meet the new one."""
    global _modules_then
    if _modules_then != len(sys.modules):
        _modules_then = len(sys.modules)
        ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "rsmq_django"}
        _modules.update(ours | _modules)
    return {name: "replaced" for name, module in _modules.items() if sys.modules.get(name) is not module}


def _put_modules_back(_before: dict[str, str]) -> None:
    sys.modules.update(_modules)


def _put_language_back(before: str | None) -> None:
    translation.deactivate()
    if translation.get_language() != before:
        translation.deactivate_all() if before is None else translation.activate(before)


def _put_timezone_back(before: Any) -> None:
    timezone.deactivate()
    if timezone.get_current_timezone() != before:
        timezone.activate(before)


def _put_path_back(before: list[str]) -> None:
    sys.path[:] = before


PARTS = {
    "loggers": Part(_loggers, _put_loggers_back),
    "disabled log levels": Part(lambda: logging.root.manager.disable, logging.disable),
    "environment variables": Part(_environment, _put_environment_back),
    "working directory": Part(os.getcwd, os.chdir),
    "sys.path": Part(lambda: list(sys.path), _put_path_back),
    "modules": Part(_replaced_modules, _put_modules_back),
    "handlers of system signals": Part(_signal_handlers, _put_signal_handlers_back),
    "blocked system signals": Part(
        partial(signal.pthread_sigmask, signal.SIG_BLOCK, ()), partial(signal.pthread_sigmask, signal.SIG_SETMASK)
    ),
    "receivers of Django signals": Part(_receivers, _put_receivers_back),
    "current task": Part(current_run.get, current_run.set),
    "language": Part(translation.get_language, _put_language_back),
    "time zone": Part(timezone.get_current_timezone, _put_timezone_back),
    "URLconf": Part(urls.get_urlconf, urls.set_urlconf),
    "URL prefix": Part(urls.get_script_prefix, urls.set_script_prefix),
    "timeout of sockets": Part(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "garbage collection": Part(gc.isenabled, lambda was_on: gc.enable() if was_on else gc.disable()),
    "recursion limit": Part(sys.getrecursionlimit, sys.setrecursionlimit),
    "switch interval": Part(sys.getswitchinterval, sys.setswitchinterval),
}
