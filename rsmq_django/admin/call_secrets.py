"""Which arguments of a call are secret: by the names that the parameters of its function have."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tasks.membership import membership_of
from ..tasks.task import find_task
from .secret_text import is_secret


@dataclass(frozen=True, slots=True)
class CallSecrets:
    """The parameters that the arguments of one call are for."""

    #: Names of the parameters that take positional arguments.
    names: Sequence[str] = ()
    #: Names of the parameters for all further positional (`*args`) and keyword (`**kwargs`) arguments.
    other_args: str = ""
    other_kwargs: str = ""
    keywords: Collection[str] = ()
    #: How many arguments the workflow puts in front of the call's own; all that are possible when that is not known.
    shifts: Sequence[int] = (0,)
    #: The text was cut before the task is named.
    hides_all: bool = False

    @property
    def hides_some(self) -> bool:
        """Return whether some argument without a secret name of its own is to be hidden."""
        return self.hides_all or any(is_secret(name) for name in (*self.names, self.other_args, self.other_kwargs))

    def name_of(self, place: int) -> str:
        """Return the name of the parameter of a positional argument; "" when it is not known."""
        place += self.shifts[0]
        return self.names[place] if place < len(self.names) else self.other_args

    def hides_place(self, place: int) -> bool:
        """Return whether the positional argument at a place is secret."""
        names = (self.names[at] if at < len(self.names) else self.other_args for at in self._places(place))
        return self.hides_all or any(is_secret(name) for name in names)

    def _places(self, place: int) -> list[int]:
        return [place + shift for shift in self.shifts]

    def hides_name(self, name: str) -> bool:
        """Return whether the keyword argument of a name is secret."""
        return is_secret(name) or (name not in self.keywords and is_secret(self.other_kwargs))


def call_secrets(task: str, meta: Any = None, *, is_meta_known: bool = True) -> CallSecrets:
    """Return which arguments of a call of a task are secret. Of an unknown task only names of keywords tell."""
    found = find_task(task) if task else None
    if found is None or getattr(getattr(found, "options", None), "batch", None) is not None:
        return CallSecrets()  # a function that takes batches has no parameters for the arguments of a call
    parameters = list(inspect.signature(found.func).parameters.values())[1 if found.takes_context else 0 :]
    kinds: dict[Any, list[str]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.kind, []).append(parameter.name)
    kind = inspect.Parameter
    return CallSecrets(
        names=[*kinds.get(kind.POSITIONAL_ONLY, ()), *kinds.get(kind.POSITIONAL_OR_KEYWORD, ())],
        other_args="".join(kinds.get(kind.VAR_POSITIONAL, ())),
        other_kwargs="".join(kinds.get(kind.VAR_KEYWORD, ())),
        keywords=frozenset(parameter.name for parameter in parameters),
        shifts=(_shift(meta),) if is_meta_known else (0, 1),
    )


def _shift(meta: Any) -> int:
    membership = membership_of(meta) if isinstance(meta, Mapping) else None
    return int(membership is not None and bool(membership.takes))
