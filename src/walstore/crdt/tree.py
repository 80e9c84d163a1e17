"""Spans in document order, in a counted tree: positions are found, and places kept, in log n.

    Branch(live=9) ── Leaf(live=6) ── Span("Hel") Span("lo ") Span(removed)
                  └── Leaf(live=3) ── Span("you")

- A span is a stretch of elements of one replica with consecutive counters, each chained to the
  one before, all live or all removed. It is at most `SPAN_SIZE_MAX` long, so that an edit
  inside it copies little.
- Every node knows how many live elements are below it (`live`) and a lower bound of the first
  clocks of the spans below it (`low`), which lets a search for an older span skip it.
- Spans are never empty, and a leaf in the tree never is, except the root of an empty list.
- A tree that is made at once begins as `Rows`: the spans of a leaf are made when the leaf is used
  for the first time. Most of a large list is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final, TypeAlias

from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.runs import Values

SPAN_SIZE_MAX: Final = 4096
# Short rows keep the linear steps inside a node cheaper than the climb between nodes.
WIDTH_MAX: Final = 16
# Rows start three quarters full, so that the first edits do not split each of them.
_WIDTH_FIRST: Final = 12


# A clock as it sorts: counter and replica.
Age: TypeAlias = tuple[int, str]

# Above every clock.
_NEVER: Final = (COUNTER_MAX + 1, "")

# What a span is made of: replica, counter, the same of its anchor, values, live count.
SpanRow: TypeAlias = tuple[str, int, str, int, Values, int]


class Span:
    """Elements `<counter + i>@<replica>`, the first one anchored, the others chained."""

    __slots__ = ("after_counter", "after_replica", "counter", "leaf", "live", "replica", "values")

    leaf: Leaf

    def __init__(
        self,
        replica: str,
        counter: int,
        after_replica: str,
        after_counter: int,
        values: Values,
        live: int,
    ) -> None:
        self.replica = replica
        self.counter = counter
        self.after_replica = after_replica
        self.after_counter = after_counter
        self.values = values
        self.live = live


class Rows:
    """Spans that are not made yet: one row for each, in document order, as columns.

    Attributes:
        table: The replicas, sorted.
        stamps: The id of the first element, as `counter * len(table) + index`: one number that
            sorts like the clock.
        anchors: The id of its anchor, the same way; 0 is the head.
        values: The values.
        lives: How many of them are live, none or all.
    """

    __slots__ = ("_leaves", "_made", "anchors", "lives", "stamps", "table", "values")

    def __init__(
        self,
        table: list[str],
        stamps: list[int],
        anchors: list[int],
        values: list[Values],
        lives: list[int],
    ) -> None:
        self.table = table
        self.stamps = stamps
        self.anchors = anchors
        self.values = values
        self.lives = lives
        self._leaves: list[Leaf] = []
        # The spans that were made and that nobody has asked for by their number.
        self._made: dict[int, Span] = {}

    @staticmethod
    def of(spans: Sequence[SpanRow]) -> Rows:
        """The rows of what could be spans."""
        table = sorted({span[0] for span in spans})
        count, ranks = len(table), {replica: rank for rank, replica in enumerate(table)}
        return Rows(
            table,
            [counter * count + ranks[replica] for replica, counter, _, _, _, _ in spans],
            [after * count + ranks[other] if after else 0 for _, _, other, after, _, _ in spans],
            [values for _, _, _, _, values, _ in spans],
            [live for _, _, _, _, _, live in spans],
        )

    def all(self) -> Iterator[SpanRow]:
        """Each row as what a span is made of."""
        return self._between(0, len(self.stamps))

    def arranged(self, order: list[int]) -> Rows:
        """The same rows in another order."""
        return Rows(
            self.table,
            [self.stamps[row] for row in order],
            [self.anchors[row] for row in order],
            [self.values[row] for row in order],
            [self.lives[row] for row in order],
        )

    def joined(self) -> Rows:
        """The same with live rows of text joined to those before that they continue."""
        count = len(self.table)
        ends = [
            stamp + len(values) * count if live else 0
            for stamp, values, live in zip(self.stamps, self.values, self.lives, strict=True)
        ]
        firsts = [0]
        size = self.lives[0]
        for row, (stamp, end, anchor, live) in enumerate(
            zip(self.stamps[1:], ends, self.anchors[1:], self.lives[1:], strict=False), 1
        ):
            size += live
            if stamp != end or anchor != end - count or not live or size > SPAN_SIZE_MAX:
                firsts.append(row)
                size = live
        if len(firsts) == len(ends):
            return self
        values: Any = self.values
        bounds = list(zip(firsts, [*firsts[1:], len(ends)], strict=True))
        return Rows(
            self.table,
            [self.stamps[row] for row in firsts],
            [self.anchors[row] for row in firsts],
            ["".join(values[row:end]) for row, end in bounds],
            [sum(self.lives[row:end]) for row, end in bounds],
        )

    def leaves(self) -> list[Leaf]:
        """Leaves that hold all rows; to be asked for once."""
        self._leaves = [Leaf([], self, row) for row in range(0, len(self.stamps), _WIDTH_FIRST)]
        return self._leaves

    def take(self, row: int) -> Span:
        """The span of a row; whoever takes it keeps it, and does not ask again."""
        if row not in self._made:
            self._leaves[row // _WIDTH_FIRST].unpack()
        return self._made.pop(row)

    def make(self, first: int) -> list[Span]:
        """The spans of a leaf."""
        spans = [Span(*row) for row in self._between(first, first + _WIDTH_FIRST)]
        self._made.update(enumerate(spans, first))
        return spans

    def _between(self, first: int, end: int) -> Iterator[SpanRow]:
        table, count = self.table, len(self.table)
        for stamp, anchor, values, live in zip(
            self.stamps[first:end],
            self.anchors[first:end],
            self.values[first:end],
            self.lives[first:end],
            strict=True,
        ):
            after_replica = table[anchor % count] if anchor else ""
            yield table[stamp % count], stamp // count, after_replica, anchor // count, values, live


class Leaf:
    """A row of spans; none are there before it is unpacked."""

    __slots__ = ("_first", "_rows", "live", "low", "parent", "spans")

    live: int
    low: Age

    def __init__(self, spans: list[Span], rows: Rows | None = None, first: int = 0) -> None:
        """Take spans, or those that rows will make from a first one on."""
        self.parent: Branch | None = None
        self.spans = spans
        self._rows = rows
        self._first = first
        if rows is None:
            self.adopt()
        else:
            end = first + _WIDTH_FIRST
            self.live = sum(rows.lives[first:end])
            counter, rank = divmod(min(rows.stamps[first:end]), len(rows.table))
            self.low = counter, rows.table[rank]

    def unpack(self) -> None:
        """Make the spans, if that was not done yet."""
        if self._rows is not None:
            self.spans = self._rows.make(self._first)
            self._rows = None
            for span in self.spans:
                span.leaf = self

    def shown(self) -> list[Values]:
        """The values of the live spans."""
        if self._rows is not None:
            end = self._first + _WIDTH_FIRST
            values, lives = self._rows.values, self._rows.lives
            return list(compress(values[self._first : end], lives[self._first : end]))
        return [span.values for span in self.spans if span.live]

    def adopt(self) -> None:
        """Take the spans as one's own and count them afresh."""
        live, low = 0, _NEVER
        for span in self.spans:
            span.leaf = self
            live += span.live
            if span.counter <= low[0]:
                low = min(low, (span.counter, span.replica))
        self.live = live
        self.low = low


