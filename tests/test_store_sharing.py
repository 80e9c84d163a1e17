"""Sharing: invited, they read and write; revoked, they do neither, and every reader sees to it."""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.canon import Json, canonical_text, parse
from walstore.document import (
    Event,
    Rejection,
    SnapshotRefusedError,
    SnapshotVerdict,
    WalDocument,
)
from walstore.document.opening import Posture
from walstore.document.ports import (
    Body,
    GrantStore,
    RecordConflictError,
    RecordStore,
    SnapshotStore,
    Transport,
)
from walstore.errors import StorageError, TransportError
from walstore.local import LocalFile
from walstore.net import MemoryRecords, MemorySnapshots, MemoryTransport
from walstore.net.faults import RelayRefusalError
from walstore.net.websocket import WebSocketTransport
from walstore.relay.log import Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.roles import Roles
from walstore.relay.server import Relay
from walstore.sealed import (
    DelegatedEncryptor,
    KeyringRefusedError,
    KeyringRollbackError,
    UnreadableError,
    create_keyring,
)
from walstore.sealed.encryptor import SealContext
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.signed.invitation import Invitation
from walstore.signed.roster import (
    MemberRefusedError,
    RosterRefusedError,
    RosterRollbackError,
    new_roster,
)
from walstore.store.sharing import CannotReturnError, NotOwnerError, Person, Sharing
from walstore.store.sharing_document import NotAttachedError
from walstore.store.sharing_known import OtherOwnerError
from walstore.store.sharing_state import SLOT, MemorySlots, SharingStateError, Slots
from walstore.store.sharing_steps import KEYRING, ROSTER
from walstore.wire.frames import Code

ANNA, BEN, CARL = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
KEY = "notes/shared"
NOW_MS = 1_700_000_000_000


class Place(NamedTuple):
    """What one person has of a relay."""

    transport: Transport
    snapshots: SnapshotStore
    records: RecordStore
    grants: GrantStore | None = None
    url: str | None = None


Enter = Callable[[Identity], Awaitable[Place]]


class Desk:
    """One person at one document."""

    def __init__(
        self,
        who: Identity,
        place: Place,
        *,
        is_sealed: bool,
        owner: Identity = ANNA,
        slots: Slots | None = None,
    ) -> None:
        self.who = who
        self.place = place
        self.is_sealed = is_sealed
        self.events: list[Event] = []
        self.slots = MemorySlots() if slots is None else slots
        self.sharing = Sharing(
            KEY,
            identity=who,
            owner=owner.public_key,
            records=place.records,
            slots=self.slots,
            is_sealed=is_sealed,
            grants=place.grants,
            relay=place.url,
        )
        self.encryptor: DelegatedEncryptor | None = None

    async def sit_down(self) -> Desk:
        """Open the document."""
        await (self.sharing.settle() if self.sharing.is_owner else self.sharing.refresh())
        return await self.open()

    async def open(self, posture: Posture = "trust-retain-tail") -> Desk:
        """Open the document with what is known."""
        keys, members = self.sharing.keys, self.sharing.membership
        if keys is not None:
            self.encryptor = DelegatedEncryptor(keys, randomness=os.urandom)
        assert self.is_sealed is (self.encryptor is not None)
        self.document = WalDocument(
            KEY,
            transport=self.place.transport,
            snapshot_store=self.place.snapshots,
            identity=self.who,
            writers=members.is_writer,
            snapshot_role=members.is_producer,
            revoked=members.revoked,
            encryptor=self.encryptor,
            posture=posture,
            on_author_error="skip",
            on_event=self.events.append,
        )
        await self.document.open()
        self.sharing.attach(self.document, self.encryptor)
        return self

    async def write(self, text: str) -> None:
        self.document.set_text("body", self.document.text("body") + text)
        await self.document.commit()

    async def read(self) -> str:
        await self.document.pull()
        return self.document.text("body")

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Rejection)]


class Shop(NamedTuple):
    """A relay that is open to all, and its log."""

    enter: Enter
    log: MemoryLog

    async def prune(self, upto_ts: int) -> None:
        """Let go of everything up to a `ts`."""
        await self.log.compact([Removal(KEY, (), upto_ts)])


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        log = MemoryLog()
        relay = await stack.enter_async_context(Relay.serve(log))
        yield Shop(entering(relay, stack), log)


