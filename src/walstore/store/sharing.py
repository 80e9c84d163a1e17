"""Sharing a document: who is invited, who is revoked, and how everybody else comes to know.

- The owner signs a **roster**; a sealed document has a **keyring** besides. A relay keeps both, as
  records, and is believed in neither: readers have pinned the owner, and go back to no older one.
- An invitation is for a card, which names the keys of whoever is invited; it holds no secret.
- The roster is what is meant; everything else follows from it, in this order:

      roster ──► keyring ──► the relay's grants ──► a snapshot under the new key

  After a crash in between, less is done than is meant, never something else. Somebody is in the
  roster and has no key yet: they wait. Somebody is out of it and the key was not rotated: what
  they write is refused already, what is written they can read until it is. Were the keyring
  first, whoever settles next would see a member without a key, and give it back to the revoked.
- Each step looks at what is there and does what is missing. So calling again resumes, and
  `settle` alone finishes what was begun, here or on another device of the owner's.
- A step that fails leaves in force what was before it, on this device and on others.
- What a revoked author wrote counts as far as the owner had read it by then: `revoke` reads on
  first. It is the same for all readers, once they have the roster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import anyio

from walstore.document.events import Rejection
from walstore.document.faults import (
    NoSnapshotStoreError,
    RejectedElementsError,
    SequenceGapError,
    SnapshotRefusedError,
)
from walstore.document.opening import Marks
from walstore.document.ports import GrantStore, RecordConflictError, RecordStore, StoredRecord
from walstore.errors import PeerError, UsageError
from walstore.net.faults import RelayRefusalError
from walstore.sealed.keys import ContentKeys
from walstore.sealed.randomness import Randomness
from walstore.signed.card import Card
from walstore.signed.grant import sign_grant
from walstore.signed.identity import Identity
from walstore.signed.invitation import Invitation
from walstore.signed.roster import (
    Roster,
    RosterRefusedError,
    RosterRollbackError,
    check_succession,
    counted_in,
    new_roster,
    read_roster,
)
from walstore.store.membership import Membership
from walstore.store.shared_keyring import OpenKeyring, SharedKeyring
from walstore.store.sharing_state import SLOT, SharingState, SharingStateError, Slots, load_state
from walstore.wire.frames import Code
from walstore.wire.limits import TS_AHEAD_MS_MAX

ROSTER = "roster"
KEYRING = "keyring"

# How often another device of the owner's may come in between.
_ATTEMPTS_MAX = 3

# Rejections that a document holds as evidence are bounded; from here on some may be gone.
_REJECTIONS_KNOWN_MAX = 1024


class NotOwnerError(UsageError):
    """Only the owner of a document invites and revokes."""

    def __init__(self) -> None:
        super().__init__("only the owner of the document can do this")


class OtherOwnerError(UsageError):
    """The document was opened before with another owner.

    Attributes:
        owner: The key that was pinned.
    """

    def __init__(self, owner: str) -> None:
        super().__init__(f"the owner of this document is {owner}, as was pinned before")
        self.owner = owner


class NotAttachedError(UsageError):
    """This needs the open document: only that tells what somebody has written."""

    def __init__(self) -> None:
        super().__init__("attach the open document first: it tells what was written by whom")


class SharedDocument(Protocol):
    """What sharing asks of an open document; a `WalDocument` can do it."""

    @property
    def marks(self) -> Marks:
        """How far it was read."""
        ...

    def rejected(self) -> list[Rejection]:
        """What was not folded."""
        ...

    async def pull(self) -> int:
        """Read what is new."""
        ...

    async def reread(self) -> int:
        """Read everything anew: other elements count now than before."""
        ...

    async def retry_unreadable(self) -> int:
        """Open what could not be opened before."""
        ...

    async def snapshot(self) -> dict[str, Any]:
        """Publish a snapshot."""
        ...


class Adopting(Protocol):
    """An encryptor that takes over newer keys."""

    def adopt(self, keys: ContentKeys) -> None:
        """Use newer keys from now on."""
        ...


class Person(NamedTuple):
    """Somebody whom a roster names.

    Attributes:
        public_key: Who it is.
        roles: What they may do now.
        is_owner: Whether they decide.
        is_revoked: Whether they could write once and can no longer.
    """

    public_key: str
    roles: frozenset[str]
    is_owner: bool
    is_revoked: bool


class Refreshed(NamedTuple):
    """What `refresh` has found.

    Attributes:
        is_roster_new: Whether others may do something now than before.
        are_keys_new: Whether there are other keys than before.
    """

    is_roster_new: bool
    are_keys_new: bool


class Sharing:
    """One person's part in the sharing of one document.

    Attributes:
        membership: Who may write; a document asks it for every element.
        keys: The content keys of a sealed document; None if there are none yet.
        is_relay_open: Whether the relay takes no grants because it lets in everybody, so that
            readers alone enforce the roster; None if that is not known.
    """

    def __init__(
        self,
        document_key: str,
        *,
        identity: Identity,
        owner: str,
        records: RecordStore,
        slots: Slots,
        is_sealed: bool,
        grants: GrantStore | None = None,
        relay: str | None = None,
        log_of: Callable[[], str | None] | None = None,
        now_ms: Callable[[], int] | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        """Go on from what was kept; nothing is read from the relay yet.

        Args:
            document_key: The document.
            identity: Who this is.
            owner: Whose word counts: this identity's key, or the one in the invitation.
            records: Where roster and keyring are.
            slots: Where they are kept on this device.
            is_sealed: Whether the document is sealed; an invitation tells.
            grants: Where the relay's roles are given, if it has any.
            relay: The address that invitations name.
            log_of: Tells the log that the document key stands for.
            now_ms: The time in milliseconds since 1970; the system's if left out.
            randomness: Gives keys; the system's if left out.

        Raises:
            OtherOwnerError: Another owner was pinned before.
            SharingStateError: What was kept is damaged.
        """
        self._document_key = document_key
        self._identity = identity
        self._records = records
        self._grants = grants
        self._slots = slots
        self._is_sealed = is_sealed
        self._relay = relay
        self._log_of = log_of
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._lock = anyio.Lock()
        self._document: SharedDocument | None = None
        self._encryptor: Adopting | None = None
        self._keyring = SharedKeyring(
            document_key,
            identity=identity,
            owner=owner,
            randomness=os.urandom if randomness is None else randomness,
        )
        self.is_relay_open: bool | None = None
        state = load_state(slots)
        if state is not None and state.owner != owner:
            raise OtherOwnerError(state.owner)
        self._state = SharingState(owner) if state is None else state
        self.membership = Membership(owner, self._kept_roster())
        self.keys = self._kept_keys()
        # What the attached document was read with.
        self._followed = (self.membership.roster, self.keys)

    def attach(self, document: SharedDocument, encryptor: Adopting | None = None) -> None:
        """Let a document that was opened just now follow: what counts, what it is sealed with."""
        self._document = document
        self._encryptor = encryptor
        self._followed = (self.membership.roster, self.keys)

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner."""
        return self._identity.public_key == self.membership.owner

    @property
    def is_snapshot_due(self) -> bool:
        """Whether those who come late wait for a snapshot that could not be made yet."""
        return self._state.is_snapshot_due

    def members(self) -> list[Person]:
        """Everybody whom the roster names, the owner first."""
        roster, owner = self.membership.roster, self.membership.owner
        everything = frozenset({"read", "write", "snapshot"})
        people = [Person(owner, everything, is_owner=True, is_revoked=False)]
        if roster is None:
            return people
        for key in [*roster.members, *(key for key in roster.revoked if key not in roster.members)]:
            member = roster.members.get(key)
            roles = (
                frozenset[str]()
                if member is None
                else frozenset(role.value for role in member.roles)
            )
            people.append(Person(key, roles, is_owner=False, is_revoked=key in roster.revoked))
        return people

    # ── what the owner does ────────────────────────────────────────────────────────────

    def create(self) -> None:
        """Begin a document that nobody else can have begun, without asking a relay.

        Its keys can be used at once; `settle` tells the relay when there is one. On a key that
        another device of the owner's has begun too, the two would have different keys.

        Raises:
            NotOwnerError: This is not the owner.
        """
        self._check_owner()
        state = self._state
        roster = self.membership.roster or self._new_roster()
        state = replace(state, roster=roster.text)
        keyring: OpenKeyring | None = None
        if self._is_sealed and self.keys is None:
            _, keyring = self._settled(None, state, roster, is_rotating=False)
            state = keyring.kept_in(state)
        self._keep(state)
        self.membership.roster = roster
        self._use(keyring)

    async def settle(self) -> None:
        """Carry out what the roster says and is not done yet; make the first one if there is none.

        Raises:
            NotOwnerError: This is not the owner.
            RosterRefusedError: The relay has somebody else's roster for this document.
            KeyringRefusedError: The relay has a keyring that is none of the owner's.
            RecordConflictError: Another device came in between, again and again.
            TransportError: Not all of it is known to be done; call again.
        """
        self._check_owner()
        async with self._lock:
            await self._carry_out(lambda roster: roster)

    async def invite(
        self, card: Card | str, roles: Iterable[str] = ("read", "write")
    ) -> Invitation:
        """Make somebody a member, or give a member other roles.

        Args:
            card: What they handed out.
            roles: What they may do, of `read`, `write` and `snapshot`; reading is always included.

        Returns:
            What to hand to them; it holds no secret.

        Raises:
            MalformedError: It is not a card.
            MemberRefusedError: They are the owner, or a role cannot be given.
            RosterTooLargeError: There is no room for more.
            NotAttachedError: They are to write no longer, and there is no document to tell how
                far they have written.
            UsageError: As `settle` does; and so for `PeerError` and `TransportError`.
        """
        self._check_owner()
        found, wanted = Card.read(card) if isinstance(card, str) else card, tuple(roles)
        async with self._lock:
            counted: Mapping[str, int] = {}
            if "write" not in wanted and self.membership.may_write(found.public_key):
                counted = await self._counted(found.public_key)
            await self._carry_out(
                lambda roster: roster.with_member(
                    self._identity, found, wanted, counted=counted, now_ms=self._now_ms()
                )
            )
        return Invitation.sign(
            self._identity,
            document=self._document_key,
            to=found.public_key,
            relay=self._relay,
            log=None if self._log_of is None else self._log_of(),
            is_sealed=self._is_sealed,
        )

    async def revoke(self, key: str) -> None:
        """End somebody's membership; a sealed document is sealed with a new key from now on.

        What they wrote and the owner has read still counts. What they could read stays theirs.

        Raises:
            MemberRefusedError: Nobody with this key is a member.
            NotAttachedError: There is no document to tell how far they have written.
            UsageError: As `settle` does; and so for `PeerError` and `TransportError`.
        """
        self._check_owner()
        async with self._lock:
            counted = await self._counted(key)
            await self._carry_out(
                lambda roster: roster.without(
                    self._identity, key, counted=counted, now_ms=self._now_ms()
                )
            )

    async def rotate(self) -> None:
        """Seal with a new key from now on, for the same members; raises as `settle` does."""
        self._check_owner()
        async with self._lock:
            await self._carry_out(lambda roster: roster, is_rotating=True)

    # ── what everybody does ────────────────────────────────────────────────────────────

    async def refresh(self) -> Refreshed:
        """Read roster and keyring, and follow them as far as they are good.

        What is refused leaves in force what was known before. The roster and the keyring stand
        for themselves: the fault of one does not keep the other from being followed.

        Raises:
            RosterRollbackError: The relay has an older roster than one seen before, or none.
            RosterRefusedError: It is not the owner's word about this document.
            KeyringRollbackError: The relay has an older keyring than one seen before, or none.
            KeyringRefusedError: It gives no trustworthy key.
            TransportError: They cannot be read now.
        """
        async with self._lock:
            roster, keys = self.membership.roster, self.keys
            faults: list[PeerError] = []
            for step in (self._refresh_roster, self._refresh_keyring):
                try:
                    await step()
                except PeerError as error:
                    faults.append(error)
            await self._follow()
        if faults:
            raise faults[0]
        return Refreshed(self.membership.roster is not roster, self.keys is not keys)

    async def snapshot(self) -> dict[str, Any]:
        """Publish a snapshot of what counts now.

        A producer that does not know of a new member yet would sign away what they wrote.

        Raises:
            NotAttachedError: There is no document.
            SnapshotRefusedError: As `WalDocument.snapshot` does.
            PeerError: As `refresh` does.
            TransportError: It is not known to be stored.
        """
        document = self._attached()
        with suppress(RejectedElementsError, SequenceGapError):
            await document.pull()
        await self.refresh()
        return await document.snapshot()

    async def _refresh_roster(self) -> None:
        stored = await self._records.read_record(self._document_key, ROSTER)
        known = self.membership.roster
        if stored is None:
            if known is not None:
                raise RosterRollbackError(version=0, version_min=known.version)
        elif known is None or stored.text != known.text:
            self._adopt_roster(self._read_roster(stored))

    async def _refresh_keyring(self) -> None:
        roster = self.membership.roster
        is_out = roster is not None and not roster.may_read(self._identity.public_key)
        if not self._is_sealed or is_out:
            return
        stored = await self._records.read_record(self._document_key, KEYRING)
        opened = self._keyring.read(None if stored is None else stored.text, self._state)
        if opened.keyring != self._state.keyring:
            self._adopt_keyring(opened)

    async def _follow(self) -> None:
        """Let the document follow what has changed since it was read."""
        if self._document is None:
            return
        roster, keys = self._followed
        with suppress(RejectedElementsError, SequenceGapError):
            if self.membership.roster is not roster and self._is_affected(self._document, roster):
                await self._document.reread()
            elif self.keys is not keys:
                await self._document.retry_unreadable()
        self._followed = (self.membership.roster, self.keys)

    def _is_affected(self, document: SharedDocument, former: Roster | None) -> bool:
        """Whether something that the document was read with counts otherwise by now."""
        before, now = Membership(self.membership.owner, former), self.membership
        rejections = document.rejected()
        rejected = {rejection.author for rejection in rejections}
        is_full = len(rejections) >= _REJECTIONS_KNOWN_MAX
        seqs = document.marks.seqs
        for key in {*_names(former), *_names(now.roster)}:
            is_changed = (before.is_writer(key), before.revoked(key)) != (
                now.is_writer(key),
                now.revoked(key),
            )
            if is_changed and (is_full or key in rejected or _is_beyond(seqs, key, now)):
                return True
        return False

    # ── the steps ──────────────────────────────────────────────────────────────────────

    async def _carry_out(
        self, change: Callable[[Roster], Roster], *, is_rotating: bool = False
    ) -> None:
        await self._write_roster(change)
        if self._is_sealed:
            await self._write_keyring(is_rotating=is_rotating)
        await self._follow()
        await self._publish_grants()
        await self._renew_snapshot()

    async def _write_roster(self, change: Callable[[Roster], Roster]) -> None:
        for _ in range(_ATTEMPTS_MAX):
            stored = await self._records.read_record(self._document_key, ROSTER)
            roster = change(self._base(stored))
            if await self._write(ROSTER, roster.text, stored):
                self._adopt_roster(roster)
                return
        raise RecordConflictError

    def _base(self, stored: StoredRecord | None) -> Roster:
        """The newest roster there is; what a relay has lost or garbled is made good."""
        known = self.membership.roster
        if stored is not None:
            try:
                return self._read_roster(stored)
            except RosterRefusedError:
                if known is None:
                    raise
        return self._new_roster() if known is None else known

    async def _write_keyring(self, *, is_rotating: bool) -> None:
        roster = self.membership.roster
        assert roster is not None
        for _ in range(_ATTEMPTS_MAX):
            stored = await self._records.read_record(self._document_key, KEYRING)
            former = None if stored is None else stored.text
            text, opened = self._settled(former, self._state, roster, is_rotating=is_rotating)
            if await self._write(KEYRING, text, stored):
                if opened.keyring != self._state.keyring:
                    self._adopt_keyring(opened)
                return
        raise RecordConflictError

    def _settled(
        self, stored: str | None, state: SharingState, roster: Roster, *, is_rotating: bool
    ) -> tuple[str, OpenKeyring]:
        return self._keyring.settled(
            stored,
            state,
            _recipients(self._identity, roster),
            now_ms=self._now_ms(),
            is_rotating=is_rotating,
        )

    async def _write(self, name: str, text: str, stored: StoredRecord | None) -> bool:
        """Write a record; False if somebody else has done so meanwhile."""
        if stored is not None and stored.text == text:
            return True
        revision = None if stored is None else stored.revision
        try:
            await self._records.write_record(self._document_key, name, text, revision)
        except RecordConflictError:
            return False
        return True

    async def _publish_grants(self) -> None:
        """Tell the relay who may do what, as far as it was not told."""
        roster = self.membership.roster
        if self._grants is None or roster is None:
            return
        # One that is far ahead, because a clock was, would be refused.
        at_ms = min(roster.at_ms, self._now_ms() + TS_AHEAD_MS_MAX // 2)
        for key in _names(roster):
            member = roster.members.get(key)
            roles = () if member is None else tuple(sorted(role.value for role in member.roles))
            if self._state.granted.get(key) == roles:
                continue
            grant = sign_grant(
                self._identity,
                prefix=self._document_key,
                to=key,
                roles=roles,
                at_ms=at_ms,
                is_exact=True,
            )
            try:
                await self._grants.publish_grant(grant)
            except RelayRefusalError as error:
                if error.code is not Code.RESTRICTED:
                    raise
                # Who may keep the roster may give roles, unless the relay has none to give.
                self.is_relay_open = True
                return
            self.is_relay_open = False
            self._keep(self._state.with_grant(key, roles))

    async def _renew_snapshot(self) -> None:
        """Seal a snapshot under the current key, for those who have no earlier one."""
        if not self._state.is_snapshot_due or self._document is None:
            return
        try:
            await self._document.snapshot()
        except SnapshotRefusedError:
            # Something is missing or unreadable: it stays due.
            return
        except (NoSnapshotStoreError, RejectedElementsError, SequenceGapError):
            # There is no place for one; or it is stored, and what was rejected is told elsewhere.
            pass
        except RelayRefusalError as error:
            if error.code is not Code.RESTRICTED:
                raise
        self._keep(replace(self._state, is_snapshot_due=False))

    async def _counted(self, key: str) -> dict[str, int]:
        """What somebody has written, as far as it can be read now."""
        document = self._attached()
        with suppress(RejectedElementsError, SequenceGapError):
            await document.pull()
        return counted_in(document.marks.seqs, key)

    def _attached(self) -> SharedDocument:
        if self._document is None:
            raise NotAttachedError
        return self._document

    # ── what is known ──────────────────────────────────────────────────────────────────

    def _adopt_roster(self, roster: Roster) -> None:
        former = self.membership.roster
        is_due = self._state.is_snapshot_due or (self.is_owner and _has_lost(former, roster))
        self._keep(replace(self._state, roster=roster.text, is_snapshot_due=is_due))
        self.membership.roster = roster

    def _adopt_keyring(self, opened: OpenKeyring) -> None:
        # Who is added later has no key of earlier epochs.
        is_due = self._state.is_snapshot_due or (self.is_owner and opened.keys.current_epoch > 1)
        self._keep(replace(opened.kept_in(self._state), is_snapshot_due=is_due))
        self._use(opened)

    def _use(self, opened: OpenKeyring | None) -> None:
        if opened is None:
            return
        if self._encryptor is not None:
            self._encryptor.adopt(opened.keys)
        self.keys = opened.keys

    def _keep(self, state: SharingState) -> None:
        if state != self._state:
            self._slots.put(SLOT, state.to_json())
            self._state = state

    def _kept_roster(self) -> Roster | None:
        text = self._state.roster
        if text is None:
            return None
        try:
            return read_roster(text, document=self._document_key, owner=self._state.owner)
        except RosterRefusedError as error:
            raise SharingStateError from error

    def _kept_keys(self) -> ContentKeys | None:
        if self._state.keyring is None:
            return None
        try:
            return self._keyring.opened(self._state.keyring, self._state).keys
        except PeerError as error:
            raise SharingStateError from error

    def _read_roster(self, stored: StoredRecord) -> Roster:
        owner = self.membership.owner
        roster = read_roster(stored.text, document=self._document_key, owner=owner)
        check_succession(self.membership.roster, roster)
        return roster

    def _new_roster(self) -> Roster:
        return new_roster(self._identity, self._document_key, now_ms=self._now_ms())

    def _check_owner(self) -> None:
        if not self.is_owner:
            raise NotOwnerError


def _names(roster: Roster | None) -> list[str]:
    """Everybody whom a roster names, but for its owner."""
    return [] if roster is None else list(dict.fromkeys([*roster.members, *roster.revoked]))


def _recipients(identity: Identity, roster: Roster) -> Sequence[str]:
    kems = [member.kem_public_key for member in roster.members.values()]
    return list(dict.fromkeys([identity.kem_public_key, *kems]))


def _has_lost(former: Roster | None, roster: Roster) -> bool:
    """Whether somebody may do less than before."""
    if former is None:
        return False
    for key, member in former.members.items():
        left = roster.members.get(key)
        if left is None or not left.roles >= member.roles:
            return True
    return False


def _is_beyond(seqs: Mapping[str, int], key: str, membership: Membership) -> bool:
    """Whether more was read of a key than counts."""
    read = counted_in(seqs, key)
    if not membership.is_writer(key):
        return bool(read)
    counted = membership.revoked(key)
    return counted is not None and any(seq > counted.get(each, 0) for each, seq in read.items())


def _system_ms() -> int:
    return time.time_ns() // 1_000_000
