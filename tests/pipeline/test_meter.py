"""The progress of a step on a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from rsmq_django.pipeline.meter import Meter


def test_terminal_shows_the_progress_of_a_step_and_clears_it_at_its_end():
    out = StringIO()
    meter = Meter(is_shown=True, console=Console(file=out, force_terminal=True, width=100))

    with pytest.raises(RuntimeError), meter.during("archive"):
        meter("archive", 500, 1000)
        meter("archive", 700, 1000)
        raise RuntimeError("it failed")
    meter("archive", 900)  # too late, and harmless

    assert "archive" in out.getvalue()
    assert "700/1000" in out.getvalue()
    assert "900" not in out.getvalue()


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]):
    meter = Meter()

    with meter.during("archive"):
        meter("archive", 500, 1000)

    assert capsys.readouterr() == ("", "")
