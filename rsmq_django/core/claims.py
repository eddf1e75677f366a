"""Steps of a job that has no process: a request claims the step that it carries out, so that each is done once."""

from __future__ import annotations

from .call import Call
from .keys import steps_key


def claim_step(namespace: str, job_id: str, step: int, *, ttl_s: int) -> Call[bool]:
    """Return the call that claims a step, and answers False when it was claimed before.

    Steps are numbered from 0. A job is forgotten when no step was claimed for `ttl_s`.
    """
    return Call("browse/claim_step", (steps_key(namespace, job_id),), (step, ttl_s * 1000), bool)
