"""Compaction over real logs: what goes was not needed, and whoever is interrupted loses nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from tests.rigged import ALICE, BOB, CAROL, MEMBERS, state_of
from walstore.canon import canonical_bytes, parse
from walstore.document import (
    Body,
    CheckpointTooOldError,
    PrunedLogError,
    SnapshotConflictError,
    SnapshotVerdict,
    StoredSnapshot,
    WalDocument,
)
from walstore.document.ports import RawElement
from walstore.relay.archived import ArchivedSeq, ArchivePosition
from walstore.relay.compaction import DocumentPlan, Plan, compact, compact_all, plan
from walstore.relay.log import (
    Accepted,
    Event,
    Filter,
    LogError,
    NewElement,
    NewSnapshot,
    ReaderMark,
    RelayLog,
    Removal,
    Removed,
)
from walstore.relay.memory import MemoryLog
from walstore.relay.retention import LogMode, Policy, SnapshotMode
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity

POSTURES = ["trust", "trust-retain-tail", "re-derive"]
NOW_MS = 1_700_000_000_000
PRUNING = Policy(
    snapshot_mode=SnapshotMode.CURRENT_ONLY,
    log_mode=LogMode.COMPACT_BELOW_SNAPSHOT,
    retain_tail_n=2,
)
ANY = Filter()


class LogTransport:
    """Documents straight on a relay's log."""

    def __init__(self, log: RelayLog) -> None:
        self.log = log
        self._clock = count(NOW_MS)

    async def append(self, document_key: str, body: Body) -> int:
        name = sha256(body.canonical + body.signature.encode()).hexdigest()
        element = NewElement(document_key, name, body.author, body.signature, body.canonical)
        (accepted,) = await self.log.append([element], next(self._clock))
        return accepted.ts

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        page = await self.log.page(document_key, checkpoint, count_max=3, bytes_max=2**20)
        if checkpoint < page.floor:
            raise CheckpointTooOldError(page.floor)
        return [RawElement(row.ts, row.data, row.author, row.signature) for row in page.rows]

    async def tail(self, document_key: str, upto: int, count: int) -> Sequence[object]:
        rows = await self.log.tail(document_key, upto, count)
        return [RawElement(row.ts, row.data, row.author, row.signature) for row in rows]

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        stored = await self.log.snapshot(snapshot_key.removesuffix("__snapshot"))
        return None if stored is None else StoredSnapshot(parse(stored.text), stored.revision)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        text = canonical_bytes(document)
        answer = await self.log.put_snapshot(
            NewSnapshot(
                snapshot_key.removesuffix("__snapshot"),
                revision,
                sha256(text).hexdigest(),
                document["producedBy"],
                document["uptoTs"],
                document["writerSeq"],
                document["state"] is None,
                text,
            ),
            next(self._clock),
        )
        if not isinstance(answer, Accepted):
            raise SnapshotConflictError


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RelayLog]:
    if request.param == "memory":
        yield MemoryLog()
        return
    async with SqliteLog.open(tmp_path / "relay.sqlite") as opened:
        yield opened


async def opened(
    log: RelayLog, who: Identity = ALICE, key: str = "notes/a", **options: Any
) -> WalDocument:
    transport = LogTransport(log)
    document = WalDocument(
        key,
        transport=transport,
        snapshot_store=transport,
        identity=who,
        writers=MEMBERS,
        snapshot_role=MEMBERS,
        now_ms=lambda: NOW_MS,
        **options,
    )
    return await document.open()


async def states(log: RelayLog, key: str = "notes/a") -> list[str]:
    """What readers of each posture see, tombstones and clocks included."""
    return [state_of(await opened(log, CAROL, key, posture=posture)) for posture in POSTURES]


async def edit(doc: WalDocument, rng: Random, edits: int) -> None:
    for _ in range(edits):
        await doc.pull()
        length = len(doc.text("body"))
        doc.insert_text("body", rng.randint(0, length), rng.choice(["one ", "two ", "three "]))
        if length > 9:
            doc.remove_text("body", rng.randrange(length - 5), rng.randint(1, 5))
        doc.set_field(rng.choice("xyz"), rng.randrange(100))
        await doc.commit()


async def filled(log: RelayLog, key: str = "notes/a") -> WalDocument:
    """Ten elements of two people, a snapshot after five and one after eight of them."""
    alice, bob, rng = await opened(log, ALICE, key), await opened(log, BOB, key), Random(1)
    await edit(alice, rng, 3)
    await edit(bob, rng, 2)
    await alice.snapshot()
    await edit(bob, rng, 3)
    await alice.snapshot()
    await edit(alice, rng, 2)
    await alice.pull()
    return alice


