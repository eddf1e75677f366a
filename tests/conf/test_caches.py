"""The address of a Redis cache."""

import ssl

import pytest
from django.core.cache.backends.redis import RedisCache
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.conf.caches import DJANGO, DJANGO_REDIS, cache_url

CANARY = "c4n4ry"
WRONG_LOCATION = r"^LOCATION of CACHES\['default'\] is invalid: "


class CacheOfAProject(RedisCache):
    """A project's own cache, derived from Django's."""


@pytest.mark.parametrize("backend", [DJANGO_REDIS, DJANGO, f"{__name__}.CacheOfAProject"])
@pytest.mark.parametrize(
    "location",
    ["redis://one:6379/1", "redis://one:6379/1,redis://two:6379/1", ["redis://one:6379/1", "redis://two:6379/1"]],
)
def test_the_first_location_is_the_primary(settings, backend, location):
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": location}}

    assert cache_url("default") == "redis://one:6379/1"


def test_a_unix_socket_keeps_its_slashes(settings):
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": "unix:///run/redis.sock?db=2"}}

    assert cache_url("default") == "unix:///run/redis.sock?db=2"


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        (DJANGO_REDIS, {"USERNAME": "cache", "PASSWORD": "p/w@#"}),
        (DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": {"username": "cache", "password": "p/w@#"}}),
        (DJANGO, {"username": "cache", "password": "p/w@#"}),
    ],
)
def test_user_and_password_come_from_the_options_too(settings, backend, options):
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://h:1/0", "OPTIONS": options}}

    assert cache_url("default") == "redis://cache:p%2Fw%40%23@h:1/0"


def test_options_in_the_address_win_as_in_the_cache(settings):
    options = {"PASSWORD": "other", "CONNECTION_POOL_KWARGS": {"db": 7, "username": "other", "ssl_cert_reqs": None}}
    location = "rediss://me:said@h/3?ssl_cert_reqs=required"

    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": location, "OPTIONS": options}}

    assert cache_url("default") == location


@pytest.mark.parametrize("location", ["redis://h:1", "unix:///run/s"])
def test_the_database_comes_from_the_options_when_the_address_has_none(settings, location):
    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": location, "OPTIONS": {"db": "10"}}}

    assert cache_url("default") == f"{location}?db=10"


def test_tls_options_travel_along(settings):
    options = {"ssl_ca_certs": "/etc/ca 1.pem", "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}

    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": "rediss://h:1/0", "OPTIONS": options}}

    query = "ssl_ca_certs=%2Fetc%2Fca+1.pem&ssl_cert_reqs=required&ssl_check_hostname=True"
    assert cache_url("default") == f"rediss://h:1/0?{query}"


def test_tls_options_are_left_out_of_an_address_without_tls(settings):
    options = {"CONNECTION_POOL_KWARGS": {"ssl_cert_reqs": None}}

    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h:1/0", "OPTIONS": options}}

    assert cache_url("default") == "redis://h:1/0"


def test_timeouts_and_decoding_of_the_cache_stay_with_the_cache(settings):
    options = {"SOCKET_TIMEOUT": 99, "CONNECTION_POOL_KWARGS": {"decode_responses": True, "max_connections": 3}}

    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h:1/0", "OPTIONS": options}}

    assert cache_url("default") == "redis://h:1/0"


SENTINELS = [("s1", 26379), ("::1", 26380)]
HOSTS = "s1:26379,[::1]:26380"


@pytest.mark.parametrize(
    ("location", "options", "url"),
    [
        ("redis://mymaster/2", {}, f"redis+sentinel://{HOSTS}/mymaster/2"),
        ("redis://mymaster", {}, f"redis+sentinel://{HOSTS}/mymaster/0"),
        ("redis://mymaster?db=3&is_master=1", {}, f"redis+sentinel://{HOSTS}/mymaster/3"),
        (
            ["redis://mymaster/0?is_master=1", "redis://mymaster/0?is_master=0"],
            {},
            f"redis+sentinel://{HOSTS}/mymaster/0",
        ),
        ("redis://mymaster/0", {"USERNAME": "u", "PASSWORD": "p@/"}, f"redis+sentinel://u:p%40%2F@{HOSTS}/mymaster/0"),
        (
            "redis://mymaster/0",
            {"SENTINEL_KWARGS": {"username": "asker", "password": "a&b", "socket_timeout": 3}},
            f"redis+sentinel://{HOSTS}/mymaster/0?sentinel_username=asker&sentinel_password=a%26b",
        ),
        ("rediss://mymaster/0", {}, f"rediss+sentinel://{HOSTS}/mymaster/0?sentinel_ssl=false"),
        (
            "rediss://mymaster/0",
            {
                "CONNECTION_POOL_KWARGS": {"ssl_ca_certs": "/a.pem"},
                "SENTINEL_KWARGS": {"ssl": True, "ssl_cert_reqs": None},
            },
            f"rediss+sentinel://{HOSTS}/mymaster/0?ssl_ca_certs=%2Fa.pem&sentinel_ssl_cert_reqs=none",
        ),
        (
            "redis://mymaster/0",
            {"SENTINEL_KWARGS": {"ssl": True}},
            f"redis+sentinel://{HOSTS}/mymaster/0?sentinel_ssl=true",
        ),
    ],
)
def test_sentinels_of_django_redis_become_a_url(settings, location, options, url):
    options = {"CLIENT_CLASS": "django_redis.client.SentinelClient", "SENTINELS": SENTINELS, **options}
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": location, "OPTIONS": options}}

    assert cache_url("default") == url


@pytest.mark.parametrize(
    ("cache", "reason"),
    [
        ({"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, "not a Redis cache"),
        ({"BACKEND": "nowhere.Cache", "LOCATION": "redis://h"}, "cannot be imported"),
        ({"BACKEND": DJANGO_REDIS}, f"{WRONG_LOCATION}it does not begin with redis://.* It must be a URL: redis://"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": "h:6379"}, f"{WRONG_LOCATION}it does not begin with redis://"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": []}, f"{WRONG_LOCATION}it does not begin with redis://"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h:1/a"}, f"{WRONG_LOCATION}.*not the number of a database"),
        ({"BACKEND": DJANGO, "LOCATION": "redis://h:0"}, f"{WRONG_LOCATION}its port is not a number"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://m", "OPTIONS": {"SENTINELS": []}}, "list of .host, port"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://m", "OPTIONS": {"SENTINELS": ["s:1"]}}, "list of .host, port"),
        ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://m", "OPTIONS": {"SENTINELS": [("s", "x")]}}, "list of .host"),
    ],
)
def test_an_unusable_cache_is_reported_with_the_reason(settings, cache, reason):
    settings.CACHES = {"default": cache}

    with pytest.raises(ImproperlyConfigured, match=reason):
        cache_url("default")


def test_an_unknown_cache_gets_the_nearest_right_alias(settings):
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h"}}

    with pytest.raises(ImproperlyConfigured, match="Did you mean 'default'"):
        cache_url("defualt")


def test_an_error_shows_no_password(settings):
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": f"redis://u:{CANARY}@h:port"}}

    with pytest.raises(ImproperlyConfigured) as raised:
        cache_url("default")

    assert CANARY not in str(raised.value)
