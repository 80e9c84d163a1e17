"""What a store has seen of a log and its snapshot holds the next time it is opened, and no longer
than it is true."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.put_back import quiet, write
from tests.rigged import RiggedLog
from tests.stores import ADA, BEN, CAM, KEY, store_of, until, until_sent
from tests.vault import vault
from walstore.document import Rollback, SnapshotVerdict
from walstore.document.faults import ReadOnlyError, RollbackDetectedError
from walstore.document.ports import CheckpointTooOldError, LogBehindError
from walstore.errors import TransportError
from walstore.local import LocalFile
from walstore.net import MemoryTransport
from walstore.net.memory import MemorySnapshots
from walstore.relay import Relay, SqliteLog
from walstore.relay.compaction import compact_all
from walstore.relay.retention import Policy
from walstore.store.high_water import HighWater
from walstore.store.store import WalStore


def copied(source: Path, target: Path) -> Path:
    """A local file as it is on disk now, and its write-ahead log with it."""
    for suffix in ("", "-wal"):
        if source.with_name(source.name + suffix).exists():
            shutil.copy(source.with_name(source.name + suffix), f"{target}{suffix}")
    return target


def marks_of(path: Path) -> HighWater:
    with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
        return HighWater.read(file.marks)


class Prunable(MemoryTransport):
    """A log in memory that says that it was pruned."""

    floor = 0

    async def pull(self, document_key: str, checkpoint: int) -> list[Any]:
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        return await super().pull(document_key, checkpoint)


async def is_rolled_back(store: WalStore) -> bool:
    """Whether a store notices a roll-back, now or at once after."""
    try:
        await store.pull()
    except RollbackDetectedError:
        assert store.status.is_read_only
        assert store.status.rollback is not None
        assert "accept_rollback()" in store.status.reason
        with pytest.raises(ReadOnlyError, match="accept_rollback"):
            store["title"] = "other"
    return store.status.rollback is not None


# ── the log ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("copy", ["empty", "older"])
async def test_a_relay_that_was_put_back_while_a_store_was_closed_is_told(
    tmp_path: Path, copy: str
) -> None:
    path = tmp_path / "ben.wal"
    async with vault(tmp_path / "relay") as relay:
        async with quiet(BEN, relay.url, path) as ben:
            await write(ben, "one")
            await relay.save("older")
            await until([ben], lambda: ben.status.state == "live")
            await write(ben, "two")
        await relay.put_back(copy)
        events: list[object] = []
        async with store_of(BEN, relay.url, path, on_event=events.append) as ben:
            await until([ben], lambda: ben.status.rollback is not None)
            assert await is_rolled_back(ben)
            assert [type(event) for event in events] == [Rollback]
            # What was read here is still shown.
            assert ben["words"] == ["one", "two"]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_relay_that_was_put_back_and_written_to_is_told(
    tmp_path: Path, is_closed: bool
) -> None:
    """The log goes on beyond what was read of it, and still lacks some of that."""
    path = tmp_path / "ben.wal"
    async with vault(tmp_path / "relay") as relay:
        async with quiet(BEN, relay.url, path) as ben:
            await write(ben, "one")
            await relay.save("older")
            await until([ben], lambda: ben.status.state == "live")
            await write(ben, "two")
            if not is_closed:
                await relay.stop()
                await until([ben], lambda: ben.status.state == "offline")
                await relay.start()
                await relay.put_back("older")
                async with quiet(ADA, relay.url) as ada:
                    await write(ada, "other")
                # Nothing but the connection tells that something may have changed.
                await until([ben], lambda: ben.status.rollback is not None)
                assert ben["words"] == ["one", "two"]
                return
        await relay.put_back("older")
        async with quiet(ADA, relay.url) as ada:
            await write(ada, "other")
        async with quiet(BEN, relay.url, path) as ben:
            await until([ben], lambda: ben.status.rollback is not None)
            assert "no longer holds the element" in ben.status.reason
            assert ben["words"] == ["one", "two"]


async def test_a_log_that_cannot_say_where_it_ends_is_held_to_the_marks(tmp_path: Path) -> None:
    """A transport may give an empty page where others give an error."""
    path, log = tmp_path / "ben.wal", RiggedLog()
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one", "two")
    del log.elements[-1]
    async with quiet(BEN, log, path) as ben:
        assert await is_rolled_back(ben)
    log.elements.clear()
    async with quiet(BEN, log, path) as ben:
        assert await is_rolled_back(ben)


async def test_a_file_whose_state_is_gone_is_still_held_to_the_marks(tmp_path: Path) -> None:
    path, log, snapshots = tmp_path / "ben.wal", Prunable(), MemorySnapshots()
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "one", "two")
        await ada.snapshot()
        async with quiet(BEN, log, path, snapshots=snapshots):
            pass
        await write(ada, "three")
        async with quiet(BEN, log, path, snapshots=snapshots) as ben:
            await ben.pull()
    assert marks_of(path).ts == 3
    forget_all_but_marks(path)
    shutil.copy(path, tmp_path / "copy.wal")
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        assert not await is_rolled_back(ben)
        assert ben["words"] == ["one", "two", "three"]
    log._logs[KEY].pop()
    async with quiet(BEN, log, tmp_path / "copy.wal", snapshots=snapshots) as ben:
        assert ben.status.rollback is not None
        assert await is_rolled_back(ben)


def forget_all_but_marks(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM state")
        connection.execute("DELETE FROM elements")


async def test_a_store_that_has_read_nothing_but_a_snapshot_notices_as_well(tmp_path: Path) -> None:
    path, log, snapshots = tmp_path / "ben.wal", Prunable(), MemorySnapshots()
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "one", "two")
        await ada.snapshot()
        async with quiet(BEN, log, path, snapshots=snapshots):
            pass
    log._logs[KEY].pop()
    async with quiet(CAM, log) as cam:
        await write(cam, "other", "words")
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        assert await is_rolled_back(ben)
        assert ben["words"] == ["one", "two"]


async def test_nothing_is_sent_to_a_log_that_was_put_back(tmp_path: Path) -> None:
    path, log = tmp_path / "ben.wal", Prunable()
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one", "two")
        ben["title"] = "three"
        log._logs[KEY].pop()
        assert ben._replica is not None
        ben._replica.doubt()
        with pytest.raises(LogBehindError):
            await ben.commit()
        assert len(log._logs[KEY]) == 1
        assert await is_rolled_back(ben)


# ── the snapshot ───────────────────────────────────────────────────────────────────────


class TwoSnapshots:
    """A log with two snapshots, and a reader who has seen the second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log, self.snapshots = Prunable(), MemorySnapshots()
        self.older = b""

    async def prepare(self) -> None:
        async with quiet(ADA, self.log, snapshots=self.snapshots) as ada:
            await write(ada, "one", "two")
            await ada.snapshot()
            self.older = next(iter(self.snapshots._documents.values()))
            await write(ada, "three", "four")
            await ada.snapshot()
            async with self.store() as ben:
                assert ben.document.snapshot_verdict is SnapshotVerdict.TRUSTED
            await write(ada, "five", "six")

    def serve_older(self) -> None:
        (key,) = self.snapshots._documents
        self.snapshots._documents[key] = self.older

    def store(self, **options: Any) -> WalStore:
        return quiet(BEN, self.log, self.path, snapshots=self.snapshots, **options)


