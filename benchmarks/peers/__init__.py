"""The other task queues. One module each, all with the actions of act.py; this page says how they are run."""

from __future__ import annotations

from ..candidates import Candidate


def installed_peers() -> list[Candidate]:
    """Return the peers whose packages are installed."""
    return []
