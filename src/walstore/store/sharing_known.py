"""What one person knows of the sharing of a document: the roster, the keys, and what is kept of it.

- It is kept on this device before it counts, so that a relay cannot take it back.
- A roster of another owner, or an older one, is refused; what was known stays in force.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from walstore.document.ports import StoredRecord
from walstore.errors import PeerError, UsageError
from walstore.sealed.keys import ContentKeys
from walstore.sealed.randomness import Randomness
from walstore.signed.identity import Identity
from walstore.signed.roster import Roster, RosterRefusedError, check_succession, read_roster
from walstore.store.membership import Membership
from walstore.store.shared_keyring import OpenKeyring, SharedKeyring
from walstore.store.sharing_state import SLOT, SharingState, SharingStateError, Slots, load_state


class OtherOwnerError(UsageError):
    """The document was opened before with another owner.

    Attributes:
        owner: The key that was pinned.
    """

    def __init__(self, owner: str) -> None:
        super().__init__(f"the owner of this document is {owner}, as was pinned before")
        self.owner = owner


class Adopting(Protocol):
    """An encryptor that takes over newer keys."""

    def adopt(self, keys: ContentKeys) -> None:
        """Use newer keys from now on."""
        ...


class Known:
    """What is known, and kept.

    Attributes:
        document_key: The document.
        identity: Who knows it.
        membership: Who may write.
        keyring: Reads and makes keyrings.
        keys: The content keys; None if there are none yet.
        state: What is kept.
        encryptor: Takes over newer keys, if there is one.
        on_members: Called whenever another roster counts.
    """

    def __init__(
        self,
        document_key: str,
        *,
        identity: Identity,
        owner: str,
        slots: Slots,
        randomness: Randomness,
    ) -> None:
        """Go on from what was kept.

        Raises:
            OtherOwnerError: Another owner was pinned before.
            SharingStateError: What was kept is damaged.
        """
        self.document_key = document_key
        self.identity = identity
        self.keyring = SharedKeyring(
            document_key, identity=identity, owner=owner, randomness=randomness
        )
        self.encryptor: Adopting | None = None
        self.on_members: Callable[[], None] | None = None
        self._slots = slots
        state = load_state(slots)
        if state is not None and state.owner != owner:
            raise OtherOwnerError(state.owner)
        self.state = SharingState(owner) if state is None else state
        self.membership = Membership(owner, self._kept_roster())
        self.keys = self._kept_keys()

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner."""
        return self.identity.public_key == self.membership.owner

    def read_roster(self, stored: StoredRecord) -> Roster:
        """Read a roster that a relay has, to be adopted.

        Raises:
            RosterRollbackError: It is older than the one that is known.
            RosterRefusedError: It is not the owner's word about this document.
        """
        owner = self.membership.owner
        roster = read_roster(stored.text, document=self.document_key, owner=owner)
        check_succession(self.membership.roster, roster)
        return roster

    def adopt_roster(self, roster: Roster) -> None:
        """Let a roster count from now on."""
        former = self.membership.roster
        is_due = self.state.is_snapshot_due or (self.is_owner and _counts_otherwise(former, roster))
        self.keep(replace(self.state, roster=roster.text, is_snapshot_due=is_due))
        self.membership.roster = roster
        if self.on_members is not None and (former is None or former.text != roster.text):
            self.on_members()

    def adopt_keyring(self, opened: OpenKeyring) -> None:
        """Seal with the keys of a keyring from now on."""
        # Who is added later has no key of earlier epochs.
        is_due = self.state.is_snapshot_due or (self.is_owner and opened.keys.current_epoch > 1)
        kept = opened.kept_in(self.state)
        self.keep(replace(kept, is_snapshot_due=is_due, is_handed_out=True))
        self.use(opened)

    def use(self, opened: OpenKeyring | None) -> None:
        """Seal with keys that were kept already."""
        if opened is None:
            return
        if self.encryptor is not None:
            self.encryptor.adopt(opened.keys)
        self.keys = opened.keys

    def keep(self, state: SharingState) -> None:
        """Keep something else from now on."""
        if state != self.state:
            self._slots.put(SLOT, state.to_json())
            self.state = state

    def _kept_roster(self) -> Roster | None:
        text = self.state.roster
        if text is None:
            return None
        try:
            return read_roster(text, document=self.document_key, owner=self.state.owner)
        except RosterRefusedError as error:
            raise SharingStateError from error

    def _kept_keys(self) -> ContentKeys | None:
        if self.state.keyring is None:
            return None
        try:
            return self.keyring.opened(self.state.keyring, self.state).keys
        except PeerError as error:
            raise SharingStateError from error


def names_in(roster: Roster | None) -> list[str]:
    """Everybody whom a roster names, but for its owner."""
    return [] if roster is None else list(dict.fromkeys([*roster.members, *roster.revoked]))


def recipients(identity: Identity, roster: Roster) -> Sequence[str]:
    """Whom a keyring wraps its keys for."""
    kems = [member.kem_public_key for member in roster.members.values()]
    return list(dict.fromkeys([identity.kem_public_key, *kems]))


def _counts_otherwise(former: Roster | None, roster: Roster) -> bool:
    """Whether somebody may do less than before, or all counts again that somebody revoked wrote."""
    if former is None:
        return False
    if any(key not in roster.revoked for key in former.revoked):
        return True
    for key, member in former.members.items():
        left = roster.members.get(key)
        if left is None or not left.roles >= member.roles:
            return True
    return False
