"""Plugin of pytest that notes script calls, of which the fuzzing target of scripts makes its own (CONTRIBUTING.md).

    CALLS=/tmp/calls.jsonl python -m pytest -p tests.fuzz.recorder tests/core tests/tasks tests/worker tests/admin

Each line is one call: script, keys, arguments. Of each script it keeps a few, which differ in how many words they have.
"""

from __future__ import annotations

import json
import os
from typing import Any

from rsmq_django.core.transport.call import Call

MOST_CALLS, MOST_WORDS, LONGEST_WORD = 3, 60, 1000
_seen: dict[str, set[tuple[int, int]]] = {}
_make = Call.__init__


def _make_and_note(self: Call[Any], *args: Any, **options: Any) -> None:
    _make(self, *args, **options)
    shape = (len(self.keys), len(self.args))
    shapes = _seen.setdefault(self.script, set())
    if shape in shapes or len(shapes) == MOST_CALLS or sum(shape) > MOST_WORDS:
        return
    words = [word.decode("latin-1") if isinstance(word, bytes) else str(word) for word in self.args]
    if max(map(len, words), default=0) > LONGEST_WORD:
        return
    shapes.add(shape)
    with open(os.environ["CALLS"], "a") as file:
        print(json.dumps([self.script, list(self.keys), words]), file=file)


Call.__init__ = _make_and_note  # type: ignore[method-assign]
