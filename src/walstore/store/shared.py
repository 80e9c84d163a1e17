"""What makes a store a shared one: the owner's roster says who counts, the keyring who can read.

- The owner begins without anybody's leave: where nothing is kept here, the relay is asked for what
  the owner has begun before, and if it cannot be asked, that is taken for nothing. Whoever was
  invited needs the relay the first time. Both go on from what is kept here afterwards.
- Roster and keyring are looked at whenever the store comes live, when the relay says that they are
  others, and when something arrives that they may explain: an element of somebody unknown, or one
  that cannot be opened. `lookout` sees to it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any, cast

from walstore.document.ports import (
    CheckpointTooOldError,
    GrantStore,
    RecordStore,
    StoredRecord,
    Transport,
)
from walstore.errors import PeerError, TransportError, UsageError
from walstore.local import LocalFile
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.store.replica import NoRelayError
from walstore.store.sharing import Sharing
from walstore.store.sharing_state import SLOT, MemorySlots

# How long opening waits for a roster or a key that is not here.
_FIRST_LOOK_S = 5.0


class NotSharedError(UsageError):
    """The store was opened with writers, not with an owner whose roster names them."""

    def __init__(self) -> None:
        super().__init__("this store is not shared; open it with `owner=`, or `join` it")


class NoKeyError(UsageError):
    """A sealed document cannot be opened before its key was fetched once."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the key of this sealed document is not here, and cannot be had: {reason}"
        )


class KeysNotKeptError(UsageError):
    """What the owner of a sealed document sends could be opened by nobody, ever."""

    def __init__(self) -> None:
        super().__init__(
            "the keys of this sealed document would be kept nowhere: open it with `path=`,"
            " or on a relay that keeps records"
        )


class OtherSealError(UsageError):
    """A document was opened as another kind than it is: what is written could be read by nobody."""

    def __init__(self, *, is_sealed: bool) -> None:
        super().__init__(
            "this document is sealed: open it with `owner=` and `is_sealed=True`"
            if is_sealed
            else "this document was begun without a seal, or its keys are lost:"
            " open it without `is_sealed=True`"
        )


class _NoRecords:
    """Where records would be, if there were a relay."""

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        raise NoRelayError

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        raise NoRelayError


def check_unshared(file: LocalFile | None) -> None:
    """Make sure that a file is not that of a sealed document, before it is opened without an owner.

    Raises:
        OtherSealError: It is.
    """
    kept: Any = None if file is None else file.get(SLOT)
    if isinstance(kept, dict) and kept.get("keyring") is not None:
        raise OtherSealError(is_sealed=True)


async def share(
    key: str,
    *,
    identity: Identity,
    owner: str,
    is_sealed: bool,
    file: LocalFile | None,
    transport: Transport | None,
    relay: str | None,
) -> Sharing:
    """One person's part in a shared document, ready for it to be opened.

    Raises:
        KeysNotKeptError: It is sealed and the owner's, and there is no place for its keys.
        NoKeyError: It is sealed, and its key is not here and cannot be fetched now.
        PeerError: The relay has a roster or a keyring that is not the owner's word.
    """
    given: Any = transport
    has_records = hasattr(given, "read_record")
    is_kept = given is None or file is not None or has_records
    if is_sealed and owner == identity.public_key and not is_kept:
        raise KeysNotKeptError
    sharing = Sharing(
        key,
        identity=identity,
        owner=owner,
        records=cast(RecordStore, given if has_records else _NoRecords()),
        slots=MemorySlots() if file is None else file,
        is_sealed=is_sealed,
        grants=cast("GrantStore | None", given if hasattr(given, "publish_grant") else None),
        relay=relay,
        log_of=(lambda: given.log_of(key)) if hasattr(given, "log_of") else None,
    )
    if not is_sealed and sharing.keys is not None:
        raise OtherSealError(is_sealed=True)
    if sharing.is_owner:
        if sharing.membership.roster is None:
            await _look_before(sharing)
            await _check_seal(sharing, given, is_sealed=is_sealed)
        elif is_sealed and sharing.keys is None:
            # An owner's roster and keys begin in one step.
            raise OtherSealError(is_sealed=False)
        sharing.create()
    elif sharing.membership.roster is None or (is_sealed and sharing.keys is None):
        await _first_look(sharing, is_sealed=is_sealed)
        await _check_seal(sharing, given, is_sealed=is_sealed)
    return sharing


async def _look_before(sharing: Sharing) -> None:
    """Go on with what the owner has begun elsewhere, or in a file that is gone: it has its key."""
    # What the relay does not have, or not as the owner left it, is begun here and settled later.
    with suppress(PeerError, TransportError, TimeoutError):
        async with asyncio.timeout(_FIRST_LOOK_S):
            await sharing.refresh()


async def _check_seal(sharing: Sharing, transport: Any, *, is_sealed: bool) -> None:
    """Make sure that what the owner has begun elsewhere was begun as it is opened now."""
    if transport is None or (is_sealed and sharing.membership.roster is None):
        return
    with suppress(TransportError, TimeoutError):
        async with asyncio.timeout(_FIRST_LOOK_S):
            if not is_sealed and await sharing.is_sealed_there():
                raise OtherSealError(is_sealed=True)
            # A roster is there before the keys are; nothing is written before both are.
            if (
                is_sealed
                and sharing.keys is None
                and await _has_log(transport, sharing.document_key)
            ):
                raise OtherSealError(is_sealed=False)


async def _has_log(transport: Transport, key: str) -> bool:
    """Whether anything was ever written, be it pruned by now."""
    try:
        return bool(await transport.pull(key, 0))
    except CheckpointTooOldError:
        return True


async def _first_look(sharing: Sharing, *, is_sealed: bool) -> None:
    try:
        async with asyncio.timeout(_FIRST_LOOK_S):
            await sharing.refresh()
    except (TransportError, TimeoutError) as error:
        if is_sealed:
            raise NoKeyError(str(error) or "the relay does not answer") from error
    if is_sealed and sharing.keys is None:
        raise NoKeyError("the owner has not given it to this identity")


def encryptor_of(sharing: Sharing, *, is_sealed: bool) -> Encryptor:
    """What a shared document is sealed with."""
    if not is_sealed:
        return PlainEncryptor()
    assert sharing.keys is not None
    return NativeEncryptor(sharing.keys, randomness=os.urandom)
