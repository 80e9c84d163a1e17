"""How a client proves to a relay that it holds a key.

- What is signed is a domain tag and the canonical text of `{"challenge", "key", "relay"}`: the
  answer holds for one connection, to one relay, under one key, and for nothing else.
- `relay` is the host and port that the client dialled, so that no other relay can pass it on.
- Verifying answers yes or no and never raises, whatever it is given.
"""

from __future__ import annotations

from walstore.canon import canonical_bytes
from walstore.errors import NotJsonError
from walstore.signed.author import sign_bytes, verify_bytes
from walstore.signed.identity import Identity

AUTH_DOMAIN = b"walstore-auth-v1\n"


def relay_address(host: str, port: int) -> str:
    """How a relay is named in an answer: one spelling for each host and port.

    The host is in lower case, an IPv6 address stands in brackets, and the port is never left out.
    """
    name = host.lower()
    return f"[{name}]:{port}" if ":" in name and not name.startswith("[") else f"{name}:{port}"


def auth_input(*, challenge: str, relay: str, key: str) -> bytes:
    """The exact bytes to sign.

    Raises:
        NotJsonError: One of them has no canonical text.
    """
    return AUTH_DOMAIN + canonical_bytes({"challenge": challenge, "key": key, "relay": relay})


def sign_auth(*, challenge: str, relay: str, identity: Identity) -> str:
    """The signature that answers a challenge.

    Raises:
        NotJsonError: The challenge or the relay has no canonical text.
    """
    signed = auth_input(challenge=challenge, relay=relay, key=identity.public_key)
    return sign_bytes(signed, identity).author_signature


def verify_auth(signature: str, *, challenge: str, relay: str, key: str) -> bool:
    """Whether the owner of a key answered this challenge of this relay; never raises."""
    try:
        signed = auth_input(challenge=challenge, relay=relay, key=key)
    except NotJsonError:
        return False
    return verify_bytes(key, signed, signature)
