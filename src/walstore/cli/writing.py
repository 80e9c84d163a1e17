"""Opens a document to be written; when a command says that it is done, it is on disk.

- With `--sync` it is sent afterwards. If that fails, it is kept, and the exit code tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from walstore.cli.documents import KnownDocument
from walstore.cli.exchange import NoRelayGivenError, exchange
from walstore.cli.opened import opened, tell_unsent
from walstore.cli.output import note
from walstore.errors import UsageError
from walstore.store.store import WalStore


class ReaderOnlyError(UsageError):
    """The owner of a document lets this identity read alone."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(
            f"you may read {document.name}, not write it; ask its owner for"
            " `walstore share … --role writer`, then: walstore sync " + document.name
        )


@asynccontextmanager
async def writing(
    document: KnownDocument, *, done: str, is_synced: bool
) -> AsyncIterator[WalStore]:
    """A document, open to be written; afterwards it is said what was done, and maybe sent.

    Raises:
        ReaderOnlyError: Nobody would read what is written.
        NoRelayGivenError: It cannot be sent anywhere; nothing is written.
        WalStoreError: It was written, and not sent.
    """
    if is_synced and document.relay is None:
        raise NoRelayGivenError(document)
    async with opened(document) as store:
        if not store.status.may_write:
            raise ReaderOnlyError(document)
        yield store
        await store.flush()
        unsent = store.status.unsent
    # What is printed has happened: it is on disk, whatever comes now.
    note(done)
    if not is_synced:
        tell_unsent(document, unsent)
        return
    async with opened(document, relay=document.relay) as store:
        await exchange(document, store)
    note("sent")
