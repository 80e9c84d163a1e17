"""Author proofs: who wrote an element or a document, provable to anyone.

- What is signed is a domain tag and the canonical text of `{"d": data, "k": key}`, so a proof
  holds for one kind of thing under one key and for nothing else.
- Data is signed as it is stored: sealed data is signed sealed.
- Verifying answers yes or no and never raises, whatever it is given.
- It is strict: one spelling per key and signature, S below the group order, no small-order keys.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from walstore.canon import canonical_bytes
from walstore.errors import NotJsonError
from walstore.signed.encoding import decode_public_key, decode_signature, encode_signature
from walstore.signed.identity import Identity


class Domain(Enum):
    """What a signature is for; the value is the tag in front of the signed bytes."""

    APPEND = b"starfish-append-author-v1\n"
    DOCUMENT = b"starfish-doc-author-v1\n"


# The canonical text of a document begins with its proof; what follows is what was signed.
_PROOF = re.compile(rb'\{"authorPubkey":"([0-9a-f]{64})","authorSignature":"([0-9A-Za-z+/=]{88})",')


class AuthorProof(NamedTuple):
    """The two members that an element or a document carries beside its data."""

    author_pubkey: str
    author_signature: str


class SigningFrame:
    """What the bytes to sign have around the data: the same for all elements of a log."""

    __slots__ = ("_after", "_before")

    def __init__(self, domain: Domain, key: str) -> None:
        self._before = domain.value + b'{"d":'
        self._after = b',"k":' + canonical_bytes(key) + b"}"

    def around(self, canonical: bytes) -> bytes:
        """The exact bytes to sign for data whose canonical text is at hand."""
        return self._before + canonical + self._after


def signing_input(domain: Domain, key: str, data: object) -> bytes:
    """The exact bytes to sign for a JSON value under a document key.

    Raises:
        NotJsonError: The value has no canonical text.
    """
    return signing_input_of(domain, key, canonical_bytes(data))


def signing_input_of(domain: Domain, key: str, canonical: bytes) -> bytes:
    """The exact bytes to sign for data whose canonical text is already at hand.

    Raises:
        NotJsonError: The key is not text.
    """
    return SigningFrame(domain, key).around(canonical)


def sign_bytes(signed: bytes, identity: Identity) -> AuthorProof:
    """The proof for bytes made by one of the functions above."""
    return AuthorProof(identity.public_key, encode_signature(identity.sign(signed)))


def verify_bytes(author_pubkey: object, signed: bytes, author_signature: object) -> bool:
    """Whether this key signed exactly these bytes; never raises."""
    key, signature = decode_public_key(author_pubkey), decode_signature(author_signature)
    if key is None or signature is None:
        return False
    return verify_decoded(key, signed, signature)


def verify_decoded(key: bytes, signed: bytes, signature: bytes) -> bool:
    """The same for a key and a signature that were decoded before."""
    try:
        crypto_sign_open(signature + signed, key)
    except BadSignatureError:
        return False
    return True


def sign_append(document_key: str, data: object, identity: Identity) -> AuthorProof:
    """Prove who appends an element to the log of a document.

    Raises:
        NotJsonError: The data has no canonical text.
    """
    return sign_bytes(signing_input(Domain.APPEND, document_key, data), identity)


def sign_document(key: str, content: object, identity: Identity) -> AuthorProof:
    """Prove who wrote the whole content stored under a key.

    Raises:
        NotJsonError: The content has no canonical text.
    """
    return sign_bytes(signing_input(Domain.DOCUMENT, key, content), identity)


def verify_append(
    document_key: str, data: object, author_pubkey: object, author_signature: object
) -> bool:
    """Whether the author appended exactly this data to this log; never raises."""
    return _verify(Domain.APPEND, document_key, data, author_pubkey, author_signature)


def verify_document(
    key: str, content: object, author_pubkey: object, author_signature: object
) -> bool:
    """Whether the author wrote exactly this content under this key; never raises."""
    return _verify(Domain.DOCUMENT, key, content, author_pubkey, author_signature)


def verify_document_text(key: str, text: bytes) -> bool:
    """The same for the canonical text of a content and its proof, which is not parsed."""
    proof = _PROOF.match(text)
    if proof is None:
        return False
    signed = signing_input_of(Domain.DOCUMENT, key, b"{" + text[proof.end() :])
    return verify_bytes(proof[1].decode(), signed, proof[2].decode())


def _verify(
    domain: Domain, key: str, data: object, author_pubkey: object, author_signature: object
) -> bool:
    try:
        signed = signing_input(domain, key, data)
    except NotJsonError:
        return False
    return verify_bytes(author_pubkey, signed, author_signature)