@pytest.fixture(params=["memory", "relay"])
async def enter(request: pytest.FixtureRequest) -> AsyncIterator[Enter]:
    """Somewhere to share: in memory, or at a relay that is open to all."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            place = Place(MemoryTransport(), MemorySnapshots(), MemoryRecords())

            async def give(_: Identity) -> Place:
                return place

            yield give
        else:
            relay = await stack.enter_async_context(Relay.serve(MemoryLog()))
            yield entering(relay, stack)


def entering(relay: Relay, stack: AsyncExitStack) -> Enter:
    async def connect(who: Identity) -> Place:
        transport = WebSocketTransport(relay.url, identity=who)
        await stack.enter_async_context(transport)
        return Place(transport, transport, transport, transport, relay.url)

    return connect


sealed_or_not = pytest.mark.parametrize("is_sealed", [False, True], ids=["plain", "sealed"])


async def two(enter: Enter, is_sealed: bool, *roles: str) -> tuple[Desk, Desk]:
    """Anna, and Ben whom she has invited."""
    anna = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    await anna.write("A")
    await anna.sharing.invite(Card.of(BEN).line, roles or ("read", "write"))
    ben = await Desk(BEN, await enter(BEN), is_sealed=is_sealed).sit_down()
    return anna, ben


# ── inviting ───────────────────────────────────────────────────────────────────────────


@sealed_or_not
async def test_who_is_invited_reads_and_writes(enter: Enter, is_sealed: bool) -> None:
    anna, ben = await two(enter, is_sealed)
    assert await ben.read() == "A"
    await ben.write("B")
    assert await anna.read() == "AB"
    assert (anna.reasons, ben.reasons) == ([], [])


@sealed_or_not
async def test_an_invitation_tells_all_that_is_needed_to_join(
    enter: Enter, is_sealed: bool
) -> None:
    anna = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    line = (await anna.sharing.invite(Card.of(BEN))).line
    found = Invitation.read(line)
    assert (found.document, found.owner, found.to) == (KEY, ANNA.public_key, BEN.public_key)
    assert (found.is_sealed, found.relay) == (is_sealed, anna.place.url)


@sealed_or_not
async def test_a_readers_elements_count_for_nobody(enter: Enter, is_sealed: bool) -> None:
    anna, ben = await two(enter, is_sealed, "read")
    assert await ben.read() == "A"
    await ben.write("B")
    assert await anna.read() == "A"
    assert anna.reasons == ["its author may not write"]


async def test_a_stranger_reads_nothing_that_is_sealed(enter: Enter) -> None:
    await two(enter, True)
    stranger = Desk(CARL, await enter(CARL), is_sealed=True)
    await stranger.sharing.refresh()
    assert stranger.sharing.keys is None
    assert not stranger.sharing.membership.may_read(CARL.public_key)


@sealed_or_not
async def test_elements_that_came_before_the_invitation_count_after_it(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await carl.write("C")
    # Ben has not heard of Carl.
    assert await ben.read() == "A"
    assert ben.reasons == ["its author may not write"]
    await ben.write("B")
    assert (await ben.sharing.refresh()).is_roster_new
    assert sorted(await ben.read()) == ["A", "B", "C"]
    assert await ben.read() == await anna.read() == await carl.read()


async def test_a_member_may_be_given_the_right_to_write(enter: Enter) -> None:
    anna, ben = await two(enter, False, "read")
    await anna.sharing.invite(Card.of(BEN), ["write"])
    await ben.sharing.refresh()
    await ben.write("B")
    assert await anna.read() == "AB"


async def test_a_writer_may_become_a_reader(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await ben.write("B")
    await anna.sharing.invite(Card.of(BEN), ["read"])
    epoch = anna.sharing.keys
    await ben.write("X")
    assert await anna.read() == "AB"
    await ben.sharing.refresh()
    assert epoch is not None
    assert epoch.current_epoch == 1
    await anna.write("A")
    assert "A" in (await ben.read())[2:]
    await anna.sharing.invite(Card.of(BEN), ["write"])
    assert "X" in await anna.read()


async def test_who_is_there_can_be_told(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.invite(Card.of(CARL), ["snapshot"])
    await anna.sharing.revoke(BEN.public_key)
    await ben.sharing.refresh()
    everything = frozenset({"read", "write", "snapshot"})
    assert ben.sharing.members() == [
        Person(ANNA.public_key, everything, True, False),
        Person(CARL.public_key, frozenset({"read", "snapshot"}), False, False),
        Person(BEN.public_key, frozenset(), False, True),
    ]


async def test_only_the_owner_invites_and_revokes(enter: Enter) -> None:
    _, ben = await two(enter, False)
    for forbidden in (
        ben.sharing.invite(Card.of(CARL)),
        ben.sharing.revoke(ANNA.public_key),
        ben.sharing.settle(),
        ben.sharing.rotate(),
    ):
        with pytest.raises(NotOwnerError):
            await forbidden
    with pytest.raises(NotOwnerError):
        ben.sharing.create()


async def test_a_roster_that_a_member_writes_convinces_nobody(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    forged = new_roster(BEN, KEY, now_ms=NOW_MS).text
    await replace_record(ben.place, ROSTER, forged)
    with pytest.raises(RosterRefusedError):
        await anna.sharing.refresh()
    assert anna.sharing.membership.may_write(BEN.public_key)
    # The owner makes it good with the next change.
    await anna.sharing.invite(Card.of(CARL))
    await ben.sharing.refresh()
    assert ben.sharing.membership.may_write(CARL.public_key)


# ── revoking ───────────────────────────────────────────────────────────────────────────


@sealed_or_not
async def test_what_the_revoked_wrote_before_stays_and_nothing_after_counts(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await ben.write("B")
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("X")
    await ben.write("Y")
    await carl.sharing.refresh()
    late = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    for desk in (anna, carl, late):
        assert await desk.read() == "AB"
        assert set(desk.reasons) <= {"its author was revoked"}
    assert anna.reasons == ["its author was revoked"] * 2


@sealed_or_not
async def test_what_was_folded_and_does_not_count_is_gone_with_the_roster(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("X")
    # Carl has not heard of it: he folds it, and builds on it.
    assert await carl.read() == "AX"
    await carl.write("C")
    assert "X" not in await anna.read()
    await carl.sharing.refresh()
    assert "X" not in await carl.read()
    assert "C" in await carl.read()
    assert await carl.read() == await anna.read()
    assert not carl.document.detected_gaps()
    assert not anna.document.detected_gaps()
    assert not carl.document.is_read_only


async def test_who_was_killed_before_following_a_revocation_reads_anew(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.invite(Card.of(CARL))
    slots = MemorySlots()
    carl = await Desk(CARL, await enter(CARL), is_sealed=False, slots=slots).sit_down()
    await ben.write("B")
    assert await carl.read() == "AB"
    await anna.sharing.revoke(BEN.public_key)
    again = Desk(CARL, carl.place, is_sealed=False, slots=slots)
    await again.sharing.refresh()
    # A file would have kept what was read before the roster was known.
    await again.open()
    reread = 0

    class Told:
        def __getattr__(self, name: str) -> Any:
            return getattr(again.document, name)

        async def reread(self) -> int:
            nonlocal reread
            reread += 1
            return await again.document.reread()

    again.sharing.attach(Told())
    await again.sharing.refresh()
    assert reread == 1
    again.sharing.attach(Told())
    await again.sharing.refresh()
    assert reread == 1


@sealed_or_not
async def test_an_edit_that_waited_behind_what_does_not_count_is_kept(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await ben.write("B")
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("X")
    assert await carl.read() == "ABX"
    carl.document.set_text("body", "ABXC")
    await carl.sharing.refresh()
    assert carl.document.text("body") == "ABC"
    await carl.document.commit()
    assert await anna.read() == await carl.read() == "ABC"
    carl.document.set_text("body", "C")
    await carl.document.commit()
    assert await anna.read() == await carl.read() == "C"


@sealed_or_not
async def test_old_seqs_of_the_revoked_do_not_count_again(enter: Enter, is_sealed: bool) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    for text in "BCD":
        await ben.write(text)
    assert (await anna.read(), await carl.read()) == ("ABCD", "ABCD")
    await anna.sharing.revoke(BEN.public_key)
    # The session goes on as if it had sent but one element.
    ben.document._outbox._seq = 1
    await ben.write("X")
    # Who has not heard of it takes it for what it says, until they have.
    assert await carl.read() == "ABCDX"
    await carl.sharing.refresh()
    assert (await anna.read(), await carl.read()) == ("ABCD", "ABCD")
    late = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    assert await late.read() == "ABCD"
    assert set(anna.reasons) == set(carl.reasons) == {"its author was revoked"}


@sealed_or_not
async def test_new_sessions_of_the_revoked_do_not_count(enter: Enter, is_sealed: bool) -> None:
    anna, ben = await two(enter, is_sealed)
    await ben.write("B")
    kept = ben.slots
    await anna.sharing.revoke(BEN.public_key)
    again = await Desk(BEN, ben.place, is_sealed=is_sealed, slots=kept).open()
    await again.write("X")
    assert await anna.read() == "AB"
    assert anna.reasons == ["its author was revoked"]


@sealed_or_not
async def test_a_stretch_of_keystrokes_is_cut_where_it_stops_to_count(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    for _ in range(20):
        await ben.write("b")
    await anna.sharing.revoke(BEN.public_key)
    for _ in range(20):
        await ben.write("x")
    late = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    for posture in ("trust", "re-derive"):
        whole = Desk(ANNA, late.place, is_sealed=is_sealed, slots=late.slots)
        assert await (await whole.open(posture)).read() == "A" + "b" * 20
        assert whole.reasons == ["its author was revoked"] * 20


async def test_the_revoked_open_nothing_that_is_sealed_later(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=True).sit_down()
    await ben.sharing.refresh()
    await anna.sharing.revoke(BEN.public_key)
    await carl.sharing.refresh()
    for number in range(20):
        await (anna, carl)[number % 2].write(f"{number} ")
    assert await ben.read() == "A"
    assert ben.document.unreadable == 20
    await ben.sharing.refresh()
    assert await ben.document.retry_unreadable() == 0
    assert ben.sharing.keys is not None
    assert ben.sharing.keys.current_epoch == 1
    # Nor is there anything in the keyring itself.
    stored = await anna.place.records.read_record(KEY, KEYRING)
    assert stored is not None
    newest = parse(stored.text)
    assert isinstance(newest, dict)
    names = {entry["subKem"] for entry in newest["epochs"]["2"]["wrappedKeys"]}
    assert names == {ANNA.kem_public_key, CARL.kem_public_key}


async def test_what_waited_is_sealed_anew_after_a_revocation(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    anna.document.set_text("body", "A secret")
    await anna.sharing.revoke(BEN.public_key)
    await anna.document.commit()
    assert await ben.read() == "A"
    assert ben.document.unreadable == 1


class LostAppends(MemoryTransport):
    """A log that cannot be reached, as long as a test says."""

    is_lost = False

    async def append(self, document_key: str, body: Body) -> int:
        if self.is_lost:
            raise TransportError("lost", retryable=True)
        return await super().append(document_key, body)


async def test_nothing_is_sealed_with_the_old_key_once_the_new_one_was_seen() -> None:
    log = LostAppends()
    place = Place(log, MemorySnapshots(), MemoryRecords())

    async def give(_: Identity) -> Place:
        return place

    anna, ben = await two(give, True)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, place, is_sealed=True).sit_down()
    await ben.sharing.refresh()
    log.is_lost = True
    for number in range(3):
        with pytest.raises(TransportError):
            await carl.write(f"{number}")
    log.is_lost = False
    assert carl.document.unsent == 3
    await anna.sharing.revoke(BEN.public_key)
    await carl.sharing.refresh()
    await carl.document.commit()
    data: list[Any] = [parse(element.data) for element in await log.pull(KEY, 0)]
    assert [each["body"]["_epoch"] for each in data] == [1, 2, 2, 2]
    assert await anna.read() == "A012"
    assert await ben.read() == "A"


async def test_who_joins_late_sees_everything_through_the_snapshot(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await ben.write("B")
    await anna.sharing.revoke(BEN.public_key)
    assert not anna.sharing.is_snapshot_due
    await anna.write("a")
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=True).sit_down()
    assert await carl.read() == "ABa"
    assert carl.document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert carl.document.unreadable == 0
    assert not carl.document.detected_gaps()


async def test_a_snapshot_that_covers_too_much_is_passed_over(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.invite(Card.of(CARL), ["write", "snapshot"])
    carl = await Desk(CARL, await enter(CARL), is_sealed=False).sit_down()
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("X")
    await carl.document.snapshot()
    late = await Desk(ANNA, await enter(ANNA), is_sealed=False).sit_down()
    assert late.document.snapshot_verdict is SnapshotVerdict.NONE
    assert await late.read() == "A"
    await late.sharing.snapshot()
    last = await Desk(CARL, await enter(CARL), is_sealed=False).sit_down()
    assert last.document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert await last.read() == "A"


async def test_a_revoked_producers_snapshots_are_no_longer_believed(enter: Enter) -> None:
    anna, ben = await two(enter, False, "write", "snapshot")
    await ben.write("B")
    await ben.document.snapshot()
    await anna.sharing.revoke(BEN.public_key)
    late = await Desk(ANNA, await enter(ANNA), is_sealed=False).sit_down()
    assert late.document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert await late.read() == "AB"


async def test_the_revoked_cannot_keep_others_from_a_snapshot(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("X")
    await anna.write("a")
    assert (await anna.document.snapshot())["uptoTs"] == anna.document.current_checkpoint


async def test_what_the_revoked_said_to_have_seen_locks_nobody_out(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    ben.document._outbox.note(f"{ANNA.public_key}:nowhere", 3)
    await ben.write("B")
    assert await anna.read() == "AB"
    await anna.sharing.revoke(BEN.public_key)
    await anna.sharing.invite(Card.of(CARL))
    assert not anna.sharing.is_snapshot_due
    carl = await Desk(CARL, await enter(CARL), is_sealed=True).sit_down()
    assert (await carl.read(), carl.document.unreadable) == ("AB", 0)


async def test_a_snapshot_knows_of_the_newest_members(enter: Enter) -> None:
    anna, ben = await two(enter, False, "write", "snapshot")
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=False).sit_down()
    await carl.write("C")
    # Ben has not heard of Carl, whose element he would sign away.
    await ben.sharing.snapshot()
    late = await Desk(CARL, await enter(CARL), is_sealed=False).sit_down()
    assert late.document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert await late.read() == "AC"


async def test_who_is_revoked_may_be_invited_again(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await anna.sharing.revoke(BEN.public_key)
    await anna.write("a")
    await anna.sharing.invite(Card.of(BEN))
    await ben.sharing.refresh()
    assert await ben.read() == "Aa"
    await ben.write("B")
    assert await anna.read() == "AaB"


@sealed_or_not
async def test_what_was_in_flight_when_somebody_was_revoked_stops_nobody_when_they_are_back(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await ben.write("b")
    await anna.sharing.revoke(BEN.public_key)
    # Neither Ben nor Carl has heard of it.
    await ben.write("c")
    assert await carl.read() == "Abc"
    assert await anna.read() == "Ab"
    await anna.sharing.snapshot()
    await carl.sharing.refresh()
    assert await carl.read() == "Ab"
    await anna.sharing.invite(Card.of(BEN))
    for each in (ben, carl):
        await each.sharing.refresh()
    for each in (anna, ben, carl):
        assert await each.read() == "Abc"
    await anna.sharing.snapshot()
    late = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    assert late.document.snapshot_verdict is SnapshotVerdict.TRUSTED
    assert await late.read() == "Abc"
    await ben.write("d")
    for each in (anna, carl, late):
        assert await each.read() == "Abcd"


@sealed_or_not
async def test_who_came_back_and_is_revoked_again_leaves_what_counted_meanwhile(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("b")
    assert await anna.read() == "A"
    await anna.sharing.snapshot()
    await anna.sharing.invite(Card.of(BEN))
    assert await anna.read() == "Ab"
    await anna.sharing.revoke(BEN.public_key)
    await anna.sharing.invite(Card.of(CARL))
    for _ in range(2):
        late = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
        assert await late.read() == await anna.read() == "Ab"
        await anna.sharing.snapshot()


async def with_something_in_flight(enter: Enter, is_sealed: bool) -> tuple[Desk, Desk]:
    """Anna, and Ben, who had not heard of his revocation when he wrote something."""
    anna, ben = await two(enter, is_sealed)
    await ben.write("b")
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("c")
    assert await anna.read() == "Ab"
    return anna, ben


async def assert_stays_out(anna: Desk) -> None:
    """Ben is not made a writer again, and nothing has changed by that."""
    former = await text_of(anna.place, ROSTER), anna.sharing.version, anna.slots.get(SLOT)
    with pytest.raises(CannotReturnError, match="card of another identity") as refused:
        await anna.sharing.invite(Card.of(BEN))
    assert refused.value.key == BEN.public_key
    assert (await text_of(anna.place, ROSTER), anna.sharing.version, anna.slots.get(SLOT)) == former


async def assert_is_back(anna: Desk, ben: Desk, text: str) -> None:
    """Ben is made a writer again, and everybody sees what he wrote, and goes on."""
    await anna.sharing.invite(Card.of(BEN))
    await ben.sharing.refresh()
    await ben.write("d")
    late = await Desk(CARL, anna.place, is_sealed=False).sit_down()
    for each in (anna, ben, late):
        assert await each.read() == text + "d"
        assert not each.document.detected_gaps()
        assert not each.document.is_read_only
    assert (await anna.sharing.snapshot())["uptoTs"] == anna.document.current_checkpoint


@sealed_or_not
async def test_who_has_something_behind_a_barrier_comes_back_with_it(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await with_something_in_flight(enter, is_sealed)
    await anna.document.snapshot(collect={})
    # What is built on the barrier, by another device too, knows of it.
    await anna.write("a")
    await anna.sharing.snapshot()
    other = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    await other.sharing.invite(Card.of(BEN))
    await anna.sharing.refresh()
    await ben.sharing.refresh()
    await ben.write("d")
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    for each in (anna, ben, other, carl):
        assert await each.read() == "Abacd"
        assert not each.document.detected_gaps()
        assert not each.document.is_read_only


@sealed_or_not
async def test_who_wrote_before_they_might_is_made_a_writer_with_all_of_it(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed, "read")
    # Nothing but the readers keeps him from that.
    await ben.write("b")
    assert await anna.read() == "A"
    await anna.sharing.snapshot()
    await anna.document.snapshot(collect={})
    await anna.sharing.invite(Card.of(BEN))
    await ben.sharing.refresh()
    await ben.write("c")
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    for each in (anna, ben, carl):
        assert await each.read() == "Abc"
        assert not each.document.detected_gaps()
        assert not each.document.is_read_only
    assert (await anna.sharing.snapshot())["uptoTs"] == anna.document.current_checkpoint


async def test_who_wrote_before_they_might_is_no_writer_where_that_is_pruned(shop: Shop) -> None:
    anna, ben = await two(shop.enter, False, "read")
    await ben.write("b")
    assert await anna.read() == "A"
    snapshot = await anna.sharing.snapshot()
    await shop.prune(snapshot["uptoTs"])
    await assert_stays_out(anna)


@sealed_or_not
async def test_who_may_not_write_again_reads_again_and_writes_with_another_key(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await with_something_in_flight(enter, is_sealed)
    await anna.document.delete_document()
    await anna.sharing.invite(Card.of(BEN), ["read"])
    await ben.sharing.refresh()
    await assert_stays_out(anna)
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    await carl.write("C")
    assert await anna.read() == "C"
    assert not anna.document.detected_gaps()


@sealed_or_not
async def test_nobody_comes_back_of_whom_something_was_deleted_that_did_not_count(
    enter: Enter, is_sealed: bool
) -> None:
    anna, _ = await with_something_in_flight(enter, is_sealed)
    await anna.document.delete_document()
    await assert_stays_out(anna)
    other = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    # It has begun with the deletion, and looks at what is below.
    await assert_stays_out(other)
    await other.write("a")
    await assert_stays_out(anna)


@sealed_or_not
async def test_who_has_nothing_left_behind_comes_back_though_they_wrote_on_after_a_deletion(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await two(enter, is_sealed)
    await ben.write("b")
    await anna.read()
    await anna.document.delete_document()
    assert await ben.document.adopt_barrier()
    await ben.write("c")
    assert await anna.read() == "c"
    await anna.sharing.revoke(BEN.public_key)
    assert await anna.read() == "c"
    other = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed, slots=anna.slots).sit_down()
    for each in (anna, other):
        await each.sharing.invite(Card.of(BEN))
        await each.sharing.revoke(BEN.public_key)


@pytest.mark.parametrize("roles", [["read"], None])
async def test_who_wrote_before_they_might_is_no_writer_behind_a_deletion(
    enter: Enter, roles: list[str] | None
) -> None:
    anna = await Desk(ANNA, await enter(ANNA), is_sealed=False).sit_down()
    await anna.write("A")
    if roles is not None:
        await anna.sharing.invite(Card.of(BEN), roles)
    ben = Desk(BEN, await enter(BEN), is_sealed=False)
    ben = await (ben.open() if roles is None else ben.sit_down())
    await ben.write("b")
    await anna.read()
    await anna.document.delete_document()
    await assert_stays_out(anna)
    other = await Desk(ANNA, await enter(ANNA), is_sealed=False).sit_down()
    # It has begun with the deletion.
    await assert_stays_out(other)


@sealed_or_not
async def test_who_has_something_behind_a_deletion_comes_back_once_a_snapshot_says_so(
    enter: Enter, is_sealed: bool
) -> None:
    anna, ben = await with_something_in_flight(enter, is_sealed)
    await anna.document.delete_document()
    await anna.write("a")
    await anna.sharing.snapshot()
    await anna.sharing.invite(Card.of(BEN))
    await ben.sharing.refresh()
    assert await ben.document.adopt_barrier()
    await ben.write("d")
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    for each in (anna, ben, carl):
        # What he wrote before the deletion is deleted with the rest.
        assert await each.read() == "ad"
        assert not each.document.detected_gaps()
        assert not each.document.is_read_only


async def test_nobody_comes_back_of_whom_something_was_pruned_that_did_not_count(
    shop: Shop,
) -> None:
    anna, _ = await with_something_in_flight(shop.enter, False)
    await anna.sharing.snapshot()
    await anna.write("a")
    # What did not count is still there; what came before it is gone.
    await shop.prune(1)
    await assert_stays_out(anna)
    other = await Desk(ANNA, await shop.enter(ANNA), is_sealed=False).sit_down()
    await assert_stays_out(other)


async def test_nobody_comes_back_of_whom_something_was_deleted_by_another_before_it_was_read(
    enter: Enter,
) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.invite(Card.of(CARL), ["write", "snapshot"])
    carl = await Desk(CARL, await enter(CARL), is_sealed=False).sit_down()
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("c")
    await carl.sharing.refresh()
    await carl.document.pull()
    await carl.document.delete_document()
    await assert_stays_out(anna)


async def test_who_is_in_a_snapshot_of_somebody_who_had_not_heard_of_it_comes_back(
    shop: Shop,
) -> None:
    anna, ben = await two(shop.enter, False)
    await anna.sharing.invite(Card.of(CARL), ["write", "snapshot"])
    carl = await Desk(CARL, await shop.enter(CARL), is_sealed=False).sit_down()
    await ben.write("b")
    await anna.sharing.revoke(BEN.public_key)
    await ben.write("c")
    assert await anna.read() == "Ab"
    snapshot = await carl.document.snapshot()
    await shop.prune(snapshot["uptoTs"])
    await assert_is_back(anna, ben, "Abc")


async def test_who_was_made_a_reader_comes_back_no_more_than_who_was_revoked(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.invite(Card.of(BEN), ["read"])
    await ben.write("c")
    assert await anna.read() == "A"
    await anna.document.delete_document()
    await assert_stays_out(anna)


async def test_who_has_been_read_as_far_as_they_wrote_comes_back_behind_a_barrier(
    enter: Enter,
) -> None:
    anna, ben = await two(enter, False)
    for text in "bc":
        await ben.write(text)
    assert await anna.read() == "Abc"
    await anna.sharing.revoke(BEN.public_key)
    await anna.document.snapshot(collect={})
    await assert_is_back(anna, ben, "Abc")


async def test_who_wrote_above_a_barrier_comes_back_though_the_log_is_pruned_below(
    shop: Shop,
) -> None:
    anna, ben = await two(shop.enter, False)
    await ben.write("b")
    await anna.sharing.revoke(BEN.public_key)
    barrier = await anna.document.snapshot(collect={})
    await shop.prune(barrier["uptoTs"])
    await ben.write("c")
    assert await anna.read() == "Ab"
    await assert_is_back(anna, ben, "Abc")


async def test_who_wrote_after_a_deletion_comes_back(enter: Enter) -> None:
    anna, ben = await two(enter, False)
    await anna.sharing.revoke(BEN.public_key)
    await anna.document.delete_document()
    ben = await Desk(BEN, ben.place, is_sealed=False).open()
    await ben.write("c")
    assert await anna.read() == ""
    await assert_is_back(anna, ben, "c")


async def test_who_comes_back_is_in_a_snapshot_at_once(shop: Shop) -> None:
    anna, ben = await with_something_in_flight(shop.enter, False)
    await anna.sharing.snapshot()
    await anna.sharing.invite(Card.of(BEN))
    assert not anna.sharing.is_snapshot_due
    # Whatever the relay lets go of from now on, it is nothing that anybody lacks.
    await shop.prune(anna.document.current_checkpoint)
    late = await Desk(CARL, await shop.enter(CARL), is_sealed=False).sit_down()
    assert (await late.read(), late.document.snapshot_verdict) == ("Abc", SnapshotVerdict.TRUSTED)
    await ben.sharing.refresh()
    await ben.write("d")
    assert await late.read() == "Abcd"
    assert not late.document.detected_gaps()


async def test_the_snapshot_of_who_comes_back_is_made_good_on_another_device(
    broken: Interrupted,
) -> None:
    anna, _, place = await at(broken)
    await anna.sharing.revoke(BEN.public_key)
    # The roster is stored, and the keyring is not.
    broken.lost = {broken.writes + 2}
    with pytest.raises(TransportError, match="lost"):
        await anna.sharing.invite(Card.of(BEN))
    assert anna.sharing.is_snapshot_due
    again = await Desk(ANNA, place, is_sealed=True, slots=anna.slots).open()
    await again.sharing.settle()
    assert not again.sharing.is_snapshot_due


async def test_whether_somebody_may_come_back_is_told_by_an_open_document(enter: Enter) -> None:
    anna, _ = await two(enter, False)
    await anna.sharing.revoke(BEN.public_key)
    closed = Desk(ANNA, anna.place, is_sealed=False, slots=anna.slots)
    with pytest.raises(NotAttachedError):
        await closed.sharing.invite(Card.of(BEN))
    assert not closed.sharing.membership.may_write(BEN.public_key)
    await closed.sharing.invite(Card.of(CARL))
    await closed.sharing.invite(Card.of(BEN), ["read"])


async def test_who_was_revoked_on_another_device_is_looked_at_all_the_same(shop: Shop) -> None:
    anna, ben = await two(shop.enter, False)
    other = await Desk(ANNA, await shop.enter(ANNA), is_sealed=False).sit_down()
    await other.sharing.revoke(BEN.public_key)
    await ben.write("c")
    assert await other.read() == "A"
    snapshot = await other.document.snapshot()
    await shop.prune(snapshot["uptoTs"])
    # This one has not heard of any of it.
    await assert_stays_out(anna)


async def test_nobody_but_a_member_can_be_revoked(enter: Enter) -> None:
    anna, _ = await two(enter, False)
    for key in (CARL.public_key, ANNA.public_key):
        with pytest.raises(MemberRefusedError):
            await anna.sharing.revoke(key)


async def test_what_counts_of_the_revoked_is_told_by_an_open_document(enter: Enter) -> None:
    anna, _ = await two(enter, False)
    closed = Desk(ANNA, anna.place, is_sealed=False)
    await closed.sharing.refresh()
    for call in (
        closed.sharing.revoke(BEN.public_key),
        closed.sharing.invite(Card.of(BEN), ["read"]),
        closed.sharing.snapshot(),
    ):
        with pytest.raises(NotAttachedError):
            await call
    assert closed.sharing.membership.may_write(BEN.public_key)


async def test_the_key_may_be_changed_without_revoking_anybody(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await anna.sharing.rotate()
    assert anna.sharing.keys is not None
    assert anna.sharing.keys.current_epoch == 2
    await anna.write("a")
    await ben.read()
    assert ben.document.unreadable == 1
    assert (await ben.sharing.refresh()).are_keys_new
    assert await ben.read() == "Aa"


# ── a relay that lies ──────────────────────────────────────────────────────────────────


async def replace_record(place: Place, name: str, text: str) -> None:
    stored = await place.records.read_record(KEY, name)
    revision = None if stored is None else stored.revision
    await place.records.write_record(KEY, name, text, revision)


async def text_of(place: Place, name: str) -> str:
    stored = await place.records.read_record(KEY, name)
    assert stored is not None
    return stored.text


@sealed_or_not
async def test_an_older_roster_is_refused_and_made_good(enter: Enter, is_sealed: bool) -> None:
    anna, ben = await two(enter, is_sealed)
    old = await text_of(anna.place, ROSTER)
    await anna.sharing.invite(Card.of(CARL))
    await ben.sharing.refresh()
    await anna.sharing.revoke(CARL.public_key)
    await ben.sharing.refresh()
    await replace_record(anna.place, ROSTER, old)
    for desk in (anna, ben):
        with pytest.raises(RosterRollbackError):
            await desk.sharing.refresh()
        assert not desk.sharing.membership.may_write(CARL.public_key)
    again = Desk(BEN, ben.place, is_sealed=is_sealed, slots=ben.slots)
    with pytest.raises(RosterRollbackError):
        await again.sharing.refresh()
    await anna.sharing.settle()
    await again.sharing.refresh()
    assert not again.sharing.membership.may_write(CARL.public_key)


async def test_an_older_keyring_is_refused_and_made_good(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    old = await text_of(anna.place, KEYRING)
    await anna.sharing.rotate()
    await ben.sharing.refresh()
    await replace_record(anna.place, KEYRING, old)
    for desk in (anna, ben, Desk(BEN, ben.place, is_sealed=True, slots=ben.slots)):
        with pytest.raises(KeyringRollbackError):
            await desk.sharing.refresh()
        assert desk.sharing.keys is not None
        assert desk.sharing.keys.current_epoch == 2
    await anna.sharing.settle()
    await ben.sharing.refresh()
    assert await text_of(anna.place, KEYRING) != old


async def test_another_key_for_a_known_epoch_is_refused(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    recipients = [ANNA.kem_public_key, BEN.kem_public_key]
    other = create_keyring(
        recipients, scope=KEY, adder=ANNA, now_s=NOW_MS // 1000, randomness=os.urandom
    )
    await replace_record(anna.place, KEYRING, canonical_text(other))
    again = Desk(BEN, ben.place, is_sealed=True, slots=ben.slots)
    for desk in (ben, again):
        with pytest.raises(KeyringRefusedError):
            await desk.sharing.refresh()


@pytest.mark.parametrize("scope", [KEY, "notes/other"])
async def test_a_keyring_by_somebody_else_or_of_another_document_is_refused(
    enter: Enter, scope: str
) -> None:
    adder = CARL if scope == KEY else ANNA
    anna, ben = await two(enter, True)
    foreign = create_keyring(
        [BEN.kem_public_key], scope=scope, adder=adder, now_s=1, randomness=os.urandom
    )
    await replace_record(anna.place, KEYRING, canonical_text({**foreign, "currentEpoch": 1}))
    newcomer = Desk(BEN, ben.place, is_sealed=True)
    with pytest.raises(KeyringRefusedError):
        await newcomer.sharing.refresh()
    assert newcomer.sharing.keys is None


async def test_records_that_are_gone_are_missed() -> None:
    place = Place(MemoryTransport(), MemorySnapshots(), MemoryRecords())

    async def give(_: Identity) -> Place:
        return place

    _, ben = await two(give, True)
    empty = place._replace(records=MemoryRecords())
    again = Desk(BEN, empty, is_sealed=True, slots=ben.slots)
    with pytest.raises(RosterRollbackError):
        await again.sharing.refresh()
    assert again.sharing.keys is not None
    assert again.sharing.membership.may_write(BEN.public_key)
    unheard = Desk(BEN, empty, is_sealed=True)
    with pytest.raises(KeyringRefusedError):
        await unheard.sharing.refresh()


@pytest.mark.parametrize("text", ["x", "{}", "[]", '{"v":1}', "9" * 5000, "[" * 9000])
async def test_garbage_in_the_records_changes_nothing(enter: Enter, text: str) -> None:
    anna, ben = await two(enter, True)
    for name in (ROSTER, KEYRING):
        await replace_record(anna.place, name, text)
    with pytest.raises(RosterRefusedError):
        await ben.sharing.refresh()
    await ben.write("B")
    assert await anna.read() == "AB"
    await anna.sharing.settle()
    assert await ben.sharing.refresh() == (False, False)


async def test_garbage_in_one_record_does_not_hide_the_other(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await anna.sharing.rotate()
    await replace_record(anna.place, ROSTER, "garbage")
    with pytest.raises(RosterRefusedError):
        await ben.sharing.refresh()
    assert ben.sharing.keys is not None
    assert ben.sharing.keys.current_epoch == 2


async def test_entries_that_a_relay_adds_lock_nobody_out_for_long(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    keyring: Any = parse(await text_of(anna.place, KEYRING))
    entries = keyring["epochs"]["1"]["wrappedKeys"]
    stranger = {**entries[1], "subKem": CARL.kem_public_key}
    keyring["epochs"]["1"]["wrappedKeys"] = [*entries, entries[1], stranger, None, "x"]
    await replace_record(anna.place, KEYRING, canonical_text(keyring))
    with pytest.raises(KeyringRefusedError):
        await ben.sharing.refresh()
    await anna.sharing.settle()
    await ben.sharing.refresh()
    assert anna.sharing.keys is not None
    assert anna.sharing.keys.current_epoch == 1


async def test_a_relay_that_leaves_out_old_keys_takes_nothing_away(enter: Enter) -> None:
    anna, ben = await two(enter, True)
    await anna.sharing.rotate()
    await ben.sharing.refresh()
    keyring: Any = parse(await text_of(anna.place, KEYRING))
    del keyring["epochs"]["1"]
    await replace_record(anna.place, KEYRING, canonical_text(keyring))
    await ben.sharing.refresh()
    again = Desk(BEN, ben.place, is_sealed=True, slots=ben.slots)
    assert again.sharing.keys is not None
    assert set(again.sharing.keys.key_ids) == {1, 2}


async def test_somebody_elses_roster_is_not_overwritten_unasked(enter: Enter) -> None:
    place = await enter(BEN)
    theirs = new_roster(BEN, KEY, now_ms=NOW_MS).text
    await replace_record(place, ROSTER, theirs)
    anna = Desk(ANNA, await enter(ANNA), is_sealed=False)
    with pytest.raises(RosterRefusedError):
        await anna.sharing.settle()
    assert await text_of(place, ROSTER) == theirs


async def test_a_keyring_that_cannot_be_opened_is_not_overwritten(enter: Enter) -> None:
    place = await enter(BEN)
    theirs = canonical_text(
        create_keyring([BEN.kem_public_key], scope=KEY, adder=BEN, now_s=1, randomness=os.urandom)
    )
    await replace_record(place, KEYRING, theirs)
    anna = Desk(ANNA, await enter(ANNA), is_sealed=True)
    with pytest.raises(KeyringRefusedError):
        await anna.sharing.settle()
    assert await text_of(place, KEYRING) == theirs


# ── two devices, crashes, and what is kept ─────────────────────────────────────────────


@sealed_or_not
async def test_two_devices_of_the_owner_do_not_undo_each_other(
    enter: Enter, is_sealed: bool
) -> None:
    anna, _ = await two(enter, is_sealed)
    other = await Desk(ANNA, await enter(ANNA), is_sealed=is_sealed).sit_down()
    await other.sharing.invite(Card.of(CARL))
    await anna.sharing.revoke(BEN.public_key)
    await other.sharing.refresh()
    for desk in (anna, other):
        assert desk.sharing.membership.may_write(CARL.public_key)
        assert not desk.sharing.membership.may_write(BEN.public_key)
    carl = await Desk(CARL, await enter(CARL), is_sealed=is_sealed).sit_down()
    assert await carl.read() == "A"


class Interrupted(MemoryRecords):
    """Records whose writer comes in between others, or is cut off, as often as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.lost: set[int] = set()
        self.conflicts = 0
        self.stored_all_the_same = False

    async def write_record(
        self, document_key: str, name: str, text: str, revision: str | None
    ) -> str:
        if self.conflicts:
            self.conflicts -= 1
            raise RecordConflictError
        self.writes += 1
        if self.writes in self.lost:
            if self.stored_all_the_same:
                await super().write_record(document_key, name, text, revision)
            raise TransportError("lost", retryable=True)
        return await super().write_record(document_key, name, text, revision)