async def planned(log: RelayLog, policy: Policy = PRUNING, **options: Any) -> Plan:
    return await plan(log, policy, **{"archived_seq": None, "now_ms": NOW_MS, **options})


# ── harmless ───────────────────────────────────────────────────────────────────────────


async def test_readers_of_every_posture_see_the_same_before_and_after(log: RelayLog) -> None:
    alice = await filled(log)
    before = await states(log)
    assert set(before) == {state_of(alice)}
    removed = await compact(log, await planned(log))
    assert (removed.elements, removed.snapshots) == (6, 1)
    assert await states(log) == before
    # And so it stays when more is written and compacted.
    await edit(alice, Random(2), 4)
    await alice.pull()
    await alice.snapshot()
    before = await states(log)
    assert (await compact_all(log, PRUNING, archived_seq=None, now_ms=NOW_MS)).elements == 6
    assert await states(log) == before


@pytest.mark.parametrize("seed", range(10))
async def test_any_history_folds_to_the_same_after_any_compaction(seed: int) -> None:
    rng, log = Random(seed), MemoryLog()
    docs = [await opened(log, who) for who in (ALICE, BOB)]
    policies = [
        PRUNING.changed({"retain_tail_n": tail, "snapshot_mode": mode.value})
        for tail in (0, 1, 5, 64)
        for mode in SnapshotMode
    ]
    for _ in range(8):
        doc = rng.choice(docs)
        await edit(doc, rng, rng.randint(1, 4))
        await doc.pull()
        if rng.random() < 0.5:
            await doc.snapshot()
        before = await states(log)
        await compact_all(log, rng.choice(policies), archived_seq=None, now_ms=NOW_MS)
        assert await states(log) == before
    for doc in docs:
        await doc.pull()
        assert state_of(doc) == before[0]


async def test_what_cannot_be_derived_any_more_is_unverifiable(log: RelayLog) -> None:
    await filled(log)
    reader = await opened(log, CAROL, posture="re-derive")
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    await compact(log, await planned(log))
    reader = await opened(log, CAROL, posture="re-derive")
    assert reader.snapshot_verdict is SnapshotVerdict.UNVERIFIABLE
    tailed = await opened(log, CAROL, posture="trust-retain-tail")
    assert len(tailed.retained_tail()) == 4


async def test_a_live_document_that_was_left_behind_goes_on(log: RelayLog) -> None:
    bob = await opened(log, BOB)
    bob.insert_text("body", 0, "mine")
    alice = await filled(log)
    await compact(log, await planned(log))
    with pytest.raises(CheckpointTooOldError):
        await LogTransport(log).pull("notes/a", bob.current_checkpoint)
    await bob.pull()
    await bob.commit()
    await alice.pull()
    await bob.pull()
    assert "mine" in alice.text("body")
    assert state_of(alice) == state_of(bob)
    assert (bob.unsent, bob.unconfirmed) == (0, 0)


# ── what goes ──────────────────────────────────────────────────────────────────────────


async def test_by_default_no_element_goes(log: RelayLog) -> None:
    await filled(log)
    assert (await planned(log, Policy())).documents == []


async def test_without_a_snapshot_nothing_goes(log: RelayLog) -> None:
    doc = await opened(log)
    await edit(doc, Random(1), 5)
    assert await planned(log, PRUNING.changed({"retain_tail_n": 0})) == Plan([], None)


@pytest.mark.parametrize(("tail", "elements"), [(0, 8), (1, 7), (7, 1), (8, 0), (64, 0)])
async def test_the_tail_below_the_snapshot_is_kept(log: RelayLog, tail: int, elements: int) -> None:
    await filled(log)
    policy = PRUNING.changed({"retain_tail_n": tail})
    removed = await compact_all(log, policy, archived_seq=None, now_ms=NOW_MS)
    assert removed.elements == elements
    (status,) = await log.documents("", count_max=9)
    assert status.elements == 10 - elements
    # A reader that has just what is gone can go on: the floor is not above it.
    await LogTransport(log).pull("notes/a", status.floor)


async def test_a_second_run_changes_nothing(log: RelayLog) -> None:
    await filled(log)
    first = await planned(log)
    await compact(log, first)
    assert await planned(log) == Plan([], None)
    assert await compact(log, first) == Removed(0, 0, 0)


