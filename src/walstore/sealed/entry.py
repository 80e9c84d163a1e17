"""What a trusted adder signs in a keyring: entries and bindings.

- An entry says: this is the content key of that key epoch, wrapped for that recipient. The
  format does not say of which document, so a relay could serve one document's keyring for
  another and have the second sealed to the members of the first.
- A binding says: the content key with this id belongs to this scope and key epoch. It stands in
  the extension member `x` of an epoch, which other readers ignore and carry along:

    "x": {"binding": {"by": adder, "cek": key id, "scope": text, "sig": base64}}

  `sig` is over "walstore-keyring-binding-v1\\n" + the canonical text of `{by, cek, epoch, scope}`.
- A scope is the document key, or the path of the collection that shares the keyring.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

from walstore.canon import Json, canonical_bytes
from walstore.errors import NotJsonError
from walstore.sealed.encoding import decode_base64, decode_key, encode_base64
from walstore.sealed.keys import key_id
from walstore.sealed.wrap import Recipient, unwrap, wrap

# Did this key sign exactly these bytes? `walstore.signed.verify_bytes` answers.
Verifier: TypeAlias = Callable[[str, bytes, str], bool]

_BINDING_DOMAIN = b"walstore-keyring-binding-v1\n"
_SIGNED_MEMBERS = ("addedAt", "addedBy", "ct", "ephKem", "subKem")


class Adder(Protocol):
    """Someone who gives out content keys; an `Identity` is one."""

    @property
    def public_key(self) -> str:
        """The Ed25519 key, 64 lower-case hex digits."""
        ...

    def sign(self, signed: bytes) -> bytes:
        """The 64-byte Ed25519 signature."""
        ...


class Trust(NamedTuple):
    """Whose word counts, and who can tell that it is theirs.

    Attributes:
        adders: The Ed25519 keys of the trusted adders.
        verify: Checks a signature.
    """

    adders: Collection[str]
    verify: Verifier


class UnfitError(Exception):
    """An entry or a binding does not hold; the text says why. It never leaves this package."""


def make_entry(
    content_key: bytes,
    recipient: str,
    *,
    epoch: int,
    adder: Adder,
    added_at_s: int,
    ephemeral_private: bytes,
    iv: bytes,
) -> dict[str, Json]:
    """The entry that gives one recipient the content key of a key epoch.

    Raises:
        RecipientKeyError: The recipient's key is unusable.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    wrapped = wrap(content_key, recipient, ephemeral_private=ephemeral_private, iv=iv)
    entry: dict[str, Json] = {
        "subKem": recipient,
        "ephKem": wrapped.ephemeral.hex(),
        "ct": encode_base64(wrapped.ct),
        "addedBy": adder.public_key,
        "addedAt": added_at_s,
    }
    entry["addedSig"] = encode_base64(adder.sign(entry_signing_input(entry, epoch)))
    return entry


def entry_signing_input(entry: dict[str, Json], epoch: int) -> bytes:
    """The exact bytes under `addedSig`; they carry no domain tag.

    Raises:
        NotJsonError: A member has no canonical text.
    """
    return canonical_bytes({name: entry.get(name) for name in _SIGNED_MEMBERS} | {"epoch": epoch})


def open_entry(entry: dict[str, Any], *, epoch: int, recipient: Recipient, trust: Trust) -> bytes:
    """The content key in an entry.

    Raises:
        UnfitError: The adder is not trusted, the signature is not theirs, or it does not unwrap.
        StarfishExtraMissingError: `cryptography` is not installed.
    """
    signed = _signed_bytes(entry_signing_input, entry, epoch)
    _check_signature(trust, entry.get("addedBy"), signed, entry.get("addedSig"))
    ephemeral, ct = decode_key(entry.get("ephKem")), decode_base64(entry.get("ct"))
    if ephemeral is None or ct is None:
        raise UnfitError("it is malformed")
    content_key = unwrap(recipient, ephemeral, ct)
    if content_key is None:
        raise UnfitError("the wrapped key does not open")
    return content_key


def make_binding(content_key: bytes, *, scope: str, epoch: int, adder: Adder) -> dict[str, Json]:
    """The binding of a content key to a scope and a key epoch."""
    binding: dict[str, Json] = {"by": adder.public_key, "cek": key_id(content_key), "scope": scope}
    binding["sig"] = encode_base64(adder.sign(binding_signing_input(binding, epoch)))
    return binding


def binding_signing_input(binding: dict[str, Json], epoch: int) -> bytes:
    """The exact bytes under the signature of a binding.

    Raises:
        NotJsonError: A member has no canonical text.
    """
    members = {name: binding.get(name) for name in ("by", "cek", "scope")} | {"epoch": epoch}
    return _BINDING_DOMAIN + canonical_bytes(members)


def check_binding(
    binding: object, content_key: bytes, *, scope: str, epoch: int, trust: Trust
) -> None:
    """Check that a trusted adder bound this content key to this scope and key epoch.

    Raises:
        UnfitError: Nobody did.
    """
    if not isinstance(binding, dict):
        raise UnfitError("its key is not bound to any scope")
    signed = _signed_bytes(binding_signing_input, binding, epoch)
    _check_signature(trust, binding.get("by"), signed, binding.get("sig"))
    if binding.get("scope") != scope:
        raise UnfitError("its key is bound to another scope")
    if binding.get("cek") != key_id(content_key):
        raise UnfitError("another key is bound to the scope")


def _signed_bytes(
    signing_input: Callable[[dict[str, Json], int], bytes], members: dict[str, Json], epoch: int
) -> bytes:
    try:
        return signing_input(members, epoch)
    except NotJsonError as error:
        raise UnfitError("it is malformed") from error


def _check_signature(trust: Trust, signer: object, signed: bytes, signature: object) -> None:
    if not isinstance(signer, str) or signer not in trust.adders:
        raise UnfitError("its adder is not trusted")
    if not isinstance(signature, str) or not trust.verify(signer, signed, signature):
        raise UnfitError("the signature is not its adder's")
