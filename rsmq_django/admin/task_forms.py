"""A form for the arguments of a task, made from the signature of its function, filled with those of an earlier call.

An unchanged argument is sent exactly as the earlier call had it, even if its field could not show all of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.limits import MAX_SECONDS
from ..tasks.task import Task
from .argument_fields import JSON, FieldKind, TextField, json_kind, kind_of
from .formats import one_line
from .hidden_values import StillHidden, with_secrets, without_secrets
from .redaction import HIDDEN, is_secret, redact

PREFIX = "argument"
_NOTHING: Any = object()

Args = Sequence[Any]
Kwargs = Mapping[str, Any]


@dataclass(slots=True)
class ParameterField:
    """A parameter, its field, and what the earlier call had for it."""

    parameter: inspect.Parameter
    kind: FieldKind
    allows_none: bool = False
    #: The value of the earlier call; _NOTHING when it had none.
    original: Any = _NOTHING
    #: The same without secrets.
    shown: Any = _NOTHING

    @property
    def is_given(self) -> bool:
        """Return whether the earlier call had this argument."""
        return self.original is not _NOTHING

    @property
    def is_hidden(self) -> bool:
        """Return whether nothing of the value may be shown."""
        return self.is_given and self.shown == HIDDEN and self.original != HIDDEN

    @property
    def is_variable(self) -> bool:
        """Return whether it takes any number of arguments."""
        return self.parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

    def fill(self, value: Any) -> None:
        """Take the value of the earlier call, and another kind of field when this one cannot show it."""
        self.original, self.shown = value, without_secrets(value, self.parameter.name)
        if not self.is_hidden and self.initial is _NOTHING:
            self.kind = JSON

    @property
    def initial(self) -> Any:
        """Return what the field shows; _NOTHING for what it cannot show."""
        if not self.is_given or self.is_hidden or (self.shown is None and self.allows_none):
            return None
        try:
            return self.kind.show(self.shown)
        except (ValueError, RecursionError):
            return _NOTHING

    def field(self) -> forms.Field:
        """Return the field."""
        parameter = self.parameter
        if self.is_variable:
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            field = self.kind.field(label=f"{star}{parameter.name}", required=False)
        else:
            has_default = parameter.default is not parameter.empty
            is_required = not (has_default or self.allows_none or self.is_hidden or self.original == "")
            field = self.kind.field(label=parameter.name, required=is_required, help_text=self._help_text(has_default))
        field.initial = self.initial
        if isinstance(field, TextField):
            field.widget_for(field.initial or "")
        return field

    def _help_text(self, has_default: bool) -> str:
        if self.is_hidden:
            return _("Hidden (%(sign)s). Empty = as in the earlier call.") % {"sign": HIDDEN}
        if has_default:
            return _("Empty = %(default)s") % {"default": _shown_default(self.parameter)}
        return _("Empty = %(default)s") % {"default": None} if self.allows_none else ""

    def value_of(self, cleaned: Any, *, is_changed: bool) -> Any:
        """Return the argument that the form says; _NOTHING means the default. Raises StillHidden."""
        if not is_changed and self.is_given:
            return self.original
        if cleaned in (None, ""):
            needs_none = self.allows_none and self.parameter.default is self.parameter.empty
            return None if needs_none else _NOTHING
        value = self.kind.read(cleaned)
        return with_secrets(value, self.shown, self.original) if self.is_given else value


def _shown_default(parameter: inspect.Parameter) -> str:
    return HIDDEN if is_secret(parameter.name) else one_line(redact(repr(parameter.default)))


class CallForm(forms.Form):
    """The arguments of one call; `dropped` names those of an earlier call that the task does not take any more."""

    def __init__(
        self, task: Task[..., Any], data: Any = None, *, args: Args | None = None, kwargs: Kwargs | None = None
    ) -> None:
        super().__init__(data, prefix=PREFIX)
        self.slots = {slot.parameter.name: slot for slot in slots_of(task)}
        self.dropped = _fill(list(self.slots.values()), args or (), kwargs or {})
        self.fields = {name: slot.field() for name, slot in self.slots.items()}
        self.values: dict[str, Any] = {}

    def clean(self) -> dict[str, Any]:
        """Put the values of the earlier call where the form still hides them."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name, slot in self.slots.items():
            if name not in cleaned:
                continue
            try:
                self.values[name] = slot.value_of(cleaned[name], is_changed=name in self.changed_data)
            except StillHidden:
                said = _("%(sign)s hides a value of the earlier call. Enter the new value in its place.")
                self.add_error(name, said % {"sign": HIDDEN})
        return cleaned

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return what a valid form says, as positional and keyword arguments. Empty fields have their defaults."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_position, last = self._takes_rest(), self._last_by_position()
        for number, (name, slot) in enumerate(self.slots.items()):
            value, parameter = self.values[name], slot.parameter
            if value is _NOTHING and number < last and not slot.is_variable:
                value = parameter.default
            if value is _NOTHING:
                continue
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    args += value
                case inspect.Parameter.VAR_KEYWORD:
                    kwargs |= value
                case inspect.Parameter.POSITIONAL_ONLY:
                    args.append(value)
                case inspect.Parameter.POSITIONAL_OR_KEYWORD if by_position:
                    args.append(value)
                case _:
                    kwargs[name] = value
        return args, kwargs

    def _last_by_position(self) -> int:
        """Return the number of the last argument that goes by its position: those before it need values, too."""
        rest = self._takes_rest()
        kinds = [inspect.Parameter.POSITIONAL_ONLY, *([inspect.Parameter.VAR_POSITIONAL] if rest else [])]
        given = [
            number
            for number, (name, slot) in enumerate(self.slots.items())
            if slot.parameter.kind in kinds and self.values[name] is not _NOTHING
        ]
        return max(given, default=0)

    def _takes_rest(self) -> bool:
        """Return whether there are arguments behind the named ones, which then go by their position, too."""
        rest = [name for name, slot in self.slots.items() if slot.parameter.kind is inspect.Parameter.VAR_POSITIONAL]
        return any(self.values[name] not in (_NOTHING, []) for name in rest)


