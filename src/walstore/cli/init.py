"""`walstore init`: make a document, and an identity if there is none."""

from __future__ import annotations

import asyncio
import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.config import Config, load_config
from walstore.cli.documents import KnownDocument, new_document
from walstore.cli.identities import find_or_make_identity
from walstore.cli.opened import opened
from walstore.cli.output import note, put_json, put_line
from walstore.cli.places import checked_name
from walstore.cli.relays import checked_relay
from walstore.net.keys import checked_key

# Two people may both call something `notes` on one relay; this keeps them apart.
_KEY_BYTES = 8


def parser() -> ArgumentParser:
    """What `walstore init` takes."""
    made = command_parser(
        "init",
        "Make a document on this computer. It can be written at once; with a relay, others can be"
        " let in: walstore share.",
        epilog="Who makes a document owns it: the owner says who may read and write it.",
    )
    made.add_argument("name", help="what to call it on this computer")
    made.add_argument("--relay", metavar="URL", help="where its log goes, such as ws://host:3400")
    made.add_argument("--sealed", action="store_true", help="encrypt it, for its members alone")
    made.add_argument("--identity", metavar="NAME", help="who makes it (default)")
    made.add_argument(
        "--key", help="what relays call it (the name, and some digits that make it unique)"
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore init …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = asyncio.run(_make(flags, load_config()))
    if flags.json:
        put_json({"name": document.name, "key": document.key, "relay": document.relay})
    else:
        put_line(document.key)
    note(_next(document))
    return 0


async def _make(flags: Namespace, config: Config) -> KnownDocument:
    name = checked_name(flags.name)
    relay = flags.relay or config.relay
    if relay is not None:
        checked_relay(relay)
    key = _key(flags.key, name)
    kept = find_or_make_identity(flags.identity or config.identity)
    document = KnownDocument(
        name=name,
        key=key,
        owner=kept.identity.public_key,
        is_sealed=flags.sealed,
        relay=relay,
        identity=kept.name,
    )
    # Opening it makes its file, its roster and its content key; if that fails, there is nothing.
    with new_document(document) as file:
        async with opened(document, identity=kept.identity, file=file):
            pass
    return document


def _key(given: str | None, name: str) -> str:
    # Whatever is refused is refused now, and not when it is first synced.
    return f"{name}-{secrets.token_hex(_KEY_BYTES)}" if given is None else checked_key(given)


def _next(document: KnownDocument) -> str:
    first = f'made {document.name}; try: walstore set {document.name} title "Hello"'
    if document.relay is None:
        return first
    return f"{first}, then: walstore sync {document.name}"
