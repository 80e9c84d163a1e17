"""Opens a document to be read, and with `--sync` asks the relay for news first.

- If the relay cannot be reached, what is here is shown all the same; the exit code tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from walstore.cli.documents import KnownDocument
from walstore.cli.exchange import NoRelayGivenError, exchange, tell_standing
from walstore.cli.main import NO_NETWORK, OK
from walstore.cli.opened import opened, tell_unsent
from walstore.cli.output import note
from walstore.errors import TransportError
from walstore.store.store import WalStore


@dataclass
class Read:
    """An open document, and the exit code of whoever reads it."""

    store: WalStore
    code: int = OK


@asynccontextmanager
async def reading(document: KnownDocument, *, is_synced: bool) -> AsyncIterator[Read]:
    """A document, open to be read."""
    if is_synced and document.relay is None:
        raise NoRelayGivenError(document)
    async with opened(document, relay=document.relay if is_synced else None) as store:
        read = Read(store)
        if is_synced:
            try:
                await exchange(document, store)
                tell_standing(document, store)
            except TransportError as error:
                note(f"{error}. This is what is here:")
                read.code = NO_NETWORK
        yield read
        if not is_synced:
            tell_unsent(document, store.status.unsent)
