"""The PyRSMQ side of the interoperability tests: PyPI `PyRSMQ` behind a pipe.

Reads one JSON request per line and answers each with one JSON line of the same `seq`, exactly as node_peer.js does;
bodies travel in base64. Ends when its input ends. Run as a script, with the URL of the server as its argument; it
knows nothing of our own package, so that the bytes it writes are the other client's alone.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import redis
from rsmq import RedisSMQ
from rsmq.cmd.exceptions import NoMessageInQueue
from rsmq.consumer import RedisSMQConsumerThread


class Peer:
    """One PyRSMQ client and, when asked for, one consumer thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.consumer: RedisSMQConsumerThread | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything and connect anew: this client never notices that a server lost its scripts."""
        if self.consumer is not None:
            self.consumer.stop(wait=10)
        self.rsmq = RedisSMQ(client=self.connect())
        self.processed: list[str] = []
        self.consumer = None

    def connect(self) -> redis.Redis:
        # Bodies that are no UTF-8 must not kill the peer: surrogates travel through and back.
        return redis.Redis.from_url(self.url, decode_responses=True, encoding_errors="surrogateescape")

    def answer(self, request: dict[str, Any]) -> Any:
        call, options = request["call"], request.get("options", {})
        if call == "reset":
            return self.reset()
        if call == "startConsumer":
            return self.start_consumer(options["qname"])
        if call == "processed":
            return self.processed
        if "body_b64" in request:
            options["message"] = base64.b64decode(request["body_b64"])
        result = getattr(self.rsmq, call)(**options).execute()
        if isinstance(result, dict) and "message" in result:
            result["body_b64"] = to_base64(result.pop("message"))
        return sorted(result) if isinstance(result, set) else result

    def start_consumer(self, queue_name: str) -> None:
        def process(message: str | None = None, **_: Any) -> bool:
            self.processed.append(to_base64(message) or "")
            return True

        self.consumer = RedisSMQConsumerThread(
            queue_name, process, client=self.connect(), vt=30, empty_queue_delay=0.02, decode=False
        )
        self.consumer.start()


def to_base64(text: str | None) -> str | None:
    return None if text is None else base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def main() -> None:
    peer = Peer(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply: dict[str, Any] = {"result": peer.answer(request)}
        except NoMessageInQueue:
            reply = {"result": {}}  # what the Node client says of an empty queue
        except Exception as error:  # whatever the other client raises is an answer, not the end of this process
            reply = {"error": {"name": type(error).__name__, "message": str(error)}}
        sys.stdout.write(json.dumps({"seq": request["seq"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
