"""Reading of option tables: rules for values, and a reader that collects all problems.

Validates whole numbers, URLs and queue names, suggests the nearest valid spelling, and shows invalid values without
passwords. The options are defined in `conf/sections.py`.

An option is a field of a dataclass annotated with its type and a `Rule`; its key in the settings is the name of the
field in capitals.
"""

import base64
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, TypeVar, get_type_hints
from urllib.parse import SplitResult, urlsplit

from ..core.errors import InvalidName
from ..core.keys import checked_name, checked_namespace
from ..core.transport.connection import Connection
from ..core.transport.factories import SCHEMES
from ..core.transport.sentinel_url import is_sentinel_url

T = TypeVar("T")

#: Maximum length of values in messages: an invalid value may be a whole file.
SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Rule:
    """The valid values of an option. `expects` completes the sentence "it must be ..."."""

    expects: str
    accepts: Callable[[Any], bool]
    #: The value may contain a password and is never shown.
    is_secret: bool = False
    #: The mistake in an invalid value, without any part of it.
    fault: Callable[[Any], str] | None = None

    def refusal_of(self, value: object) -> str:
        """Return the end of a sentence about an invalid value: "The option is ..."."""
        said = "invalid" if self.is_secret else shown(value)
        return said if self.fault is None else f"{said}: {self.fault(value)}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the settings: the id of its system check, the problem, and a hint."""

    id: str
    message: str
    hint: str


# -- Rules ---------------------------------------------------------------------------------------------------


def whole(unit: str, *, least: int, most: int, unlimited: int | None = None) -> Rule:
    """Return the rule for whole numbers; `unlimited` is an additional value that means "no limit"."""
    otherwise = f", or {unlimited} for no limit" if unlimited is not None else ""
    return Rule(
        f"whole {unit} from {least} to {most}{otherwise}",
        lambda value: type(value) is int and (least <= value <= most or value == unlimited),
    )


def seconds(*, least: float, most: float) -> Rule:
    """Return the rule for seconds, with or without a fraction. NaN and infinity are invalid."""
    return Rule(
        f"seconds from {least:.9g} to {most:.9g}",
        lambda value: type(value) in (int, float) and least <= value <= most,
    )


def one_of(*choices: str) -> Rule:
    """Return the rule for a choice of texts."""
    return Rule(" or ".join(map(repr, choices)), lambda value: isinstance(value, str) and value in choices)


def is_text(value: object) -> bool:
    """Return whether the value is a text that is not empty."""
    return isinstance(value, str) and value.strip() != ""


def _fault_of_url(value: object) -> str:
    """Return the mistake in a URL; "" for a valid one. Shows no part of it: any part may be one of a password."""
    if not isinstance(value, str):
        return "it is not a text"
    if not value.startswith(tuple(f"{scheme}:" for scheme in ("unix", *SCHEMES))) and not is_sentinel_url(value):
        return "it does not begin with redis://, rediss://, unix:// or redis+sentinel://"
    try:
        fault = "" if is_sentinel_url(value) else _fault_of_parts(urlsplit(value))
        if not fault:
            Connection(value).check_options()
        return fault
    except (ValueError, TypeError):
        return "its port, or another part, cannot be read"


def _fault_of_parts(parts: SplitResult) -> str:
    # The rest of a password that contains one of them; the user would be the host, and digits before it the port.
    if parts.fragment or "@" in parts.query.partition("=")[0]:
        return "it has a # or ? that is not percent-encoded"
    if parts.scheme == "unix":
        return "" if parts.path not in ("", "/") else "it has no path of a socket"
    if not parts.hostname:
        return "it has no host"
    # A path that is not a database number is the rest of a password that contains a slash.
    if re.fullmatch(r"/?[0-9]*", parts.path) is None:
        return "the part after host and port is not the number of a database"
    return "" if parts.port != 0 else "its port is not a number from 1 to 65535"


def _passes(check: Callable[[str], str]) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        try:
            check(value)
        except InvalidName:
            return False
        return True

    return accepts


def _are_keys(value: object, is_one: Callable[[str], bool]) -> bool:
    # Not an empty list, as of a variable that is not set: messages of any program would run.
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(text, str) and is_one(text) for text in value)


def _is_fernet_key(text: str) -> bool:
    try:
        return len(base64.urlsafe_b64decode(text)) == 32
    except ValueError:
        return False


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