def slots_of(task: Task[..., Any]) -> list[ParameterField]:
    """Return the parameters of a task with the fields that their annotations ask for."""
    if task.options.batch is not None:  # its function gets calls, which may have any arguments
        names = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        return [_slot(inspect.Parameter(name, kind), None) for name, kind in names.items()]
    try:
        hints = get_type_hints(task.func, include_extras=True)
    except Exception:  # evaluating annotations runs the project's code; without them every field takes JSON
        hints = {}
    parameters = list(inspect.signature(task.func).parameters.values())
    return [_slot(each, hints.get(each.name)) for each in parameters[task.takes_context :]]


def _slot(parameter: inspect.Parameter, hint: Any) -> ParameterField:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ParameterField(parameter, json_kind(list))
    if parameter.kind is parameter.VAR_KEYWORD:
        return ParameterField(parameter, json_kind(dict))
    return ParameterField(parameter, *kind_of(hint))


def _fill(slots: Sequence[ParameterField], args: Args, kwargs: Kwargs) -> list[str]:
    """Put the arguments of an earlier call into the slots; return the names or numbers of the rest."""
    places = {slot.parameter.kind: slot for slot in slots if slot.is_variable}
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [slot for slot in slots if slot.parameter.kind in by_position]
    for slot, value in zip(named, args, strict=False):
        slot.fill(value)
    more, rest = list(args[len(named) :]), dict(kwargs)
    for slot in slots:
        if not slot.is_variable and not slot.is_given and slot.parameter.name in rest:
            slot.fill(rest.pop(slot.parameter.name))
    if more and (anything := places.get(inspect.Parameter.VAR_POSITIONAL)):
        anything.fill(more)
        more = []
    if rest and (anything := places.get(inspect.Parameter.VAR_KEYWORD)):
        anything.fill(rest)
        rest = {}
    return [*(str(len(named) + number) for number, _value in enumerate(more, 1)), *rest]


class WhenForm(forms.Form):
    """When a task is to run."""

    delay_s = forms.IntegerField(
        label=gettext_lazy("Delay (s)"),
        required=False,
        min_value=0,
        max_value=MAX_SECONDS,
        help_text=gettext_lazy("Empty = run now."),
    )