@pytest.fixture
def broken() -> Interrupted:
    return Interrupted()


async def at(records: RecordStore) -> tuple[Desk, Desk, Place]:
    place = Place(MemoryTransport(), MemorySnapshots(), records)

    async def give(_: Identity) -> Place:
        return place

    return *await two(give, True), place


async def test_a_few_conflicts_are_outlived(broken: Interrupted) -> None:
    anna, _, _ = await at(broken)
    broken.conflicts = 2
    await anna.sharing.invite(Card.of(CARL))
    broken.conflicts = 3
    with pytest.raises(RecordConflictError):
        await anna.sharing.revoke(CARL.public_key)
    assert anna.sharing.membership.may_write(CARL.public_key)


@pytest.mark.parametrize("is_stored", [False, True], ids=["lost", "stored"])
@pytest.mark.parametrize("step", [1, 2], ids=["roster", "keyring"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["again", "restarted"])
async def test_a_revocation_that_was_cut_off_is_resumed(
    broken: Interrupted, step: int, is_stored: bool, is_restarted: bool
) -> None:
    anna, ben, place = await at(broken)
    await ben.write("B")
    broken.lost = {broken.writes + step}
    broken.stored_all_the_same = is_stored
    with pytest.raises(TransportError, match="lost"):
        await anna.sharing.revoke(BEN.public_key)
    if is_restarted:
        anna = await Desk(ANNA, place, is_sealed=True, slots=anna.slots).sit_down()
    if is_restarted and step == 1 and not is_stored:
        # Nobody has heard of it, not even this device.
        assert anna.sharing.membership.may_write(BEN.public_key)
    await anna.sharing.revoke(BEN.public_key)
    assert anna.sharing.keys is not None
    assert anna.sharing.keys.current_epoch == 2
    assert not anna.sharing.is_snapshot_due
    await anna.write("a")
    await ben.write("X")
    assert await anna.read() == "ABa"
    assert ben.document.text("body") == "ABX"
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, place, is_sealed=True).sit_down()
    assert await carl.read() == "ABa"


