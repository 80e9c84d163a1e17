"""The keyring of a shared document: opened as a reader, settled as its owner.

- Only the owner gives out keys. A keyring of anybody else, of another document, or older than one
  seen before is refused, and the keys at hand stay in use.
- Key epochs that were readable once stay so on this device, whatever a relay leaves out later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from walstore.canon import parse
from walstore.errors import MalformedError
from walstore.sealed.keyring import open_keyring
from walstore.sealed.keys import ContentKeys
from walstore.sealed.membership import create_keyring
from walstore.sealed.outcomes import KeyringRefusedError, KeyringRollbackError
from walstore.sealed.randomness import Randomness
from walstore.sealed.recipients import fit_keyring, merge_epochs, settle_keyring
from walstore.signed.author import verify_bytes
from walstore.signed.identity import Identity
from walstore.store.sharing_state import SharingState
from walstore.wire.limits import RECORD_BYTES_MAX


class OpenKeyring(NamedTuple):
    """A keyring and the keys that it gave, and those that were given up for it."""

    keyring: dict[str, Any]
    keys: ContentKeys
    former: tuple[dict[str, Any], ...] = ()

    def kept_in(self, state: SharingState) -> SharingState:
        """The state that pins it."""
        strangers = state.strangers
        if self.former != state.former and state.owner not in strangers:
            # What others have sealed was taken for false: it has to be read anew.
            strangers = (state.owner, *strangers)
        return replace(
            state,
            keyring=self.keyring,
            epoch_min=max(state.epoch_min, self.keys.current_epoch),
            key_ids={**state.key_ids, **self.keys.key_ids},
            former=self.former,
            strangers=strangers,
        )


class SharedKeyring:
    """How one reader of a document opens its keyring."""

    def __init__(
        self, document_key: str, *, identity: Identity, owner: str, randomness: Randomness
    ) -> None:
        """Read as an identity what an owner gives out."""
        self._scope = document_key
        self._identity = identity
        self._owner = owner
        self._randomness = randomness

    def opened(self, keyring: object, state: SharingState) -> OpenKeyring:
        """Open a keyring, and keep the key epochs of the former one that it gives no key for.

        Raises:
            KeyringRollbackError: It is older than one seen before.
            KeyringRefusedError: It gives no trustworthy key for its current epoch.
        """
        keys = self._open(keyring, state)
        assert isinstance(keyring, dict)
        merged = merge_epochs(keyring, state.keyring, keys)
        if merged is not keyring:
            keys = self._open(merged, state)
        for former in state.former:
            keys = keys.after(self._open(former, SharingState(self._owner)))
        return OpenKeyring(merged, keys, state.former)

    def read(self, text: str | None, state: SharingState) -> OpenKeyring:
        """Open what a relay keeps; raises as `opened` does, also if it keeps none."""
        if text is None and state.epoch_min:
            raise KeyringRollbackError(epoch=0, epoch_min=state.epoch_min)
        if text is None:
            raise KeyringRefusedError("there is none")
        try:
            return self.opened(parse(text), state)
        except MalformedError as error:
            raise KeyringRefusedError("it is not JSON") from error

    def settled(
        self,
        stored: str | None,
        state: SharingState,
        recipients: Sequence[str],
        *,
        now_ms: int,
        is_rotating: bool,
    ) -> tuple[str, OpenKeyring]:
        """The keyring for exactly these recipients, made of the one that a relay keeps.

        What a relay keeps and is not good is replaced by what is known here; if nothing is, it
        is left alone, for it may hold the only keys there are. Keys that were never handed out give
        way to those of another device of the owner's: from a new key epoch on there is one lineage.

        Returns:
            The text that the relay is to keep, and the keyring that is kept here.

        Raises:
            KeyringRefusedError: There is one, and no good one is known, or it has other keys.
            RecipientsError: The recipients are not a set.
        """
        base, pinned = self._base(stored, state)
        if base is None:
            keyring = create_keyring(
                recipients,
                scope=self._scope,
                adder=self._identity,
                now_s=now_ms // 1000,
                randomness=self._randomness,
            )
        else:
            keyring = settle_keyring(
                base.keyring,
                base.keys,
                recipients,
                scope=self._scope,
                adder=self._identity,
                verify=verify_bytes,
                now_s=now_ms // 1000,
                randomness=self._randomness,
                # What waits to be sent is sealed anew only in a new key epoch.
                is_rotating=is_rotating or pinned is not state,
            )
        return fit_keyring(keyring, RECORD_BYTES_MAX), self.opened(keyring, pinned)

    def _base(
        self, stored: str | None, state: SharingState
    ) -> tuple[OpenKeyring | None, SharingState]:
        """The keyring to go on from, and what is pinned of it."""
        if stored is None and state.keyring is None:
            return None, state
        try:
            return self.read(stored, state), state
        except KeyringRefusedError:
            if state.keyring is None:
                raise
            known = self.opened(state.keyring, state)
            if not self._is_other(stored, known.keys):
                return known, state
            if not state.is_handed_out:
                pinned = state.giving_up_keyring()
                return self.read(stored, pinned), pinned
            raise KeyringRefusedError(
                "the relay has one with other keys, of the same document begun earlier; open it"
                " without the file that is here, while the relay can be reached"
            ) from None

    def _is_other(self, stored: str | None, known: ContentKeys) -> bool:
        """Whether there is a keyring of the owner's own that gives other keys than those known
        here: the document was begun twice, without a network.
        """
        try:
            begun = self.read(stored, SharingState(self._owner)).keys
        except KeyringRefusedError:
            return False
        shared = begun.key_ids.keys() & known.key_ids.keys()
        return any(begun.key_ids[epoch] != known.key_ids[epoch] for epoch in shared)

    def _open(self, keyring: object, state: SharingState) -> ContentKeys:
        return open_keyring(
            keyring,
            recipient=self._identity,
            trusted_adders={self._owner},
            verify=verify_bytes,
            scope=self._scope,
            epoch_min=state.epoch_min,
            key_ids=state.key_ids,
        )
