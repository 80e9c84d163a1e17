"""A list held element by element: slower than runs, and exact for ops of any shape.

- Every rule is the format's fold, word for word: unknown anchors, removes before inserts,
  children older than their parents, cycles and free-form ids all have their place.
- The order is walked with a stack and kept. What is newer than everything, as a keystroke is, goes
  right behind its anchor; any other change has the order walked afresh.
- What was removed before it came is a range of placeholders, as long as nothing hangs on it.
- A list comes here when an op breaks the causal shape, and goes back to runs, when it is next
  read, if the shape is whole again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Any, Final

from walstore.crdt.counters import Counters
from walstore.crdt.ids import element_id, parse_element_id
from walstore.crdt.ops import fresh
from walstore.crdt.placeholders import Awaited, Placeholders
from walstore.crdt.runs import Insert, Remove, Values, is_character
from walstore.crdt.sequence import RunSequence
from walstore.crdt.tree import SPAN_SIZE_MAX, Rows, Span, SpanRow

# Anchors that are searched in the order, which is long, before it is walked afresh instead.
SEARCHES_MAX: Final = 8


class Node:
    """One element, or the placeholder of one whose remove came first.

    `number` is its place in the order of arrival.
    """

    __slots__ = ("after", "counter", "deleted", "id", "number", "pending", "replica", "value")

    def __init__(
        self,
        id: str,
        after: str,
        counter: int,
        replica: str,
        value: Any,
        deleted: bool = False,
        pending: bool = False,
    ) -> None:
        self.id = id
        self.after = after
        self.counter = counter
        self.replica = replica
        self.value = value
        self.deleted = deleted
        self.pending = pending
        self.number = 0


class NodeSequence:
    """One list, held as nodes by id.

    Attributes:
        nodes: The elements, and those placeholders that something may hang on.
        awaited: The other placeholders.
        high: A counter that no clock of the list is above.
    """

    __slots__ = (
        "_arrivals",
        "_counters",
        "_is_by_age",
        "_is_odd",
        "_live",
        "_missing",
        "_order",
        "_place",
        "_searches",
        "awaited",
        "high",
        "nodes",
    )

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        """Take nodes in order of arrival."""
        self.nodes: dict[str, Node] = {}
        self.awaited = Placeholders()
        self.high = 0
        # How many elements and placeholders have arrived.
        self._arrivals = 0
        self._is_by_age = False
        # The elements whose ids are of their own counters, once somebody has asked for the nearest.
        self._counters: Counters | None = None
        self._order: list[Node] | None = None
        self._live: list[Node] | None = None
        # With the order: the anchors that are not there, whether the shape is known to be broken,
        # where in it the newest node was put, and how often that was searched since it was read.
        self._missing: set[str] = set()
        self._is_odd = False
        self._place = 0
        self._searches = 0
        for node in {node.id: node for node in nodes}.values():
            if _as_awaited(node) is not None:
                self.remove(node.id, node.counter, node.replica)
            else:
                self._enter(node)
                self.high = max(self.high, node.counter)

    @classmethod
    def of(cls, runs: RunSequence | None) -> NodeSequence:
        """The same list as nodes."""
        nodes: list[Node] = []
        if runs is not None:
            for replica, start, end in runs.arrived():
                for span, first, past in runs.pieces(replica, start, end):
                    nodes.extend(_nodes_of(span, first, past))
        return cls(nodes)

    def copy(self) -> NodeSequence:
        """An independent copy."""
        copy = NodeSequence()
        copy.nodes = {id: _copied(node) for id, node in self.nodes.items()}
        copy.awaited = self.awaited.copy()
        copy.high = self.high
        copy._arrivals = self._arrivals
        copy._is_by_age = self._is_by_age
        return copy

    def __len__(self) -> int:
        return len(self.live())

    def all(self) -> list[Node]:
        """Every element and every placeholder in order of arrival."""
        waiting = [node for awaited in self.awaited for node in _placeholders(awaited)]
        return self._by_arrival([*self.nodes.values(), *waiting])

    def parted(self) -> tuple[list[Node], list[Awaited]]:
        """The nodes in order of arrival, and all that ranges can say of them."""
        nodes: list[Node] = []
        ranges = list(self.awaited)
        for node in self._by_arrival(self.nodes.values()):
            awaited = _as_awaited(node)
            if awaited is None:
                nodes.append(node)
            else:
                ranges.append(awaited)
        return nodes, ranges

    def forget_arrival(self) -> None:
        """Let everything count as having arrived in the order of the clocks."""
        self._is_by_age = True

    def await_ranges(self, ranges: Iterable[Awaited]) -> bool:
        """Begin with placeholders beside the nodes; False if an id stands twice."""
        for awaited in ranges:
            if self.awaited.overlaps(awaited):
                return False
            self._await(awaited)
        clocks = map(parse_element_id, self.nodes)
        return not any(
            clock is not None and self.awaited.find(clock[1], clock[0]) for clock in clocks
        )

    def has(self, replica: str, counter: int) -> bool:
        """Whether an id is known, be it as a placeholder."""
        return (
            element_id(counter, replica) in self.nodes
            or self.awaited.find(replica, counter) is not None
        )

    def last_below(self, replica: str, counter: int) -> int:
        """The highest counter of a replica's elements below another one, else 0."""
        if self._counters is None:
            self._counters = Counters()
            # Ascending, so that each goes to the end, in whatever order they arrived.
            for node in sorted(self.nodes.values(), key=attrgetter("counter")):
                if not node.pending:
                    _count(node, self._counters)
        return self._counters.last_below(replica, counter)

    def insert_run(self, run: Insert) -> None:
        """Fold an insert of several elements."""
        after = element_id(run.after_counter, run.after_replica) if run.after_counter else ""
        for counter, value in enumerate(run.values, run.counter):
            id = element_id(counter, run.replica)
            self.insert(id, after, counter, run.replica, value)
            after = id

    def remove_run(self, run: Remove) -> None:
        """Fold a remove of several elements."""
        start = 0
        for offset in range(run.size):
            target = run.target_counter + offset * run.step
            node = self.nodes.get(element_id(target, run.target_replica))
            if node is not None:
                self._delete(node)
            if node is not None or self.awaited.find(run.target_replica, target) is not None:
                self._await_removed(run, start, offset)
                start = offset + 1
        self._await_removed(run, start, run.size)

    def join(self, other: NodeSequence) -> None:
        """Take in every node of another list."""
        for node in other.nodes.values():
            awaited = _as_awaited(node)
            if awaited is not None:
                self._join_awaited(awaited)
                continue
            known = self.nodes.get(node.id)
            if not node.pending:
                self.insert(node.id, node.after, node.counter, node.replica, fresh(node.value))
            elif known is not None:
                self._join_clock(known, (node.counter, node.replica))
            if node.deleted:
                self.remove(node.id, node.counter, node.replica)
        for awaited in other.awaited:
            self._join_awaited(awaited)

    def insert(self, id: str, after: str, counter: int, replica: str, value: Any) -> None:
        """Fold one insert."""
        node = self.nodes.get(id) or self._called(id)
        if node is None:
            node = Node(id, after, counter, replica, value)
            self._enter(node)
            self._put(node)
        elif node.pending:
            node.after = after
            node.counter = counter
            node.replica = replica
            node.value = value
            node.pending = False
            self._order = self._live = None
        if self._counters is not None:
            _count(node, self._counters)
        self.high = max(self.high, counter)

    def remove(self, id: str, counter: int, replica: str) -> None:
        """Fold one remove."""
        node = self.nodes.get(id)
        if node is not None:
            self._delete(node)
            return
        target = parse_element_id(id)
        if target is not None:
            self.remove_run(Remove("", replica, counter, target[1], target[0]))
            return
        self._enter(Node(id, "", counter, replica, None, deleted=True, pending=True))
        self._order = self._live = None
        self.high = max(self.high, counter)

    def unmet(self) -> Iterator[tuple[int, str]]:
        """Counter and replica of the elements that others name and that are not there; of those in
        a row, of the last one.
        """
        for awaited in self.awaited:
            yield awaited.end - 1, awaited.replica
        for node in self.nodes.values():
            is_missing = node.after and node.after not in self.nodes
            name = node.id if node.pending else node.after if is_missing else ""
            clock = parse_element_id(name)
            if clock is not None:
                yield clock

    def in_order(self) -> Iterator[Node]:
        """The nodes that the head reaches, removed ones too, in order."""
        return iter(self._walk())

    def live(self) -> list[Node]:
        """The nodes that show, in order; to be read only."""
        if self._live is None:
            self._live = [node for node in self._walk() if not node.deleted]
        return self._live

    def values(self) -> list[Any]:
        """The live values in order, copied."""
        return [fresh(node.value) for node in self.live()]

    def text(self) -> str:
        """The live values that are strings, joined."""
        return "".join([node.value for node in self.live() if isinstance(node.value, str)])

    def has_replica(self, replica: str) -> bool:
        """Whether any element is of a replica."""
        return any(node.replica == replica for node in self.nodes.values()) or any(
            awaited.remover == replica for awaited in self.awaited
        )

    def newest(self) -> Iterator[tuple[str, int]]:
        """The replica and the counter of each element."""
        return ((node.replica, node.counter) for node in self.nodes.values() if not node.pending)

    def is_text(self) -> bool:
        """Whether every live value is a character."""
        return all(is_character(node.value) for node in self.live())

    def ids(self) -> list[str]:
        """The ids of the live elements in order."""
        return [node.id for node in self.live()]

    def find(self, id: str) -> tuple[int, bool] | None:
        """Where an element is: the number of live elements before it, and whether it is live."""
        self._called(id)
        position = 0
        for node in self._walk():
            if node.id == id:
                return position, not node.deleted
            position += not node.deleted
        return None

    def settled(self) -> RunSequence | None:
        """The same list as runs, if every op of it keeps the causal shape."""
        order = self._walk()
        if self._is_odd:
            return None
        if self.awaited or len(order) < len(self.nodes) or not all(map(self._is_regular, order)):
            self._is_odd = True
            return None
        return RunSequence(_rows_of(order), _arrivals_of(self.all()))

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _by_arrival(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=_age if self._is_by_age else attrgetter("number"))

    def _enter(self, node: Node) -> None:
        node.number = self._arrivals
        self._arrivals += 1
        self.nodes[node.id] = node

    def _delete(self, node: Node) -> None:
        if not node.deleted:
            node.deleted = True
            self._live = None

    def _await_removed(self, run: Remove, start: int, end: int) -> None:
        """Hold the place of what a remove names from an offset to another: none of it is here."""
        if start == end:
            return
        # Of a range that goes down, the last one has the lowest id.
        lowest = start if run.step == 1 else end - 1
        target, counter = run.target_counter + lowest * run.step, run.counter + lowest
        self._await(
            Awaited(run.target_replica, target, end - start, run.replica, counter, run.step, 0)
        )

    def _await(self, awaited: Awaited) -> None:
        """Take in placeholders, none of which is here, as the next to arrive."""
        lowest = 0 if awaited.step == 1 else awaited.size - 1
        awaited.number = self._arrivals + lowest
        self._arrivals += awaited.size
        self.awaited.add(awaited)
        self.high = max(self.high, awaited.highest())
        self._is_odd = True
        if self._missing:
            # Something may hang on one of them, and show from now on.
            self._order = self._live = None

    def _called(self, id: str) -> Node | None:
        """A placeholder as a node of its own, because it matters now; None if there is none."""
        clock = parse_element_id(id) if self.awaited else None
        awaited = None if clock is None else self.awaited.take(clock[1], clock[0])
        if awaited is None:
            return None
        node = self.nodes[id] = _placeholders(awaited)[0]
        self._order = self._live = None
        return node

    def _join_awaited(self, theirs: Awaited) -> None:
        """Take in placeholders of another list."""
        start = theirs.first
        for counter, node in [*self._met(theirs), (theirs.end, None)]:
            if start < counter:
                for part in self.awaited.give_way(theirs.part(start, counter)):
                    self._await(part)
            if node is not None:
                self._join_clock(node, theirs.clock_of(counter))
                self._delete(node)
            start = counter + 1

    def _met(self, awaited: Awaited) -> list[tuple[int, Node]]:
        """The nodes of a range of ids, by their counters."""
        if awaited.size > len(self.nodes):
            clocks = [(parse_element_id(id), node) for id, node in self.nodes.items()]
            met = [
                (clock[0], node)
                for clock, node in clocks
                if clock is not None and clock[1] == awaited.replica
            ]
            met.sort(key=itemgetter(0))
            return [each for each in met if awaited.first <= each[0] < awaited.end]
        counters = range(awaited.first, awaited.end)
        found = [(each, self.nodes.get(element_id(each, awaited.replica))) for each in counters]
        return [(counter, node) for counter, node in found if node is not None]

    def _join_clock(self, node: Node, clock: tuple[int, str]) -> None:
        """Of two placeholders the older clock stays, whichever side it comes from."""
        if node.pending and clock < (node.counter, node.replica):
            node.counter, node.replica = clock
            self._order = self._live = None

    def _put(self, node: Node) -> None:
        """Put a new node into the order, if it is known and that is simple."""
        order = self._order
        if order is None or node.id in self._missing or node.counter <= self.high:
            self._order = self._live = None
            return
        place = 0
        if node.after:
            anchor = self.nodes.get(node.after)
            if anchor is None:
                self._missing.add(node.after)
                if self._called(node.after) is None:
                    self._is_odd = True
                return
            if self._place < len(order) and order[self._place] is anchor:
                place = self._place + 1
            elif self._searches == SEARCHES_MAX:
                self._order = self._live = None
                return
            else:
                self._searches += 1
                try:
                    place = order.index(anchor) + 1
                except ValueError:
                    return  # The anchor itself hangs on what is missing.
        order.insert(place, node)
        self._place = place
        self._live = None

    def _walk(self) -> list[Node]:
        """The nodes that the head reaches, depth first, newest sibling first."""
        self._searches = 0
        if self._order is None:
            children: dict[str, list[Node]] = {}
            for node in self.nodes.values():
                children.setdefault(node.after, []).append(node)
            missing = [after for after in children if after and after not in self.nodes]
            for after in missing:
                called = self._called(after)
                if called is not None:
                    children.setdefault("", []).append(called)
            for siblings in children.values():
                # Ascending, because the stack hands out the last one first.
                if len(siblings) > 1:
                    siblings.sort(key=_age)
            order: list[Node] = []
            stack = list(children.get("", ()))
            while stack:
                node = stack.pop()
                order.append(node)
                below = children.get(node.id)
                if below is not None:
                    stack.extend(below)
            self._order = order
            self._missing = {after for after in missing if after not in self.nodes}
            self._is_odd = False
            self._place = 0
        return self._order

    def _is_regular(self, node: Node) -> bool:
        if node.pending or node.id != element_id(node.counter, node.replica):
            return False
        if node.after == "":
            return True
        anchor = self.nodes[node.after]
        return (node.counter, node.replica) > (anchor.counter, anchor.replica)


