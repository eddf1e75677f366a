"""The public pages: the board, and one page per tracked flight. Each page has a fragment that a script refreshes."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from rsmq_django.tasks.compat import TaskResultDoesNotExist

from .board import read_board, shown_day
from .forms import TrackForm
from .models import Tracker
from .tasks import tell_when_landed


@require_safe
@never_cache
def board(request: HttpRequest) -> HttpResponse:
    """Show the departures of the day, the queues and the work log."""
    return render(request, "flightboard/board.html", read_board() | {"form": TrackForm()})


@require_safe
@never_cache
def live(request: HttpRequest) -> HttpResponse:
    """Show the part of the board that changes."""
    return render(request, "flightboard/_board.html", read_board())


@require_http_methods(["GET", "HEAD", "POST"])
def track(request: HttpRequest) -> HttpResponse:
    """Enqueue "tell me when this flight lands" and show the page that waits for the answer."""
    if request.method != "POST":  # a bookmark, or the address of a form that was sent
        return redirect("flightboard:board")
    form = TrackForm(request.POST)
    day = shown_day()
    if not form.is_valid() or day is None:
        form.fields["flight"].widget.attrs["autofocus"] = True
        return render(request, "flightboard/board.html", read_board() | {"form": form})
    carrier, number = form.cleaned_data["flight"]
    with transaction.atomic():
        tracker = Tracker.objects.create(day=day, carrier=carrier, number=number)
        # The id of the task is known here; the message leaves when this transaction commits.
        tracker.task_id = tell_when_landed.enqueue(tracker_id=str(tracker.pk)).id
        tracker.save(update_fields=["task_id"])
    return redirect("flightboard:tracker", pk=tracker.pk)


@require_safe
@never_cache
def tracker(request: HttpRequest, pk: str) -> HttpResponse:
    """Show the result of one request."""
    return render(request, "flightboard/tracker.html", read_tracker(pk))


@require_safe
@never_cache
def tracker_live(request: HttpRequest, pk: str) -> HttpResponse:
    """Show the part of a tracker's page that changes."""
    return render(request, "flightboard/_tracker.html", read_tracker(pk))


def read_tracker(pk: str) -> dict[str, Any]:
    """Return a tracker with the result of its task; the result is None when it is too old to be kept."""
    tracker = get_object_or_404(Tracker, pk=pk)
    try:
        result = tell_when_landed.get_result(tracker.task_id)
    except TaskResultDoesNotExist:
        return {"tracker": tracker, "result": None, "state": "forgotten"}
    return {"tracker": tracker, "result": result, "state": result.status.lower()}
