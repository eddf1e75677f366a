"""The detached process that owns an embedded server: starts it, restarts it after a crash, stops it when unused.

It has its own session and no parent, so that Ctrl-C in one terminal does not stop a server that other processes use.
Its starter reads one word from its standard output: "ready", "busy" (another supervisor is running), or nothing, with
the reason in the logs. The starter chooses configuration and directories.
"""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from .files import StateFiles, answers, ask, give_back, is_current, open_lock, take

START_TIMEOUT_S = 30.0  # a large append-only file takes seconds to load
STOP_TIMEOUT_S = 30.0
#: Grace time without clients before the server stops: a second `make demo` should find it running.
GRACE_S = 2.0
POLL_S = 0.5
START_POLL_S = 0.005


def main(state_dir: str, socket: str, executable: str, data_format: str) -> None:
    """Detach from the starter's process tree and terminal, and supervise the server."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    supervisor = ServerSupervisor(Path(state_dir), Path(socket), executable=executable, data_format=data_format)
    signal.signal(signal.SIGTERM, supervisor.stop_soon)
    supervisor.run()


class ServerSupervisor:
    """The owner of one server process."""

    def __init__(self, state_dir: Path, socket: Path, *, executable: str, data_format: str) -> None:
        self.files = StateFiles(state_dir)
        self.socket = socket
        self.executable = executable
        self.data_format = data_format
        self._own_lock = open_lock(self.files.supervisor_lock)
        self._users_lock = open_lock(self.files.users_lock)
        self._used_s = time.monotonic()
        self._told_to_stop = False

    def run(self) -> None:
        """Keep the server running until it has no clients."""
        if not take(self._own_lock):
            _log("another supervisor is running; exiting")
            _report_to_starter("busy")
            return
        try:
            self._end_orphan()
            self._serve()
        finally:
            self._remove_socket_directory()

    def _serve(self) -> None:
        server = self._start()
        _report_to_starter("ready")
        try:
            while not self._is_over():
                if _ends(server, within_s=POLL_S) and not self._is_over():
                    _log(f"the server exited with {server.returncode}; restarting it with the same data")
                    server = self._start()
        finally:
            _stop(server)

    def stop_soon(self, *_: object) -> None:
        """Request a stop. An exception from the signal handler could leave an unsupervised server."""
        self._told_to_stop = True

    def _end_orphan(self) -> None:
        """Stop a server whose supervisor was killed, which would otherwise run forever."""
        for socket in {self.socket, self.files.recorded_socket() or self.socket}:  # started with another TMPDIR
            found = re.search(r"\bprocess_id:(\d+)", ask(socket, "INFO server"))
            # The record of a copied directory names the server of the original one.
            is_ours = socket == self.socket or f"{self.files.directory}{os.sep}" in ask(socket, "CONFIG GET dir")
            if not found or not is_ours:
                continue
            _log(f"the server {found[1]} has lost its supervisor; replacing it")
            os.kill(int(found[1]), signal.SIGTERM)
            deadline_s = time.monotonic() + STOP_TIMEOUT_S
            while ask(socket, "PING"):
                if time.monotonic() > deadline_s:
                    sys.exit(f"the server {found[1]} did not stop within {STOP_TIMEOUT_S} s; stop it manually")
                time.sleep(START_POLL_S)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the server with the data of its flavour and version, and wait until it responds."""
        data = self.files.directory / self.data_format
        data.mkdir(exist_ok=True)
        command = [self.executable, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        command += ["--dir", str(data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command += ["--maxmemory-policy", "noeviction"]
        with self.files.server_log.open("ab") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not answers(self.socket):
            if _ends(server, within_s=START_POLL_S):
                sys.exit(f"the server exited with {server.returncode} before it responded")
            if time.monotonic() > deadline_s:
                _stop(server)
                sys.exit(f"the server did not respond within {START_TIMEOUT_S} s")
        self.files.write_record(
            pid=server.pid,
            supervisor_pid=os.getpid(),
            server=self.data_format,
            executable=self.executable,
            socket=str(self.socket),
        )
        return server

    def _is_over(self) -> bool:
        """Return whether to stop: on request, without clients, or if the state directory was deleted or replaced.

        A server that shut down normally removed its socket: it was stopped on purpose.
        """
        return self._told_to_stop or not self._is_ours() or not self.socket.exists() or self._is_unused()

    def _is_ours(self) -> bool:
        own = is_current(self._own_lock, self.files.supervisor_lock)
        return own and is_current(self._users_lock, self.files.users_lock)

    def _is_unused(self) -> bool:
        """Return whether the server had no clients for the grace time.

        If so, keeps the exclusive lock: the next client waits until this process and the server have ended.
        """
        now_s = time.monotonic()
        if not take(self._users_lock):
            self._used_s = now_s
            return False
        if now_s - self._used_s > GRACE_S:
            return True
        give_back(self._users_lock)
        return False

    def _remove_socket_directory(self) -> None:
        """Remove the socket directory, unless a successor may be about to use it."""
        if self._is_ours() or not self.files.supervisor_lock.exists():
            with suppress(OSError):
                self.socket.parent.rmdir()


def _ends(server: subprocess.Popen[bytes], *, within_s: float) -> bool:
    try:
        server.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Shut the server down, which completes the append-only file."""
    server.terminate()
    if not _ends(server, within_s=STOP_TIMEOUT_S):
        _log(f"the server did not stop within {STOP_TIMEOUT_S} s; killing it")
        server.kill()
        server.wait()


def _report_to_starter(word: str) -> None:
    os.write(1, word.encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the starter reads until end of file
    os.close(nowhere)


def _log(line: str) -> None:
    """Write to standard error, which the starter has redirected to supervisor.log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()
