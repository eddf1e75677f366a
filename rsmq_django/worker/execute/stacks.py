"""Reports how many tasks run in this process, and their stacks, when the supervisor asks.

The supervisor writes a byte into a pipe, and a dedicated thread waits for it: neither tasks nor the main loop do any
work for this. It reads frames and changes nothing, so a task may be anywhere. A task that keeps the interpreter lock
delays the report as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ...core import Client
from ...core.errors import RsmqError
from ...core.log_lines import get_logger
from ...core.tasks.stacks import tell_stacks
from ..report.shared_state import SharedState
from .batch import executions_of
from .pool import Pool

logger = get_logger(__name__)

#: Maximum number of frames per task; the innermost ones are kept.
MOST_FRAMES = 60
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_AROUND = (_OURS, threading.__file__, asyncio.__path__[0])


#: What the supervisor writes to ask for either.
STACKS, USE = b"?", b"#"


class StackReporter:
    """Answers requests for stacks and numbers on its own thread; see the module."""

    def __init__(
        self, reader: int, pool: Pool, clients: Iterable[Client], worker_id: str, shared_state: SharedState
    ) -> None:
        self._reader = reader
        self._pool = pool
        self._shared_state = shared_state
        self._clients = list(dict.fromkeys(clients))
        self._worker_id = worker_id

    def start(self) -> None:
        """Start the thread. It ends when the supervisor does."""
        threading.Thread(target=self._answer, name="rsmq-stacks", daemon=True).start()

    def _answer(self) -> None:
        asked = USE
        while asked:
            self._shared_state.note_use(*self._pool.use())
            if STACKS in asked:
                self._report_stacks()
            asked = os.read(self._reader, 64)

    def _report_stacks(self) -> None:
        try:
            stacks = stacks_of(self._pool)
        except Exception:  # frames change while they are read, and their source may be anything
            logger.exception("the stacks of running tasks could not be read")
            return
        for client in self._clients:
            try:
                client.run(tell_stacks(client.namespace, self._worker_id, stacks))
            except RsmqError as error:
                logger.warning("the stacks of running tasks could not be stored: %s", error)


def stacks_of(pool: Pool) -> dict[str, str]:
    """Return the stack of each running message by its id, the innermost call last."""
    frames = sys._current_frames()
    found: dict[str, str] = {}
    for runnable, thread_id in pool.threads_of_functions():
        frame = frames.get(thread_id)
        if frame is not None:
            text = _text(_frames_below(frame))
            found |= {each.delivery.message.id: text for each in executions_of([runnable])}
    loop_frame = frames.get(pool.loop_thread_id or 0)
    for runnable, task in pool.tasks_of_coroutines():
        text = _text(_frames_of(task.get_coro(), loop_frame))
        found |= {each.delivery.message.id: text for each in executions_of([runnable])}
    return found


def _frames_below(frame: FrameType | None) -> list[FrameType]:
    """Return a frame and its callers, the outermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _frames_of(coroutine: Any, loop_frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a coroutine and of its awaitables; if it is running right now, the frames of its thread."""
    found: list[FrameType] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        if getattr(coroutine, "cr_running", False):
            return _frames_below(loop_frame)
        found.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return found


def _text(frames: Sequence[FrameType]) -> str:
    """Return frames in the form of a traceback, without the worker's frames around the task."""
    begin = next((at for at, frame in enumerate(frames) if not frame.f_code.co_filename.startswith(_AROUND)), 0)
    below = [(frame, frame.f_lineno) for frame in frames[begin:][-MOST_FRAMES:]]
    return "".join(traceback.StackSummary.extract(iter(below)).format())
