"""The one form of the site."""

import re

from django import forms

FLIGHT_CODE = re.compile(r"([A-Z][A-Z0-9]|[0-9][A-Z])\s*([0-9]{1,4})")


class TrackForm(forms.Form):
    """Asks for a flight as it stands on the ticket."""

    flight = forms.CharField(
        label="Tell me when flight",
        max_length=8,
        widget=forms.TextInput(
            attrs={"placeholder": "UA1545", "autocomplete": "off", "autocapitalize": "characters", "size": 8}
        ),
    )

    def clean_flight(self) -> tuple[str, int]:
        """Return carrier and number."""
        text = self.cleaned_data["flight"].strip().upper()
        found = FLIGHT_CODE.fullmatch(text)
        if found is None:
            raise forms.ValidationError(
                "A flight is two letters (or a letter and a digit) and up to four digits, such as UA1545."
            )
        return found[1], int(found[2])
