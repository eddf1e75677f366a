"""Hands work to threads: an item wakes one idle thread, the one that became idle last.

A `queue.SimpleQueue` of Python 3.11 and 3.12 wakes a second thread for each item that a waiting thread takes. That
thread finds nothing, and takes the interpreter from the first one meanwhile. It also wakes them in turn, although the
memory of the latest one is still in the processor's cache.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Handoff(Generic[Item]):
    """Items in order, for threads that each have a lock to wait on. Steps of the interpreter are the only locks here.

    Both sides write before they read: `put()` adds the item and then looks for idle threads; a thread notes that it is
    idle and then looks for items. While a woken thread is on its way, further items wake no other one: it looks for
    them itself, and wakes the next thread when more are left.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        #: Acquired locks of idle threads; releasing one wakes its thread.
        self._idle: list[threading.Lock] = []
        #: A thread was woken and has not looked for items yet.
        self._is_waking = False
        self.qsize = self._items.__len__
        #: Return the first item; IndexError when there is none.
        self.get_nowait = self._items.popleft

    def put(self, item: Item) -> None:
        """Add an item."""
        self._items.append(item)
        if self._idle and not self._is_waking:
            self._wake_one()

    def get(self, waiter: threading.Lock) -> Item:
        """Wait for the next item and return it. `waiter` is an acquired lock that only this thread uses."""
        try:
            return self._items.popleft()
        except IndexError:
            return self._get_later(waiter)

    def _get_later(self, waiter: threading.Lock) -> Item:
        while True:
            self._wait(waiter)
            try:
                item = self._items.popleft()
            except IndexError:
                continue
            if self._items and self._idle and not self._is_waking:
                self._wake_one()
            return item

    def _wait(self, waiter: threading.Lock) -> None:
        try:
            self._idle.append(waiter)
            if not self._items or not self._withdraw(waiter):
                waiter.acquire()
        except BaseException:  # another thread has raised it here: this thread ends
            self._withdraw(waiter)
            raise
        finally:
            self._is_waking = False

    def _withdraw(self, waiter: threading.Lock) -> bool:
        """Remove an idle thread; return False when it is being woken."""
        try:
            self._idle.remove(waiter)
        except ValueError:
            return False
        return True

    def _wake_one(self) -> None:
        # Again when the idle thread has found an item by itself: meanwhile others may have relied on this wake-up.
        while self._items and self._idle:
            self._is_waking = True
            try:
                waiter = self._idle.pop()
            except IndexError:
                self._is_waking = False
            else:
                waiter.release()
                return
