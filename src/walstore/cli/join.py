"""`walstore join`: open a document that you were invited to."""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.config import load_config
from walstore.cli.documents import KnownDocument, new_document
from walstore.cli.exchange import exchange, tell_standing
from walstore.cli.identities import KeptIdentity, find_identity, identity_names
from walstore.cli.opened import opened
from walstore.cli.output import KEY_SHOWN, note, put_json, put_line
from walstore.cli.places import checked_name
from walstore.cli.relays import checked_relay
from walstore.errors import MalformedError, UsageError
from walstore.signed.invitation import Invitation
from walstore.signed.statement import LINE_SIZE_MAX

# What `walstore init` puts behind a name to make a key.
_UNIQUE = re.compile(r"-[0-9a-f]{16}")
_CARD = "walstore-card."
_NOT_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class NotAnInvitationError(UsageError):
    """What was given is no invitation."""

    def __init__(self, line: str, reason: str) -> None:
        if line.startswith(_CARD):
            said = "this is a card; hand it to the owner, who types: walstore share NAME CARD"
        else:
            said = (
                f"this is not an invitation ({reason}); ask for the whole line that `walstore"
                " share` prints, which begins with walstore-invitation."
            )
        super().__init__(said)


class NotInvitedError(UsageError):
    """An invitation is for somebody else."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"this invitation is for the key {key[:KEY_SHOWN]}…, which is none of yours; give the"
            " owner your card: walstore keygen"
        )


def parser() -> ArgumentParser:
    """What `walstore join` takes."""
    made = command_parser("join", "Open a document that you were invited to.")
    made.add_argument("invitation", help="the line that you were given; - reads standard input")
    made.add_argument("name", nargs="?", help="what to call it here (as its owner does)")
    made.add_argument("--relay", metavar="URL", help="where it is, if not where the line says")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore join …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = asyncio.run(_join(flags))
    if flags.json:
        put_json({"name": document.name, "key": document.key, "relay": document.relay})
    else:
        put_line(document.name)
    note(f"joined; try: walstore show {document.name}")
    return 0


async def _join(flags: Namespace) -> KnownDocument:
    invitation = _read(flags.invitation)
    kept = _invited(invitation.to)
    relay = flags.relay or invitation.relay
    if relay is None:
        raise UsageError("the invitation names no relay; give one: --relay ws://host:port")
    document = KnownDocument(
        name=checked_name(flags.name or _name_of(invitation.document)),
        key=invitation.document,
        owner=invitation.owner,
        is_sealed=invitation.is_sealed,
        relay=checked_relay(relay),
        identity=kept.name,
    )
    with new_document(document) as file:
        async with opened(document, relay=relay, identity=kept.identity, file=file) as store:
            await exchange(document, store)
            tell_standing(document, store)
    return document


def _read(given: str) -> Invitation:
    line = sys.stdin.readline(LINE_SIZE_MAX + 1) if given == "-" else given
    try:
        return Invitation.read(line.strip())
    except MalformedError as error:
        raise NotAnInvitationError(line.strip(), error.reason) from error


def _invited(key: str) -> KeptIdentity:
    """The identity that was invited, whichever of this computer's it is."""
    for name in dict.fromkeys([load_config().identity, *identity_names()]):
        kept = find_identity(name)
        if kept.identity.public_key == key:
            return kept
    raise NotInvitedError(key)


def _name_of(key: str) -> str:
    """What to call a document: its key, without what makes it unique."""
    name = _UNIQUE.sub("", key.rpartition("/")[2])
    return _NOT_NAME.sub("-", name).strip("-._")[:64] or "document"
