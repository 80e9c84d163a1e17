"""Opens a document for one command.

- A command has the local file for a moment only. So two commands at once follow one another, and
  what neither may do is done by neither: the system's lock sees to it.
- Without a relay nothing is awaited but the disk: every command works offline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from walstore.cli.documents import KnownDocument
from walstore.cli.identities import find_identity
from walstore.cli.left_behind import tell_left_behind
from walstore.cli.output import note
from walstore.cli.progress import watched
from walstore.cli.restoring import restore_key
from walstore.cli.waiting import in_turn
from walstore.signed.identity import Identity
from walstore.store.store import WalStore

if TYPE_CHECKING:
    from walstore.net import WebSocketTransport


@asynccontextmanager
async def opened(
    document: KnownDocument,
    *,
    relay: str | WebSocketTransport | None = None,
    identity: Identity | None = None,
    file: Path | None = None,
) -> AsyncIterator[WalStore]:
    """The document, open: from here alone, or with a relay.

    Args:
        document: The document.
        relay: The relay, if it is to be asked, or a connection to it.
        identity: Who opens it, if that is known already.
        file: Its local file, if a copy is to take its place.

    Raises:
        BusyFileError: Another program has it open.
        WalStoreError: It cannot be opened.
    """
    who = find_identity(document.identity).identity if identity is None else identity
    path = document.file if file is None else file
    if file is None:
        tell_left_behind(document)
        await restore_key(document, who, relay)

    async def open_store() -> WalStore:
        store = WalStore.open(
            document.key,
            identity=who,
            path=path,
            relay=relay,
            snapshots=None if isinstance(relay, str) else relay,
            owner=document.owner,
            is_sealed=document.is_sealed,
            autocommit_ms=None,
            # What has come is counted, however much it is.
            history_max=None,
        )
        # The first time, all of the log is read while it opens.
        async with watched("elements read", lambda: store.elements_read):
            return await store.__aenter__()

    store = await in_turn(path, open_store)
    try:
        yield store
    finally:
        await store.__aexit__()


def tell_unsent(document: KnownDocument, unsent: int) -> None:
    """Say what others cannot see yet, if there are others."""
    if unsent and document.relay is not None:
        note(f"{unsent} unsent; walstore sync {document.name}")
