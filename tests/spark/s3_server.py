"""An S3 for tests, in a process of its own: prints its address, and serves until its input ends.

It has one thread: with several, it would look and write in two steps where a commit needs one.
"""

import http.client
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "lakes"


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Start one with a bucket, in a process of this machine; give the variables of its clients."""
    command = [sys.executable, "-m", "tests.spark.s3_server"]
    service = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert service.stdin and service.stdout
    address = service.stdout.readline().decode().strip()
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    connection.request("PUT", f"/{BUCKET}")
    assert connection.getresponse().status == 200
    connection.close()
    try:
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
    finally:
        service.communicate()


if __name__ == "__main__":
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").disabled = True  # a line per request
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
