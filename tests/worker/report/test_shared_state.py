"""The page of memory that a supervisor and a worker process share: each field keeps what was written to it."""

from __future__ import annotations

import time

from rsmq_django.worker.report.shared_state import SharedState

FAR_S = 1.7e308  # no byte of it is 0


def test_no_field_changes_what_another_holds():
    state = SharedState(most_running=2)
    before = time.monotonic()
    state.note_poll()
    state.note_turn()
    state.note_interruption()
    state.set_stop_by(FAR_S)
    state.set_paused(True)
    state.note_end(holds_nothing=True)
    state.note_use((1, 2), (3, 4))
    slots = [state.enter(f"message-{number}", began_at=FAR_S, run_by=FAR_S) for number in range(2)]

    for at in (state.last_poll, state.last_turn, state.interrupted_at):
        assert at is not None and before <= at <= time.monotonic()
    assert state.stop_by == FAR_S
    assert state.is_paused and state.has_ended and state.holds_nothing
    assert state.use == ((1, 2), (3, 4))
    assert None not in slots and state.running_since() == {"message-0": FAR_S, "message-1": FAR_S}
    state.set_paused(False)
    assert state.holds_nothing and state.stop_by == FAR_S
