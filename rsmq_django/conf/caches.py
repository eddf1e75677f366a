"""The address of a Redis cache: an alias of `CACHES` -> a URL with user, password and TLS options.

Reads the settings of django-redis and of Django's Redis cache. It does not use their connections: their pools are
shared by URL and have the cache's timeouts, so a queue gets its own connection.
"""

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..core.transport.sentinel_url import sentinel_url
from .options import URL, nearest, shown

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"


def cache_url(alias: str) -> str:
    """Return the URL of the primary server of a cache. Raises ImproperlyConfigured; opens no connection."""
    if alias not in settings.CACHES:
        raise ImproperlyConfigured(f"CACHES has no {shown(alias)}. {nearest(alias, settings.CACHES)}")
    spec = settings.CACHES[alias]
    options = _connection_options(alias, spec)
    url = _primary(spec.get("LOCATION"))
    has_sentinels = "SENTINELS" in spec.get("OPTIONS", {})
    # With sentinels, some options are those of django-redis, such as is_master.
    checked = url.partition("?")[0] if has_sentinels else url
    if not URL.accepts(checked):
        said = f"LOCATION of CACHES[{alias!r}] is {URL.refusal_of(checked)}. It must be {URL.expects}."
        raise ImproperlyConfigured(said)
    if not has_sentinels:
        return with_options(url, options)
    if options.get("ssl"):
        url = url.replace("redis://", "rediss://", 1)
    url = _sentinel_url(with_options(url, options), spec["OPTIONS"])
    if not URL.accepts(url):
        raise ImproperlyConfigured(
            f"SENTINELS of CACHES[{alias!r}] cannot be used. They must be a list of (host, port), SENTINEL_KWARGS a "
            'dictionary of options of redis-py, and LOCATION "redis://" with the name of the service and the number of '
            "the database."
        )
    return url


def _connection_options(alias: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options besides the address that the cache passes to redis-py, by redis-py's names."""
    options = spec.get("OPTIONS", {})
    kind = _kind(alias, spec.get("BACKEND", ""))
    if kind == DJANGO:
        return dict(options)
    named = {"username": options.get("USERNAME"), "password": options.get("PASSWORD")}
    return {**named, **options.get("CONNECTION_POOL_KWARGS", {})}


def _kind(alias: str, backend: str) -> str:
    """Return the one of the two Redis caches that the backend is or is derived from."""
    try:
        bases = getattr(import_string(backend), "__mro__", ())
    except ImportError as error:
        raise ImproperlyConfigured(f"BACKEND {backend!r} of CACHES[{alias!r}] cannot be imported: {error}") from error
    for base in bases:
        if (path := f"{base.__module__}.{base.__qualname__}") in (DJANGO_REDIS, DJANGO):
            return path
    raise ImproperlyConfigured(
        f"CACHES[{alias!r}] is not a Redis cache but {backend}. Use {DJANGO_REDIS}, or give a URL."
    )


def _primary(location: object) -> str:
    """Return the first address: both backends write there, and read from the others, which may be stale."""
    if isinstance(location, str):
        return location.replace(";", ",").split(",")[0].strip()
    return str(next(iter(location), "")) if isinstance(location, list | tuple) else ""


def with_options(url: str, options: Mapping[str, Any]) -> str:
    """Return the URL with user, password, database and TLS options added; options in the URL take precedence."""
    scheme, _, rest = url.partition("://")
    # Not urlsplit() of the whole: it rejects an IPv6 address behind the first sentinel.
    place, _, own = rest.partition("?")
    netloc, slash, path = place.partition("/")
    login, _, host = netloc.rpartition("@")
    own_user, _, own_password = login.partition(":")
    user = own_user or quote(str(options.get("username") or ""), safe="")
    password = own_password or quote(str(options.get("password") or ""), safe="")
    netloc = f"{user}:{password}@{host}" if user or password else host
    query = own.split("&") if own else []
    has_database = path.strip("/") != "" and scheme != "unix"
    if options.get("db") is not None and not has_database and not any(part.startswith("db=") for part in query):
        query.append(urlencode({"db": options["db"]}))
    if scheme in ("rediss", "rediss+sentinel"):
        query += _tls(options, query)
    return f"{scheme}://{netloc}{slash}{path}" + (f"?{'&'.join(query)}" if query else "")


def _sentinel_url(url: str, spec: Mapping[str, Any]) -> str:
    """Return the URL of the service that LOCATION names, as django_redis.pool.SentinelConnectionFactory reads it.

    Returns an invalid URL for invalid options. Without SENTINEL_KWARGS, sentinels are asked without password and TLS.
    """
    parts, theirs = urlsplit(url), dict(spec.get("SENTINEL_KWARGS") or {})
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query.pop("is_master", None)
    database = query.pop("db", None) or parts.path.strip("/") or "0"
    is_tls = parts.scheme == "rediss"
    sentinel_options = {key: theirs[key] for key in ("username", "password") if theirs.get(key)}
    if bool(theirs.get("ssl")) != is_tls:
        sentinel_options["ssl"] = "true" if theirs.get("ssl") else "false"
    sentinel_options |= {key: _tls_text(value) for key, value in theirs.items() if key.startswith("ssl_")}
    try:
        sentinels = [(str(host), int(port)) for host, port in spec["SENTINELS"]]
        number = int(database)
    except (TypeError, ValueError):
        return ""
    login = parts.netloc.rpartition("@")[0]
    query |= {f"sentinel_{key}": value for key, value in sentinel_options.items()}
    return sentinel_url(sentinels, parts.hostname or "", number, login=login, is_tls=is_tls, options=query)


def _tls(options: Mapping[str, Any], query: list[str]) -> list[str]:
    """Return the TLS options as parts of a query, without options that the query already has."""
    said = {part.partition("=")[0] for part in query}
    texts = {key: _tls_text(value) for key, value in options.items() if key.startswith("ssl_") and key not in said}
    return [urlencode({key: text}) for key, text in texts.items()]


def _tls_text(value: object) -> str:
    if isinstance(value, ssl.VerifyMode):
        return value.name.removeprefix("CERT_").lower()
    return "none" if value is None else str(value)
