"""A list whose ops keep the causal shape, as a replicated growable array of runs.

- An element follows its anchor; of several with one anchor the newest clock comes first.
- Every anchor is present and older than what hangs on it. Then an element belongs right after
  its anchor, past everything newer: whatever is newer there hangs on the anchor as well.
- An op that would break this is not taken (`False`); the owner then goes on with a
  `NodeSequence`, which is exact for any shape.
- Removed elements stay as anchors, with their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from walstore.crdt.changes import Change, ListChanged
from walstore.crdt.index import SpanIndex
from walstore.crdt.ops import fresh
from walstore.crdt.runs import Insert, Remove, Values
from walstore.crdt.tree import SPAN_SIZE_MAX, Leaf, Rows, Span, Tree


class RunSequence:
    """One list, held as spans in document order."""

    __slots__ = (
        "_arrived",
        "_base",
        "_given",
        "_has_others",
        "_indexes",
        "_open_end",
        "_open_replica",
        "_open_start",
        "_span",
        "_text",
        "high",
        "tree",
    )

    def __init__(
        self,
        rows: Rows | None = None,
        arrived: Iterable[tuple[str, int, int]] = (),
        text: str | None = None,
    ) -> None:
        """Take rows that are in document order, each a span.

        Args:
            rows: The rows, which now belong to the sequence.
            arrived: The elements in order of arrival, as `(replica, first counter, end)`; what
                is worked out while it is read is worked out when it is needed.
            text: What the rows show, if that is known and they show nothing but characters.
        """
        # The highest counter in the list: whatever is above it is newer than all it holds.
        self.high = 0
        self.tree = Tree(rows)
        self._indexes: dict[str, SpanIndex] = {}
        # Elements in order of arrival: those given at first, closed stretches, then the one that
        # may still grow.
        self._given = arrived
        self._arrived: list[tuple[str, int, int]] = []
        self._open_replica = ""
        self._open_start = 0
        self._open_end = 0
        # Where the last local edit was: a span, and how many live elements stand before it.
        self._span: Span | None = None
        self._base = 0
        self._text = text
        # Whether any live value is not a character; None if that has to be looked up.
        self._has_others = None if text is None else False
        if rows is not None and rows.stamps:
            self._enter_rows(rows)

    def __len__(self) -> int:
        return self.tree.root.live

    # ── reading ────────────────────────────────────────────────────────────────────────

    def text(self) -> str:
        """The live values that are strings, joined."""
        if self._text is None:
            values: Any = [values for leaf in self.tree.leaves() for values in leaf.shown()]
            self._text = "".join(values if self.is_text() else map(_joined, values))
        return self._text

    def has_replica(self, replica: str) -> bool:
        """Whether any element is of a replica."""
        return replica in self._indexes

    def newest(self) -> Iterator[tuple[str, int]]:
        """Each replica with the highest counter of its elements."""
        for replica, index in self._indexes.items():
            yield replica, index.last.counter + len(index.last.values) - 1

    def is_text(self) -> bool:
        """Whether every live value is a character."""
        if self._has_others is None:
            self._has_others = any(
                type(values) is not str for leaf in self.tree.leaves() for values in leaf.shown()
            )
        return not self._has_others

    def values(self) -> list[Any]:
        """The live values in order, copied."""
        if self.is_text():
            return list(self.text())
        values: list[Any] = []
        for leaf in self.tree.leaves():
            for own in leaf.shown():
                values.extend(own if isinstance(own, str) else fresh(own))
        return values

    def ids(self) -> list[str]:
        """The ids of the live elements in order."""
        return [
            f"{counter}@{span.replica}"
            for span in self.tree.spans()
            if span.live
            for counter in range(span.counter, span.counter + span.live)
        ]

    def clock_at(self, position: int) -> tuple[int, str]:
        """Counter and replica of the live element at a position within the list."""
        span, offset = self.tree.locate(position)
        return span.counter + offset, span.replica

    def find(self, replica: str, counter: int) -> tuple[int, bool] | None:
        """Where an element is: the number of live elements before it, and whether it is live."""
        index = self._indexes.get(replica)
        span = index.find(counter) if index is not None else None
        if span is None:
            return None
        if not span.live:
            return self.tree.position(span), False
        return self.tree.position(span) + counter - span.counter, True

    def last_below(self, replica: str, counter: int) -> int:
        """The highest counter of a replica's elements below another one, else 0."""
        index = self._indexes.get(replica)
        span = index.last_before(counter) if index is not None else None
        return 0 if span is None else min(span.counter + len(span.values), counter) - 1

    def spans(self) -> Iterator[Span]:
        """Every span in document order, removed ones too."""
        return self.tree.spans()

    def arrived(self) -> Iterator[tuple[str, int, int]]:
        """Every element in order of arrival, as `(replica, first counter, end)`."""
        if not isinstance(self._given, list):
            self._given = list(self._given)
        yield from self._given
        yield from self._arrived
        if self._open_end:
            yield self._open_replica, self._open_start, self._open_end

    def pieces(self, replica: str, start: int, end: int) -> Iterator[tuple[Span, int, int]]:
        """The parts of spans, as `(span, first, past)` offsets, that hold counters of a replica."""
        index = self._indexes[replica]
        while start < end:
            span = index.find(start)
            assert span is not None
            first = start - span.counter
            past = min(len(span.values), end - span.counter)
            yield span, first, past
            start = span.counter + past

    def known_pieces(self, replica: str, start: int, end: int) -> Iterator[tuple[Span, int, int]]:
        """The same of those counters that are here; the others are passed over."""
        index = self._indexes.get(replica)
        while index is not None and start < end:
            span = index.find(start) or index.first_from(start)
            if span is None or span.counter >= end:
                return
            first = max(start - span.counter, 0)
            past = min(len(span.values), end - span.counter)
            yield span, first, past
            start = span.counter + past

    def as_runs(self, name: str) -> Iterator[Insert | Remove]:
        """Ops that fold into this list: what is inserted, then what is removed of it.

        The clocks of the removes are made up; a remove of a known element does not use its clock.
        """
        removed: list[Remove] = []
        # In document order an anchor always comes before what hangs on it.
        for span in self.tree.spans():
            values = span.values if isinstance(span.values, str) else fresh(span.values)
            yield Insert(
                name, span.replica, span.counter, span.after_replica, span.after_counter, values
            )
            if not span.live:
                size = len(span.values)
                removed.append(
                    Remove(name, span.replica, span.counter, span.replica, span.counter, size)
                )
        yield from removed

    def copy(self) -> RunSequence:
        """An independent copy."""
        rows = [
            (
                span.replica,
                span.counter,
                span.after_replica,
                span.after_counter,
                span.values if isinstance(span.values, str) else fresh(span.values),
                span.live,
            )
            for span in self.tree.spans()
        ]
        return RunSequence(Rows.of(rows), list(self.arrived()))

    def check(self) -> None:
        """Check the sums, bounds and indexes against the spans.

        Raises:
            AssertionError: One of them is wrong.
        """
        elements = {("", 0)}
        for span in self.tree.spans():
            size = len(span.values)
            assert 0 < size <= SPAN_SIZE_MAX
            assert span.live in (0, size)
            assert (span.after_replica, span.after_counter) in elements, "anchors come first"
            assert (span.after_counter, span.after_replica) < (span.counter, span.replica)
            assert span.counter + size - 1 <= self.high
            for counter in range(span.counter, span.counter + size):
                assert (span.replica, counter) not in elements, "an element is there once"
                elements.add((span.replica, counter))
                assert self._indexes[span.replica].find(counter) is span
        self.tree.check()
        arrived = [
            (replica, counter)
            for replica, start, end in self.arrived()
            for counter in range(start, end)
        ]
        assert len(arrived) == len(elements) - 1
        assert elements.issuperset(arrived)
        if self._text is not None:
            cached, self._text = self._text, None
            assert cached == self.text()
        if self._span is not None:
            assert self._base == self.tree.position(self._span)

    # ── local edits: positions, and a clock newer than all ─────────────────────────────

    def insert_at(
        self, position: int, values: Values, replica: str, counter: int
    ) -> tuple[str, int]:
        """Insert before a position with a clock above every clock in the list.

        Returns:
            The anchor: its replica and counter, the counter 0 for the head.
        """
        span = self._span
        offset = position - 1 - self._base
        if span is None or not 0 <= offset < span.live:
            if position > self.tree.root.live:
                position = self.tree.root.live
            if position <= 0:
                return self._insert_first(values, replica, counter)
            span, offset = self.tree.locate(position - 1)
        after_replica, after_counter = span.replica, span.counter + offset
        self._arrive(replica, counter, len(values))
        offset += 1
        if after_counter + 1 == counter and self._extend(span, values, replica, counter):
            self._span = span
            self._base = position - offset
            return after_replica, after_counter
        if offset < len(span.values):
            self._cut(span, offset)
        leaf = span.leaf
        place = leaf.spans.index(span) + 1
        self._span = self._add(leaf, place, replica, counter, after_replica, after_counter, values)
        self._base = position
        return after_replica, after_counter

    def remove_at(self, position: int, count: int) -> list[tuple[str, int, int]]:
        """Remove `count` live elements from a position on.

        Returns:
            What was removed, as `(replica, counter, size)` in document order.
        """
        removed: list[tuple[str, int, int]] = []
        while count > 0:
            span = self._span
            offset = position - self._base
            if span is None or not 0 <= offset < span.live:
                span, offset = self.tree.locate(position)
            size = span.live - offset
            if size > count:
                size = count
            removed.append((span.replica, span.counter + offset, size))
            self._span, self._base = self._kill(span, offset, size), position
            if self._span is span:
                self._base -= offset
            count -= size
        return removed

    # ── ops of others ──────────────────────────────────────────────────────────────────

    def insert_run(self, run: Insert, changes: list[Change] | None = None) -> bool:
        """Fold an insert; elements that are known already are passed over.

        Returns:
            Whether it was taken. If not, it may have been taken in part, and can be folded again.
        """
        index = self._indexes.get(run.replica)
        if index is not None:
            last = index.last
            end = last.counter + len(last.values)
            if run.counter < end:
                return self._insert_unknown(index, run, changes)
            # Typing on: newer than all there is, it belongs right after the replica's last element.
            if (
                run.counter == end
                and run.after_counter == end - 1
                and end > self.high
                and run.after_replica == index.replica
                and self._extend(last, run.values, index.replica, end)
            ):
                self._span = None
                self._arrive(index.replica, end, len(run.values))
                if changes is not None:
                    position = self.tree.position(last) + end - last.counter
                    changes.append(ListChanged(run.list, position, 0, run.values))
                return True
        return self._insert(
            run.replica,
            run.counter,
            run.after_replica,
            run.after_counter,
            run.values,
            run.list,
            changes,
        )

    def remove_run(self, run: Remove, changes: list[Change] | None = None) -> bool:
        """Fold a remove; elements that are removed already are passed over.

        Returns:
            Whether it was taken. If not, nothing has changed.
        """
        index = self._indexes.get(run.target_replica)
        if index is None:
            return False
        first = run.first_target
        end = counter = first + run.size
        if run.size > 1:
            # All of them have to be here before any of them goes.
            counter = first
        while counter < end:
            span = index.find(counter)
            if span is None:
                return False
            counter = span.counter + len(span.values)
        self._span = None
        counter = first
        while counter < end:
            span = index.find(counter)
            if span is None:
                return False
            size = min(end, span.counter + len(span.values)) - counter
            if span.live:
                offset = counter - span.counter
                if changes is not None:
                    position = self.tree.position(span) + offset
                    changes.append(ListChanged(run.list, position, size, ""))
                self._kill(span, offset, size)
            counter += size
        return True

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _enter_rows(self, rows: Rows) -> None:
        """Index rows by replica and counter."""
        stamps, count = rows.stamps, len(rows.table)
        by_age = sorted(range(len(stamps)), key=stamps.__getitem__)
        own: list[list[int]] = [by_age]
        if count > 1:
            own = [[] for _ in rows.table]
            for row in by_age:
                own[stamps[row] % count].append(row)
        for replica, entries in zip(rows.table, own, strict=True):
            if entries:
                index = SpanIndex([stamps[row] // count for row in entries], [*entries], rows)
                self._indexes[replica] = index
                self.high = max(self.high, index.last.counter + len(index.last.values) - 1)

    def _insert_first(self, values: Values, replica: str, counter: int) -> tuple[str, int]:
        self._arrive(replica, counter, len(values))
        leaf = self.tree.first_leaf()
        self._span = self._add(leaf, 0, replica, counter, "", 0, values)
        self._base = 0
        return "", 0

    def _arrive(self, replica: str, counter: int, size: int) -> None:
        self._text = None
        end = counter + size
        if end > self.high:
            self.high = end - 1
        if counter == self._open_end and replica == self._open_replica:
            self._open_end = end
            return
        if self._open_end:
            self._arrived.append((self._open_replica, self._open_start, self._open_end))
        self._open_replica = replica
        self._open_start = counter
        self._open_end = end

    def _extend(self, span: Span, values: Values, replica: str, counter: int) -> bool:
        """Append to a live span what continues it; whether it does."""
        size = span.live
        count = len(values)
        if (
            not size
            or span.counter + size != counter
            or span.replica != replica
            or size + count > SPAN_SIZE_MAX
        ):
            return False
        before = span.values
        if isinstance(values, str):
            if not isinstance(before, str):
                return False
            span.values = before + values
        elif isinstance(before, str):
            return False
        else:
            span.values = before + values
        span.live = size + count
        leaf = span.leaf
        leaf.live += count
        branch = leaf.parent
        while branch is not None:
            branch.live += count
            branch = branch.parent
        return True

    def _add(
        self,
        leaf: Leaf,
        place: int,
        replica: str,
        counter: int,
        after_replica: str,
        after_counter: int,
        values: Values,
    ) -> Span:
        """Put a new run into the tree and return its first span."""
        if type(values) is not str:
            self._has_others = True
        if len(values) <= SPAN_SIZE_MAX:
            span = Span(replica, counter, after_replica, after_counter, values, len(values))
            self.tree.place(leaf, place, span)
            self._enter(span)
            return span
        first: Span | None = None
        for start in range(0, len(values), SPAN_SIZE_MAX):
            part = values[start : start + SPAN_SIZE_MAX]
            span = self._add(
                leaf, place, replica, counter + start, after_replica, after_counter, part
            )
            leaf = span.leaf
            place = leaf.spans.index(span) + 1
            after_replica, after_counter = replica, counter + start + len(part) - 1
            first = first or span
        assert first is not None
        return first

    def _enter(self, span: Span) -> None:
        index = self._indexes.get(span.replica)
        if index is None:
            self._indexes[span.replica] = SpanIndex([span.counter], [span], None)
        else:
            # One text for one replica, whichever message it came in.
            span.replica = index.replica
            index.add(span)

    def _cut(self, span: Span, offset: int) -> Span:
        right = self.tree.cut(span, offset)
        self._indexes[span.replica].add(right)
        return right

    def _insert_unknown(self, index: SpanIndex, run: Insert, changes: list[Change] | None) -> bool:
        """Insert those parts of a run whose ids are new."""
        counter, end = run.counter, run.counter + len(run.values)
        while counter < end:
            known = index.find(counter)
            if known is not None:
                counter = known.counter + len(known.values)
                continue
            following = index.first_from(counter)
            stop = end if following is None else min(end, following.counter)
            part = run.values[counter - run.counter : stop - run.counter]
            if counter == run.counter:
                after_replica, after_counter = run.after_replica, run.after_counter
            else:
                after_replica, after_counter = run.replica, counter - 1
            if not self._insert(
                run.replica, counter, after_replica, after_counter, part, run.list, changes
            ):
                return False
            counter = stop
        return True

    def _insert(
        self,
        replica: str,
        counter: int,
        after_replica: str,
        after_counter: int,
        values: Values,
        name: str,
        changes: list[Change] | None,
    ) -> bool:
        anchor: Span | None = None
        if after_counter == 0:
            leaf, place = self.tree.first_leaf(), 0
        else:
            index = self._indexes.get(after_replica)
            anchor = index.find(after_counter) if index is not None else None
            if anchor is None or counter < after_counter:
                return False
            if counter == after_counter and replica <= after_replica:
                return False
            offset = after_counter - anchor.counter + 1
            # If the anchor is inside a span, what is newer than the rest comes before the rest.
            inside = offset < len(anchor.values)
            if inside and (counter, replica) > (after_counter + 1, after_replica):
                self._cut(anchor, offset)
            leaf = anchor.leaf
            place = leaf.spans.index(anchor) + 1
        if counter <= self.high:
            leaf, place = self.tree.first_older(leaf, place, counter, replica)
        self._span = None
        self._arrive(replica, counter, len(values))
        previous = leaf.spans[place - 1] if place else None
        if (
            previous is None
            or previous is not anchor
            or not self._extend(anchor, values, replica, counter)
        ):
            previous = self._add(
                leaf, place, replica, counter, after_replica, after_counter, values
            )
        if changes is not None:
            position = self.tree.position(previous) + counter - previous.counter
            changes.append(ListChanged(name, position, 0, values))
        return True

    def _kill(self, span: Span, offset: int, count: int) -> Span | None:
        """Remove live elements of one span, joining them to removed neighbours.

        Returns:
            The span if any of it stays before what was removed, else the live one that follows
            on in the same leaf, if there is one.
        """
        self._text = None
        if self._has_others:
            self._has_others = None
        size = len(span.values)
        if count == size:
            span.live = 0
            self.tree.grow(span.leaf, -count)
            return self._join_neighbours(span)
        spans = span.leaf.spans
        if offset + count == size:
            place = spans.index(span) + 1
            if place < len(spans) and _continues(span, spans[place], count):
                self._shift_right(span, spans[place], offset)
                return span
        elif offset == 0:
            place = spans.index(span)
            if place and _continues(spans[place - 1], span, count):
                self._shift_left(spans[place - 1], span, count)
                return span
        rest = self._cut(span, offset + count) if offset + count < size else None
        removed = self._cut(span, offset) if offset else span
        removed.live = 0
        self.tree.grow(removed.leaf, -count)
        return span if offset else rest

    def _shift_right(self, span: Span, removed: Span, offset: int) -> None:
        """Move the tail of a live span to the front of the removed span that continues it."""
        count = len(span.values) - offset
        self._indexes[removed.replica].move(removed, removed.counter - count)
        removed.values = span.values[offset:] + removed.values  # type: ignore[operator]
        removed.counter -= count
        removed.after_counter -= count
        span.values = span.values[:offset]
        span.live = offset
        self.tree.grow(span.leaf, -count)

    def _shift_left(self, removed: Span, span: Span, count: int) -> None:
        """Move the head of a live span to the end of the removed span that it continues."""
        self._indexes[span.replica].move(span, span.counter + count)
        removed.values = removed.values + span.values[:count]  # type: ignore[operator]
        span.values = span.values[count:]
        span.counter += count
        span.after_counter = span.counter - 1
        span.live -= count
        self.tree.grow(span.leaf, -count)

    def _join_neighbours(self, span: Span) -> Span | None:
        """Join a span that was removed whole; the live span that follows it in the leaf."""
        spans = span.leaf.spans
        place = spans.index(span)
        if place + 1 < len(spans):
            self._join(span, place + 1)
        following = spans[place + 1] if place + 1 < len(spans) else None
        if place:
            self._join(spans[place - 1], place)
        return following if following is not None and following.live else None

    def _join(self, left: Span, place: int) -> None:
        """Let a removed span take over the removed one that continues it, if it does."""
        right = left.leaf.spans[place]
        if left.live or right.live or not _continues(left, right, len(left.values)):
            return
        del left.leaf.spans[place]
        self._indexes[right.replica].drop(right)
        left.values = left.values + right.values  # type: ignore[operator]


def _joined(values: Values) -> str:
    if isinstance(values, str):
        return values
    return "".join([value for value in values if isinstance(value, str)])


def _continues(left: Span, right: Span, count: int) -> bool:
    """Whether `count` elements may pass between two neighbours, one of them removed."""
    return (
        right.counter == left.counter + len(left.values)
        and right.after_counter == right.counter - 1
        and left.replica == right.replica == right.after_replica
        and (not left.live or not right.live)
        and type(left.values) is type(right.values)
        and len(left.values if right.live else right.values) + count <= SPAN_SIZE_MAX
    )
