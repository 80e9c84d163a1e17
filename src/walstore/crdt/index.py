"""Which span of a list holds an element id: counters of one replica, in order.

- Spans of one replica never overlap, so the span that holds a counter is the last one that
  starts at or before it.
- The starts are kept in short sorted blocks: a new one in the middle of a long history moves
  a block, not the whole history.
- A span that is not made yet stands as the number of its row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from walstore.crdt.tree import Rows, Span

BLOCK_SIZE_MAX: Final = 512


class SpanIndex:
    """The spans of one replica in one list, by counter; at least one."""

    __slots__ = ("_blocks", "_firsts", "_rows", "_starts", "last", "replica")

    def __init__(self, starts: list[int], spans: list[Span | int], rows: Rows | None) -> None:
        """Take spans in ascending order, or the numbers of their rows, and their first counters."""
        self._rows = rows
        size = BLOCK_SIZE_MAX // 2
        self._blocks = [spans[start : start + size] for start in range(0, len(spans), size)]
        self._starts = [starts[start : start + size] for start in range(0, len(starts), size)]
        # The first start of each block; the very first block takes everything below, too.
        self._firsts = [0, *starts[size::size]]
        # The span with the highest counters.
        self.last = self._span(-1, -1)
        self.replica = self.last.replica

    def find(self, counter: int) -> Span | None:
        """The span that holds a counter, or None."""
        block = bisect_right(self._firsts, counter) - 1
        place = bisect_right(self._starts[block], counter) - 1
        if place < 0:
            return None
        span = self._blocks[block][place]
        if isinstance(span, int):
            span = self._span(block, place)
        return span if counter < span.counter + len(span.values) else None

    def first_from(self, counter: int) -> Span | None:
        """The span with the lowest start at or above a counter, or None."""
        block = bisect_right(self._firsts, counter) - 1
        place = bisect_left(self._starts[block], counter)
        if place < len(self._starts[block]):
            return self._span(block, place)
        return self._span(block + 1, 0) if block + 1 < len(self._blocks) else None

    def last_before(self, counter: int) -> Span | None:
        """The span with the highest start below a counter, or None."""
        block, place = self._find_start(counter)
        if not place:
            block -= 1
            if block < 0:
                return None
        return self._span(block, place - 1)

    def add(self, span: Span) -> None:
        """Enter a span."""
        start = span.counter
        if start > self.last.counter:
            self.last = span
            block = len(self._starts) - 1
            starts = self._starts[block]
            starts.append(start)
            self._blocks[block].append(span)
        else:
            block = bisect_right(self._firsts, start) - 1
            starts = self._starts[block]
            place = bisect_left(starts, start)
            starts.insert(place, start)
            self._blocks[block].insert(place, span)
        if len(starts) > BLOCK_SIZE_MAX:
            self._split(block)

    def drop(self, span: Span) -> None:
        """Forget a span whose elements now belong to a neighbour."""
        block, place = self._find_start(span.counter)
        starts = self._starts[block]
        self._span(block, place)
        del starts[place], self._blocks[block][place]
        if starts and block:
            # The neighbour may be in the block before; its elements are to be found there.
            self._firsts[block] = starts[0]
        elif not starts and len(self._starts) > 1:
            del self._starts[block], self._blocks[block], self._firsts[block]
            self._firsts[0] = 0
        if span is self.last:
            self.last = self._span(-1, -1)

    def move(self, span: Span, counter: int) -> None:
        """Give a span another start; the order of the spans stays the same."""
        block, place = self._find_start(span.counter)
        self._starts[block][place] = counter
        if block and place == 0:
            self._firsts[block] = counter

    def _span(self, block: int, place: int) -> Span:
        """An entry as a span, made if it was not."""
        span = self._blocks[block][place]
        if isinstance(span, int):
            assert self._rows is not None
            span = self._blocks[block][place] = self._rows.take(span)
        return span

    def _find_start(self, start: int) -> tuple[int, int]:
        block = bisect_right(self._firsts, start) - 1
        return block, bisect_left(self._starts[block], start)

    def _split(self, block: int) -> None:
        starts, spans = self._starts[block], self._blocks[block]
        half = len(starts) // 2
        self._starts.insert(block + 1, starts[half:])
        self._blocks.insert(block + 1, spans[half:])
        self._firsts.insert(block + 1, starts[half])
        del starts[half:], spans[half:]
