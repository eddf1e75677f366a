"""Entry point of the detached supervisor process; not a user command."""

import sys

from .supervisor import main

main(*sys.argv[1:])
