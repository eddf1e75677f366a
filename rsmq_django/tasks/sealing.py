"""Signed and encrypted message bodies, per queue.

    {"signed": "<the body>", "signature_v2": "<hex>"}           a proof (proofs.py) of the body
    {"encrypted": "<token>", "signature_v2": "<hex>"}           a proof of the token: Fernet of "rsmq:{queue}\\0{body}"

Namespace and queue are signed, too: a program that can write to Redis cannot move a message from one queue to another,
nor from one namespace to another. The first key seals, every key opens: to rotate keys, add a new one in front and
remove the old one when the queue has no messages of it left. A message of a queue with keys that is not sealed with one
of them never runs: it goes to the dead-letter queue. docs/how-to/security.md describes which attacks this prevents.

The first version had no namespace: {"encrypted": ...} alone, and {"signed": ..., "signature": ...} with the HMAC over
"rsmq:{queue}\\0{body}". It is written, beside the new one, and accepted until the day of OLD_SIGNATURES_UNTIL, for
deployments in which workers of both releases run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import suppress
from functools import cache
from typing import Any

from ..conf.settings import QueueSettings, get_settings
from ..queues import get_client
from .envelope import Envelope, Unreadable, decode
from .proofs import accepts_old, keyring

KIND = "message"
#: The record of a cancelled call. It is stored with the result, and never runs.
CANCELLED = "cancelled"
HOW_LONG = "set OLD_SIGNATURES_UNTIL of the queue to accept it for some days"


def seal(body: bytes, queue: QueueSettings, *, name: str, namespace: str, kind: str = KIND) -> bytes:
    """Return the sealed body for the queue `name` (for a priority band, the name of its queue)."""
    if not queue.is_sealed:
        return body
    wrapper, content = _encrypted(body, queue, name) if queue.encryption_keys else _signed(body, queue, name, kind)
    proof = keyring(queue, name=name, namespace=namespace).prove(kind, content=content)
    return json.dumps(wrapper | {"signature_v2": proof}, ensure_ascii=False).encode()


def unseal(body: bytes, queue: QueueSettings, *, name: str, namespace: str, kind: str = KIND) -> bytes:
    """Return the sealed body. Raises Unreadable with the reason "unsigned", "bad_signature" or "not_decrypted"."""
    if queue.encryption_keys:
        return _decrypted(body, queue, name, namespace, kind)
    if queue.signing_keys:
        return _verified(body, queue, name, namespace, kind)
    return body


def peek(body: bytes, *, queue_name: str, message_id: str) -> Envelope:
    """Return the call in a body for display, even with an invalid seal. Raises Unreadable.

    The queue may be unknown, or a priority band.
    """
    for kind in (KIND, CANCELLED):
        with suppress(Unreadable):
            return decode(opened(body, queue_name=queue_name, kind=kind), message_id=message_id)
    return decode(body, message_id=message_id)


def is_authentic(body: bytes, *, queue_name: str, task_id: str, kind: str = KIND) -> bool:
    """Return whether a body is sealed with a key of this signed or encrypted queue, and is the call of that id."""
    try:
        return decode(opened(body, queue_name=queue_name, kind=kind), message_id="-").id == task_id
    except Unreadable:
        return False


def opened(body: bytes, *, queue_name: str, kind: str = KIND) -> bytes:
    """Return a body without its seal; unchanged for a queue that is unknown or has no keys. Raises Unreadable."""
    queue, name, namespace = _named(queue_name)
    return body if queue is None else unseal(body, queue, name=name, namespace=namespace, kind=kind)


def sealed(body: bytes, *, queue_name: str, kind: str = KIND) -> bytes:
    """Return the sealed body for this queue; unchanged for a queue that is unknown or has no keys."""
    queue, name, namespace = _named(queue_name)
    return body if queue is None else seal(body, queue, name=name, namespace=namespace, kind=kind)


def _named(queue_name: str) -> tuple[QueueSettings | None, str, str]:
    """Return a queue with keys, its name without the band, and its namespace; None for every other name."""
    settings = get_settings()
    if not settings.is_sealed(queue_name):
        return None, "", ""
    queue = settings.queue(queue_name)
    return queue, settings.base_name(queue_name), get_client(queue.connection).namespace


# -- Signed -----------------------------------------------------------------------------------------------------------


def _signed(body: bytes, queue: QueueSettings, name: str, kind: str) -> tuple[dict[str, str], bytes]:
    try:
        wrapper = {"signed": body.decode()}
    except UnicodeDecodeError as error:
        raise ValueError(f"a signed body must be UTF-8: {error}; send base64, or encrypt the queue") from error
    if accepts_old(queue) and kind == KIND:  # workers of the release before read nothing else
        wrapper["signature"] = _old_signature(body, queue.signing_keys[0], name)
    return wrapper, body


def _verified(body: bytes, queue: QueueSettings, name: str, namespace: str, kind: str) -> bytes:
    wrapper = _wrapper(body)
    text, proof, old = (wrapper.get(field) for field in ("signed", "signature_v2", "signature"))
    if not isinstance(text, str) or not (isinstance(proof, str) or isinstance(old, str)):
        raise Unreadable(
            "unsigned", f"queue {name!r} takes only signed messages; sign it as docs/how-to/security.md says"
        )
    signed = text.encode("utf-8", "surrogatepass")
    if isinstance(proof, str) and keyring(queue, name=name, namespace=namespace).verifies(proof, kind, content=signed):
        return signed
    is_old = isinstance(old, str) and _is_signed_as_before(signed, old, queue, name)
    if is_old and accepts_old(queue):
        return signed
    if is_old:
        said = f"the signature does not name the namespace, as those of an earlier release; sign it anew, or {HOW_LONG}"
    else:
        said = (
            f"the signature fits none of {len(queue.signing_keys)} keys of queue {name!r}: the message was changed, "
            "comes from another queue or namespace, or was signed with a key that is no longer in SIGNING_KEYS"
        )
    raise Unreadable("bad_signature", said)


def _is_signed_as_before(signed: bytes, signature: str, queue: QueueSettings, name: str) -> bool:
    given = signature.encode("utf-8", "surrogatepass")
    return any(hmac.compare_digest(_old_signature(signed, key, name).encode(), given) for key in queue.signing_keys)


def _old_signature(body: bytes, key: str, name: str) -> str:
    return hmac.new(key.encode(), _bound(name, body), hashlib.sha256).hexdigest()


# -- Encrypted --------------------------------------------------------------------------------------------------------


def _encrypted(body: bytes, queue: QueueSettings, name: str) -> tuple[dict[str, str], bytes]:
    token: bytes = _fernet(queue.encryption_keys).encrypt(_bound(name, body))
    return {"encrypted": token.decode("ascii")}, token


def _decrypted(body: bytes, queue: QueueSettings, name: str, namespace: str, kind: str) -> bytes:
    from cryptography.fernet import InvalidToken

    wrapper = _wrapper(body)
    token, proof = wrapper.get("encrypted"), wrapper.get("signature_v2")
    content = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""
    try:
        plain: bytes = _fernet(queue.encryption_keys).decrypt(content)
    except InvalidToken as error:
        raise Unreadable(
            "not_decrypted",
            f"the body is not encrypted with one of the {len(queue.encryption_keys)} keys of queue {name!r}",
        ) from error
    start = _bound(name, b"")
    if not plain.startswith(start):
        raise Unreadable("not_decrypted", f"the message was encrypted for another queue than {name!r}")
    keys = keyring(queue, name=name, namespace=namespace)
    if isinstance(proof, str) and keys.verifies(proof, kind, content=content):
        return plain[len(start) :]
    if proof is None and accepts_old(queue):
        return plain[len(start) :]
    why = "was encrypted by an earlier release, which did not name the namespace" if proof is None else "is not valid"
    said = f"the message {why}, or comes from another namespace; send it anew, or {HOW_LONG}"
    raise Unreadable("not_decrypted", said)


def _bound(name: str, body: bytes) -> bytes:
    return f"rsmq:{name}\0".encode() + body


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
