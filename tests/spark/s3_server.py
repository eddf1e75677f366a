"""An S3 for tests, in a process of its own: prints its address, and serves until its input ends.

It has one thread: with several, it would look and write in two steps where a commit needs one.
"""

import logging
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

if __name__ == "__main__":
    logging.getLogger("werkzeug").disabled = True  # a line per request
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
