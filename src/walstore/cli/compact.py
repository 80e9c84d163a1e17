"""`walstore compact`: sign a snapshot of a document, so that nobody has to read all of its log.

- A snapshot removes nothing by itself. Once there is one, the relay may let go of what it stands
  for, as its operator has decided: walstore relay compact.
- `--collect` also lets go of what was removed from texts and lists, for good.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from walstore.canon import canonical_bytes
from walstore.cli.arguments import document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.exchange import NoRelayGivenError, exchange
from walstore.cli.opened import opened
from walstore.cli.output import note, put_json, time_text
from walstore.crdt import WalCrdt
from walstore.errors import UsageError
from walstore.store.store import WalStore


class NotProducerError(UsageError):
    """Only the owner, and whom the owner lets, may sign snapshots."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(
            f"you may not sign snapshots of {document.name}; its owner may, and whoever was made a"
            " producer: walstore share … --role producer"
        )


class NothingToSignError(UsageError):
    """The log is empty."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(
            f"nothing was written to {document.name} yet, so there is nothing to sign; `walstore"
            f" set {document.name} …` writes something"
        )


def parser() -> ArgumentParser:
    """What `walstore compact` takes."""
    made = document_parser(
        "compact",
        "Sign a snapshot and store it at the relay: who opens the document then reads that, and"
        " not the whole log.",
        epilog="What the relay lets go of afterwards is its operator's choice:"
        " walstore relay compact.",
    )
    made.add_argument(
        "--collect",
        action="store_true",
        help="also let go, for good, of what was removed from texts and lists; everybody should"
        " have synced before",
    )
    made.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore compact …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = find_document(flags.document)
    if document.relay is None:
        raise NoRelayGivenError(document)
    asyncio.run(_compact(document, flags))
    return 0


async def _compact(document: KnownDocument, flags: Namespace) -> None:
    async with opened(document, relay=document.relay) as store:
        if not store.sharing.membership.is_producer(store.identity.public_key):
            raise NotProducerError(document)
        await exchange(document, store)
        if flags.collect:
            # What went the last time may still be in the file here.
            await store.document.adopt_barrier()
        if not store.checkpoint:
            raise NothingToSignError(document)
        plan = {
            "upto_ts": store.checkpoint,
            "state_bytes": _size(store.document.crdt),
            "collected_bytes": _collected(store) if flags.collect else 0,
        }
        if not flags.dry_run:
            await _sign(store, is_collecting=flags.collect)
    verb = "would stand" if flags.dry_run else "stands"
    note(
        f"a snapshot of {plan['state_bytes']:,} bytes {verb} for everything up to"
        f" {time_text(plan['upto_ts'])}"
    )
    if flags.collect:
        went = "would go" if flags.dry_run else "went"
        note(f"{plan['collected_bytes']:,} bytes of what was removed {went}, for good")
    if flags.json:
        put_json({**plan, "dry_run": flags.dry_run})


async def _sign(store: WalStore, *, is_collecting: bool) -> None:
    if is_collecting:
        await store.document.snapshot(collect={store.identity.public_key: store.checkpoint})
    else:
        await store.sharing.snapshot()


def _collected(store: WalStore) -> int:
    crdt = store.document.crdt
    return max(_size(crdt) - _size(crdt.collected()), 0)


def _size(crdt: WalCrdt) -> int:
    return len(canonical_bytes(crdt.export_packed()))
