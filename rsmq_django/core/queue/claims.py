"""Claims of the steps of a job that runs in the requests of a page, so that each step runs once."""

from __future__ import annotations

from ..keys import steps_key
from ..transport.call import Call


def claim_step(namespace: str, job_id: str, step: int, *, ttl_s: int) -> Call[bool]:
    """Return the call that claims a step; its result is False when the step was claimed before.

    Steps are numbered from 0. A job is forgotten when no step was claimed for `ttl_s`.
    """
    return Call("queue/browse/claim_step", (steps_key(namespace, job_id),), (step, ttl_s * 1000), bool)
