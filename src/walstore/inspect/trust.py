"""Whose elements count, for somebody who only looks.

- Signatures are always checked. Who had the right to write is another question: the owner's roster
  answers it, or whoever looks names the writers, or else every signed element counts, and it says
  so.
- A sealed document is opened with the reader's own key, if the owner has given it to them. Where
  that is not so, the log is shown, and its elements count as unreadable.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from walstore.canon import Json
from walstore.document import ALLOW_ANY
from walstore.document.document import Keys
from walstore.document.ports import StoredRecord
from walstore.document.revoked import Revoked, nobody_revoked
from walstore.errors import PeerError
from walstore.inspect.places import OnlyLookingError, Place
from walstore.sealed.encryptor import Encryptor, PlainEncryptor, SealContext
from walstore.sealed.native import NativeEncryptor
from walstore.sealed.outcomes import UnreadableError
from walstore.signed import Identity
from walstore.store.sharing import Sharing
from walstore.store.sharing_state import MemorySlots
from walstore.store.sharing_steps import KEYRING


class Trust(NamedTuple):
    """Who is believed.

    Attributes:
        writers: The keys that may write.
        producers: The keys that may sign snapshots.
        revoked: What still counts of those who were revoked.
        encryptor: Opens what is sealed.
        said: All this in words.
    """

    writers: Keys
    producers: Keys
    revoked: Revoked
    encryptor: Encryptor
    said: str


class ClosedEncryptor(PlainEncryptor):
    """Opens what is plain; what is sealed stays so, and is no fault."""

    __slots__ = ()

    def seal(self, plain: dict[str, Any] | bytes, context: SealContext) -> dict[str, Json]:
        """Refuse.

        Raises:
            OnlyLookingError: Always.
        """
        raise OnlyLookingError

    def open(self, sealed: object, context: SealContext) -> dict[str, Json]:
        """The object itself.

        Raises:
            UnreadableError: It is sealed.
            SealRejectedError: It is not an object.
        """
        if isinstance(sealed, Mapping) and ("_sealed" in sealed or "_encrypted" in sealed):
            epoch = sealed.get("_epoch")
            raise UnreadableError(epoch if type(epoch) is int else 0)
        return super().open(sealed, context)


async def trust_in(
    place: Place,
    document: str,
    *,
    identity: Identity,
    owner: str | None = None,
    writers: Collection[str] = (),
) -> Trust:
    """Find out whom to believe.

    Args:
        place: Where the document is.
        document: Its key.
        identity: Who looks.
        owner: Whose roster counts; the place may know.
        writers: The keys that may write, in place of a roster.

    Raises:
        TransportError: The roster cannot be read now.
    """
    owner = place.owner if owner is None else owner
    if writers:
        said = f"the {len(writers)} keys that were named"
        producers = [*writers, *([place.keeper] if place.keeper else [])]
        return Trust(writers, producers, nobody_revoked, ClosedEncryptor(), said)
    if owner is None:
        said = "every key that signs; name the owner to hold them against the roster"
        return Trust(ALLOW_ANY, ALLOW_ANY, nobody_revoked, ClosedEncryptor(), said)
    return await _trust_owner(place, document, identity, owner)


async def _trust_owner(place: Place, document: str, identity: Identity, owner: str) -> Trust:
    is_sealed = await place.read_record(document, KEYRING) is not None
    sharing = Sharing(
        document,
        identity=identity,
        owner=owner,
        records=_Records(place),
        slots=MemorySlots(),
        is_sealed=is_sealed,
    )
    fault = ""
    try:
        await sharing.refresh()
    except PeerError as error:
        fault = f"; {error}"
    membership = sharing.membership
    count = len(sharing.members())
    said = f"the roster of {owner[:8]}…: {count} {'key' if count == 1 else 'keys'}{fault}"
    encryptor: Encryptor = ClosedEncryptor()
    if sharing.keys is not None:
        encryptor = NativeEncryptor(sharing.keys, randomness=os.urandom)
    return Trust(
        membership.is_writer,
        lambda key: membership.is_producer(key) or key == place.keeper,
        membership.revoked,
        encryptor,
        said,
    )


class _Records:
    """The records of a place, as sharing reads them."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        return await self._place.read_record(document_key, name)

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        raise OnlyLookingError
