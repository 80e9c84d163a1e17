"""A list held element by element: slower than runs, and exact for ops of any shape.

- Every rule is the format's fold, word for word: unknown anchors, removes before inserts,
  children older than their parents, cycles and free-form ids all have their place.
- The order is walked with a stack and kept until the next change.
- A list comes here when an op breaks the causal shape, and goes back to runs, when it is next
  read, if the shape is whole again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from walstore.crdt.ids import element_id
from walstore.crdt.ops import fresh
from walstore.crdt.runs import Insert, Remove, Values, is_character
from walstore.crdt.sequence import RunSequence
from walstore.crdt.tree import SPAN_SIZE_MAX, Rows, Span, SpanRow


class Node:
    """One element, or the placeholder of one whose remove came first."""

    __slots__ = ("after", "counter", "deleted", "id", "pending", "replica", "value")

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


class NodeSequence:
    """One list, held as nodes by id."""

    __slots__ = ("_order", "nodes")

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        """Take nodes in order of arrival."""
        self.nodes = {node.id: node for node in nodes}
        self._order: list[Node] | None = None

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
        return NodeSequence(
            Node(n.id, n.after, n.counter, n.replica, fresh(n.value), n.deleted, n.pending)
            for n in self.nodes.values()
        )

    def __len__(self) -> int:
        return len(self.live())

    def insert_run(self, run: Insert) -> None:
        """Fold an insert of several elements."""
        after = element_id(run.after_counter, run.after_replica) if run.after_counter else ""
        for counter, value in enumerate(run.values, run.counter):
            id = element_id(counter, run.replica)
            self.insert(id, after, counter, run.replica, value)
            after = id

    def remove_run(self, run: Remove) -> None:
        """Fold a remove of several elements."""
        for offset in range(run.size):
            id = element_id(run.target_counter + offset * run.step, run.target_replica)
            self.remove(id, run.counter + offset, run.replica)

    def join(self, other: NodeSequence) -> None:
        """Take in every node of another list."""
        for node in other.nodes.values():
            known = self.nodes.get(node.id)
            if not node.pending:
                self.insert(node.id, node.after, node.counter, node.replica, fresh(node.value))
            elif known is not None and known.pending and _age(node) < _age(known):
                # Of two placeholders the older clock stays, whichever side it comes from.
                known.counter, known.replica = node.counter, node.replica
                self._order = None
            if node.deleted:
                self.remove(node.id, node.counter, node.replica)

    def insert(self, id: str, after: str, counter: int, replica: str, value: Any) -> None:
        """Fold one insert."""
        node = self.nodes.get(id)
        if node is None:
            self.nodes[id] = Node(id, after, counter, replica, value)
        elif node.pending:
            node.after = after
            node.counter = counter
            node.replica = replica
            node.value = value
            node.pending = False
        else:
            return
        self._order = None

    def remove(self, id: str, counter: int, replica: str) -> None:
        """Fold one remove."""
        node = self.nodes.get(id)
        if node is None:
            self.nodes[id] = Node(id, "", counter, replica, None, deleted=True, pending=True)
            self._order = None
        else:
            node.deleted = True

    def in_order(self) -> Iterator[Node]:
        """The nodes that the head reaches, removed ones too, in order."""
        return iter(self._walk())

    def live(self) -> list[Node]:
        """The nodes that show, in order."""
        return [node for node in self._walk() if not node.deleted]

    def values(self) -> list[Any]:
        """The live values in order, copied."""
        return [fresh(node.value) for node in self.live()]

    def text(self) -> str:
        """The live values that are strings, joined."""
        return "".join([node.value for node in self.live() if isinstance(node.value, str)])

    def has_replica(self, replica: str) -> bool:
        """Whether any element is of a replica."""
        return any(node.replica == replica for node in self.nodes.values())

    def is_text(self) -> bool:
        """Whether every live value is a character."""
        return all(is_character(node.value) for node in self.live())

    def ids(self) -> list[str]:
        """The ids of the live elements in order."""
        return [node.id for node in self.live()]

    def find(self, id: str) -> tuple[int, bool] | None:
        """Where an element is: the number of live elements before it, and whether it is live."""
        position = 0
        for node in self._walk():
            if node.id == id:
                return position, not node.deleted
            position += not node.deleted
        return None

    def settled(self) -> RunSequence | None:
        """The same list as runs, if every op of it keeps the causal shape."""
        order = self._walk()
        if len(order) < len(self.nodes) or not all(map(self._is_regular, order)):
            return None
        return RunSequence(_rows_of(order), _arrivals_of(self.nodes.values()))

    def _walk(self) -> list[Node]:
        """The nodes that the head reaches, depth first, newest sibling first."""
        if self._order is None:
            children: dict[str, list[Node]] = {}
            for node in self.nodes.values():
                children.setdefault(node.after, []).append(node)
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