TEXT = Rule("a text that is not empty", is_text)
TEXTS = Rule("a list of texts", lambda value: isinstance(value, list | tuple) and all(map(is_text, value)))
TEXT_BY_NAME = Rule(
    "a dictionary of texts",
    lambda value: isinstance(value, Mapping) and all(is_text(k) and isinstance(v, str) for k, v in value.items()),
)
SECONDS_BY_QUEUE = Rule(
    "a dictionary of seconds by queue, '*' for all others: {'mail': 2.0, '*': 30}",
    lambda value: (
        isinstance(value, Mapping)
        and all(is_text(k) and type(v) in (int, float) and 0 < v <= 86_400 for k, v in value.items())
    ),
)
FLAG = Rule("True or False", lambda value: isinstance(value, bool))
FLAG_OR_TEXT = Rule("True, False or a text", lambda value: isinstance(value, bool) or is_text(value))
QUEUE_NAME = Rule(
    "a queue name: 1 to 160 characters of A-Z, a-z, 0-9, _ and -, but not QUEUES or rt", _passes(checked_name)
)
QUEUE_NAME_OR_NONE = Rule(f"{QUEUE_NAME.expects}, or None", lambda value: value is None or QUEUE_NAME.accepts(value))
NAMESPACE = Rule("a text without a colon at its end", _passes(checked_namespace))
SIGNING_KEYS = Rule(
    "a list of one or more secret texts of at least 32 characters, for example of secrets.token_urlsafe(32)",
    lambda value: _are_keys(value, lambda text: len(text) >= 32),
    is_secret=True,
)
FERNET_KEYS = Rule(
    "a list of one or more keys of cryptography.fernet.Fernet.generate_key(), as text",
    lambda value: _are_keys(value, _is_fernet_key),
    is_secret=True,
)
DAY_OR_NONE = Rule("a day such as '2027-01-31', or None", lambda value: value is None or _is_day(value))
URL = Rule(
    "a URL: redis://user:password@host:6379/0, rediss://... or unix:///path?db=0, or with Sentinel "
    "redis+sentinel://user:password@s1:26379,s2:26379,s3:26379/mymaster/0 with the options sentinel_username and "
    "sentinel_password; with the special characters of a password percent-encoded",
    lambda value: not _fault_of_url(value),
    is_secret=True,
    fault=_fault_of_url,
)

PROVIDER_OR_NONE = Rule(
    "a dotted path, a class, a function or an object with get_credentials(), or None",
    lambda value: value is None or is_text(value) or callable(value) or hasattr(value, "get_credentials"),
    is_secret=True,
)
#: Options of redis-py that name the user and set up TLS. Timeouts, encodings and retries are ours.
REDIS_PY_OPTIONS = (
    "username",
    "password",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_ciphers",
)
CONNECTION_OPTIONS = Rule(
    f"a dictionary with some of {', '.join(REDIS_PY_OPTIONS)}",
    lambda value: isinstance(value, Mapping) and all(key in REDIS_PY_OPTIONS for key in value),
    is_secret=True,
)


# -- Reading -------------------------------------------------------------------------------------------------


#: Options of other packages for what is in the URL here.
PARTS_OF_URL = ("DB", "HOST", "LOCATION", "PASSWORD", "PORT", "USERNAME")
PART_OF_URL = "It is a part of URL: redis://user:password@host:6379/0."


class OptionReader:
    """Reads tables of options: returns valid values and notes problems.

    `where` is the place in Python syntax: "RSMQ['QUEUES']['mail']".
    """

    def __init__(self, *, unknown_id: str, wrong_id: str) -> None:
        self.problems: list[Problem] = []
        self._unknown_id = unknown_id
        self._wrong_id = wrong_id

    def note(self, id: str, message: str, hint: str) -> None:  # noqa: A002 - the word of Django's checks
        """Note a problem."""
        self.problems.append(Problem(id, message, hint))

    def table(self, given: object, where: str) -> Mapping[Any, Any]:
        """Return the dictionary at `where`, or an empty one and a problem."""
        if isinstance(given, Mapping):
            return given
        self.note(self._wrong_id, f"{where} is {shown(given)}", "It must be a dictionary.")
        return {}

    def keys(self, table: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
        """Note every unknown key."""
        for key in table:
            if key not in known:
                said = f"{where} has an unknown option {shown(key)}"
                is_part = "URL" in known and str(key).upper() in PARTS_OF_URL
                self.note(self._unknown_id, said, PART_OF_URL if is_part else nearest(key, known))

    def options(self, section: type[T], given: object, where: str, **fixed: Any) -> T:
        """Return a section. `fixed` has fields without an option, and defaults that depend on the place."""
        table, rules = self.table(given, where), option_rules(section)  # type: ignore[arg-type]  # classes are hashable
        self.keys(table, rules, where)
        chosen = {}
        for key, rule in rules.items():
            if key in table and self._is_right(table[key], rule, f"{where}[{key!r}]"):
                # Lists become tuples, because the settings are frozen.
                chosen[key.lower()] = tuple(table[key]) if isinstance(table[key], list) else table[key]
        return section(**{**fixed, **chosen})

    def _is_right(self, value: object, rule: Rule, where: str) -> bool:
        if rule.accepts(value):
            return True
        self.note(self._wrong_id, f"{where} is {rule.refusal_of(value)}", f"It must be {rule.expects}.")
        return False


@cache
def option_rules(section: type) -> dict[str, Rule]:
    """Return the options of a section, such as "DELAY_S", with their rules; cached, as it is called for each queue."""
    hints = get_type_hints(section, include_extras=True).items()
    return {name.upper(): hint.__metadata__[0] for name, hint in hints if hasattr(hint, "__metadata__")}


def nearest(name: object, known: Iterable[str]) -> str:
    """Return "Did you mean 'mail'?" for a misspelt name, else the list of valid names."""
    names = sorted(known)
    for spelling in (str(name), str(name).upper()):
        if close := difflib.get_close_matches(spelling, names, n=1):
            return f"Did you mean {close[0]!r}?"
    return f"Choose one of {', '.join(map(repr, names))}." if names else "There is none yet."


def shown(value: object) -> str:
    """Return a value for a message: on one line, shortened, and without the password of a misplaced URL."""
    if value is not None and not isinstance(value, str | int | float):
        return f"of type {type(value).__name__}"
    text = re.sub(r"//.*@|password=[^&']*", "***", repr(value))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
