"""Snapshots on their way to a peer: the same text in pieces, and little of it held."""

from __future__ import annotations

import tracemalloc
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from walstore.relay.compaction import compact_all
from walstore.relay.log import Accepted, NewElement, NewSnapshot, RelayLog, Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.retention import LogMode, Policy, SnapshotMode
from walstore.relay.snapshot_pieces import (
    PART_BYTES,
    SENDING_MS_MAX,
    Sending,
    SnapshotGoneError,
    snapshot_pieces,
)
from walstore.relay.sqlite import SqliteLog
from walstore.wire.limits import SNAPSHOT_PIECE_SIZE

REVISION = "ab" * 32


async def put(log: RelayLog, text: bytes) -> None:
    await log.put_snapshot(NewSnapshot("d", None, REVISION, "a", 0, {}, False, text), 1)


@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
@pytest.mark.parametrize(
    "count", [0, 1, SNAPSHOT_PIECE_SIZE - 1, SNAPSHOT_PIECE_SIZE + 1, PART_BYTES - 1, PART_BYTES]
)
@pytest.mark.parametrize("revision", [None, REVISION])
async def test_a_snapshot_is_sent_in_pieces_that_fit(
    letter: str, count: int, revision: str | None
) -> None:
    log, text = MemoryLog(), "x" + letter * count
    await put(log, text.encode())
    pieces = [each async for each in snapshot_pieces(log, "d", revision, Sending(lambda: 0))]
    assert "".join(piece or "" for _, piece, _ in pieces) == text
    assert max(len((piece or "").encode()) for _, piece, _ in pieces) <= SNAPSHOT_PIECE_SIZE + 3
    assert [is_last for _, _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {name for name, _, _ in pieces} == {REVISION}


@pytest.mark.parametrize("revision", [None, REVISION])
async def test_where_there_is_no_snapshot_one_piece_says_so(revision: str | None) -> None:
    pieces = [
        each async for each in snapshot_pieces(MemoryLog(), "d", revision, Sending(lambda: 0))
    ]
    assert pieces == [(None, None, True)]


async def test_a_snapshot_that_is_compacted_while_it_is_sent_ends_with_an_error() -> None:
    log = MemoryLog()
    await put(log, b"x" * (PART_BYTES + 1))
    async with aclosing(snapshot_pieces(log, "d", None, Sending(lambda: 0))) as pieces:
        for _ in range(PART_BYTES // SNAPSHOT_PIECE_SIZE):
            await anext(pieces)
        await log.compact([Removal("d", [REVISION], 0)])
        with pytest.raises(SnapshotGoneError):
            await anext(pieces)


async def test_a_snapshot_that_is_being_sent_stays_with_what_is_above_it_and_goes_afterwards() -> (
    None
):
    log, sending = MemoryLog(), Sending(lambda: 0)
    policy = Policy(
        snapshot_mode=SnapshotMode.CURRENT_ONLY,
        log_mode=LogMode.COMPACT_BELOW_SNAPSHOT,
        retain_tail_n=0,
    )
    elements = [NewElement("d", letter * 64, "a", "s", b'{"n":1}') for letter in "12"]
    first, second = [stored.ts for stored in await log.append(elements, 1)]
    text = b"x" * (PART_BYTES + 1)
    await log.put_snapshot(NewSnapshot("d", None, REVISION, "a", first, {"a": 1}, False, text), 1)
    newer = NewSnapshot("d", REVISION, "cd" * 32, "a", second, {"a": 2}, False, b"{}")

    async def compacted() -> tuple[int, int]:
        done = await compact_all(
            log, policy, archived_seq=None, now_ms=2, sending=sending.revisions
        )
        return done.elements, done.snapshots

    async with aclosing(snapshot_pieces(log, "d", None, sending)) as pieces:
        await anext(pieces)
        assert isinstance(await log.put_snapshot(newer, 2), Accepted)
        assert await compacted() == (1, 0)
        assert [is_last async for _, _, is_last in pieces][-1]
    assert await compacted() == (1, 1)


async def test_a_snapshot_that_is_asked_for_by_its_revision_is_not_kept_for_that() -> None:
    log, sending = MemoryLog(), Sending(lambda: 0)
    await put(log, b"{}")
    async with aclosing(snapshot_pieces(log, "d", REVISION, sending)) as pieces:
        await anext(pieces)
        assert sending.revisions() == set()


def test_what_takes_too_long_to_send_is_not_kept_for_it() -> None:
    now_ms = 0
    sending = Sending(lambda: now_ms)
    with sending.during("a"):
        now_ms = SENDING_MS_MAX - 1
        with sending.during("b"):
            assert sending.revisions() == {"a", "b"}
            now_ms += 1
            assert sending.revisions() == {"b"}
    assert sending.revisions() == set()


async def test_little_of_a_snapshot_is_held_for_peers_who_do_not_read_it(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "relay.db") as log, AsyncExitStack() as stack:
        await put(log, b"x" * 8 * PART_BYTES)
        tracemalloc.start()
        try:
            for _ in range(16):
                pieces = await stack.enter_async_context(
                    aclosing(snapshot_pieces(log, "d", None, Sending(lambda: 0)))
                )
                await anext(pieces)
            # The thread that reads may still hold what it has read last.
            assert tracemalloc.get_traced_memory()[0] < (16 + 8 + 4) * PART_BYTES
        finally:
            tracemalloc.stop()
