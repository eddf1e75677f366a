"""The clients of other projects as long-lived child processes, with one Python object for each.

A peer is asked in JSON lines over a pipe, in the words of RSMQ (`sendMessage`, `receiveMessage`, ...), which both
clients share. This module knows how to start, ask and end a child; it knows nothing of our own package.
"""

from __future__ import annotations

import base64
import itertools
import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
#: A peer that has not answered by then is stuck. Only a hang takes this long.
REPLY_DEADLINE_S = 180


class PeerError(Exception):
    """The other client raised: `name` is its error's name, such as "queueNotFound"."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """What the other client said about one received message."""

    id: str
    body: bytes | None
    receive_count: int
    first_received_ms: float
    sent_ms: float | None  # PyRSMQ does not tell


class Peer:
    """One client in a process of its own. Safe to ask from several threads; answers come one at a time."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE, text=True)
        self._replies: queue.Queue[str] = queue.Queue()
        self._sequence = itertools.count()
        self._one_at_a_time = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child by ending its input."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=180)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def call(
        self, name: str, *, body: bytes | None = None, client: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        """Run one operation of the other client and return its JSON result."""
        request: dict[str, Any] = {"call": name, "options": options, "client": client or {}}
        if body is not None:
            request["body_b64"] = base64.b64encode(body).decode()
        with self._one_at_a_time:
            reply = self._ask(request)
        if "error" in reply:
            raise PeerError(reply["error"]["name"], reply["error"]["message"])
        return reply["result"]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        sequence = next(self._sequence)
        self._process.stdin.write(json.dumps({"seq": sequence, **request}) + "\n")
        self._process.stdin.flush()
        line = self._replies.get(timeout=REPLY_DEADLINE_S)
        if not line:
            raise RuntimeError(f"the peer ended; its last words are on stderr (exit code {self._process.poll()})")
        reply: dict[str, Any] = json.loads(line)
        assert reply["seq"] == sequence, f"the peer answered {reply['seq']} to {sequence}"
        return reply

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def reset(self) -> None:
        """Forget everything and connect anew."""
        self.call("reset")

    # -- The operations of RSMQ -------------------------------------------------------------------------------------

    def create_queue(self, name: str, **attributes: int | float) -> None:
        self.call("createQueue", qname=name, **attributes)

    def delete_queue(self, name: str) -> None:
        self.call("deleteQueue", qname=name)

    def list_queues(self) -> list[str]:
        return sorted(self.call("listQueues"))

    def attributes(self, name: str) -> dict[str, Any]:
        """Return vt, delay, maxsize, totalrecv, totalsent, created, modified, msgs and hiddenmsgs."""
        return dict(self.call("getQueueAttributes", qname=name))

    def set_attributes(self, name: str, **attributes: int) -> dict[str, Any]:
        return dict(self.call("setQueueAttributes", qname=name, **attributes))

    def send(self, name: str, body: bytes, *, realtime: bool = False, **options: int) -> str:
        client = {"realtime": True} if realtime else None
        return str(self.call("sendMessage", qname=name, body=body, client=client, **options))

    def receive(self, name: str, **options: int) -> PeerMessage | None:
        return _read_message(self.call("receiveMessage", qname=name, **options))

    def pop(self, name: str) -> PeerMessage | None:
        return _read_message(self.call("popMessage", qname=name))

    def delete(self, name: str, message_id: str) -> bool:
        return bool(self.call("deleteMessage", qname=name, id=message_id))

    def change_visibility(self, name: str, message_id: str, vt: int) -> bool:
        return bool(self.call("changeMessageVisibility", qname=name, id=message_id, vt=vt))


class NodePeer(Peer):
    """npm `rsmq` 0.12.4, and `rsmq-worker` on top of it."""

    def __init__(self, url: str) -> None:
        # Without warnings: rsmq-worker's dependencies name files in ways that node deprecates.
        super().__init__(["node", "--no-deprecation", str(HERE / "node_peer.js"), json.dumps(_node_options(url))])

    def subscribe(self, channel: str) -> None:
        self.call("subscribe", channel=channel)

    def published(self) -> list[str]:
        """Return every text that arrived on the subscribed channels so far."""
        return list(self.call("published"))

    def start_worker(self, queue_name: str) -> None:
        self.call("startWorker", qname=queue_name)

    def worker_send(self, queue_name: str, body: bytes) -> str:
        return str(self.call("workerSend", qname=queue_name, body=body))

    def processed(self) -> list[bytes]:
        """Return the bodies that the worker has processed so far."""
        return [base64.b64decode(body) for body in self.call("processed")]


class PyRsmqPeer(Peer):
    """PyPI `PyRSMQ` 0.6.1 with its Consumer."""

    def __init__(self, url: str) -> None:
        super().__init__([sys.executable, str(HERE / "pyrsmq_peer.py"), url])

    def start_consumer(self, queue_name: str) -> None:
        self.call("startConsumer", qname=queue_name)

    def processed(self) -> list[bytes]:
        """Return the bodies that the consumer has processed so far."""
        return [base64.b64decode(body) for body in self.call("processed")]


def _node_options(url: str) -> dict[str, str | int]:
    """Say the URL in the words of the old Node client, which takes `path` for a unix socket."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {"path": parts.path}
    options: dict[str, str | int] = {"host": parts.hostname or "127.0.0.1", "port": parts.port or 6379}
    if parts.password:
        options["password"] = unquote(parts.password)
    return options


def _read_message(reply: dict[str, Any]) -> PeerMessage | None:
    if not reply:
        return None
    body = reply["body_b64"]
    return PeerMessage(
        id=reply["id"],
        body=None if body is None else base64.b64decode(body),
        receive_count=reply["rc"],
        first_received_ms=reply["fr"] if "fr" in reply else reply["ts"],
        sent_ms=reply.get("sent"),
    )
