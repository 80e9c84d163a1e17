"""Reads a source and writes its table to an archive, until it is told to stop.

    source ─► buffer ─(every interval, when it is full, at the end)─► window ─► writer

- The buffer and the position that it reaches are taken together, in one step. They are let go only
  when what they became is committed: whatever fails is tried again, and nothing is lost.
- Whoever waits for a commit may give up at any moment, after it has happened, too. So what is kept
  here is brought in line with the archive's manifest whenever that is another one than it was.
- What is kept is all that happened between two positions. If the archive's head is not within them,
  it is thrown away and read again from the head; until then an archive that is empty stays so.
- A full buffer is written at once, and nothing more is read until it is.
- A restart goes on where the archive ends. So does a writer who has met somebody else's commit.
- Where the source no longer reaches back so far, a new base of what it still has closes the gap,
  and it is read on from there.
- What may pass is waited out. What will not, such as another relay or a damaged archive, ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import random

import anyio

from walstore.archive.artifacts import MissingObjectError
from walstore.archive.manifest import Manifest
from walstore.archive.mirror import DivergedError
from walstore.archive.modes import EventTable
from walstore.archive.places import MovedError
from walstore.archive.rows import Window
from walstore.archive.source import Event, Source
from walstore.archive.writer import Committed, Writer
from walstore.errors import StorageError, TransportError, WalStoreError
from walstore.net.backoff import Backoff
from walstore.net.faults import ReplayTooOldError

_logger = logging.getLogger("walstore.archive")

# What an event takes besides its payload, about.
_EVENT_BYTES = 1024

# How often somebody else may commit in between before it is taken for a second writer.
_MOVED_MAX = 8

# How often a source may let go of what is about to be read before nobody waits for it to end.
_GAPS_MAX = 8

# How often news is read for each time that it is written, and how long it waits at most to be read.
# To ask for each event alone would cost the relay more than to store it.
_READS_PER_WRITE = 4
_REST_MS_MAX = 250

FINAL_FLUSH_MS_MAX = 30_000


@dataclass
class EngineStatus:
    """What an engine is doing.

    Attributes:
        source_position: How far the source was read.
        buffered_events: What was read and is not committed.
        buffered_bytes: How much that is, about.
        churn: The events since the last base, with those that are buffered.
        base_ms: When the last base was written.
        diff_ms: When the last diff was written.
        is_ready: Whether the table was in the archive once since the start.
        reason: What keeps it from going on, if something does.
        commits: How many commits it has made.
        moved: How often somebody else had committed.
    """

    source_position: int = 0
    buffered_events: int = 0
    buffered_bytes: int = 0
    churn: int = 0
    base_ms: int | None = None
    diff_ms: int | None = None
    is_ready: bool = False
    reason: str | None = None
    commits: int = 0
    moved: int = 0


class Engine:
    """One table, from its source to its archive."""

    def __init__(
        self,
        source: Source,
        table: EventTable,
        writer: Writer,
        *,
        interval_ms: int,
        buffer_bytes_max: int,
        resumes: bool = True,
        on_committed: Callable[[Committed], None] | None = None,
        on_found: Callable[[Committed], None] | None = None,
        on_error: Callable[[WalStoreError], None] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Describe what to do; nothing is read yet.

        Args:
            source: What is read.
            table: What becomes of it.
            writer: What writes it.
            interval_ms: How often to write.
            buffer_bytes_max: How much is held before it is written without waiting.
            resumes: Whether to go on with the chain that is there, and not with a new base.
            on_committed: Told of each commit.
            on_found: Told of the last commit of the archive that it goes on with. It may be one
                whose writer died, or gave up, before anybody was told of it.
            on_error: Told of what is waited out.
            backoff: The pauses between attempts.
        """
        self._source, self._table, self._writer = source, table, writer
        self._interval_ms = interval_ms
        self._buffer_bytes_max = buffer_bytes_max
        self._resumes = resumes
        self._on_committed = on_committed
        self._on_found = on_found
        self._on_error = on_error
        self._backoff = Backoff() if backoff is None else backoff
        self._buffer: list[Event] = []
        self._bytes = 0
        # The buffer holds all events above this position, up to `status.source_position`.
        self._since = 0
        self._has_read_all = False
        # How often the source did not reach back since a page of it was read.
        self._gaps = 0
        # What the buffer, and what the table remembers, go on from.
        self._aligned: Manifest | None = None
        self._lock = anyio.Lock()
        # Whoever waits for news, to be told that there is something to read again.
        self._waiting: anyio.CancelScope | None = None
        self._is_begun = False
        self.status = EngineStatus()

    @property
    def is_begun(self) -> bool:
        """Whether the archive was read, and can be written."""
        return self._is_begun

    @property
    def writer(self) -> Writer:
        """What writes the table."""
        return self._writer

    async def run(self, stopped: anyio.Event) -> None:
        """Go on until it is stopped, then write what is left.

        Raises:
            StorageError, TransportError, PeerError: It cannot go on, whatever is tried again.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow)
                group.start_soon(self._write_regularly)
                await stopped.wait()
                ends_at = anyio.current_time() + FINAL_FLUSH_MS_MAX / 1000
                # A commit that is on its way ends as it would have.
                with anyio.CancelScope(deadline=ends_at, shield=True):
                    await self._lock.acquire()
                    group.cancel_scope.cancel()
                    self._lock.release()
                group.cancel_scope.cancel()
        except ExceptionGroup as failed:
            raise _first_of(failed) from failed
        with anyio.CancelScope(deadline=ends_at, shield=True) as limit:
            await self.flush()
        if limit.cancelled_caught:
            _logger.warning(
                "what was read last could not be written in time; it will be read again"
            )

    async def run_once(self) -> Committed | None:
        """Read all that there is now, and write it.

        Raises:
            StorageError, TransportError, PeerError: It could not be read or written.
        """
        committed = await self._begin()
        for _ in range(_MOVED_MAX):
            while await self._read():
                committed = await self._make_room() or committed
            committed = await self.flush() or committed
            # Who has met somebody else may have been sent back.
            if self._has_read_all:
                return committed
        raise MovedError

    async def flush(self, *, is_base_wanted: bool = False) -> Committed | None:
        """Write what was read; None if there is nothing to write, or it has to be read again.

        Raises:
            StorageError: It is not known to be written; it will be tried again.
        """
        async with self._lock:
            if not self._is_begun:
                return None
            for _ in range(_MOVED_MAX):
                self._align()
                try:
                    return await self._commit(is_base_wanted=is_base_wanted)
                except (MovedError, MissingObjectError) as error:
                    await self._meet_somebody(error)
            raise MovedError

    async def _commit(self, *, is_base_wanted: bool) -> Committed | None:
        if self._is_unread():
            return None
        # Taken in one step: what arrives from here on is in the next window.
        events, to = list(self._buffer), self.status.source_position
        window = await self._table.window(events, to=to, manifest=self._writer.manifest)
        committed = await self._commit_window(window, is_base_wanted=is_base_wanted)
        del self._buffer[: len(events)]
        self._since = to
        self._bytes -= sum(map(_size, events))
        self._measure()
        self.status.is_ready = self.status.is_ready or self._has_read_all
        return committed

    def _is_unread(self) -> bool:
        """Whether a base would be the first, and would say that there is nothing, unseen."""
        manifest = self._writer.manifest
        is_first = manifest is None or manifest.newest_base is None
        return is_first and not self._buffer and not self._has_read_all

    async def _commit_window(
        self, window: Window, *, is_base_wanted: bool = False
    ) -> Committed | None:
        committed = await self._writer.commit(window, is_base_wanted=is_base_wanted)
        if committed is not None:
            self._aligned = self._writer.manifest
            self._table.committed(window)
            self._note(committed)
        return committed

    async def _meet_somebody(self, error: MovedError | MissingObjectError) -> None:
        """Go on from where somebody else has left the archive; raise the error if nobody has."""
        # Rows of the table are read, too, and an epoch may be dropped under them.
        if isinstance(error, MissingObjectError) and not await self._writer.has_moved():
            raise error
        self.status.moved += 1
        name = self._writer.table.name
        _logger.warning("%s: somebody else writes this archive; going on from its head", name)
        await self._writer.open()
        self._align()

    def _align(self) -> None:
        """Bring what is kept here in line with the archive, if that has changed."""
        if self._writer.manifest is self._aligned:
            return
        self._aligned = self._writer.manifest
        self._table.forget()
        head, reached = self._writer.head, self.status.source_position
        if self._since <= head <= reached:
            self._buffer[:] = [event for event in self._buffer if event.seq > head]
            self._bytes = sum(map(_size, self._buffer))
            self._since = head
        else:
            # What lies between is not here: it is read again, also if nothing more is to come.
            self._go_on_from(head)
            if self._waiting is not None:
                self._waiting.cancel()
        self._measure()
        last = self._writer.last
        if last is not None and self._on_found is not None:
            self._on_found(last)

    # ── reading ────────────────────────────────────────────────────────────────────────

    async def _begin(self) -> Committed | None:
        """Find where to go on from; what was written, if the source does not reach back so far."""
        async with self._lock:
            await self._writer.open()
            self._go_on_from(self._writer.head)
            self._align()
            self._measure()
            committed = None
            if self._writer.manifest is not None and not self._resumes:
                min_seq = (await self._source.status()).min_seq
                committed = await self._catch_up(min_seq=max(min_seq, 1))
            self._is_begun = True
        return committed

    async def _catch_up(self, *, min_seq: int) -> Committed | None:
        """Make a new base of what the source still has."""
        window = await self._window_from(min_seq)
        committed = await self._commit_window(window, is_base_wanted=True)
        self._go_on_from(window.to)
        self._measure()
        return committed

    async def _window_from(self, min_seq: int) -> Window:
        manifest = self._writer.manifest
        for _ in range(_GAPS_MAX - 1):
            try:
                return await self._table.catch_up(min_seq=min_seq, manifest=manifest)
            except ReplayTooOldError as error:
                if error.min_seq <= min_seq:
                    raise
                # It has let go of more meanwhile.
                min_seq = error.min_seq
        return await self._table.catch_up(min_seq=min_seq, manifest=manifest)

    def _go_on_from(self, position: int) -> None:
        """Keep nothing, and read on from a position."""
        self._buffer.clear()
        self._bytes = 0
        self._since = self.status.source_position = position
        self._has_read_all = False

    async def _read(self) -> bool:
        """Read a page; whether there is more."""
        since = self.status.source_position
        try:
            page = await self._source.page(since)
        except ReplayTooOldError as error:
            await self._close_gap(error)
            return True
        self._gaps = 0
        if since != self.status.source_position:
            # Somebody else was met meanwhile: this page does not go on from what is here.
            return True
        self._take(page.events, page.last_seq)
        self._has_read_all = self._has_read_all or not page.is_more
        return page.is_more

    async def _close_gap(self, error: ReplayTooOldError) -> None:
        self._gaps += 1
        if self._gaps > _GAPS_MAX:
            raise error
        _logger.warning("the source begins at %d: a new base closes the gap", error.min_seq)
        if self._buffer:
            # The source may not have it any more.
            await self.flush()
        async with self._lock:
            try:
                await self._catch_up(min_seq=error.min_seq)
            except (MovedError, MissingObjectError) as moved:
                await self._meet_somebody(moved)

    def _take(self, events: Sequence[Event], position: int) -> None:
        self._buffer += events
        self._bytes += sum(map(_size, events))
        self.status.source_position = max(position, self.status.source_position)
        self._measure()

    async def _make_room(self) -> Committed | None:
        if self.status.buffered_bytes < self._buffer_bytes_max:
            return None
        return await self.flush()

    async def _follow(self) -> None:
        failures, rest_s = 0, min(self._interval_ms / _READS_PER_WRITE, _REST_MS_MAX) / 1000
        while True:
            try:
                if not self._is_begun:
                    await self._begin()
                # First of all: as long as a full buffer cannot be written, nothing more is read.
                await self._make_room()
                if not await self._read():
                    await self._write_first()
                    await self._make_room()
                    await self._wait_for_news(rest_s)
                failures, self.status.reason = 0, None
            except (TransportError, StorageError) as error:
                self._wait_out(error)
                await anyio.sleep(self._backoff.pause_ms(failures, random()) / 1000)
                failures += 1

    async def _wait_for_news(self, rest_s: float) -> None:
        if not self._has_read_all:
            # What was just written has met somebody else, and was sent back.
            return
        with anyio.CancelScope() as self._waiting:
            await self._source.wait(self.status.source_position)
        # What comes meanwhile is read together with it.
        await anyio.sleep(rest_s)

    async def _write_first(self) -> None:
        """Write what there was at the start as soon as it was read."""
        if not self.status.is_ready:
            await self.flush()

    async def _write_regularly(self) -> None:
        while True:
            await anyio.sleep(self._interval_ms / 1000)
            if not self._has_read_all:
                # The first base is of all that there is, unless that does not fit the buffer.
                continue
            try:
                await self.flush()
            except (TransportError, StorageError) as error:
                self._wait_out(error)

    def _wait_out(self, error: TransportError | StorageError) -> None:
        """Note an error that may pass; raise it if it will not."""
        if isinstance(error, DivergedError):
            raise error
        if isinstance(error, TransportError) and not error.retryable:
            raise error
        if self._on_error is not None:
            self._on_error(error)
        if self.status.reason != str(error):
            _logger.warning("%s: %s; it is tried again", self._writer.table.name, error)
        self.status.reason = str(error)

    def _measure(self) -> None:
        status, manifest = self.status, self._writer.manifest
        status.buffered_events = len(self._buffer)
        status.buffered_bytes = self._bytes
        status.churn = len(self._buffer) + (0 if manifest is None else manifest.churn)

    def _note(self, committed: Committed) -> None:
        artifact = committed.artifact
        self.status.commits += 1
        if artifact.is_base:
            self.status.base_ms = artifact.created_ms
        else:
            self.status.diff_ms = artifact.created_ms
        if self._on_committed is not None:
            self._on_committed(committed)


def _size(event: Event) -> int:
    return len(event.payload or b"") + _EVENT_BYTES


def _first_of(failed: ExceptionGroup[Exception]) -> Exception:
    first = failed.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
