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
- Whoever is made a writer, or again, is trusted with all that they have written before. Where some
  of that was passed over and cannot be read any more, they are not: another key is.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import anyio

from walstore.document.ports import GrantStore, RecordStore
from walstore.errors import PeerError, TransportError, UsageError
from walstore.local import LocalFileClosedError
from walstore.net.faults import RelayRefusalError
from walstore.sealed.keys import ContentKeys
from walstore.sealed.outcomes import KeyringRefusedError
from walstore.sealed.randomness import Randomness
from walstore.signed.card import Card
from walstore.signed.identity import Identity
from walstore.signed.invitation import Invitation
from walstore.signed.roster import Counts, Roster, RosterRollbackError
from walstore.store.closing import ClosedMeanwhileError
from walstore.store.membership import Membership
from walstore.store.replica import NoRelayError
from walstore.store.shared_keyring import OpenKeyring
from walstore.store.sharing_document import Attached, SharedDocument
from walstore.store.sharing_known import Adopting, Known
from walstore.store.sharing_state import MemorySlots, SharingState, Slots
from walstore.store.sharing_steps import KEYRING, ROSTER, Steps
from walstore.wire.frames import Code


class NotOwnerError(UsageError):
    """Only the owner of a document invites and revokes."""

    def __init__(self) -> None:
        super().__init__("only the owner of the document can do this")


