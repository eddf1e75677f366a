"""Operations on rows: of the selected rows of a list, and from the page of one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done to rows: its permission, its words, and the function that does it."""

    name: str
    #: Permission of the app, without its label.
    codename: str
    label: Any
    carry_out: Callable[..., Any]
    #: What the history of the admin says.
    logged: Any = ""
    #: Parameters that a form asks for: "seconds", "target".
    asks: tuple[str, ...] = ()
    #: Whether it has to be confirmed.
    is_dangerous: bool = False
    #: The states of rows whose page offers it.
    states: tuple[str, ...] = ()
    #: "Pause 3 queues", by their number.
    question: Callable[[int], str] = str

    @property
    def title(self) -> str:
        """Return the label without the sign that says that a question follows."""
        return str(self.label).rstrip("…")

    @property
    def has_question(self) -> bool:
        """Return whether a question comes first."""
        return self.is_dangerous or bool(self.asks)


def by_name(*operations: Operation) -> dict[str, Operation]:
    """Return operations by their names."""
    return {operation.name: operation for operation in operations}


def action_for(operation: Operation, act: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return the admin action of an operation; `act` gets the ModelAdmin, the request, the operation, the rows."""

    def action(model_admin: Any, request: HttpRequest, queryset: Any) -> Any:
        model_admin.demand(request, operation.codename)
        return act(model_admin, request, operation, queryset)

    action.__name__ = name or operation.name
    action.short_description = operation.label  # type: ignore[attr-defined]
    action.allowed_permissions = (operation.codename,)  # type: ignore[attr-defined]
    return action


def permission_for(codename: str) -> Callable[..., bool]:
    """Return the method that Django calls, as `has_<codename>_permission`, before it offers an action."""
    return lambda model_admin, request: bool(model_admin.may(request, codename))