async def test_the_worked_case_of_the_draft(log: RelayLog) -> None:
    await edit(await opened(log), Random(1), 1)
    (status,) = await log.documents("", count_max=9)
    revision = None
    for name in ("A1", "B1", "A2", "A3", "A4", "A5"):
        vc = {name[0]: int(name[1])}
        new = NewSnapshot("notes/a", revision, name, "key", status.head, vc, False, b"{}")
        assert isinstance(await log.put_snapshot(new, NOW_MS), Accepted)
        revision = name
    before = [event.id for event in (await log.bootstrap(ANY)).events]
    assert set(before) == {"A5", "B1"}
    assert (await compact(log, await planned(log, Policy()))).snapshots == 2
    kept = [event.id for event in await log.snapshots("notes/a")]
    assert set(kept) == {"A5", "B1", "A4", "A3"}
    assert [event.id for event in (await log.bootstrap(ANY)).events] == before
    # Known and gone, known and there, and never heard of are three answers.
    found = {event.id: event.payload for event in await log.find(["A1", "A5", "Z9"], ANY)}
    assert found == {"A1": None, "A5": b"{}"}
    # The policy is changed while the relay runs.
    stricter = Policy().changed({"snapshot_mode": "current_only"})
    assert (await compact(log, await planned(log, stricter))).snapshots == 2


@pytest.mark.parametrize(("count", "is_apart"), [(3, False), (200, True)])
async def test_many_snapshots_are_compared_while_others_are_served(
    count: int, is_apart: bool
) -> None:
    places: set[bool] = set()

    class Noting(dict[str, int]):
        def items(self) -> Any:
            places.add(threading.current_thread() is not threading.main_thread())
            return super().items()

    class NotingLog(MemoryLog):
        async def snapshots(self, document: str) -> list[Event]:
            found = await super().snapshots(document)
            return [each._replace(vc=Noting(each.vc)) for each in found]

    log = NotingLog()
    revision = None
    for number in range(count):
        counts = {f"w{number}": 1}
        put = NewSnapshot("notes/a", revision, f"{number}", "a", 0, counts, False, b"{}")
        await log.put_snapshot(put, NOW_MS)
        revision = put.id
    assert (await planned(log)).documents == []
    assert places == {is_apart}


async def test_what_is_known_is_known_at_every_moment_of_a_compaction(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "relay.sqlite") as log:
        await filled(log)
        feed = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
        names = [event.id for event in feed.events]
        is_over = False

        async def look() -> None:
            while not is_over:
                assert [event.id for event in await log.find(names, ANY)] == names
                page = await log.page("notes/a", 0, count_max=100, bytes_max=2**30)
                assert len(page.rows) == (0 if page.floor else 10)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await compact(log, await planned(log), step_elements_max=1)
            is_over = True


async def test_rows_of_what_is_gone_are_still_known(log: RelayLog) -> None:
    alice = await filled(log)
    feed = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
    await compact(log, await planned(log))
    after = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
    assert [event._replace(payload=None) for event in after.events] == [
        event._replace(payload=None) for event in feed.events
    ]
    gone = [event for event in after.events if event.payload is None]
    assert len(gone) == 7
    assert len(await log.find([event.id for event in gone], ANY)) == 7
    await alice.pull()
    assert alice.current_checkpoint == feed.events[-1].ts


async def test_documents_are_compacted_each_for_itself(log: RelayLog) -> None:
    await filled(log, "notes/a")
    quiet = await opened(log, ALICE, "notes/b")
    await edit(quiet, Random(3), 10)
    await filled(log, "other/c")
    before = await states(log, "notes/b")
    found = await planned(log)
    assert {each.document for each in found.documents} == {"notes/a", "other/c"}
    await compact(log, found)
    (status,) = await log.documents("notes/b", count_max=9)
    assert (status.elements, status.floor) == (10, 0)
    assert await states(log, "notes/b") == before


async def test_a_deletion_is_kept_and_its_elements_go(log: RelayLog) -> None:
    alice = await filled(log)
    await alice.delete_document()
    policy = PRUNING.changed({"retain_tail_n": 0})
    removed = await compact_all(log, policy, archived_seq=None, now_ms=NOW_MS)
    assert (removed.elements, removed.snapshots) == (10, 2)
    reader = await opened(log, CAROL)
    assert reader.is_deleted
    current = await log.bootstrap(ANY)
    assert [event.is_deletion for event in current.events] == [True]
    # Written again, with a snapshot that dominates the deletion, it is an ordinary document.
    await edit(alice, Random(4), 3)
    await alice.pull()
    await alice.snapshot()
    await compact_all(log, policy, archived_seq=None, now_ms=NOW_MS)
    assert [event.is_deletion for event in (await log.bootstrap(ANY)).events] == [False]
    assert set(await states(log)) == {state_of(alice)}


