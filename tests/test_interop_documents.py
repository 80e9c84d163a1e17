"""Our documents and those of the published JavaScript packages, writing one log together."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from tests.node.documents import NodeLog
from tests.node.peer import NodePeer, node_peer_or_skip
from tests.node.person import Person
from tests.node.places import InPeer
from tests.node.scenario import (
    POSTURES,
    Keys,
    NodeReplica,
    OurReplica,
    Posture,
    Replica,
    Scenario,
    Story,
    check_agreement,
)
from walstore.crdt import to_ops
from walstore.document import Fork, SnapshotVerdict
from walstore.sealed import UnreadableError

SEEDS = int(os.environ.get("WALSTORE_INTEROP_SEEDS", "60"))


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running


@pytest.fixture
def table(peer: NodePeer) -> Iterator[Table]:
    yield Table(peer)
    peer.call("forgetDocuments")


class Table:
    """Four people around one log: two who hold the snapshot role and two who do not."""

    def __init__(self, peer: NodePeer) -> None:
        self.peer = peer
        self._rng = random.Random("table")
        self.ann, self.bob, self.cid, self.dan = (Person(self._rng) for _ in range(4))
        self._everybody = [self.ann, self.bob, self.cid, self.dan]
        self.log = NodeLog(peer)
        self.key = "spaces/table/doc"
        self._keys: Keys | None = None
        self._opened = 0

    @property
    def keys(self) -> Keys:
        assert self._keys is not None, "the log is sealed"
        return self._keys

    def seal(self, *, readers: list[Person] | None = None, by_peer: bool = False) -> None:
        """Seal the log from now on."""
        self._keys = Keys(self.peer, readers or self._everybody, self._rng, self.key)
        self._keys.create(by_peer=by_peer)

    async def ours(
        self,
        person: Person,
        posture: Posture = "trust",
        *,
        wire: Literal["packed", "starfish"] = "starfish",
        chained: bool = True,
    ) -> OurReplica:
        replica = OurReplica(self.story, person, chained=chained)
        return await replica.open(posture=posture, wire=wire)

    async def theirs(
        self,
        person: Person,
        posture: Posture = "trust",
        *,
        nonce: str | None = None,
        on_author_error: Literal["throw", "skip"] = "throw",
    ) -> NodeReplica:
        self._opened += 1
        replica = NodeReplica(self.story, person, f"table {self._opened}")
        return await replica.open(posture=posture, nonce=nonce, on_author_error=on_author_error)

    async def readers(self) -> list[Replica]:
        """A late reader of each posture on each side."""
        readers: list[Replica] = []
        for posture in POSTURES:
            readers.append(await self.ours(self.dan, posture))
            readers.append(await self.theirs(self.dan, posture))
        return readers

    @property
    def elements(self) -> list[dict[str, Any]]:
        return self.log.elements(self.key)

    @property
    def story(self) -> Story:
        writers = [person.public_key for person in self._everybody]
        roles = [self.ann.public_key, self.bob.public_key]
        place = InPeer(self.peer)
        return Story(self.peer, place, self.key, self._keys, writers, roles, self._rng.randbytes)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_all_replicas_of_both_sides_agree_and_nobody_raises_an_alarm(
    peer: NodePeer, seed: int
) -> None:
    scenario = Scenario(peer, seed)
    await scenario.play()
    await scenario.read_late()
    check_agreement(scenario.replicas)
    peer.call("forgetDocuments")


# ── what the chain adds ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sealed", [False, True])
async def test_the_peer_reads_past_the_chain(table: Table, sealed: bool) -> None:
    if sealed:
        table.seal()
    ours, theirs = await table.ours(table.ann), await table.theirs(table.cid)
    for word in ("one", "two"):
        ours.edit(("setField", "title", word), ("insertText", "body", 0, word))
        await ours.commit()
    await theirs.pull()
    envelope = {"_encrypted", "_epoch"} if sealed else {"v", "author", "seq", "ops"}
    for element in table.elements:
        assert element["data"].keys() == envelope | {"x"}
    await ours.snapshot()
    check_agreement([ours, theirs, *await table.readers()])


@pytest.mark.parametrize("sealed", [False, True])
async def test_without_the_chain_nothing_is_written_that_the_peer_does_not_write(
    table: Table, sealed: bool
) -> None:
    if sealed:
        table.seal()
    ours, theirs = await table.ours(table.ann, chained=False), await table.theirs(table.bob)
    ours.edit(("setField", "title", "ours"), ("push", "todo", 1))
    await ours.commit()
    await theirs.pull()
    theirs.edit(("setField", "title", "theirs"), ("push", "todo", 2))
    await theirs.commit()
    mine, other = table.elements
    assert mine["data"].keys() == other["data"].keys()
    snapshot = await ours.document.snapshot()
    theirs.edit(("push", "todo", 3))
    await theirs.commit()
    assert snapshot.keys() == theirs.document.snapshot().keys()
    if not sealed:
        assert snapshot["state"].keys() == {"v", "regs", "lists"}


# ── no false alarms ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_peer", [False, True])
async def test_a_session_goes_on_after_a_snapshot_that_covers_its_start(
    table: Table, by_peer: bool
) -> None:
    first = await table.ours(table.cid)
    first.edit(("setField", "title", 1))
    await first.commit()
    second = await table.ours(table.cid)
    second.edit(("setField", "title", 2))
    await second.commit()
    producer = await (table.theirs(table.bob) if by_peer else table.ours(table.ann))
    await producer.snapshot()
    first.edit(("setField", "title", 3))
    await first.commit()
    second.edit(("setField", "meta", 4))
    await second.commit()
    for replica in (first, second, producer):
        await replica.pull()
    check_agreement([first, second, producer, *await table.readers()])


async def test_a_session_goes_on_after_a_snapshot_on_top_of_one_of_the_peers(
    table: Table,
) -> None:
    first = await table.ours(table.cid)
    first.edit(("setField", "title", 1))
    await first.commit()
    await (await table.theirs(table.bob)).snapshot()
    other = await table.ours(table.ann)
    other.edit(("push", "todo", 1))
    await other.commit()
    await other.snapshot()
    first.edit(("setField", "title", 2))
    await first.commit()
    for replica in (first, other):
        await replica.pull()
    check_agreement([first, other, *await table.readers()])


async def test_an_old_element_that_is_stored_again_after_a_snapshot_leaves_no_gap(
    table: Table,
) -> None:
    ours = await table.ours(table.cid)
    for title in range(4):
        ours.edit(("setField", "title", title))
        await ours.commit()
    await (await table.theirs(table.bob)).snapshot()
    table.log.repeat(table.key, table.elements[1])
    ours.edit(("setField", "title", "last"))
    await ours.commit()
    await ours.pull()
    check_agreement([ours, *await table.readers()])


@pytest.mark.parametrize("posture", POSTURES)
async def test_a_snapshot_of_the_peer_is_no_rollback(table: Table, posture: Posture) -> None:
    ours = await table.ours(table.ann)
    ours.edit(("setField", "title", 1))
    await ours.commit()
    await ours.snapshot()
    theirs = await table.theirs(table.bob)
    theirs.edit(("setField", "title", 2))
    await theirs.commit()
    await theirs.snapshot()
    again = await OurReplica(table.story, table.ann).open(
        posture=posture, marks=ours.document.marks
    )
    again.edit(("setField", "title", 3))
    await again.commit()
    for replica in (ours, theirs, again):
        await replica.pull()
    check_agreement([ours, theirs, again])


async def test_a_retry_of_the_peer_with_more_ops_is_no_fork(table: Table) -> None:
    ours, theirs = await table.ours(table.ann), await table.theirs(table.cid)
    theirs.edit(("setField", "title", "lost"), ("insertText", "body", 0, "a"))
    await theirs.commit("lost")
    await ours.pull()
    theirs.edit(("insertText", "body", 1, "b"))
    await theirs.commit()
    await ours.pull()
    assert [element["data"]["seq"] for element in table.elements] == [1, 1]
    assert ours.document.text("body") == "ab"
    check_agreement([ours, theirs, *await table.readers()])


@pytest.mark.parametrize("sealed", [False, True])
async def test_two_tabs_of_one_author_are_no_fork(table: Table, sealed: bool) -> None:
    if sealed:
        table.seal(by_peer=True)
    ours = await table.ours(table.ann)
    tabs = [await table.theirs(table.cid, nonce=nonce) for nonce in ("left", "right")]
    own = await table.ours(table.cid)
    replicas: list[Replica] = [ours, own, *tabs]
    for letter in "abc":
        for replica in replicas[1:]:
            replica.edit(("insertText", "body", 0, letter), ("setField", "title", letter))
            await replica.commit()
    for replica in replicas:
        await replica.pull()
    check_agreement([*replicas, *await table.readers()])


# ── forks are told ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_peer", [False, True])
async def test_a_clock_that_the_peer_uses_again_is_told_and_the_first_counts(
    table: Table, by_peer: bool
) -> None:
    witness = await table.ours(table.ann)
    theirs = await table.theirs(table.cid)
    theirs.edit(("setField", "title", "first"), ("insertText", "body", 0, "first"))
    await theirs.commit()
    await witness.pull()
    await (await table.theirs(table.bob) if by_peer else witness).snapshot()
    # The package takes up no clocks from a snapshot, and starts with the nonce "0" again.
    again = await table.theirs(table.cid)
    again.edit(("setField", "title", "second"), ("insertText", "body", 0, "second"))
    await again.commit()
    await witness.pull()
    forks = witness.events
    assert [type(fork) for fork in forks] == [Fork]
    fork = forks[0]
    assert isinstance(fork, Fork)
    assert (fork.author, fork.counter) == (table.cid.public_key, 1)
    assert (fork.first.ts, fork.second.ts) == (1, 2)
    assert witness.document.field("title") == "first"
    for reader in await table.readers():
        assert reader.seen() == witness.seen()


async def test_the_same_ops_written_again_after_a_snapshot_are_no_fork(table: Table) -> None:
    witness = await table.ours(table.ann)
    edits = [("setField", "title", "same"), ("insertText", "body", 0, "same")]
    theirs = await table.theirs(table.cid)
    theirs.edit(*edits)
    await theirs.commit()
    await witness.pull()
    await witness.snapshot()
    again = await table.theirs(table.cid, "trust")
    # The first of two commits repeats only a part, so that it is not the same element.
    again.edit(edits[0])
    await again.commit()
    again.edit(edits[1])
    await again.commit()
    assert len({element["authorSignature"] for element in table.elements}) == 3
    await witness.pull()
    check_agreement([witness, *await table.readers()])


async def test_an_own_edit_survives_an_element_that_came_first_and_was_opened_late(
    table: Table,
) -> None:
    table.seal()
    ours = await table.ours(table.ann)
    early, late = await table.theirs(table.cid), await table.theirs(table.cid)
    table.keys.rotate(by_peer=True)
    # Two tabs with the nonce "0": the one with the new key is first in the log.
    await early.take_keys()
    early.edit(("setField", "title", "first"))
    await early.commit()
    late.edit(("setField", "title", "second"))
    await late.commit()
    await ours.pull()
    assert (ours.document.field("title"), ours.document.unreadable) == ("second", 1)
    ours.edit(("insertText", "body", 0, "sent"))
    await ours.commit()
    ours.edit(("insertText", "body", 4, " and not"))
    await ours.take_keys()
    assert (ours.document.field("title"), ours.document.unreadable) == ("first", 0)
    assert ours.document.text("body") == "sent and not"
    await ours.commit()
    await ours.pull()
    assert [type(event) for event in ours.events] == [Fork]
    for reader in await table.readers():
        assert reader.seen() == ours.seen()


# ── keys ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["lost", "refused"])
@pytest.mark.parametrize("chained", [True, False])
async def test_a_commit_whose_answer_a_rotation_overtakes_is_in_the_log_once(
    table: Table, fault: str, chained: bool
) -> None:
    table.seal()
    ours = await table.ours(table.ann, chained=chained)
    theirs = await table.theirs(table.bob)
    for title in range(3):
        ours.edit(("setField", "title", title))
        await ours.commit(fault if title == 2 else None)
    table.keys.rotate(by_peer=True)
    await ours.take_keys()
    await ours.commit()
    epochs = [element["data"]["_epoch"] for element in table.elements]
    assert epochs == ([1, 1, 1] if fault == "lost" else [1, 1, 2])
    ours.edit(("setField", "title", "last"))
    await ours.settle()
    await theirs.pull()
    check_agreement([ours, theirs, *await table.readers()])


@pytest.mark.parametrize("created_by_peer", [False, True])
@pytest.mark.parametrize("rotated_by_peer", [False, True])
async def test_who_joined_after_a_rotation_reads_from_the_snapshot_of_either_side(
    table: Table, created_by_peer: bool, rotated_by_peer: bool
) -> None:
    table.seal(readers=[table.ann, table.bob, table.cid], by_peer=created_by_peer)
    ours, theirs = await table.ours(table.ann), await table.theirs(table.bob)
    theirs.edit(("insertText", "body", 0, "before"))
    await theirs.commit()
    table.keys.recipients.append(table.dan.identity.kem_public_key)
    table.keys.rotate(by_peer=rotated_by_peer)
    await ours.take_keys()
    await theirs.take_keys()
    with pytest.raises(UnreadableError):
        table.keys.open_for(table.dan).key(1)
    for producer, other in ((ours, theirs), (theirs, ours)):
        await producer.snapshot()
        other.edit(("insertText", "body", 0, "after "))
        await other.commit()
        joined = [await table.ours(table.dan, posture) for posture in POSTURES]
        verdicts = {each.document.snapshot_verdict for each in joined}
        assert verdicts == {SnapshotVerdict.TRUSTED, SnapshotVerdict.UNVERIFIABLE}
        for replica in (ours, theirs):
            await replica.pull()
        check_agreement([ours, theirs, await table.theirs(table.dan), *joined])


# ── both versions in one log ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sealed", [False, True])
async def test_elements_of_both_versions_fold_together(table: Table, sealed: bool) -> None:
    if sealed:
        table.seal()
    packed = await table.ours(table.ann, wire="packed")
    chained = await table.ours(table.bob)
    bare = await table.ours(table.bob, chained=False)
    # The package cannot read version 2. Told so, it skips what is plain; it stops at what is
    # sealed, and can then only write.
    theirs = await table.theirs(table.cid, on_author_error="skip")
    # The same person on both sides.
    also_packed = await table.ours(table.cid, wire="packed")
    ours = [packed, chained, bare, also_packed]
    writers: list[Replica] = [packed, chained, bare, theirs, also_packed]
    readers: list[Replica] = [*ours] if sealed else writers
    for letter in "abc":
        for writer in writers:
            writer.edit(("insertText", "body", 0, letter), ("push", "todo", letter))
            writer.edit(("setField", "title", letter))
            await writer.commit()
        for reader in readers:
            await reader.pull()
    for producer in (packed, chained):
        await producer.snapshot()
        packed.edit(("push", "todo", "more"))
        await packed.commit()
        for replica in ours:
            await replica.pull()
        late = [await table.ours(table.dan, posture, wire="packed") for posture in POSTURES]
        verdicts = {each.document.snapshot_verdict for each in late}
        assert verdicts == {SnapshotVerdict.TRUSTED, SnapshotVerdict.VERIFIED}
        ours += late
    for replica in ours:
        await replica.pull()
    check_agreement([*ours])
    versions = [version.ts for version in packed.document.history()]
    assert versions == list(range(1, len(table.elements) + 1))
    entries = packed.document._log.ledger.entries
    ops = [op for entry in entries for op in to_ops(entry.runs)]
    folded = table.peer.call("fold", ops=ops)
    assert folded["canonical"] == packed.seen()[0]


async def test_a_peer_that_adopts_a_snapshot_over_both_versions_goes_on_counting(
    table: Table,
) -> None:
    packed = await table.ours(table.cid, wire="packed")
    for title in range(3):
        packed.edit(("setField", "title", title))
        await packed.commit()
    producer = await table.ours(table.ann)
    await producer.snapshot()
    theirs = await table.theirs(table.cid)
    assert theirs.materialize() == {"title": 2}
    theirs.edit(("push", "todo", 1))
    await theirs.commit()
    for replica in (packed, producer, theirs):
        await replica.pull()
    check_agreement([packed, producer, theirs])
    for posture in POSTURES:
        check_agreement([packed, await table.ours(table.dan, posture)])


async def test_a_snapshot_on_top_of_a_snapshot_counts_what_the_log_counts(table: Table) -> None:
    for _ in range(3):
        packed = await table.ours(table.ann, wire="packed")
        packed.edit(("push", "todo", 1))
        await packed.commit()
        await packed.snapshot()
    reader = await table.ours(table.dan, "re-derive", wire="packed")
    assert reader.document.snapshot_verdict is SnapshotVerdict.VERIFIED
    reader.check_calm()
