"""Makes redis-py's connection objects for the URLs of servers, with the options that differ between its versions.

Nothing here opens a connection.
"""

from __future__ import annotations

import re
import socket
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from .name_lookup import named
from .sentinel_url import SENTINEL_SCHEMES, SentinelService, is_sentinel_url, read_sentinel_url

SCHEMES = ("redis", "rediss", "unix", *SENTINEL_SCHEMES)

NO_LIMIT = 2**31
#: An idle connection is checked after 30 s, then every 10 s, and is lost after three checks without an answer. By name,
#: because other systems than Linux lack some of these options.
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}


#: A user without a password: mostly a password in the place of the user.
USER_ALONE = re.compile(r"//[^:@?]+@")


def masked(url: str) -> str:
    """Return the URL with its password replaced, for people and logs."""
    hidden = re.sub(r"(//[^/@:]*):.*@", r"\1:***@", USER_ALONE.sub("//***@", url))
    return re.sub(r"([?&](?:sentinel_)?(?:ssl_)?password=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)


def service_of(url: str) -> SentinelService | None:
    """Return the service of a URL with sentinels. Raises ValueError for an invalid URL, without its password."""
    if is_sentinel_url(url):
        try:
            return read_sentinel_url(url)
        except ValueError as error:
            raise ValueError(f"invalid URL {masked(url)!r}: {error}") from None
    if urlsplit(url).scheme not in SCHEMES:
        raise ValueError(f"unknown scheme in {masked(url)!r}; use one of {', '.join(s + '://' for s in SCHEMES)}")
    return None


def database_of(url: str) -> int:
    """Return the number of the database in a URL."""
    service = service_of(url)
    parse_url: Any = redis.connection.parse_url
    return service.database if service is not None else int(parse_url(url).get("db", 0))


def has_credentials(url: str) -> bool:
    """Return whether a URL has a user or password for the server; False for a URL that is not valid."""
    try:
        service = service_of(url)
        parse_url: Any = redis.connection.parse_url
        options = parse_url(url if service is None else service.server_url)
    except ValueError:
        return False
    return bool(options.get("username") or options.get("password"))


def new_factory(url: str, timeout_s: float, **own: Any) -> redis.ConnectionPool:
    """Return the pool that makes connections to a server; they never return to it. Not for a URL with sentinels.

    `own` are more options of redis-py's connections.
    """
    # Not from_url(): there the options of the URL override ours.
    parse_url: Any = redis.connection.parse_url
    options = _with_checked_name(url, parse_url(url)) | _options(url, timeout_s)
    options["connection_class"] = named(options.get("connection_class", redis.Connection))
    return redis.ConnectionPool(**options | {"retry": Retry(NoBackoff(), 0)} | own)


def new_async_factory(url: str, timeout_s: float | None, **own: Any) -> Any:
    """See new_factory(). Without a time-out, the caller limits each wait."""
    parse_url: Any = redis.asyncio.connection.parse_url
    options = _with_checked_name(url, parse_url(url)) | _options(url, timeout_s)
    options["connection_class"] = named(options.get("connection_class", redis.asyncio.Connection))
    return redis.asyncio.ConnectionPool(**options | {"retry": AsyncRetry(NoBackoff(), 0)} | own)


def _with_checked_name(url: str, given: dict[str, Any]) -> dict[str, Any]:
    """Have the host name compared with the certificate unless the URL says otherwise; redis-py 5 does not."""
    is_checked = urlsplit(url).scheme == "rediss" and given.get("ssl_cert_reqs") != "none"
    return {"ssl_check_hostname": True, **given} if is_checked else given


def _options(url: str, timeout_s: float | None) -> dict[str, Any]:
    """Return the options whose defaults differ between versions of redis-py."""
    options = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        "decode_responses": False,
        "encoding": "utf-8",
        # redis-py 8 limits a pool to a hundred connections. Our sockets never return to the pool, so a process would
        # fail after that number of lost connections.
        "max_connections": NO_LIMIT,
    }
    if urlsplit(url).scheme == "unix":
        return options
    # The kernel detects a half-open TCP connection (a cut cable, a NAT without its state) within a minute. Without
    # keepalive it would never be detected, with the defaults of Linux after two hours.
    return options | {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