@pytest.mark.parametrize("step", [1, 2], ids=["roster", "keyring"])
async def test_an_invitation_that_was_cut_off_is_resumed(broken: Interrupted, step: int) -> None:
    anna, _, place = await at(broken)
    broken.lost = {broken.writes + step}
    with pytest.raises(TransportError, match="lost"):
        await anna.sharing.invite(Card.of(CARL))
    await anna.sharing.invite(Card.of(CARL))
    carl = await Desk(CARL, place, is_sealed=True).sit_down()
    await carl.write("C")
    assert await anna.read() == "AC"


async def test_settling_again_writes_nothing(broken: Interrupted) -> None:
    anna, _, _ = await at(broken)
    writes = broken.writes
    await anna.sharing.settle()
    await anna.sharing.invite(Card.of(BEN))
    assert broken.writes == writes


async def test_a_document_can_be_begun_without_a_relay(enter: Enter) -> None:
    anna = Desk(ANNA, await enter(ANNA), is_sealed=True)
    anna.sharing.create()
    keys = anna.sharing.keys
    anna.sharing.create()
    assert anna.sharing.keys is keys
    again = Desk(ANNA, anna.place, is_sealed=True, slots=anna.slots)
    assert again.sharing.keys is not None
    assert keys is not None
    assert again.sharing.keys.key_ids == keys.key_ids
    await again.sit_down()
    await again.write("A")
    await again.sharing.invite(Card.of(BEN))
    ben = await Desk(BEN, await enter(BEN), is_sealed=True).sit_down()
    assert await ben.read() == "A"