async def test_collected_tombstones_leave_the_relay_with_the_elements(log: RelayLog) -> None:
    doc = await opened(log)
    doc.insert_text("body", 0, "a secret stays")
    await doc.commit()
    await doc.pull()
    doc.remove_text("body", 2, 7)
    await doc.commit()
    await doc.pull()
    await doc.snapshot(collect={"alice": doc.current_checkpoint})
    await compact_all(log, PRUNING.changed({"retain_tail_n": 0}), archived_seq=None, now_ms=NOW_MS)
    feed = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
    left = b"".join([event.payload for event in feed.events if event.payload is not None])
    assert b"stays" in left
    assert b"secret" not in left
    assert set(await states(log)) == {state_of(doc)}


async def test_the_replay_window_moves(log: RelayLog) -> None:
    await filled(log)
    policy = Policy(replay_window=5)
    assert (await planned(log, policy)).min_seq == 8
    await compact(log, await planned(log, policy))
    feed = await log.feed(7, None, ANY, count_max=100, bytes_max=2**30)
    assert (feed.min_seq, len(feed.events)) == (8, 5)
    assert await planned(log, policy) == Plan([], None)


# ── the archive ────────────────────────────────────────────────────────────────────────

ARCHIVED = PRUNING.changed({"require_archive": True, "retain_tail_n": 0})


async def test_what_the_archive_does_not_hold_stays(log: RelayLog) -> None:
    await filled(log)
    feed = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
    elements = {event.ts: event.seq for event in feed.events if event.kind == "element"}
    assert not [each.below_ts for each in (await planned(log, ARCHIVED)).documents if each.below_ts]
    for archived_seq in range(feed.head_seq + 1):
        found = await planned(log, ARCHIVED, archived_seq=archived("", archived_seq))
        below_ts = max([each.below_ts for each in found.documents], default=0)
        held = [ts for ts, seq in elements.items() if seq <= archived_seq]
        assert below_ts == max(held[:8], default=0)


async def test_an_archive_that_fell_out_of_the_window_holds_everything_back(log: RelayLog) -> None:
    await filled(log)
    await log.trim(9)
    found = await planned(log, ARCHIVED, archived_seq=archived("", 4))
    assert not [each for each in found.documents if each.below_ts]


def archived(prefix: str, seq: int) -> ArchivedSeq:
    return ArchivedSeq([ArchivePosition("it", prefix, seq)])


async def test_what_no_archive_is_of_stays(log: RelayLog) -> None:
    await filled(log)
    feed = await log.feed(0, None, ANY, count_max=1, bytes_max=1)
    for prefix, is_held in (("notes/a", True), ("note", True), ("notes/ab", False)):
        found = await planned(log, ARCHIVED, archived_seq=archived(prefix, feed.head_seq))
        assert any(each.below_ts for each in found.documents) is is_held


async def test_the_slowest_archive_of_a_document_decides(log: RelayLog) -> None:
    await filled(log)
    head = (await log.feed(0, None, ANY, count_max=1, bytes_max=1)).head_seq
    both = ArchivedSeq([ArchivePosition("all", "", head), ArchivePosition("some", "notes/", 3)])
    found = await planned(log, ARCHIVED, archived_seq=both)
    assert found == await planned(log, ARCHIVED, archived_seq=archived("", 3))
    assert found != await planned(log, ARCHIVED, archived_seq=archived("", head))


# ── dry runs ───────────────────────────────────────────────────────────────────────────


