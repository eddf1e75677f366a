"""Entry point of the detached supervisor process; not a command for people."""

import sys

from .supervisor import main

main(*sys.argv[1:])
