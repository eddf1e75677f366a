"""Stack traces of the running tasks of a worker process, requested by an operator and stored by the process itself.

A request is a short-lived key that the supervisor reads with the record that it writes every five seconds. The process
answers with another short-lived key: the stack of each of its running messages, as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..keys import stack_request_key, stacks_key, workers_key
from ..transport.call import Call

#: A supervisor reads a request within five seconds; a request that is not read expires.
KEEP_REQUEST_S = 15
KEEP_STACKS_S = 60
#: Maximum size of all stacks of a process together, and of one stack.
MAX_BYTES, MAX_STACK_CHARACTERS = 65_536, 8_000


def ask_for_stacks(namespace: str, worker_id: str) -> Call[bool]:
    """Return the call that requests the stacks of a process; its result is False when the worker does not exist."""
    keys = (workers_key(namespace), stack_request_key(namespace, worker_id), stacks_key(namespace, worker_id))
    return Call("tasks/worker/ask_for_stacks", keys, (worker_id, KEEP_REQUEST_S), bool, repeatable=True)


def tell_stacks(namespace: str, worker_id: str, stacks: Mapping[str, str]) -> Call[bool]:
    """Return the call that stores the stacks by message id: the first ones, as far as they fit into the limit."""
    shown: dict[str, str] = {}
    left = MAX_BYTES
    for message_id, stack in stacks.items():
        text = stack[-MAX_STACK_CHARACTERS:]
        left -= len(text.encode("utf-8", "replace")) + len(message_id)
        if left < 0:
            break
        shown[message_id] = text
    text = json.dumps(shown)
    return Call("SET", (stacks_key(namespace, worker_id),), (text, "EX", KEEP_STACKS_S), bool, repeatable=True)


def read_stacks(namespace: str, worker_id: str) -> Call[dict[str, str]]:
    """Return the call that reads the stored stacks; empty without a reply of the process."""
    return Call("GET", (stacks_key(namespace, worker_id),), (), _read, repeatable=True)


def _read(reply: bytes | None) -> dict[str, str]:
    try:
        found: Any = json.loads(reply) if reply else {}
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, dict) else {}