async def test_everything_is_known_again_without_a_relay(enter: Enter) -> None:
    _, ben = await two(enter, True)
    again = Desk(BEN, ben.place, is_sealed=True, slots=ben.slots)
    assert again.sharing.members() == ben.sharing.members()
    assert again.sharing.keys is not None
    assert ben.sharing.keys is not None
    assert again.sharing.keys.key_ids == ben.sharing.keys.key_ids


async def test_a_local_file_keeps_it_across_restarts(tmp_path: Path) -> None:
    anna, _, place = await at(MemoryRecords())
    await anna.sharing.rotate()
    path = tmp_path / "notes.db"
    with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
        ben = Desk(BEN, place, is_sealed=True, slots=file)
        await ben.sharing.refresh()
        known = ben.sharing.members()
    nowhere = place._replace(records=MemoryRecords())
    with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
        again = Desk(BEN, nowhere, is_sealed=True, slots=file)
        assert again.sharing.members() == known
        with pytest.raises(RosterRollbackError):
            await again.sharing.refresh()
        assert again.sharing.keys is not None
        assert again.sharing.keys.current_epoch == 2


async def test_the_owner_is_pinned(enter: Enter) -> None:
    _, ben = await two(enter, False)
    with pytest.raises(OtherOwnerError) as refused:
        Desk(BEN, ben.place, is_sealed=False, owner=CARL, slots=ben.slots)
    assert refused.value.owner == ANNA.public_key


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"owner": None},
        {"roster": "{}"},
        {"keyring": {"v": 1}},
        {"keyring": []},
        {"epoch_min": "1"},
        {"epoch_min": 9},
        {"key_ids": None},
        {"key_ids": {"x": "y"}},
        {"granted": [1]},
        {"is_snapshot_due": 1},
        {"followed": "1"},
    ],
)
async def test_a_damaged_state_is_an_error_and_no_fresh_start(change: dict[str, Any]) -> None:
    _, ben, place = await at(MemoryRecords())
    kept = ben.slots.get(SLOT)
    assert isinstance(kept, dict)
    ben.slots.put(SLOT, {**kept, **change})
    with pytest.raises((SharingStateError, OtherOwnerError)):
        Desk(BEN, place, is_sealed=True, slots=ben.slots)
    ben.slots.put(SLOT, [])
    with pytest.raises(SharingStateError):
        Desk(BEN, place, is_sealed=True, slots=ben.slots)


