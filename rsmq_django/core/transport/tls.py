"""The next step after a TLS connection that failed. redis-py names neither the file nor the option to correct."""

from __future__ import annotations

import os
from typing import Any

import redis

#: Options with the path of a file.
FILES = ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
#: Some servers close the connection without naming the reason.
_CLIENT_REFUSED = (
    "The server ended the TLS handshake: if it requires a certificate of this client, set ssl_certfile and ssl_keyfile "
    "to one that is signed by a CA which the server trusts and has not expired."
)
#: Part of OpenSSL's text, in capitals and with spaces for underscores -> what to do. The first one that occurs applies.
_REMEDIES = (
    ("KEY VALUES MISMATCH", "ssl_keyfile is not the private key of the certificate in ssl_certfile."),
    (
        "MISMATCH",
        "The server's certificate is for another host name: use a name of the certificate in the URL; "
        "ssl_check_hostname=False accepts any name.",
    ),
    ("CERTIFICATE HAS EXPIRED", "The server's certificate has expired: renew it, or correct the clock of this host."),
    ("NOT YET VALID", "The server's certificate is not valid yet: correct the clock of this host."),
    ("ALERT CERTIFICATE EXPIRED", "The certificate in ssl_certfile has expired: renew it."),
    (
        "VERIFY FAILED",
        "The CA that signed the server's certificate is not trusted here: set ssl_ca_certs to the file with its "
        "certificate.",
    ),
    ("WRONG VERSION NUMBER", "The server does not use TLS on this port: use its TLS port, or redis://."),
    *((part, _CLIENT_REFUSED) for part in ("ALERT", "CLOSED BY SERVER", "RESET BY PEER", "BROKEN PIPE", "EOF")),
    # A server without TLS waits for the rest of what it takes for a command.
    ("TIMEOUT", "Is the server running there, and does it use TLS on this port? Without TLS, write redis://."),
)


def tls_remedy(url: str, error: Exception) -> str:
    """Return the next step after `error` on a connection to `url`; "" for errors that have nothing to do with TLS."""
    text = str(error).upper().replace("_", " ")
    if url.startswith("redis://") and ("CLOSED BY SERVER" in text or "RESET BY PEER" in text):
        return "Is the server running there? If it uses TLS on this port, write rediss://."
    if not url.startswith("rediss://"):
        return ""
    parse_url: Any = redis.connection.parse_url
    options = parse_url(url)
    for name in FILES:
        if name in options and not os.access(options[name], os.R_OK):
            return f"{name} is {options[name]!r}, which does not exist or cannot be read."
    return next((remedy for part, remedy in _REMEDIES if part in text), "")
