"""A form for the arguments of a task, made from the signature of its function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.limits import MAX_SECONDS
from ..tasks.task import Task

PREFIX = "argument"
_BOOLEANS = [("", "---------"), ("true", gettext_lazy("Yes")), ("false", gettext_lazy("No"))]


def task_form(task: Task[..., Any], data: Any = None) -> forms.Form:
    """Return the form for one call of a task."""
    fields = {parameter.name: _field(parameter, hint) for parameter, hint in _parameters(task)}
    form_class: type[forms.Form] = type("ArgumentsForm", (forms.Form,), fields)
    return form_class(data, prefix=PREFIX)


def arguments_of(task: Task[..., Any], form: forms.Form) -> tuple[list[Any], dict[str, Any]]:
    """Return what a valid form says, as positional and keyword arguments. What was left empty has its default."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter, _hint in _parameters(task):
        value = form.cleaned_data[parameter.name]
        if value in (None, "") and (not form.fields[parameter.name].required):
            continue
        if isinstance(form.fields[parameter.name], forms.ChoiceField):
            value = value == "true"
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                args += value
            case inspect.Parameter.VAR_KEYWORD:
                kwargs |= value
            case inspect.Parameter.POSITIONAL_ONLY:
                args.append(value)
            case _:
                kwargs[parameter.name] = value
    return args, kwargs


def _parameters(task: Task[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(task.func)
    except Exception:  # evaluating annotations runs the project's code; without them every field takes JSON
        hints = {}
    parameters = list(inspect.signature(task.func).parameters.values())
    for parameter in parameters[1:] if task.takes_context else parameters:
        yield parameter, hints.get(parameter.name)


def _field(parameter: inspect.Parameter, hint: Any) -> forms.Field:
    choices: dict[str, Any] = {"label": parameter.name, "required": parameter.default is parameter.empty}
    if parameter.kind is parameter.VAR_POSITIONAL:
        return _json_field(list, label=f"*{parameter.name}", required=False)
    if parameter.kind is parameter.VAR_KEYWORD:
        return _json_field(dict, label=f"**{parameter.name}", required=False)
    if not choices["required"]:
        choices["help_text"] = _("Empty: %(default)r") % {"default": parameter.default}
    if hint is bool:
        return forms.ChoiceField(choices=_BOOLEANS, **choices)
    if hint is int:
        return forms.IntegerField(**choices)
    if hint is float:
        return forms.FloatField(**choices)
    if hint is str:
        return forms.CharField(strip=False, **choices)
    return _json_field(None, **choices)


class _JSONField(forms.JSONField):
    """JSON of one kind; unlike Django's, an empty list or object is a value."""

    empty_values = [None, ""]

    def __init__(self, kind: type | None, **kwargs: Any) -> None:
        self.kind = kind
        super().__init__(**kwargs)

    def validate(self, value: Any) -> None:
        """Raise ValidationError for JSON of another kind."""
        super().validate(value)
        if self.kind is not None and value is not None and not isinstance(value, self.kind):
            raise forms.ValidationError(_("Enter a JSON list.") if self.kind is list else _("Enter a JSON object."))


def _json_field(kind: type | None, **choices: Any) -> forms.Field:
    words = [str(choices.pop("help_text", "")), _('As JSON: 7, "text", [1, 2], {"a": true}')]
    attributes = {"rows": 2, "cols": 60, "class": "rsmq-mono"}
    help_text = " ".join(word for word in words if word)
    return _JSONField(kind, widget=forms.Textarea(attrs=attributes), help_text=help_text, **choices)


class WhenForm(forms.Form):
    """When a task is to run."""

    delay_s = forms.IntegerField(
        label=gettext_lazy("Delay (s)"),
        required=False,
        min_value=0,
        max_value=MAX_SECONDS,
        help_text=gettext_lazy("Empty = run now."),
    )
