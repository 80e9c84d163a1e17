"""`walstore sync`: exchange with the relay, once or for as long as it runs."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.documents import KnownDocument, document_names, find_document
from walstore.cli.exchange import (
    NoRelayGivenError,
    RefusedError,
    RolledBackError,
    exchange,
    tell_exchanged,
    tell_standing,
)
from walstore.cli.following import follow
from walstore.cli.main import OK, code_of
from walstore.cli.opened import opened
from walstore.cli.output import note
from walstore.cli.relays import checked_relay
from walstore.errors import WalStoreError


def parser() -> ArgumentParser:
    """What `walstore sync` takes."""
    made = command_parser(
        "sync",
        "Send what is unsent and read what is new: of one document, or of all that have a relay.",
    )
    made.add_argument("document", nargs="?", help="the document; all if left out")
    made.add_argument("--relay", metavar="URL", help="let this be its relay from now on")
    made.add_argument(
        "--follow", action="store_true", help="go on until interrupted; other commands can be used"
    )
    made.add_argument(
        "--accept-rollback",
        action="store_true",
        help="go on with a relay that has lost something; what you wrote is sent again",
    )
    made.add_argument(
        "--set-aside",
        action="store_true",
        help="put what the relay refuses for good on the shelf, and send the rest",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore sync …`; the exit code."""
    made = parser()
    flags = parsed(made, arguments)
    is_one_needed = (
        flags.relay is not None or flags.follow or flags.accept_rollback or flags.set_aside
    )
    if flags.document is None and is_one_needed:
        made.error("say which document")
    if flags.document is None:
        return asyncio.run(_sync_all(flags))
    document = find_document(flags.document)
    if flags.relay is not None:
        before, document = document.relay, document.at_relay(checked_relay(flags.relay))
        if before not in (None, document.relay):
            note(f"the relay of {document.name} is {document.relay} now; it was {before}")
    if document.relay is None:
        raise NoRelayGivenError(document)
    if flags.follow:
        return asyncio.run(follow(document, is_json=flags.json))
    asyncio.run(_sync(document, flags))
    return OK


async def _sync(document: KnownDocument, flags: Namespace) -> None:
    async with opened(document, relay=document.relay) as store:
        try:
            exchanged = await exchange(document, store)
        except RolledBackError:
            if not flags.accept_rollback:
                raise
            accepted = await store.accept_rollback()
            note(f"accepted; {accepted.sent_again} of yours are sent again")
            exchanged = await exchange(document, store)
        except RefusedError:
            if not flags.set_aside:
                raise
            aside = await store.set_aside()
            note(f"put {len(aside)} on the shelf")
            exchanged = await exchange(document, store)
        tell_standing(document, store)
    tell_exchanged(document, exchanged, is_json=flags.json)


async def _sync_all(flags: Namespace) -> int:
    """One that cannot be synced does not keep the others from it."""
    documents = [each for name in document_names() if (each := find_document(name)).relay]
    if not documents:
        note("no document here has a relay; give it one: walstore sync NAME --relay URL")
    code = OK
    for document in documents:
        try:
            await _sync(document, flags)
        except WalStoreError as error:
            note(f"{document.name}: {error}")
            code = code or code_of(error)
    return code