class FullSlots(MemorySlots):
    """A disk that can be full."""

    is_full = False

    def put(self, name: str, value: Json) -> None:
        if self.is_full:
            raise StorageError("full")
        super().put(name, value)


async def test_what_cannot_be_kept_is_not_followed(enter: Enter) -> None:
    anna, _ = await two(enter, True)
    slots = FullSlots()
    ben = await Desk(BEN, await enter(BEN), is_sealed=True, slots=slots).sit_down()
    await anna.sharing.invite(Card.of(CARL))
    await anna.sharing.rotate()
    slots.is_full = True
    with pytest.raises(StorageError):
        await ben.sharing.refresh()
    assert not ben.sharing.membership.may_write(CARL.public_key)
    slots.is_full = False
    assert await ben.sharing.refresh() == (True, True)


# ── a relay with roles ─────────────────────────────────────────────────────────────────

ROLES = """
[[grant]]
prefix = "notes/"
read = [ANNA]
write = [ANNA]
snapshot = [ANNA]
grant = [ANNA]
"""


@pytest.fixture
async def guarded() -> AsyncIterator[Enter]:
    """A relay where Anna alone may do something, and may let others in."""
    table = tomllib.loads(ROLES.replace("ANNA", f'"{ANNA.public_key}"'))
    roles = Roles.from_table(table, source="roles.toml")
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay.serve(MemoryLog(), roles=roles))
        yield entering(relay, stack)


