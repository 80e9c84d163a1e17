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
    """A keyring and the keys that it gave."""

    keyring: dict[str, Any]
    keys: ContentKeys

    def kept_in(self, state: SharingState) -> SharingState:
        """The state that pins it."""
        epoch_min = max(state.epoch_min, self.keys.current_epoch)
        key_ids = {**state.key_ids, **self.keys.key_ids}
        return replace(state, keyring=self.keyring, epoch_min=epoch_min, key_ids=key_ids)


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
        return OpenKeyring(merged, keys if merged is keyring else self._open(merged, state))

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
        is left alone, for it may hold the only keys there are.

        Returns:
            The text that the relay is to keep, and the keyring that is kept here.

        Raises:
            KeyringRefusedError: There is one, and no good one is known, or it has other keys.
            RecipientsError: The recipients are not a set.
        """
        base = self._base(stored, state)
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
                is_rotating=is_rotating,
            )
        return fit_keyring(keyring, RECORD_BYTES_MAX), self.opened(keyring, state)

    def _base(self, stored: str | None, state: SharingState) -> OpenKeyring | None:
        if stored is None and state.keyring is None:
            return None
        try:
            return self.read(stored, state)
        except KeyringRefusedError:
            if state.keyring is None:
                raise
            known = self.opened(state.keyring, state)
            self._check_lineage(stored, known.keys)
            return known

    def _check_lineage(self, stored: str | None, known: ContentKeys) -> None:
        """Never replace a keyring of the owner's own that gives other keys than those known here.

        It is there if the document was begun again, without a file and without a network.
        """
        try:
            begun = self.read(stored, SharingState(self._owner)).keys
        except KeyringRefusedError:
            return
        shared = begun.key_ids.keys() & known.key_ids.keys()
        if any(begun.key_ids[epoch] != known.key_ids[epoch] for epoch in shared):
            raise KeyringRefusedError(
                "the relay has one with other keys, of the same document begun earlier; open it"
                " without the file that is here, while the relay can be reached"
            )

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