def _age(node: Node) -> tuple[int, str, str]:
    return node.counter, node.replica, node.id


def _count(node: Node, counters: Counters) -> None:
    """Enter an element, if its id is of its own counter; whose it is the id says."""
    head = element_id(node.counter, "")
    if node.id.startswith(head):
        counters.add(node.id[len(head) :], node.counter)


def _copied(node: Node) -> Node:
    copy = Node(node.id, node.after, node.counter, node.replica, fresh(node.value))
    copy.deleted, copy.pending, copy.number = node.deleted, node.pending, node.number
    return copy


def _as_awaited(node: Node) -> Awaited | None:
    """A placeholder as a range of one; None if the node is more than that."""
    clock = parse_element_id(node.id) if node.pending and node.deleted else None
    if clock is None or node.after or node.value is not None:
        return None
    return Awaited(clock[1], clock[0], 1, node.replica, node.counter, 1, node.number)


def _placeholders(awaited: Awaited) -> list[Node]:
    """Placeholders as nodes."""
    nodes: list[Node] = []
    for offset in range(awaited.size):
        id = element_id(awaited.first + offset, awaited.replica)
        moved = offset * awaited.step
        node = Node(id, "", awaited.counter + moved, awaited.remover, None, True, True)
        node.number = awaited.number + moved
        nodes.append(node)
    return nodes