class Branch:
    """A row of leaves, or of branches."""

    __slots__ = ("children", "live", "low", "parent")

    live: int
    low: Age

    def __init__(self, children: list[Node]) -> None:
        self.parent: Branch | None = None
        self.children = children
        self.adopt()

    def adopt(self) -> None:
        """Take the children as one's own and count them afresh."""
        live, low = 0, _NEVER
        for child in self.children:
            child.parent = self
            live += child.live
            if child.low < low:
                low = child.low
        self.live = live
        self.low = low


Node: TypeAlias = Leaf | Branch


class Tree:
    """All spans of one list in document order."""

    __slots__ = ("root",)

    def __init__(self, rows: Rows | None) -> None:
        """Build the tree of rows."""
        level: list[Node] = [] if rows is None else [*rows.leaves()]
        while len(level) > 1:
            level = [
                Branch(level[start : start + _WIDTH_FIRST])
                for start in range(0, len(level), _WIDTH_FIRST)
            ]
        self.root: Node = level[0] if level else Leaf([])

    def locate(self, position: int) -> tuple[Span, int]:
        """The span that holds the live element at `position`, and the offset in that span."""
        node = self.root
        while isinstance(node, Branch):
            # A row is walked from the end that is nearer.
            if 2 * position < node.live:
                for child in node.children:
                    if position < child.live:
                        break
                    position -= child.live
            else:
                position = node.live - position
                for child in reversed(node.children):
                    if position <= child.live:
                        break
                    position -= child.live
                position = child.live - position
            node = child
        if not node.spans:
            node.unpack()
        if 2 * position < node.live:
            for span in node.spans:
                if position < span.live:
                    break
                position -= span.live
            return span, position
        position = node.live - position
        for span in reversed(node.spans):
            if position <= span.live:
                break
            position -= span.live
        return span, span.live - position

    def position(self, span: Span) -> int:
        """How many live elements stand before the span."""
        position = 0
        leaf = span.leaf
        for sibling in leaf.spans:
            if sibling is span:
                break
            position += sibling.live
        child: Node = leaf
        branch = leaf.parent
        while branch is not None:
            for node in branch.children:
                if node is child:
                    break
                position += node.live
            child = branch
            branch = branch.parent
        return position

    def spans(self) -> Iterator[Span]:
        """Every span in document order."""
        for leaf in self.leaves():
            leaf.unpack()
            yield from leaf.spans

    def path(self, span: Span) -> tuple[int, ...]:
        """Where a span stands: the paths of all spans compare as the spans are in order."""
        leaf = span.leaf
        path = [leaf.spans.index(span)]
        child: Node = leaf
        while child.parent is not None:
            path.append(child.parent.children.index(child))
            child = child.parent
        return tuple(reversed(path))

    def following(self, span: Span) -> Span | None:
        """The span after a span, None after the last one."""
        leaf = span.leaf
        place = leaf.spans.index(span) + 1
        if place < len(leaf.spans):
            return leaf.spans[place]
        next_leaf = _next_leaf(leaf, _NEVER)
        return None if next_leaf is None else next_leaf.spans[0]

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf in document order, as it is."""
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                yield node
            else:
                stack.extend(reversed(node.children))

    def first_leaf(self) -> Leaf:
        """The leaf at the head of the list."""
        node = self.root
        while isinstance(node, Branch):
            node = node.children[0]
        node.unpack()
        return node

    def last_leaf(self) -> Leaf:
        """The leaf at the end of the list."""
        node = self.root
        while isinstance(node, Branch):
            node = node.children[-1]
        node.unpack()
        return node

    def place(self, leaf: Leaf, index: int, span: Span) -> None:
        """Put a new span into a leaf."""
        spans = leaf.spans
        spans.insert(index, span)
        span.leaf = leaf
        live, age = span.live, (span.counter, span.replica)
        leaf.live += live
        if age < leaf.low:
            leaf.low = age
        branch = leaf.parent
        while branch is not None:
            branch.live += live
            if age < branch.low:
                branch.low = age
            branch = branch.parent
        if len(spans) > WIDTH_MAX:
            self._split_leaf(leaf)

    def grow(self, leaf: Leaf, size: int) -> None:
        """Count `size` more (or, if negative, fewer) live elements in a leaf."""
        leaf.live += size
        branch = leaf.parent
        while branch is not None:
            branch.live += size
            branch = branch.parent

    def cut(self, span: Span, offset: int) -> Span:
        """Split a span in two and return the right part."""
        values = span.values
        right = Span(
            span.replica,
            span.counter + offset,
            span.replica,
            span.counter + offset - 1,
            values[offset:],
            span.live - offset if span.live else 0,
        )
        span.values = values[:offset]
        if span.live:
            span.live = offset
        # The sums and bounds above stay as they are: the same elements are below.
        leaf = span.leaf
        leaf.spans.insert(leaf.spans.index(span) + 1, right)
        right.leaf = leaf
        if len(leaf.spans) > WIDTH_MAX:
            self._split_leaf(leaf)
        return right

    def first_older(self, leaf: Leaf, index: int, counter: int, replica: str) -> tuple[Leaf, int]:
        """The place of the first span, from a place on, whose first clock is below a clock.

        Returns:
            The leaf and the index in it; the end of the list if there is no such span.
        """
        node: Leaf | None = leaf
        while node is not None:
            spans = node.spans
            while index < len(spans):
                span = spans[index]
                if span.counter < counter or (span.counter == counter and span.replica < replica):
                    return node, index
                index += 1
            node, index = _next_leaf(node, (counter, replica)), 0
        last = self.last_leaf()
        return last, len(last.spans)

    def check(self) -> None:
        """Check that every node counts what is below it.

        Raises:
            AssertionError: One does not.
        """
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                node.unpack()
                assert all(span.leaf is node for span in node.spans)
                assert all((span.counter, span.replica) >= node.low for span in node.spans)
                assert node.live == sum(span.live for span in node.spans)
                assert len(node.spans) <= WIDTH_MAX
                assert node.spans or node is self.root
            else:
                assert all(child.parent is node for child in node.children)
                assert all(child.low >= node.low for child in node.children)
                assert node.live == sum(child.live for child in node.children)
                assert 1 < len(node.children) <= WIDTH_MAX or node is not self.root
                stack.extend(node.children)

    def _split_leaf(self, leaf: Leaf) -> None:
        half = len(leaf.spans) // 2
        right = Leaf(leaf.spans[half:])
        del leaf.spans[half:]
        leaf.adopt()
        self._insert_beside(leaf, right)

    def _insert_beside(self, left: Node, right: Node) -> None:
        parent = left.parent
        if parent is None:
            self.root = Branch([left, right])
            return
        children = parent.children
        children.insert(children.index(left) + 1, right)
        right.parent = parent
        if len(children) > WIDTH_MAX:
            half = len(children) // 2
            beside = Branch(children[half:])
            del children[half:]
            parent.adopt()
            self._insert_beside(parent, beside)


def _next_leaf(leaf: Leaf, age: Age) -> Leaf | None:
    """The next leaf to the right that may hold a span whose first clock is below a clock."""
    node: Node = leaf
    parent = node.parent
    while parent is not None:
        siblings = parent.children
        for index in range(siblings.index(node) + 1, len(siblings)):
            if siblings[index].low < age:
                return _descend(siblings[index], age)
        node, parent = parent, parent.parent
    return None


def _descend(node: Node, age: Age) -> Leaf:
    while isinstance(node, Branch):
        node = next(child for child in node.children if child.low < age)
    node.unpack()
    return node