async def test_an_older_snapshot_is_refused_after_a_restart(tmp_path: Path) -> None:
    case = TwoSnapshots(tmp_path / "ben.wal")
    await case.prepare()
    assert marks_of(case.path).snapshot_ts == 4
    case.serve_older()
    async with case.store() as ben:
        # As when somebody else may write, or somebody was revoked.
        with pytest.raises(RollbackDetectedError, match="the snapshot is older"):
            await ben.document.reread()
        assert "the snapshot is older" in ben.status.reason
        assert await is_rolled_back(ben)
        assert ben["words"] == ["one", "two", "three", "four", "five", "six"]


async def test_an_older_snapshot_below_a_pruned_log_is_refused_after_a_restart(
    tmp_path: Path,
) -> None:
    case = TwoSnapshots(tmp_path / "ben.wal")
    await case.prepare()
    case.serve_older()
    case.log.floor = 5
    events: list[object] = []
    async with case.store(on_event=events.append) as ben:
        with pytest.raises(TransportError, match="pruned"):
            await ben.pull()
        assert "the snapshot is older" in ben.status.reason
        assert [type(event) for event in events] == [Rollback]
        assert ben["words"] == ["one", "two", "three", "four"]
        with pytest.raises(TransportError, match="pruned"):
            await ben.accept_rollback()
        assert ben["words"] == ["one", "two", "three", "four"]


