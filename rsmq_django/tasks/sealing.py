"""Bodies that prove who wrote them (signed), or that only their readers can read (encrypted), per queue.

    {"signed": "<the body>", "signature": "<hex>"}          HMAC-SHA256 over "rsmq:{queue}\\0{body}"
    {"encrypted": "<Fernet token>"}                          of "rsmq:{queue}\\0{body}"

The queue's name is part of what is signed: whoever can write to Redis cannot take a message from one queue to another.
The first key seals, every key opens, so that keys are rotated by adding a new one in front and removing the old one
when its messages are gone. A message of a queue with keys that is not sealed with one of them never runs: it goes to
the dead-letter queue. docs/security.md says what this protects from, and what not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..conf import QueueSettings, get_settings
from .envelope import Envelope, Unreadable, decode


def seal(body: bytes, queue: QueueSettings, *, name: str) -> bytes:
    """Return the body as it travels on the queue `name` (a priority band travels under its queue's name)."""
    if queue.encryption_keys:
        token = _fernet(queue.encryption_keys).encrypt(_bound(name, body))
        return json.dumps({"encrypted": token.decode("ascii")}).encode()
    if queue.signing_keys:
        return _signed(body, queue.signing_keys[0], name)
    return body


def unseal(body: bytes, queue: QueueSettings, *, name: str) -> bytes:
    """Return what was sealed. Raises Unreadable with the reason "unsigned", "bad_signature" or "not_decrypted"."""
    if queue.encryption_keys:
        return _decrypted(body, queue.encryption_keys, name)
    if queue.signing_keys:
        return _verified(body, queue.signing_keys, name)
    return body


def peek(body: bytes, *, queue_name: str, message_id: str) -> Envelope:
    """Return the call in a body, for people and records: what is not sealed as it should be is shown all the same.

    Raises Unreadable. The queue may be unknown; one of its priority bands will do.
    """
    try:
        settings = get_settings()
        queue = settings.queue(queue_name)
        if queue.is_sealed:
            body = unseal(body, queue, name=settings.base_name(queue_name))
    except (ImproperlyConfigured, Unreadable):
        pass
    return decode(body, message_id=message_id)


def _bound(name: str, body: bytes) -> bytes:
    return f"rsmq:{name}\0".encode() + body


# -- Signed -----------------------------------------------------------------------------------------------------------


def _signed(body: bytes, key: str, name: str) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a signed body must be UTF-8: {error}; send base64, or encrypt the queue") from error
    return json.dumps({"signed": text, "signature": _signature(body, key, name)}, ensure_ascii=False).encode()


def _verified(body: bytes, keys: Sequence[str], name: str) -> bytes:
    wrapper = _wrapper(body)
    text, signature = wrapper.get("signed"), wrapper.get("signature")
    if not isinstance(text, str) or not isinstance(signature, str):
        raise Unreadable("unsigned", f"queue {name!r} takes only signed messages; sign it as docs/security.md says")
    signed = text.encode("utf-8", "surrogatepass")
    # In constant time: how long it takes tells nothing about the right signature. As bytes, because compare_digest()
    # takes no text beyond ASCII.
    given = signature.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(_signature(signed, key, name).encode(), given) for key in keys):
        raise Unreadable(
            "bad_signature",
            f"the signature fits none of the {len(keys)} keys of queue {name!r}: the message was changed, comes from "
            "another queue, or was signed with a key that is no longer in SIGNING_KEYS",
        )
    return signed


def _signature(body: bytes, key: str, name: str) -> str:
    return hmac.new(key.encode(), _bound(name, body), hashlib.sha256).hexdigest()


# -- Encrypted --------------------------------------------------------------------------------------------------------


def _decrypted(body: bytes, keys: tuple[str, ...], name: str) -> bytes:
    from cryptography.fernet import InvalidToken

    token = _wrapper(body).get("encrypted")
    try:
        plain: bytes = _fernet(keys).decrypt(token if isinstance(token, str) else b"")
    except InvalidToken as error:
        raise Unreadable(
            "not_decrypted",
            f"the body is not encrypted with one of the {len(keys)} keys of queue {name!r}",
        ) from error
    start = _bound(name, b"")
    if not plain.startswith(start):
        raise Unreadable("not_decrypted", f"the message was encrypted for another queue than {name!r}")
    return plain[len(start) :]


@cache
def _fernet(keys: tuple[str, ...]) -> Any:
    from cryptography.fernet import Fernet, MultiFernet

    return MultiFernet([Fernet(key) for key in keys])


def _wrapper(body: bytes) -> dict[str, Any]:
    try:
        wrapper = json.loads(body)
    except (ValueError, RecursionError):  # ValueError: not JSON, or not UTF-8
        return {}
    return wrapper if isinstance(wrapper, dict) else {}
