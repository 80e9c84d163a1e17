"""Invitations: where a shared document is, and whose word counts there.

- An invitation is signed by the document's owner, and names the owner: whoever opens it pins that
  key, and from then on believes nobody else about who may read and write.
- It holds no secret and gives no right: those are in the roster and the keyring, which name the
  invited key. Who reads it on the way learns where the document is, and can do nothing with it.
- That the owner is who one thinks has to come from elsewhere: from whom the line was had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from walstore.errors import MalformedError, UsageError
from walstore.signed.encoding import decode_public_key
from walstore.signed.identity import Identity
from walstore.signed.statement import (
    LINE_SIZE_MAX,
    from_line,
    is_signed_by,
    sign_statement,
    to_line,
)

_KIND = "walstore-invitation"
_DOMAIN = b"walstore-invitation-v1\n"
_VERSION = 1
_MEMBERS = {"v", "document", "relay", "owner", "log", "sealed", "to", "signature"}

# An address; what is longer is not one that somebody typed.
_RELAY_SIZE_MAX = 1024
_DOCUMENT_SIZE_MAX = 512
_LOG_SIZE = 32


class InvitationError(UsageError):
    """An invitation cannot be made like this.

    Attributes:
        reason: What is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not an invitation: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation whose signature was checked.

    Attributes:
        document: The document key.
        relay: The address of the relay; None if it is known otherwise.
        owner: Who decides about the document, and has signed.
        log: The log that the key stands for; None if the owner did not know it yet.
        is_sealed: Whether the document is sealed: then nothing plain may ever be written to it.
        to: Who is invited.
        line: The invitation as one line of text.
    """

    document: str
    relay: str | None
    owner: str
    log: str | None
    is_sealed: bool
    to: str
    line: str

    @classmethod
    def sign(
        cls,
        owner: Identity,
        *,
        document: str,
        to: str,
        relay: str | None,
        log: str | None,
        is_sealed: bool,
    ) -> Invitation:
        """Invite a key to a document.

        Raises:
            InvitationError: An argument is not what an invitation can hold.
        """
        members: dict[str, Any] = {
            "v": _VERSION,
            "document": document,
            "relay": relay,
            "owner": owner.public_key,
            "log": log,
            "sealed": is_sealed,
            "to": to,
        }
        if flaw := _find_flaw(members):
            raise InvitationError(flaw)
        line = to_line(_KIND, sign_statement(_DOMAIN, members, owner))
        if len(line) > LINE_SIZE_MAX:
            raise InvitationError("it is too long")
        return cls(document, relay, owner.public_key, log, is_sealed, to, line)

    @classmethod
    def read(cls, line: str) -> Invitation:
        """The invitation that a line of text is.

        Raises:
            MalformedError: It is none, or is not signed by the owner that it names.
        """
        members = from_line(_KIND, line)
        if members.keys() != _MEMBERS:
            raise MalformedError("invitation", "a member is missing, or is not one of it")
        if flaw := _find_flaw(members):
            raise MalformedError("invitation", flaw)
        if not is_signed_by(members["owner"], _DOMAIN, members):
            raise MalformedError("invitation", "the signature is not that of the owner")
        return cls(
            document=members["document"],
            relay=members["relay"],
            owner=members["owner"],
            log=members["log"],
            is_sealed=members["sealed"],
            to=members["to"],
            line=to_line(_KIND, members),
        )

    def __str__(self) -> str:
        return self.line


def _find_flaw(members: dict[str, Any]) -> str | None:
    if type(members["v"]) is not int or members["v"] != _VERSION:
        return f"`v` is not {_VERSION}"
    if not _is_text(members["document"], _DOCUMENT_SIZE_MAX):
        return "`document` is not a document key"
    if members["relay"] is not None and not _is_text(members["relay"], _RELAY_SIZE_MAX):
        return "`relay` is not an address"
    if members["log"] is not None and not _is_log(members["log"]):
        return "`log` is not the name of a log"
    if type(members["sealed"]) is not bool:
        return "`sealed` is not true or false"
    for name in ("owner", "to"):
        if decode_public_key(members[name]) is None:
            return f"`{name}` is not a public key"
    return None


def _is_text(value: object, size_max: int) -> bool:
    return type(value) is str and 1 <= len(value) <= size_max and value.isprintable()


def _is_log(value: object) -> bool:
    return type(value) is str and len(value) == _LOG_SIZE and not value.strip("0123456789abcdef")