async def test_a_snapshot_that_is_gone_is_told_after_a_restart(tmp_path: Path) -> None:
    case = TwoSnapshots(tmp_path / "ben.wal")
    await case.prepare()
    forget_all_but_marks(case.path)
    case.snapshots._documents.clear()
    async with case.store() as ben:
        assert "the snapshot is gone" in ben.status.reason
        assert ben["words"] == ["one", "two", "three", "four", "five", "six"]


async def test_an_own_snapshot_is_remembered_as_well(tmp_path: Path) -> None:
    path, log, snapshots = tmp_path / "ben.wal", Prunable(), MemorySnapshots()
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await write(ben, "one")
        await ben.snapshot()
    assert marks_of(path).snapshot_ts == 1
    snapshots._documents.clear()
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        with pytest.raises(RollbackDetectedError):
            await ben.document.reread()


async def test_a_document_that_is_all_snapshot_is_there_without_a_network(tmp_path: Path) -> None:
    path, log, snapshots = tmp_path / "ben.wal", Prunable(), MemorySnapshots()
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "one")
        await ada.snapshot()
    async with quiet(BEN, log, path, snapshots=snapshots):
        pass
    async with quiet(BEN, None, path) as ben:
        assert ben["words"] == ["one"]


# ── no false alarms ────────────────────────────────────────────────────────────────────