def _nodes_of(span: Span, first: int, past: int) -> Iterator[Node]:
    for offset in range(first, past):
        counter = span.counter + offset
        if offset:
            after = element_id(counter - 1, span.replica)
        elif span.after_counter:
            after = element_id(span.after_counter, span.after_replica)
        else:
            after = ""
        id = element_id(counter, span.replica)
        value = span.values[offset]
        yield Node(id, after, counter, span.replica, value, deleted=not span.live)


def _rows_of(order: list[Node]) -> Rows:
    rows: list[SpanRow] = []
    nodes: list[Node] = []
    for node in order:
        if nodes and (not _chained(nodes[-1], node) or len(nodes) == SPAN_SIZE_MAX):
            rows.append(_row_of(nodes))
            nodes = []
        nodes.append(node)
    if nodes:
        rows.append(_row_of(nodes))
    return Rows.of(rows)


def _row_of(nodes: list[Node]) -> SpanRow:
    first = nodes[0]
    counter, _, replica = first.after.partition("@")
    values = _packed([node.value for node in nodes])
    live = 0 if first.deleted else len(nodes)
    return first.replica, first.counter, replica, int(counter or 0), values, live


def _packed(values: list[Any]) -> Values:
    return "".join(values) if is_character(values[0]) else values


def _chained(last: Node, node: Node) -> bool:
    return (
        node.counter == last.counter + 1
        and node.replica == last.replica
        and node.after == last.id
        and node.deleted == last.deleted
        and is_character(node.value) == is_character(last.value)
    )


def _arrivals_of(nodes: Iterable[Node]) -> list[tuple[str, int, int]]:
    arrived: list[tuple[str, int, int]] = []
    replica, start, end = "", 0, 0
    for node in nodes:
        if node.counter != end or node.replica != replica:
            if end:
                arrived.append((replica, start, end))
            replica, start = node.replica, node.counter
        end = node.counter + 1
    if end:
        arrived.append((replica, start, end))
    return arrived
