"""The form of a schedule: when it is due, and its policy for missed ticks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf.schedules import MAX_NAME_CHARACTERS, Schedule, is_name
from ..conf.settings import project_zone
from ..conf.timetable import is_cron, is_zone
from ..core.limits import YEAR_S

#: What to do with missed ticks, as they are stored and in words.
MISSED = (
    ("once", gettext_lazy("Run once for all of them")),
    ("skip", gettext_lazy("Skip them")),
    ("all", gettext_lazy("Run each of them")),
)


class ScheduleForm(forms.Form):
    """See the module. Without a schedule it is for a new one, which needs a name."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=MAX_NAME_CHARACTERS)
    cron = forms.CharField(
        label=gettext_lazy("Cron expression"),
        required=False,
        max_length=200,
        help_text=gettext_lazy(
            "Minute, hour, day, month, weekday: 30 3 * * MON-FRI. With six fields the first is seconds."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    every_s = forms.FloatField(
        label=gettext_lazy("Or every (s)"),
        required=False,
        min_value=1,
        max_value=YEAR_S,
        help_text=gettext_lazy("Instead of a cron expression."),
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=100,
        help_text=gettext_lazy("Time zone of the cron expression, such as Europe/Berlin."),
    )
    queue = forms.CharField(
        label=gettext_lazy("Queue"),
        required=False,
        max_length=160,
        help_text=gettext_lazy("Empty = the task’s own queue."),
    )
    missed = forms.ChoiceField(label=gettext_lazy("Missed runs"), choices=MISSED)
    missed_after_s = forms.FloatField(
        label=gettext_lazy("Missed after (s)"),
        min_value=1,
        max_value=YEAR_S,
        help_text=gettext_lazy("A run that starts later than this was missed."),
    )
    jitter_s = forms.FloatField(
        label=gettext_lazy("Jitter (s)"),
        min_value=0,
        max_value=86_400,
        help_text=gettext_lazy("Runs start up to this many seconds later, so that they do not all start at once."),
    )
    #: What the page has shown, so that a change by another user is not overwritten.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, schedule: Schedule | None = None, seen: str = "") -> None:
        defaults = Schedule(name="", task="", time_zone=project_zone())
        shown = schedule or defaults
        names = ("cron", "every_s", "time_zone", "queue", "missed", "missed_after_s", "jitter_s")
        super().__init__(data, initial={name: _shown(getattr(shown, name)) for name in names} | {"seen": seen})
        if schedule is not None:
            if schedule.cron is None:
                self.initial["time_zone"] = project_zone()
            del self.fields["name"]

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError when it is not allowed."""
        name: str = self.cleaned_data["name"]
        if not is_name(name):
            raise forms.ValidationError(_("This name contains characters that cannot be printed."))
        return name

    def clean_cron(self) -> str:
        """Return the expression. Raises ValidationError when it is not valid."""
        cron: str = self.cleaned_data["cron"]
        if cron and not is_cron(cron):
            raise forms.ValidationError(_("This is not a valid cron expression, or it never matches a time."))
        return cron

    def clean_time_zone(self) -> str:
        """Return the zone. Raises ValidationError for an unknown one."""
        zone: str = self.cleaned_data["time_zone"]
        if not is_zone(zone):
            raise forms.ValidationError(_("Unknown time zone."))
        return zone

    def clean(self) -> dict[str, Any]:
        """Demand exactly one of the two ways to say when."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and bool(cleaned.get("cron")) == (cleaned.get("every_s") is not None):
            raise forms.ValidationError(_("Enter either a cron expression or a number of seconds."))
        return cleaned

    def options(self) -> dict[str, Any]:
        """Return what a valid form says, as schedules.add() and change() take it."""
        words = self.cleaned_data
        cron = words["cron"] or None
        options: dict[str, Any] = {"cron": cron, "every_s": words["every_s"], "queue": words["queue"] or None}
        options["time_zone"] = words["time_zone"] if cron else None
        return options | {name: words[name] for name in ("missed", "missed_after_s", "jitter_s")}


def _shown(value: Any) -> Any:
    """Return a value as a field shows it: 60 for 60.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
