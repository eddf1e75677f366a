"""The exit status of a copy of the worker: that of any Python program that ends like it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit()", 0), ("sys.exit('no')", 1), ("sys.exit(7)", 7), ("1 / 0", 1), ("None", 0)]
)
def test_copy_of_the_worker_ends_with_the_status_of_a_python_program(end: str, status: int):
    program = f"""
import os, sys
from rsmq_django.worker.execute.invoke import call_in_one_process
def leave_the_child():
    if os.fork() == 0:
        {end}
        return "in the child"
    return os.waitstatus_to_exitcode(os.wait()[1])
print(call_in_one_process(leave_the_child, [], {{}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{status}\n"
    assert f"ends with status {status}; end a forked child with os._exit()" in done.stderr
