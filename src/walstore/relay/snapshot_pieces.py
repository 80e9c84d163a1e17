"""A stored snapshot as the pieces that are sent.

- It is loaded whole once, so that what is damaged is not sent; then only a part of it is held, and
  the next one is read when it is asked for. So whoever reads slowly costs a part, not the whole.
- Whoever compacts knows which ones are being sent, so that a slow reader of a busy document comes
  to an end; for a while only, so that nobody keeps everything by reading a byte now and then.
"""

from __future__ import annotations

from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from walstore.relay.log import Filter, RelayLog, StoredSnapshot
from walstore.wire.limits import SNAPSHOT_PIECE_SIZE

# What is held of a snapshot that is being sent: a few pieces, as each read costs a little.
PART_BYTES: Final = 8 * SNAPSHOT_PIECE_SIZE

# How long a snapshot that is being sent is kept for that: the largest one at 20 kB a second.
SENDING_MS_MAX: Final = 3600 * 1000


class Sending:
    """The revisions that a relay is sending."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Begin with none."""
        self._now_ms = now_ms
        self._begun: dict[object, tuple[str, int]] = {}

    @contextmanager
    def during(self, revision: str) -> Iterator[None]:
        """Count a revision as being sent for the length of a block."""
        mark = object()
        self._begun[mark] = revision, self._now_ms()
        try:
            yield
        finally:
            del self._begun[mark]

    def revisions(self) -> frozenset[str]:
        """Those that are not to go now."""
        since_ms = self._now_ms() - SENDING_MS_MAX
        return frozenset([name for name, begun_ms in self._begun.values() if begun_ms > since_ms])


class SnapshotGoneError(Exception):
    """It was compacted while it was sent."""


async def snapshot_pieces(
    log: RelayLog, document: str, revision: str | None, sending: Sending
) -> AsyncGenerator[tuple[str | None, str | None, bool], None]:
    """The revision, a piece of the text, and whether it is the last; None if there is none.

    Args:
        log: Where it is.
        document: Whose snapshot is wanted.
        revision: Which one; None for the current one.
        sending: Where it is counted meanwhile, if it is the current one at first.

    Raises:
        LogError: It cannot be read now.
        SnapshotGoneError: It was compacted meanwhile.
    """
    stored = await _stored(log, document, revision)
    if stored is None:
        yield None, None, True
        return
    name, size = stored.revision, len(stored.text)
    part: bytes | None = stored.text[:PART_BYTES]
    del stored
    decoder = getincrementaldecoder("utf-8")()
    # One that was replaced could be asked for again and again, and would never go.
    with sending.during(name) if revision is None else nullcontext():
        for start in range(0, max(size, 1), PART_BYTES):
            if start:
                part = await log.snapshot_part(document, name, start=start, size=PART_BYTES)
            if part is None:
                raise SnapshotGoneError
            for piece, is_last in _pieces(part, decoder, is_end=start + PART_BYTES >= size):
                yield name, piece, is_last


async def _stored(log: RelayLog, document: str, revision: str | None) -> StoredSnapshot | None:
    if revision is None:
        return await log.snapshot(document)
    wanted = Filter(documents=frozenset({document}), kinds=frozenset({"snapshot"}))
    for event in await log.find([revision], wanted):
        if event.payload is not None:
            return StoredSnapshot(event.id, event.payload)
    return None


def _pieces(
    part: bytes, decoder: IncrementalDecoder, *, is_end: bool
) -> Iterator[tuple[str, bool]]:
    """A part in pieces. None has more characters than bytes, so each of them fits a frame."""
    for start in range(0, max(len(part), 1), SNAPSHOT_PIECE_SIZE):
        end = start + SNAPSHOT_PIECE_SIZE
        is_last = is_end and end >= len(part)
        yield decoder.decode(part[start:end], is_last), is_last
