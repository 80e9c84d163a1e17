"""Brings back the content key of a sealed document whose local file is gone.

- A store takes an owner without a file for one who begins the document, and makes a new key; what
  was sealed with the old one could then be read by nobody. So the key is fetched first: the relay
  has it, wrapped for the owner.
- The new file is made in a directory of its own beside its place, and is there once the key is in
  it; whoever puts it there holds the lock of that place, so nobody's file is written over.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from walstore import net
from walstore.cli.documents import KnownDocument
from walstore.cli.output import note
from walstore.cli.waiting import in_turn
from walstore.errors import StorageError
from walstore.local import LocalFile
from walstore.local.guard import Guard
from walstore.signed.identity import Identity
from walstore.store.sharing import Sharing

if TYPE_CHECKING:
    from walstore.net import WebSocketTransport


class KeyGoneError(StorageError):
    """The file with the content key is gone."""

    def __init__(self, document: KnownDocument, where: str) -> None:
        super().__init__(
            f"{document.file} is gone, and with it the key of this sealed document; {where}"
        )


async def restore_key(
    document: KnownDocument, identity: Identity, relay: str | WebSocketTransport | None
) -> None:
    """Fetch the content key of a document of one's own, if it is not here.

    Raises:
        KeyGoneError: It cannot be had from anywhere.
        TransportError: The relay cannot be asked now.
        PeerError: What the relay has is not the owner's.
    """
    is_owned = document.is_sealed and document.owner == identity.public_key
    if not is_owned or document.file.exists():
        return
    if document.relay is None:
        raise KeyGoneError(document, "put back a copy of the file: it was nowhere else")
    if relay is None:
        raise KeyGoneError(document, f"fetch it from the relay: walstore sync {document.name}")
    if isinstance(relay, str):
        async with net.WebSocketTransport(relay, identity=identity) as transport:
            await _restore(document, identity, transport)
    else:
        await _restore(document, identity, relay)
    note(f"fetched the key of {document.name} from the relay")


async def _restore(
    document: KnownDocument, identity: Identity, transport: WebSocketTransport
) -> None:
    with TemporaryDirectory(prefix=".restored-", dir=document.directory) as directory:
        draft = Path(directory) / document.file.name
        with LocalFile.open(draft, document_key=document.key, author=identity.public_key) as local:
            sharing = Sharing(
                document.key,
                identity=identity,
                owner=document.owner,
                records=transport,
                slots=local,
                is_sealed=True,
            )
            await sharing.refresh()
        if sharing.keys is None:
            raise KeyGoneError(document, "the relay does not have it; put back a copy")
        await in_turn(document.file, lambda: _put(draft, document.file))


async def _put(draft: Path, place: Path) -> None:
    guard = Guard.acquire(place)
    try:
        # Another command may have been faster.
        if not place.exists():
            draft.rename(place)
    finally:
        guard.close()