async def test_the_relay_lets_in_who_is_invited_and_nobody_else(guarded: Enter) -> None:
    anna, ben = await two(guarded, True)
    assert anna.sharing.is_relay_open is False
    await ben.write("B")
    assert await anna.read() == "AB"
    carl = Desk(CARL, await guarded(CARL), is_sealed=True)
    with pytest.raises(RelayRefusalError) as refused:
        await carl.sharing.refresh()
    assert refused.value.code is Code.RESTRICTED


async def test_the_relay_refuses_the_revoked(guarded: Enter) -> None:
    anna, ben = await two(guarded, True)
    await ben.write("B")
    await anna.sharing.revoke(BEN.public_key)
    with pytest.raises(RelayRefusalError) as refused:
        await ben.write("X")
    assert refused.value.code is Code.RESTRICTED
    with pytest.raises(RelayRefusalError):
        await ben.document.pull()
    assert await anna.read() == "AB"
    assert anna.reasons == []


async def test_an_invitation_opens_one_document_and_not_its_namesakes(guarded: Enter) -> None:
    anna, ben = await two(guarded, False)
    await anna.place.records.write_record(f"{KEY}2", "roster", "theirs", None)
    with pytest.raises(RelayRefusalError):
        await ben.place.transport.pull(f"{KEY}2", 0)
    assert await ben.place.transport.pull(KEY, 0)


