"""Starts the command, with the clock of the simulation in place before the package is imported."""

from __future__ import annotations

import os
import sys

from tests.simulation import world


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of texts depends on it, and the course of events on that order.
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606 - our own command
    world.replace_time_and_chance()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.simulation.settings"
    import django

    django.setup()
    from tests.simulation import command

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
