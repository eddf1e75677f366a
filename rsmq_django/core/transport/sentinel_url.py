"""URLs of services that Sentinel manages: redis+sentinel://user:password@s1:26379,s2:26379/mymaster/0?sentinel_....

User, password, database and options belong to the servers of the service. Options that begin with `sentinel_` belong to
the sentinels: `sentinel_username`, `sentinel_password`, and TLS options such as `sentinel_ssl_ca_certs`. With
rediss+sentinel:// both are reached by TLS, with the same TLS options unless the sentinels have their own;
`sentinel_ssl=false` reaches the sentinels without TLS. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

PLAIN, TLS = "redis+sentinel", "rediss+sentinel"
SENTINEL_SCHEMES = (PLAIN, TLS)
DEFAULT_PORT = 26_379
_PREFIX = "sentinel_"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
#: Sentinel itself allows no other characters in the name of a service.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_URL = re.compile(
    r"(?P<scheme>rediss?\+sentinel)://(?:(?P<user>[^/?#@]*)@)?(?P<hosts>[^/?#@]*)(?:/(?P<name>[^/?#]*))?"
    r"(?:/(?P<database>[^/?#]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[^:\[\]\s]+))(?::(?P<port>[0-9]{1,5}))?")

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SentinelService:
    """A service and its sentinels."""

    name: str
    #: In the order of the URL.
    sentinels: tuple[Address, ...]
    database: int
    #: URL of a server of the service, without a host. Both may have a password, so they are not shown.
    server_url: str = field(repr=False)
    #: The same of a sentinel.
    sentinel_url: str = field(repr=False)

    @property
    def where(self) -> str:
        """Return the addresses of the sentinels, for people."""
        return ", ".join(map(shown_address, self.sentinels))


def is_sentinel_url(url: str) -> bool:
    """Return whether the scheme of a URL is one of Sentinel's."""
    return url.partition("://")[0] in SENTINEL_SCHEMES


def read_sentinel_url(url: str) -> SentinelService:
    """Return what a URL says. Raises ValueError, whose text contains no part of a password."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError("write special characters of a password as %XX")
    name = unquote(match["name"] or "")
    if _NAME.fullmatch(name) is None:
        raise ValueError("the name of the service has to follow the sentinels: redis+sentinel://s1,s2,s3/mymaster/0")
    database = match["database"] or "0"
    if re.fullmatch("[0-9]{1,9}", database) is None:
        raise ValueError("after the name of the service only the number of a database may follow")
    own, theirs = _split(dict(parse_qsl(match["query"] or "", keep_blank_values=True)))
    if "db" in own:
        raise ValueError("the number of the database follows the name of the service: .../mymaster/0")
    tls = {key: value for key, value in own.items() if key.startswith("ssl_")}
    is_tls = match["scheme"] == TLS
    is_sentinel_tls = _flag(theirs.pop("ssl", "true" if is_tls else "false"))
    login = ":".join(quote(theirs.pop(key, ""), safe="") for key in ("username", "password"))
    return SentinelService(
        name,
        tuple(_addresses(match["hosts"])),
        int(database),
        _url(is_tls, match["user"] or "", database, own),
        _url(is_sentinel_tls, login.removesuffix(":"), "", {**tls, **theirs} if is_sentinel_tls else theirs),
    )


def sentinel_url(
    sentinels: Sequence[Address],
    name: str,
    database: int,
    *,
    login: str = "",
    is_tls: bool = False,
    options: Mapping[str, str] | None = None,
) -> str:
    """Return the URL of a service; `login` is user and password as written in a URL."""
    at = f"{login}@" if login else ""
    hosts = ",".join(map(shown_address, sentinels))
    query = f"?{urlencode(options)}" if options else ""
    return f"{TLS if is_tls else PLAIN}://{at}{hosts}/{name}/{database}{query}"


def shown_address(address: Address) -> str:
    """Return an address as written in a URL."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(hosts: str) -> Iterator[Address]:
    for text in hosts.split(","):
        match = _HOST.fullmatch(text.strip())
        port = int((match and match["port"]) or DEFAULT_PORT)
        if match is None or not 0 < port <= 65_535:
            raise ValueError("sentinels are written as host:port, separated by commas; IPv6 as [::1]:26379")
        yield match["v6"] or match["name"], port


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    own = {key: value for key, value in options.items() if not key.startswith(_PREFIX)}
    theirs = {key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)}
    for key in theirs:
        if key not in ("username", "password", "ssl") and not key.startswith("ssl_"):
            raise ValueError(
                f"unknown option {_PREFIX}{key[:40]}; sentinels have sentinel_username, sentinel_password, "
                "sentinel_ssl and sentinel_ssl_..."
            )
    return own, theirs


def _flag(text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError("sentinel_ssl is true or false")
    return text.lower() in _TRUE


def _url(is_tls: bool, login: str, database: str, options: Mapping[str, str]) -> str:
    at = f"{login}@" if login else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"{'rediss' if is_tls else 'redis'}://{at}/{database}{query}"
