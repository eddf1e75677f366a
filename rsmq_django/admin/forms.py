"""Forms of the pages: what operations ask for, and what is sent."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.limits import MAX_SECONDS
from ..live.places import place_of
from .operations import Operation


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
            raise forms.ValidationError(_("There is no such queue."))
        return key
