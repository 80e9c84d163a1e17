"""Signed authorship: identities, author proofs and the chain that makes them cheap to check."""

from walstore.signed.author import (
    AuthorProof,
    Domain,
    SigningFrame,
    sign_append,
    sign_bytes,
    sign_document,
    signing_input,
    signing_input_of,
    verify_append,
    verify_bytes,
    verify_document,
)
from walstore.signed.chain import (
    ChainElement,
    ChainReport,
    Head,
    Twins,
    Verdict,
    check_chain,
    link,
)
from walstore.signed.identity import Identity, KeyAgreementError, SeedError
from walstore.signed.keyfile import (
    KeyfileCorruptError,
    KeyfileError,
    KeyfileExistsError,
    KeyfileExposedError,
    KeyfileMissingError,
)
from walstore.signed.many import SignatureCheck, verify_many

__all__ = [
    "AuthorProof",
    "ChainElement",
    "ChainReport",
    "Domain",
    "Head",
    "Identity",
    "KeyAgreementError",
    "KeyfileCorruptError",
    "KeyfileError",
    "KeyfileExistsError",
    "KeyfileExposedError",
    "KeyfileMissingError",
    "SeedError",
    "SignatureCheck",
    "SigningFrame",
    "Twins",
    "Verdict",
    "check_chain",
    "link",
    "sign_append",
    "sign_bytes",
    "sign_document",
    "signing_input",
    "signing_input_of",
    "verify_append",
    "verify_bytes",
    "verify_document",
    "verify_many",
]