GARBAGE: dict[str, dict[str, Any]] = {
    "no data": {"data": None, "authorPubkey": ADA.public_key, "authorSignature": "x"},
    "no author": {"data": {"v": 2}, "authorPubkey": 1, "authorSignature": "x"},
    "no signature": {"data": {"v": 2}, "authorPubkey": ADA.public_key, "authorSignature": "x"},
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("place", ["at the end", "in the middle"])
async def test_what_was_refused_raises_no_alarm(tmp_path: Path, garbage: str, place: str) -> None:
    path, log = tmp_path / "ben.wal", RiggedLog()
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one")
        log.elements.append({"ts": 2, **GARBAGE[garbage]})
        log.newest_ts = 2
        await ben.pull()
        if place == "in the middle":
            await write(ben, "two")
        assert ben.checkpoint == log.newest_ts
    assert marks_of(path).ts == log.newest_ts
    for relay in (None, log, log):
        async with quiet(BEN, relay, path) as ben:
            assert not await is_rolled_back(ben)
            ben["title"] = "mine"


async def test_what_was_refused_is_missed_when_it_is_gone(tmp_path: Path) -> None:
    """As it would be if the store had never been closed: whoever takes it back takes more back."""
    path, log = tmp_path / "ben.wal", RiggedLog()
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one")
        log.elements.append({"ts": 2, **GARBAGE["no data"]})
        await ben.pull()
        # As a killed process leaves it.
        copies = [copied(path, tmp_path / name) for name in ("1.wal", "2.wal", "3.wal")]
    async with quiet(BEN, log, copies[0]) as ben:
        assert not await is_rolled_back(ben)
    async with quiet(BEN, None, copies[1]) as ben:
        assert not await is_rolled_back(ben)
    del log.elements[1]
    async with quiet(BEN, log, copies[2]) as ben:
        assert await is_rolled_back(ben)
        assert "it ends at 1, before 2" in ben.status.reason


async def test_an_element_of_the_far_future_is_not_kept_and_raises_no_alarm(tmp_path: Path) -> None:
    path, log = tmp_path / "ben.wal", RiggedLog()
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one")
        log.elements.append({**log.elements[0], "ts": 2**52})
        await ben.pull()
    assert marks_of(path).ts == 1
    del log.elements[-1]
    async with quiet(ADA, log) as ada, quiet(BEN, log, path) as ben:
        assert not await is_rolled_back(ben)
        await write(ada, "two")
        # It must not stand in the way of what comes.
        assert await ben.pull() == 1
        assert ben["words"] == ["one", "two"]


async def test_a_store_that_lost_its_relay_for_good_raises_no_alarm(tmp_path: Path) -> None:
    case = TwoSnapshots(tmp_path / "ben.wal")
    await case.prepare()
    async with quiet(BEN, None, case.path) as ben:
        assert not await is_rolled_back(ben)
        ben["title"] = "alone"
    async with quiet(BEN, case.log, case.path) as ben:
        assert not await is_rolled_back(ben)
        assert len(ben["words"]) == 6
        await ben.document.reread()
        assert ben.status.rollback is None


@pytest.mark.parametrize("tail", [0, 2, 64])
async def test_a_relay_that_compacts_raises_no_alarm(tmp_path: Path, tail: int) -> None:
    policy = Policy.read({"log_mode": "compact_below_snapshot", "retain_tail_n": tail})
    path = tmp_path / "ben.wal"
    async with (
        SqliteLog.open(tmp_path / "relay.db") as log,
        Relay.serve(log) as relay,
    ):
        compact = partial(
            compact_all, log, policy, archived_seq=None, now_ms=time.time_ns() // 10**6
        )
        for round_ in range(4):
            async with quiet(ADA, relay.url) as ada:
                await write(ada, *(f"{round_}.{count}" for count in range(5)))
                await ada.snapshot()
            if round_ == 2:
                # Ben is away for one of them.
                await compact()
                continue
            async with quiet(BEN, relay.url, path) as ben:
                await until([ben], lambda: ben.status.state == "live")
                assert not await is_rolled_back(ben)
                await compact()
                assert ben._replica is not None
                ben._replica.doubt()
                assert not await is_rolled_back(ben)
                if round_ == 1:
                    await write(ben, "ben")
                    await ben.snapshot()
            async with quiet(BEN, relay.url, path) as ben:
                await ben.pull()
                assert not await is_rolled_back(ben)
                assert len(ben["words"]) == 5 * (round_ + 1) + (round_ >= 1)


async def test_a_file_that_stops_anywhere_between_reading_and_keeping_raises_no_alarm(
    tmp_path: Path,
) -> None:
    """What a killed process leaves is what is on file at some moment: each of them is tried."""
    log, snapshots, moments = Prunable(page_size=2), MemorySnapshots(), tmp_path / "moments"
    moments.mkdir()
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "one", "two", "three")
        await ada.snapshot()
        await write(ada, "four", "five", "six")
    taken = 0

    def take(self: LocalFile) -> None:
        nonlocal taken
        taken += 1
        copied(self.path, moments / f"{taken}.wal")

    def watched(name: str) -> Any:
        original = getattr(LocalFile, name)

        def call(self: LocalFile, *args: Any, **options: Any) -> Any:
            result = original(self, *args, **options)
            take(self)
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("add_elements", "put_state", "put", "drop_elements"):
            patch.setattr(LocalFile, name, watched(name))
        marks: Any = vars(LocalFile)["marks"]

        def note(self: LocalFile, value: Any) -> None:
            marks.fset(self, value)
            take(self)

        patch.setattr(LocalFile, "marks", property(marks.fget, note))
        async with quiet(BEN, log, tmp_path / "ben.wal", snapshots=snapshots) as ben:
            assert len(ben["words"]) == 6
            async with quiet(CAM, log, snapshots=snapshots) as cam:
                await write(cam, "seven", "eight", "nine")
            await ben.pull()
            await write(ben, "ten")
    assert taken > 8
    for number in range(1, taken + 1):
        path = moments / f"{number}.wal"
        async with quiet(BEN, None, path) as ben:
            assert ben.status.rollback is None
        async with quiet(BEN, log, path, snapshots=snapshots) as ben:
            assert not await is_rolled_back(ben)
            assert len(ben["words"]) == 10


@pytest.mark.parametrize(
    "kept",
    [
        None,
        5,
        [],
        {"ts": 3},
        {"ts": True},
        {"ts": -1, "newest": [1, "x"], "snapshot": 0},
        {"ts": 2**60, "newest": [0, ""], "snapshot": 0},
        {"ts": 1, "newest": [1], "snapshot": 0},
    ],
)
def test_marks_that_are_none_say_nothing(kept: Any) -> None:
    assert HighWater.read(kept) == HighWater()


def test_marks_only_rise() -> None:
    marks = HighWater(5, 4, "s", 3)
    assert marks.risen(2, []) == marks.with_snapshot(1) == marks
    assert HighWater.read(marks.as_json()) == marks


async def test_edits_go_on_while_marks_are_kept(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay:
        path = tmp_path / "ben.wal"
        async with store_of(BEN, relay.url, path, autocommit_ms=0) as ben:
            ben.set_text("note", "lake")
            await until_sent(ben)
        assert marks_of(path).ts == (await relay.elements())[-1].ts
