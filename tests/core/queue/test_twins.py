"""Async twins take the same arguments as the sync methods, with the same defaults."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rsmq_django.core
import rsmq_django.tasks


def owners() -> Iterator[Any]:
    """Yield the modules of the core and of tasks, and their classes."""
    for package in (rsmq_django.core, rsmq_django.tasks):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            yield module
            yield from (
                each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == found.name
            )


def twins() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    found: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
    for owner in owners():
        functions = dict(inspect.getmembers(owner, inspect.isfunction))
        for name, function in functions.items():
            plain = functions.get(name.removeprefix("a"))
            is_ours = function.__module__.startswith("rsmq_django")
            if name.startswith("a") and plain and is_ours and inspect.iscoroutinefunction(function):
                found[f"{plain.__module__}.{plain.__qualname__}".removeprefix("rsmq_django.")] = plain, function
    return found


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    """Return names, kinds and defaults; a lambda as a default is only known to be one."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, getattr(each.default, "__qualname__", each.default)) for each in found]


@pytest.mark.parametrize(("plain", "asynchronous"), [pytest.param(*both, id=name) for name, both in twins().items()])
def test_a_function_and_its_async_twin_take_the_same(plain: Callable[..., Any], asynchronous: Callable[..., Any]):
    assert parameters(plain) == parameters(asynchronous)


def test_there_are_twins():
    assert {"core.queue.queue.Queue.send", "core.topic.group.ConsumerGroup.replay"} <= set(twins())
