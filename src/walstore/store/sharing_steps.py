"""How the word of a document's owner is carried out, step by step.

    roster ──► keyring ──► the relay's grants ──► a snapshot under the new key

- The roster is what is meant; everything else follows from it, in this order.
- Each step looks at what is there and does what is missing. So calling again resumes.
- Another device of the owner's in between is a conflict: it is read again, and applied again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from walstore.document.faults import (
    NoSnapshotStoreError,
    RejectedElementsError,
    SequenceGapError,
    SnapshotRefusedError,
)
from walstore.document.ports import GrantStore, RecordConflictError, RecordStore, StoredRecord
from walstore.net.faults import RelayRefusalError
from walstore.sealed.encryptor import is_outdated
from walstore.signed.grant import sign_grant
from walstore.signed.roster import Roster, RosterRefusedError, new_roster, read_roster
from walstore.store.shared_keyring import OpenKeyring
from walstore.store.sharing_document import Attached
from walstore.store.sharing_known import Known, names_in, recipients
from walstore.store.sharing_state import SharingState
from walstore.wire.frames import Code
from walstore.wire.limits import TS_AHEAD_MS_MAX

ROSTER = "roster"
KEYRING = "keyring"

# How often another device of the owner's may come in between.
_ATTEMPTS_MAX = 3


class Steps:
    """The steps of one document's owner.

    Attributes:
        is_relay_open: Whether the relay takes no grants because it lets in everybody; None if that
            is not known.
    """

    def __init__(
        self,
        known: Known,
        attached: Attached,
        *,
        records: RecordStore,
        grants: GrantStore | None,
        is_sealed: bool,
        now_ms: Callable[[], int],
    ) -> None:
        """Act for whoever knows this."""
        self.is_relay_open: bool | None = None
        self._known = known
        self._attached = attached
        self._records = records
        self._grants = grants
        self._is_sealed = is_sealed
        self._now_ms = now_ms

    async def carry_out(
        self,
        change: Callable[[Roster], Roster],
        *,
        check: Callable[[Roster], Awaitable[None]] | None = None,
        is_rotating: bool = False,
    ) -> None:
        """Change the roster, unless a check of the one before raises, and do what follows."""
        await self.publish(change, check=check, is_rotating=is_rotating)
        await self._publish_grants()
        await self._renew_snapshot()

    async def publish(
        self,
        change: Callable[[Roster], Roster],
        *,
        check: Callable[[Roster], Awaitable[None]] | None = None,
        is_rotating: bool = False,
    ) -> None:
        """The same, as far as others need it to read what is written from then on."""
        await self._write_roster(change, check)
        if self._is_sealed:
            await self._write_keyring(is_rotating=is_rotating)
        await self._attached.follow()

    def new_roster(self) -> Roster:
        """The first roster of a document."""
        known = self._known
        return new_roster(known.identity, known.document_key, now_ms=self._now_ms())

    def settled(
        self, stored: str | None, state: SharingState, roster: Roster, *, is_rotating: bool
    ) -> tuple[str, OpenKeyring]:
        """The keyring that a roster asks for."""
        known = self._known
        return known.keyring.settled(
            stored,
            state,
            recipients(known.identity, roster),
            now_ms=self._now_ms(),
            is_rotating=is_rotating,
        )

    async def _write_roster(
        self,
        change: Callable[[Roster], Roster],
        check: Callable[[Roster], Awaitable[None]] | None,
    ) -> None:
        for _ in range(_ATTEMPTS_MAX):
            stored = await self._records.read_record(self._known.document_key, ROSTER)
            base = self._base(stored)
            if stored is None or stored.text != self._known.state.roster:
                # The relay was put back, or is another one: what it was told is not known either.
                self._known.keep(replace(self._known.state, granted={}))
            if check is not None:
                await check(base)
            roster = change(base)
            if await self._write(ROSTER, roster.text, stored):
                self._known.adopt_roster(roster)
                return
        raise RecordConflictError

    def _base(self, stored: StoredRecord | None) -> Roster:
        """The newest roster there is; what a relay has lost or garbled is made good."""
        known = self._known.membership.roster
        if stored is not None:
            try:
                return self._known.read_roster(stored)
            except RosterRefusedError:
                if known is None:
                    raise
                other = self._owners(stored)
                if other is not None and other.version == known.version:
                    # Two devices have signed one each, and would replace each other's for ever.
                    return known.merged(self._known.identity, other, now_ms=self._now_ms())
        return self.new_roster() if known is None else known

    def _owners(self, stored: StoredRecord) -> Roster | None:
        """The roster that a relay has, if it is the owner's at all."""
        document, owner = self._known.document_key, self._known.membership.owner
        try:
            return read_roster(stored.text, document=document, owner=owner)
        except RosterRefusedError:
            return None

    async def _write_keyring(self, *, is_rotating: bool) -> None:
        known = self._known
        roster = known.membership.roster
        assert roster is not None
        for _ in range(_ATTEMPTS_MAX):
            stored = await self._records.read_record(known.document_key, KEYRING)
            former = None if stored is None else stored.text
            text, opened = self.settled(former, known.state, roster, is_rotating=is_rotating)
            if await self._write(KEYRING, text, stored):
                if opened.keyring != known.state.keyring or not known.state.is_handed_out:
                    known.adopt_keyring(opened)
                return
        raise RecordConflictError

    async def _write(self, name: str, text: str, stored: StoredRecord | None) -> bool:
        """Write a record; False if somebody else has done so meanwhile."""
        if stored is not None and stored.text == text:
            return True
        revision = None if stored is None else stored.revision
        try:
            await self._records.write_record(self._known.document_key, name, text, revision)
        except RecordConflictError:
            return False
        return True

    async def _publish_grants(self) -> None:
        """Tell the relay who may do what, as far as it was not told."""
        known = self._known
        roster = known.membership.roster
        if self._grants is None or roster is None:
            return
        # One that is far ahead, because a clock was, would be refused.
        at_ms = min(roster.at_ms, self._now_ms() + TS_AHEAD_MS_MAX // 2)
        for key in names_in(roster):
            member = roster.members.get(key)
            roles = () if member is None else tuple(sorted(role.value for role in member.roles))
            if known.state.granted.get(key) == roles:
                continue
            grant = sign_grant(
                known.identity,
                prefix=known.document_key,
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
            known.keep(known.state.with_grant(key, roles))

    async def _renew_snapshot(self) -> None:
        """Make a snapshot of what counts now, under the current key: some have no earlier one."""
        known, document = self._known, self._attached.document
        if not known.state.is_snapshot_due or document is None:
            return
        try:
            snapshot = await document.snapshot()
        except SnapshotRefusedError:
            # Something is missing or unreadable: it stays due.
            return
        except (NoSnapshotStoreError, RejectedElementsError, SequenceGapError):
            # There is no place for one; or it is stored, and what was rejected is told elsewhere.
            pass
        except RelayRefusalError as error:
            if error.code is not Code.RESTRICTED:
                raise
        else:
            state = snapshot["state"]
            if state is not None and is_outdated(state, known.keys):
                # Somebody who does not know of the new key yet has stored one that covers more.
                return
        known.keep(replace(known.state, is_snapshot_due=False))