async def test_a_dry_run_says_what_would_go_and_whom_it_would_strand(log: RelayLog) -> None:
    await filled(log)
    feed = await log.feed(0, None, ANY, count_max=100, bytes_max=2**30)
    times = [event.ts for event in feed.events if event.kind == "element"]
    await log.note_readers(
        [
            ReaderMark("notes/a", "behind", times[2], NOW_MS),
            ReaderMark("notes/a", "at the floor", times[5], NOW_MS),
            ReaderMark("notes/a", "ahead", times[9], NOW_MS),
            ReaderMark("notes/b", "elsewhere", 0, NOW_MS),
        ]
    )
    before = await states(log)
    found = await planned(log, is_measured=True)
    (each,) = found.documents
    assert [mark.key for mark in each.stranded] == ["behind"]
    assert each.below_ts == times[5]
    text = found.as_text()
    assert f"notes/a: 6 elements, 1 snapshot, {each.removed.payload_bytes:,} bytes" in text  # type: ignore[union-attr]
    assert f"strands behind, who has read up to {times[2]} (seen 2023-11-14)" in text
    assert text.endswith("1 reader stranded\n")
    document = json.loads(json.dumps(found.as_json()))
    assert document["total"] == {
        "elements": 6,
        "snapshots": 1,
        "payload_bytes": document["documents"][0]["removed"]["payload_bytes"],
    }
    assert [mark["key"] for mark in document["documents"][0]["stranded"]] == ["behind"]
    assert await states(log) == before
    assert await compact(log, found) == each.removed


async def test_a_dry_run_without_anything_to_do_says_so(log: RelayLog) -> None:
    found = await planned(log)
    assert found.as_text() == "nothing would go\n"
    assert found.as_json()["documents"] == []


# ── interrupted, and at the same time ──────────────────────────────────────────────────


class Interrupted:
    """A log that fails at one of its changes, before it is made or after."""

    def __init__(self, log: RelayLog, *, step: int, is_after: bool) -> None:
        self.log = log
        self.left = step
        self.is_after = is_after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def compact(self, removals: Sequence[Removal]) -> Removed:
        removed: Removed = await self._step(self.log.compact(removals))
        return removed

    async def trim(self, min_seq: int) -> None:
        await self._step(self.log.trim(min_seq))

    async def _step(self, change: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.is_after:
            change.close()
            raise LogError("killed before")
        answer = await change
        if self.left == 0:
            raise LogError("killed after")
        return answer


async def test_a_compaction_may_be_killed_at_any_step(tmp_path: Path) -> None:
    policy = PRUNING.changed({"retain_tail_n": 1, "replay_window": 3})
    for step in range(1, 100):
        for is_after in (False, True):
            path = tmp_path / f"{step}-{is_after}.sqlite"
            async with SqliteLog.open(path) as log:
                await filled(log)
                before = await states(log)
                found = await planned(log, policy)
                rigged: Any = Interrupted(log, step=step, is_after=is_after)
                try:
                    await compact(rigged, found, step_elements_max=2)
                except LogError:
                    is_over = False
                else:
                    is_over = True
            async with SqliteLog.open(path) as log:
                assert await states(log) == before
                await compact(log, await planned(log, policy))
                assert await states(log) == before
                assert await planned(log, policy) == Plan([], None)
        if is_over:
            # Two steps of snapshots and trimming, four of elements.
            assert step == 7
            return


async def test_appends_and_snapshots_go_on_during_a_compaction(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "relay.sqlite") as log:
        await filled(log)
        docs = [await opened(log, who) for who in (ALICE, BOB)]

        async def write(doc: WalDocument, seed: int) -> None:
            rng = Random(seed)
            for _ in range(12):
                await edit(doc, rng, 2)
                with suppress(SnapshotConflictError):
                    await doc.snapshot()
            is_done[seed] = True

        async def forget() -> None:
            while not all(is_done):
                found = await planned(log, PRUNING.changed({"retain_tail_n": 0}))
                await compact(log, found, step_elements_max=1)

        is_done = [False, False]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, docs[0], 0)
            tasks.start_soon(write, docs[1], 1)
            tasks.start_soon(forget)
        for doc in docs:
            await doc.pull()
        assert set(await states(log)) == {state_of(docs[0])} == {state_of(docs[1])}
        (status,) = await log.documents("", count_max=9)
        assert 0 < status.floor <= status.snapshot_upto
        assert not docs[0].detected_gaps()


async def test_two_compactions_at_once_do_the_work_once(log: RelayLog) -> None:
    await filled(log)
    found = await planned(log)
    total: list[Removed] = []

    async def run() -> None:
        total.append(await compact(log, found, step_elements_max=1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        tasks.start_soon(run)
    assert sum([removed.elements for removed in total]) == 6
    assert sum([removed.snapshots for removed in total]) == 1


async def test_a_log_pruned_by_mistake_does_not_open_as_if_nothing_were_missing(
    log: RelayLog,
) -> None:
    await filled(log)
    mistake = DocumentPlan("notes/a", 0, NOW_MS * 2, [], [], None)
    await compact(log, Plan([mistake], None))
    for posture in POSTURES:
        with pytest.raises(PrunedLogError):
            await opened(log, CAROL, posture=posture)
