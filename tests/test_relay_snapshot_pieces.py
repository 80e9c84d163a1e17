"""Snapshots on their way to a peer: the same text in pieces, and little of it held."""

from __future__ import annotations

import tracemalloc
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from walstore.relay.log import NewSnapshot, RelayLog, Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.snapshot_pieces import PART_BYTES, SnapshotGoneError, snapshot_pieces
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
    pieces = [each async for each in snapshot_pieces(log, "d", revision)]
    assert "".join(piece or "" for _, piece, _ in pieces) == text
    assert max(len((piece or "").encode()) for _, piece, _ in pieces) <= SNAPSHOT_PIECE_SIZE + 3
    assert [is_last for _, _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {name for name, _, _ in pieces} == {REVISION}


@pytest.mark.parametrize("revision", [None, REVISION])
async def test_where_there_is_no_snapshot_one_piece_says_so(revision: str | None) -> None:
    pieces = [each async for each in snapshot_pieces(MemoryLog(), "d", revision)]
    assert pieces == [(None, None, True)]


async def test_a_snapshot_that_is_compacted_while_it_is_sent_ends_with_an_error() -> None:
    log = MemoryLog()
    await put(log, b"x" * (PART_BYTES + 1))
    async with aclosing(snapshot_pieces(log, "d", None)) as pieces:
        for _ in range(PART_BYTES // SNAPSHOT_PIECE_SIZE):
            await anext(pieces)
        await log.compact([Removal("d", [REVISION], 0)])
        with pytest.raises(SnapshotGoneError):
            await anext(pieces)


async def test_little_of_a_snapshot_is_held_for_peers_who_do_not_read_it(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "relay.db") as log, AsyncExitStack() as stack:
        await put(log, b"x" * 8 * PART_BYTES)
        tracemalloc.start()
        try:
            for _ in range(16):
                pieces = await stack.enter_async_context(aclosing(snapshot_pieces(log, "d", None)))
                await anext(pieces)
            # The thread that reads may still hold what it has read last.
            assert tracemalloc.get_traced_memory()[0] < (16 + 8 + 4) * PART_BYTES
        finally:
            tracemalloc.stop()
