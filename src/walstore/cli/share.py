"""`walstore share`: invite somebody to a document, or list who is a member."""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.exchange import NoRelayGivenError, exchange
from walstore.cli.identities import find_identity
from walstore.cli.opened import opened
from walstore.cli.output import columns, note, put_json, put_line
from walstore.cli.people import People
from walstore.errors import MalformedError, UsageError
from walstore.signed.card import Card
from walstore.signed.statement import LINE_SIZE_MAX
from walstore.store.sharing import CannotReturnError, Person

ROLES = {
    "reader": ("read",),
    "writer": ("read", "write"),
    "producer": ("read", "write", "snapshot"),
}

_KEY = re.compile(r"[0-9a-fA-F]{64}")


class NotACardError(UsageError):
    """What was given is not the card of anybody."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"this is {_what(text.strip(), reason)}; ask for the line that `walstore keygen`"
            " prints at theirs, which begins with walstore-card."
        )


class OwnCardError(UsageError):
    """Somebody invites themselves."""

    def __init__(self) -> None:
        super().__init__(
            "this is your own card, and you are in already; ask for the line that `walstore"
            " keygen` prints at theirs"
        )


class OtherCardNeededError(UsageError):
    """Somebody who was revoked cannot be let in again under the same key."""

    def __init__(self, error: CannotReturnError) -> None:
        super().__init__(f"{error}; `walstore keygen NAME` makes one at theirs")


class OwnerOnlyError(UsageError):
    """Only the owner of a document decides who is a member."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(
            f"{document.name} is not yours: only its owner decides who is a member, whose key is"
            f" {document.owner}"
        )


def _what(text: str, reason: str) -> str:
    if _KEY.fullmatch(text):
        return "a public key"
    is_invitation = text.startswith("walstore-invitation.")
    return "an invitation" if is_invitation else f"not a card ({reason})"


def parser() -> ArgumentParser:
    """What `walstore share` takes."""
    made = document_parser(
        "share",
        "Invite somebody, and print the invitation to hand to them; it holds no secret. Without a"
        " card, list the members.",
        epilog="They make a card with `walstore keygen`, and open the invitation with"
        " `walstore join`.",
    )
    made.add_argument("card", nargs="?", help="their card; - reads it from standard input")
    made.add_argument(
        "--role",
        choices=tuple(ROLES),
        default="writer",
        help="what they may do (writer); a producer signs snapshots as well",
    )
    made.add_argument("--as", dest="alias", metavar="NAME", help="what to call them here")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore share …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = find_document(flags.document, beside=flags.card)
    if flags.card is None:
        asyncio.run(_list(document, is_json=flags.json))
    else:
        asyncio.run(_invite(document, flags))
    return 0


async def _invite(document: KnownDocument, flags: Namespace) -> None:
    card = read_card(flags.card)
    if document.relay is None:
        raise NoRelayGivenError(document)
    own = find_identity(document.identity).identity.public_key
    if own != document.owner:
        raise OwnerOnlyError(document)
    if card.public_key == own:
        raise OwnCardError
    people = People.load()
    if flags.alias is not None:
        people.check(flags.alias, card.public_key)
    async with opened(document, relay=document.relay) as store:
        await exchange(document, store)
        try:
            invitation = await store.sharing.invite(card, ROLES[flags.role])
        except CannotReturnError as error:
            raise OtherCardNeededError(error) from error
        is_open = store.sharing.is_relay_open
    if flags.alias is not None:
        people.give(flags.alias, card.public_key)
    if flags.json:
        members = {"invitation": invitation.line, "key": card.public_key, "role": flags.role}
        put_json(members)
    else:
        put_line(invitation.line)
    note(f"{people.name_of(card.public_key)} is a {flags.role} now; they type: walstore join …")
    if is_open and not document.is_sealed:
        note("the relay is open to all: others cannot write to it unnoticed, but they can read it")


async def _list(document: KnownDocument, *, is_json: bool) -> None:
    own = find_identity(document.identity).identity.public_key
    async with opened(document) as store:
        members = store.sharing.members()
    if is_json:
        put_json([_members(each) for each in members])
        return
    people = People.load(own)
    rows = [(people.name_of(each.public_key), _role(each), each.public_key) for each in members]
    for line in columns(rows):
        put_line(line)


def read_card(given: str) -> Card:
    """The card that was given.

    Raises:
        NotACardError: It is none.
    """
    text = sys.stdin.readline(LINE_SIZE_MAX + 1) if given == "-" else given
    try:
        return Card.read(text.strip())
    except MalformedError as error:
        raise NotACardError(text, error.reason) from error


def _role(person: Person) -> str:
    if person.is_owner:
        return "owner"
    named = [name for name, roles in ROLES.items() if person.roles == frozenset(roles)]
    role = named[0] if named else ", ".join(sorted(person.roles))
    return role or "revoked"


def _members(person: Person) -> dict[str, Any]:
    return {"key": person.public_key, "role": _role(person), "revoked": person.is_revoked}
