"""`walstore revoke`: end somebody's membership of a document."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress

from walstore.cli.arguments import document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.exchange import NoRelayGivenError, exchange
from walstore.cli.identities import find_identity
from walstore.cli.opened import opened
from walstore.cli.output import many, note, put_json
from walstore.cli.past import opened_past
from walstore.cli.people import People
from walstore.cli.share import OwnerOnlyError
from walstore.errors import MalformedError
from walstore.signed.card import Card
from walstore.store.store import WalStore


def parser() -> ArgumentParser:
    """What `walstore revoke` takes."""
    made = document_parser(
        "revoke",
        "End somebody's membership. What they wrote so far stays, what they write from now on"
        " counts for nobody; what they could read stays theirs.",
    )
    made.add_argument("member", help="a name that you gave, a key or its beginning, or a card")
    made.add_argument("--dry-run", action="store_true", help="only say what would happen")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore revoke …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = find_document(flags.document, beside=flags.member)
    if document.relay is None:
        raise NoRelayGivenError(document)
    asyncio.run(_preview(document, flags) if flags.dry_run else _revoke(document, flags))
    return 0


async def _revoke(document: KnownDocument, flags: Namespace) -> None:
    people = People.load()
    async with opened(document, relay=document.relay) as store:
        key = _member(store, document, people, flags.member)
        await exchange(document, store)
        await store.sharing.revoke(key)
    note(f"{people.name_of(key)} is no member of {document.name} any more")
    if document.is_sealed:
        note("what is written from now on is sealed with a new key")
    if flags.json:
        put_json({"revoked": key, "dry_run": False})


async def _preview(document: KnownDocument, flags: Namespace) -> None:
    people = People.load()
    async with opened(document) as store:
        key = _member(store, document, people, flags.member)
    async with opened_past(document) as past:
        written = sum(version.author == key for version in past.versions)
    note(
        f"{people.name_of(key)} would be no member of {document.name} any more;"
        f" {many(written, 'version')} of theirs would stay"
    )
    if flags.json:
        put_json({"revoked": key, "dry_run": True})


def _member(store: WalStore, document: KnownDocument, people: People, text: str) -> str:
    if find_identity(document.identity).identity.public_key != document.owner:
        raise OwnerOnlyError(document)
    keys = [each.public_key for each in store.sharing.members() if each.roles and not each.is_owner]
    with suppress(MalformedError):
        text = Card.read(text).public_key
    return people.find(text, keys)