async def test_a_member_keeps_no_records(guarded: Enter) -> None:
    _, ben = await two(guarded, False, "write", "snapshot")
    with pytest.raises(RelayRefusalError) as refused:
        await replace_record(ben.place, ROSTER, "mine")
    assert refused.value.code is Code.RESTRICTED


async def test_a_relay_that_is_open_takes_no_grants() -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay.serve(MemoryLog()))
        anna, _ = await two(entering(relay, stack), False)
        assert anna.sharing.is_relay_open is True


class LostGrants:
    """A relay that is lost before it has heard of a grant, as often as a test says."""

    def __init__(self) -> None:
        self.is_lost = False
        self.heard: list[Mapping[str, Any]] = []

    async def publish_grant(self, grant: Mapping[str, Any]) -> None:
        if self.is_lost:
            raise TransportError("lost", retryable=True)
        self.heard.append(grant)


async def test_a_grant_that_was_not_heard_is_published_with_the_next_change() -> None:
    grants = LostGrants()
    place = Place(MemoryTransport(), MemorySnapshots(), MemoryRecords(), grants)

    async def give(_: Identity) -> Place:
        return place

    anna, _ = await two(give, True)
    grants.is_lost = True
    with pytest.raises(TransportError):
        await anna.sharing.revoke(BEN.public_key)
    grants.is_lost = False
    again = await Desk(ANNA, place, is_sealed=True, slots=anna.slots).open()
    await again.sharing.invite(Card.of(CARL))
    assert [(grant["to"], *grant["roles"]) for grant in grants.heard] == [
        (BEN.public_key, "read", "write"),
        (CARL.public_key, "read", "write"),
        (BEN.public_key,),
    ]
    first, *_, last = grants.heard
    # A relay counts the newest of several.
    assert first["at"] < last["at"]
    assert all(grant["exact"] and grant["prefix"] == KEY for grant in grants.heard)
    # What was heard is not said again.
    await again.sharing.settle()
    assert len(grants.heard) == 3


# ── many times over ────────────────────────────────────────────────────────────────────


async def test_of_a_thousand_elements_after_a_revocation_none_opens() -> None:
    anna, ben, _ = await at(MemoryRecords())
    old = ben.encryptor
    assert old is not None
    await anna.sharing.revoke(BEN.public_key)
    assert anna.encryptor is not None
    opened = 0
    for seq in range(1, 1001):
        context = SealContext(KEY, ANNA.public_key, seq)
        sealed = anna.encryptor.seal({"n": seq}, context)
        try:
            old.open(sealed, context)
            opened += 1
        except UnreadableError:
            pass
    assert opened == 0


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["insert", "delete", "pull", "refresh", "commit", "snapshot", "revoke"]),
        st.floats(0, 1),
    ),
    min_size=4,
    max_size=30,
)


@given(STEPS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_all_readers_agree_on_what_counts_whatever_they_knew_when(
    steps: list[tuple[int, str, float]], is_sealed: bool
) -> None:
    asyncio.run(agree(steps, is_sealed))


async def agree(steps: list[tuple[int, str, float]], is_sealed: bool) -> None:
    place = Place(MemoryTransport(), MemorySnapshots(), MemoryRecords())

    async def give(_: Identity) -> Place:
        return place

    anna, ben = await two(give, is_sealed)
    await anna.sharing.invite(Card.of(CARL), ["write", "snapshot"])
    carl = await Desk(CARL, place, is_sealed=is_sealed).sit_down()
    await ben.sharing.refresh()
    desks = (anna, ben, carl)
    for number, (who, what, where) in enumerate(steps):
        await step(desks[who], what, where, chr(ord("a") + number % 26))
    for _ in range(2):
        for desk in desks:
            await desk.sharing.refresh()
            await desk.document.commit()
            await desk.document.pull()
    await anna.sharing.settle()
    readers = [anna, carl]
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        again = Desk(CARL, place, is_sealed=is_sealed, slots=carl.slots)
        await again.sharing.refresh()
        readers.append(await again.open(posture))
        assert again.document.snapshot_verdict is not SnapshotVerdict.MISMATCH
    texts = [await desk.read() for desk in readers]
    assert len(set(texts)) == 1, texts
    assert not any(desk.document.detected_gaps() for desk in readers)
    assert not any(desk.document.is_read_only for desk in desks)


async def step(desk: Desk, what: str, where: float, letter: str) -> None:
    document = desk.document
    text = document.text("body")
    at = int(where * len(text))
    match what:
        case "insert":
            document.insert_text("body", at, letter)
        case "delete":
            document.remove_text("body", at, 1)
        case "pull":
            await document.pull()
        case "refresh":
            await desk.sharing.refresh()
        case "commit":
            await document.commit()
        case "snapshot" if desk.who is not BEN:
            with suppress(SnapshotRefusedError):
                await desk.sharing.snapshot()
        case "revoke" if desk.who is ANNA:
            await desk.sharing.revoke(BEN.public_key)


async def test_a_keyring_that_outgrows_its_place_lets_go_of_its_oldest_keys() -> None:
    anna, ben, place = await at(MemoryRecords())
    for number in range(40):
        await anna.sharing.invite(Card.of(Identity.from_seed(bytes([number + 9]) * 32)), ["read"])
    for _ in range(25):
        await anna.sharing.rotate()
    text = await text_of(place, KEYRING)
    assert len(text.encode()) <= 256 * 1024
    keyring: Any = parse(text)
    assert keyring["currentEpoch"] == 26
    assert "1" not in keyring["epochs"]
    await ben.sharing.refresh()
    newcomer = await Desk(BEN, place, is_sealed=True).sit_down()
    assert await newcomer.read() == "A"
    for desk in (anna, ben):
        assert desk.sharing.keys is not None
        assert 1 in desk.sharing.keys.key_ids
