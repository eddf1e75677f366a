"""Forms of the pages: parameters of operations, and new messages."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import InvalidValue
from ..core.limits import MAX_SECONDS, checked_max_size
from ..live.places import place_of
from ..models import Queue
from .components.operations import Operation

if TYPE_CHECKING:
    _QueueForm = forms.ModelForm[Queue]
else:
    _QueueForm = forms.ModelForm  # generic for type checkers only


class ParametersForm(forms.Form):
    """What operations ask for."""

    seconds = forms.IntegerField(label=gettext_lazy("Seconds"), min_value=0, max_value=MAX_SECONDS)
    target = forms.CharField(
        label=gettext_lazy("Target queue"),
        max_length=500,
        widget=forms.TextInput(attrs={"list": "rsmq-queues", "autocomplete": "off"}),
    )

    def __init__(self, operation: Operation, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in set(self.fields) - set(operation.asks):
            del self.fields[name]

    def clean_target(self) -> str:
        """Return the key of a queue."""
        key: str = self.cleaned_data["target"]
        if place_of(key) is None:
            raise forms.ValidationError(_("This queue does not exist."))
        return key


class AttributesForm(_QueueForm):
    """What a queue is set to.

    Hidden fields have the values of the page, so that a change by another user does not count as a change of this one.
    """

    visibility_timeout_s = forms.IntegerField(
        label=gettext_lazy("Visibility timeout (s)"),
        min_value=0,
        max_value=MAX_SECONDS,
        show_hidden_initial=True,
        help_text=gettext_lazy("How long a received message is invisible, unless the receiver sets another time."),
    )
    delay_s = forms.IntegerField(
        label=gettext_lazy("Delay (s)"),
        min_value=0,
        max_value=MAX_SECONDS,
        show_hidden_initial=True,
        help_text=gettext_lazy("How long a new message is delayed, unless the sender sets another time."),
    )
    max_size_bytes = forms.IntegerField(
        label=gettext_lazy("Maximum size (bytes)"),
        show_hidden_initial=True,
        help_text=gettext_lazy("1024 to 65536, or -1 for no limit. Applies to new messages."),
    )

    class Meta:
        model = Queue
        fields = ("visibility_timeout_s", "delay_s", "max_size_bytes")

    def clean_max_size_bytes(self) -> int:
        """Return the size. Raises ValidationError when RSMQ does not allow it."""
        try:
            return checked_max_size(self.cleaned_data["max_size_bytes"])
        except InvalidValue as error:
            raise forms.ValidationError(str(error)) from error


class SendForm(forms.Form):
    """A message as it is."""

    body = forms.CharField(
        label=gettext_lazy("Body"), widget=forms.Textarea(attrs={"rows": 10, "cols": 80}), strip=False
    )
    delay_s = forms.IntegerField(
        label=gettext_lazy("Delay (s)"),
        required=False,
        min_value=0,
        max_value=MAX_SECONDS,
        help_text=gettext_lazy("Default: the delay of the queue."),
    )


class PurgeForm(forms.Form):
    """Confirmation of a purge: the typed name of the queue, and its state when the page was shown."""

    name = forms.CharField(
        label=gettext_lazy("Name of the queue"), widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    total_sent = forms.IntegerField(widget=forms.HiddenInput)
    also_newer = forms.BooleanField(label=gettext_lazy("Also remove newer messages"), required=False)

    def __init__(self, expected: Collection[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError unless it is the queue's, with or without its shard."""
        name: str = self.cleaned_data["name"]
        if name not in self.expected:
            raise forms.ValidationError(_("This is not the name of the queue."))
        return name


class RedriveForm(forms.Form):
    """Which dead letters are sent again, and where to."""

    task = forms.CharField(
        label=gettext_lazy("Task"),
        required=False,
        max_length=300,
        help_text=gettext_lazy("Path or name; * and ? are wildcards. Empty = all tasks."),
    )
    error = forms.CharField(
        label=gettext_lazy("Error"),
        required=False,
        max_length=300,
        help_text=gettext_lazy("Path or name of the exception; * and ? are wildcards."),
    )
    limit = forms.IntegerField(
        label=gettext_lazy("At most"), required=False, min_value=1, help_text=gettext_lazy("Empty = no limit.")
    )
    target = forms.CharField(
        label=gettext_lazy("Target queue"),
        required=False,
        max_length=500,
        help_text=gettext_lazy("Empty = the original queue of each message."),
    )

    def clean_target(self) -> str:
        """Return the key of a queue, or ""."""
        key: str = self.cleaned_data["target"]
        if key and place_of(key) is None:
            raise forms.ValidationError(_("This queue does not exist."))
        return key