class CannotReturnError(UsageError):
    """Somebody cannot be made a writer, for what they have written when they were none.

    Attributes:
        key: Who it is.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            "something that they wrote without the right to would count, which nobody can read any"
            " more: the log was pruned, or the document was deleted;"
            " ask them for the card of another identity, and invite that"
        )
        self.key = key


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


class Version(NamedTuple):
    """What is known of a document's sharing, to see whether something else is known later.

    Attributes:
        roster: The text of the roster; None if there is none.
        key_ids: The ids of the keys by key epoch.
    """

    roster: str | None
    key_ids: Mapping[int, str]


class Refreshed(NamedTuple):
    """What `refresh` has found.

    Attributes:
        is_roster_new: Whether others may do something now than before.
        are_keys_new: Whether there are other keys than before.
    """

    is_roster_new: bool
    are_keys_new: bool


class Sharing:
    """One person's part in the sharing of one document."""

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
        self._records = records
        self._is_sealed = is_sealed
        self._relay = relay
        self._log_of = log_of
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._lock = anyio.Lock()
        self._outdated_ts = 0
        self._unkept: PeerError | TransportError | None = None
        self._is_on_file = not isinstance(slots, MemorySlots)
        self._known = Known(
            document_key,
            identity=identity,
            owner=owner,
            slots=slots,
            randomness=os.urandom if randomness is None else randomness,
        )
        self._attached = Attached(self._known)
        self._steps = Steps(
            self._known,
            self._attached,
            records=records,
            grants=grants,
            is_sealed=is_sealed,
            now_ms=self._now_ms,
        )

    def attach(self, document: SharedDocument, encryptor: Adopting | None = None) -> None:
        """Let a document that was opened just now follow: what counts, what it is sealed with."""
        self._known.encryptor = encryptor
        self._attached.attach(document)

    def listen(self, on_members: Callable[[], None]) -> None:
        """Have a function called whenever another roster counts."""
        self._known.on_members = on_members

    @property
    def document_key(self) -> str:
        """The document."""
        return self._known.document_key

    @property
    def membership(self) -> Membership:
        """Who may write; a document asks it for every element."""
        return self._known.membership

    @property
    def keys(self) -> ContentKeys | None:
        """The content keys of a sealed document; None if there are none yet."""
        return self._known.keys

    @property
    def version(self) -> Version:
        """What is known now."""
        return Version(self._known.state.roster, dict(self._known.state.key_ids))

    @property
    def is_relay_open(self) -> bool | None:
        """Whether the relay takes no grants because it lets in everybody, so that readers alone
        enforce the roster; None if that is not known.
        """
        return self._steps.is_relay_open

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner."""
        return self._known.is_owner

    @property
    def is_snapshot_due(self) -> bool:
        """Whether those who come late wait for a snapshot that could not be made yet."""
        return self._known.state.is_snapshot_due

    def note_outdated(self) -> bool:
        """Whether something was read, not noted before, that those who come late cannot open.

        Somebody wrote it before they knew of a new key. Then `settle` makes a snapshot, of the
        owner's.
        """
        document, known = self._attached.document, self._known
        outdated_ts = 0 if document is None or not self.is_owner else document.outdated_ts
        if outdated_ts <= self._outdated_ts:
            return False
        known.keep(replace(known.state, is_snapshot_due=True))
        self._outdated_ts = outdated_ts
        return True

    @contextmanager
    def rejoining(self) -> Iterator[None]:
        """Go on with a log that was put back within: it may have lost the snapshot that those who
        come late depend on. Then `settle` makes another, of the owner's.
        """
        known, keys = self._known, self.keys
        if self.is_owner and keys is not None and keys.current_epoch > 1:
            known.keep(replace(known.state, is_snapshot_due=True))
        yield
        # What was noted stands elsewhere by now, if at all.
        self._outdated_ts = 0

    def snapshot_told(self) -> None:
        """There may be another snapshot: the next look sees whether it helps who lacks a key."""
        self._attached.is_snapshot_new = True

    @property
    def is_state_due(self) -> bool:
        """Whether a fold that is kept stands for less than what was read since."""
        return self._attached.is_state_due

    @contextmanager
    def keeping_state(self) -> Iterator[None]:
        """Keep a fold of the document within: what it passes over must not be passed over for
        ever.
        """
        self._attached.note_strangers()
        yield
        self._attached.forget_strangers()

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
        known = self._known
        roster = known.membership.roster or self._steps.new_roster()
        state = replace(known.state, roster=roster.text)
        keyring: OpenKeyring | None = None
        if self._is_sealed and known.keys is None:
            _, keyring = self._steps.settled(None, state, roster, is_rotating=False)
            state = keyring.kept_in(state)
        known.keep(state)
        known.membership.roster = roster
        known.use(keyring)

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
        async with self._turn():
            await self._steps.carry_out(lambda roster: roster)

    async def invite(
        self, card: Card | str, roles: Iterable[str] = ("read", "write")
    ) -> Invitation:
        """Make somebody a member, or give a member other roles.

        Of whoever is made a writer everything counts, also what they wrote when they were none.
        Where some of it cannot be read any more, that is refused, and nothing has changed.

        Args:
            card: What they handed out.
            roles: What they may do, of `read`, `write` and `snapshot`; reading is always included.

        Returns:
            What to hand to them; it holds no secret.

        Raises:
            MalformedError: It is not a card.
            MemberRefusedError: They are the owner, or a role cannot be given.
            RosterTooLargeError: There is no room for more.
            CannotReturnError: They cannot be made a writer; another key of theirs can.
            NotAttachedError: They are to write no longer, or again, and there is no document to
                tell what they have written.
            UsageError: As `settle` does; and so for `PeerError` and `TransportError`.
        """
        self._check_owner()
        found, wanted = Card.read(card) if isinstance(card, str) else card, tuple(roles)

        async def check(roster: Roster) -> None:
            key, document = found.public_key, self._attached.document
            if "write" not in wanted or roster.may_write(key):
                return
            # Who was never a writer has as a rule written nothing, and is let in without asking.
            # What was deleted is not known to a device that has begun there.
            has_written = document is not None and (
                document.has_begun_anew or key in document.left_out
            )
            if (has_written or key in roster.revoked) and not await self._attached.can_return(key):
                raise CannotReturnError(key)

        async with self._turn():
            counted: Counts = {}
            if "write" not in wanted and self.membership.may_write(found.public_key):
                counted = await self._attached.counted(found.public_key)
            self._tell_again(found.public_key)
            await self._steps.carry_out(
                lambda roster: roster.with_member(
                    self._known.identity, found, wanted, counted=counted, now_ms=self._now_ms()
                ),
                check=check,
            )
        return Invitation.sign(
            self._known.identity,
            document=self._known.document_key,
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
        async with self._turn():
            counted = await self._attached.counted(key)
            self._tell_again(key)
            await self._steps.carry_out(
                lambda roster: roster.without(
                    self._known.identity, key, counted=counted, now_ms=self._now_ms()
                )
            )

    async def rotate(self) -> None:
        """Seal with a new key from now on, for the same members; raises as `settle` does."""
        self._check_owner()
        async with self._turn():
            await self._steps.carry_out(lambda roster: roster, is_rotating=True)

    # ── what everybody does ────────────────────────────────────────────────────────────

    async def prepare(self) -> None:
        """Have everything in place that it takes to read what is sent from now on: the owner sees
        to it that the relay keeps roster and keyring, all others read them.

        Raises:
            UsageError: As `settle` or `refresh` does; and so for `PeerError` and `TransportError`.
        """
        if not self.is_owner:
            await self.refresh()
            return
        self._unkept = None
        try:
            async with self._turn():
                await self._steps.publish(lambda roster: roster)
        except (PeerError, TransportError) as error:
            if self._is_sealed and not await self._may_do_without(error):
                self._unkept = error
            raise

    async def is_sealed_there(self) -> bool:
        """Whether the relay keeps keys of this document that the owner has given to this identity.

        Raises:
            TransportError: They cannot be read now.
        """
        stored = await self._records.read_record(self._known.document_key, KEYRING)
        try:
            anew = SharingState(self.membership.owner)
            self._known.keyring.read(None if stored is None else stored.text, anew)
        except KeyringRefusedError:
            return False
        return True

    @property
    def is_unkept(self) -> bool:
        """Whether the relay did not take the owner's keyring when `prepare` was called."""
        return self._unkept is not None

    def check_kept(self) -> None:
        """Make sure that what is sealed now can be opened by more than this process.

        Raises:
            PeerError: The relay did not take the owner's keyring when `prepare` was called.
            TransportError: So it is.
        """
        if self._unkept is not None:
            raise self._unkept

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
        async with self._turn():
            roster, keys = self.membership.roster, self.keys
            faults: list[PeerError] = []
            for step in (self._refresh_roster, self._refresh_keyring):
                try:
                    await step()
                except PeerError as error:
                    faults.append(error)
            await self._attached.follow()
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
        document = self._attached.needed()
        await self._attached.pull()
        await self.refresh()
        return await document.snapshot()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Do one thing at a time; if the store is closed meanwhile, say that."""
        async with self._lock:
            try:
                yield
            except LocalFileClosedError as error:
                raise ClosedMeanwhileError from error

    async def _refresh_roster(self) -> None:
        stored = await self._records.read_record(self._known.document_key, ROSTER)
        known = self.membership.roster
        if stored is None:
            if known is not None:
                raise RosterRollbackError(version=0, version_min=known.version)
        elif known is None or stored.text != known.text:
            self._known.adopt_roster(self._known.read_roster(stored))

    async def _refresh_keyring(self) -> None:
        known, roster = self._known, self.membership.roster
        is_out = roster is not None and not roster.may_read(known.identity.public_key)
        if not self._is_sealed or is_out:
            return
        stored = await self._records.read_record(known.document_key, KEYRING)
        opened = known.keyring.read(None if stored is None else stored.text, known.state)
        if opened.keyring != known.state.keyring:
            known.adopt_keyring(opened)

    async def _may_do_without(self, error: PeerError | TransportError) -> bool:
        """Whether it is enough that the keys are here: there is no place for them elsewhere."""
        is_refused = isinstance(error, RelayRefusalError) and error.code is Code.RESTRICTED
        if is_refused and self._is_on_file:
            return not await self.is_sealed_there()
        return isinstance(error, NoRelayError)

    def _tell_again(self, key: str) -> None:
        """Tell the relay the roles of somebody, though it was told: it may have been put back."""
        self._known.keep(self._known.state.without_grant(key))

    def _check_owner(self) -> None:
        if not self.is_owner:
            raise NotOwnerError


def _system_ms() -> int:
    return time.time_ns() // 1_000_000
