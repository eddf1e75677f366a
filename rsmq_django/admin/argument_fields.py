"""Form fields for the arguments of a task, by the annotation of the parameter; JSON where none fits.

A kind knows its field, which values of earlier calls the field can show, and how a value is turned into what the field
shows and back. Arguments travel as JSON, so a date, a UUID or a member of an enum is sent as its text or value.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from django import forms
from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

#: A longer text, or one of several lines, has a field of several lines.
LONG_TEXT = 80


@dataclass(frozen=True, slots=True)
class FieldKind:
    """How the values of a parameter are shown in a form, and read from it."""

    field: Callable[..., forms.Field]
    #: The JSON value as the field shows it. Raises ValueError for a value that the field cannot show.
    show: Callable[[Any], Any]
    #: What the field found, as a JSON value.
    read: Callable[[Any], Any] = lambda value: value


def kind_of(hint: Any) -> tuple[FieldKind, bool]:
    """Return the kind of an annotation, and whether it allows None."""
    if get_origin(hint) is Annotated:
        return kind_of(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        others = [each for each in get_args(hint) if each is not type(None)]
        allows_none = len(others) < len(get_args(hint))
        return (kind_of(others[0])[0] if len(others) == 1 else JSON), allows_none
    if get_origin(hint) is Literal:
        values = [each for each in get_args(hint) if each is not None]
        return choice_kind({str(value): value for value in values}), len(values) < len(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        values_by_name = {member.name: member.value for member in hint}
        return (choice_kind(values_by_name) if _are_json(values_by_name.values()) else JSON), False
    return KINDS.get(_plain_type(hint), JSON), False


def _plain_type(hint: Any) -> Any:
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and origin not in KINDS:
        if issubclass(origin, Mapping):
            return dict
        if issubclass(origin, (Sequence, set, frozenset)):
            return list
    return origin if isinstance(origin, type) else None


def _are_json(values: Any) -> bool:
    return all(isinstance(value, (str, int, float)) for value in values)


# -- Plain values -----------------------------------------------------------------------------------------------------


def _shown_if(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def show(value: Any) -> Any:
        if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise ValueError(value)
        return value

    return show


def _shown_boolean(value: Any) -> str:
    return "true" if _shown_if(bool)(value) else "false"


def _shown_text(value: Any) -> str:
    text: str = _shown_if(str)(value)
    # Browsers send line ends as CRLF; what cannot be seen in a field is shown as JSON, with escapes.
    if "\r" in text or not text.replace("\n", "").isprintable():
        raise ValueError(value)
    return text


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return a function that shows a text as what it says. Raises ValueError for another text."""

    def show(value: Any) -> Any:
        try:
            found = parse(_shown_if(str)(value))
        except ArithmeticError as error:  # of Decimal
            raise ValueError(value) from error
        if found is None:
            raise ValueError(value)
        return found

    return show


def _shown_datetime(value: Any) -> datetime:
    found: datetime = _parsed(parse_datetime)(value)
    if timezone.is_aware(found) != settings.USE_TZ:  # the field would make one of the other kind of it
        raise ValueError(value)
    return found


def _finite(text: str) -> Decimal | None:
    number = Decimal(text)
    return number if number.is_finite() else None


class TextField(forms.CharField):
    """Text as it is, of one line or several."""

    def __init__(self, **choices: Any) -> None:
        super().__init__(strip=False, **choices)

    def widget_for(self, text: str) -> None:
        """Take a widget of several lines for a text that needs it."""
        if len(text) > LONG_TEXT or "\n" in text:
            self.widget = forms.Textarea(attrs={"rows": 4, "cols": 60})
            self.widget.is_required = self.required

    def to_python(self, value: Any) -> Any:
        """Return the text; browsers send line ends as CRLF."""
        return super().to_python(value.replace("\r\n", "\n") if isinstance(value, str) else value)


class JSONTextField(forms.CharField):
    """A JSON value as text. Found is a tuple of it, so that null is a value, and empty is none."""

    def __init__(self, *, accepts: type | None = None, **choices: Any) -> None:
        self.accepts = accepts
        words = [str(choices.pop("help_text", "")), _('As JSON: 7, "text", [1, 2], {"a": true}')]
        widget = forms.Textarea(attrs={"rows": 2, "cols": 60, "class": "rsmq-mono"})
        super().__init__(widget=widget, help_text=" ".join(word for word in words if word), **choices)

    def to_python(self, value: Any) -> Any:
        """Return the value in a tuple. Raises ValidationError for invalid JSON, or JSON of another kind."""
        text = super().to_python(value)
        if not text:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_("Enter a valid JSON.")) from error
        if self.accepts is not None and not isinstance(found, self.accepts):
            raise forms.ValidationError(_("Enter a JSON list.") if self.accepts is list else _("Enter a JSON object."))
        return (found,)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare the texts: numbers that are equal may not be the same."""
        return " ".join(str(initial or "").split()) != " ".join(str(data or "").split())


def as_json(value: Any) -> str:
    """Return JSON in which every sign can be seen."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def json_kind(accepts: type | None) -> FieldKind:
    """Return the kind of JSON values, of one type or of any."""

    def show(value: Any) -> str:
        if accepts is not None and not isinstance(value, accepts):
            raise ValueError(value)
        return as_json(value)

    return FieldKind(lambda **choices: JSONTextField(accepts=accepts, **choices), show, lambda found: found[0])


def choice_kind(values: Mapping[str, Any]) -> FieldKind:
    """Return the kind of a few values, by the texts that name them."""
    names = {(type(value), value): name for name, value in values.items()}

    def show(value: Any) -> str:
        try:
            return names[type(value), value]
        except (KeyError, TypeError) as error:  # TypeError: a list
            raise ValueError(value) from error

    def field(**choices: Any) -> forms.Field:
        return forms.ChoiceField(choices=[("", "---------"), *((name, name) for name in values)], **choices)

    return FieldKind(field, show, lambda name: values[name])


def _boolean_field(**choices: Any) -> forms.Field:
    names = [("", "---------"), ("true", gettext_lazy("Yes")), ("false", gettext_lazy("No"))]
    return forms.ChoiceField(choices=names, **choices)


def _datetime_field(**choices: Any) -> forms.Field:
    widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M:%S", attrs={"type": "datetime-local", "step": "1"})
    return forms.DateTimeField(widget=widget, **choices)


def _date_field(**choices: Any) -> forms.Field:
    return forms.DateField(widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}), **choices)


JSON = json_kind(None)
KINDS: Mapping[Any, FieldKind] = {
    bool: FieldKind(_boolean_field, _shown_boolean, lambda text: text == "true"),
    int: FieldKind(forms.IntegerField, _shown_if(int)),
    float: FieldKind(forms.FloatField, _shown_if((float, int))),
    str: FieldKind(TextField, _shown_text),
    list: json_kind(list),
    dict: json_kind(dict),
    datetime: FieldKind(_datetime_field, _shown_datetime, lambda value: value.isoformat()),
    date: FieldKind(_date_field, _parsed(parse_date), lambda value: value.isoformat()),
    Decimal: FieldKind(forms.DecimalField, _parsed(_finite), str),
    UUID: FieldKind(forms.UUIDField, _parsed(UUID), str),
}
