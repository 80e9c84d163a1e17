"""A document's whole state in the records that the fold and the packed form exchange.

- A list is regular when every element is newer than the one it is anchored on, has the id of
  its own clock and hangs, through its anchors, on the head. Then its elements in document
  order say everything: an element's anchor is the nearest older element before it.
- Any other list is irregular and travels as its version-1 nodes, word for word.
- A list read from packed form shows its live values at once and decodes its pieces, which
  only editing needs, on first access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from walstore.crdt.ops import Json
from walstore.crdt.placeholders import Awaited, normal
from walstore.crdt.runs import Record, Values, is_character
from walstore.crdt.tree import Rows


class Register(Record):
    """A last-writer-wins register: its newest write, or the tombstone that outlived it."""

    __slots__ = ("counter", "deleted", "replica", "value")
    __match_args__ = ("counter", "replica", "value", "deleted")

    def __init__(self, counter: int, replica: str, value: Json, deleted: bool) -> None:
        self.counter = counter
        self.replica = replica
        self.value = value
        self.deleted = deleted


class Piece(Record):
    """Elements of a list that follow each other in the document and count up by one.

    Value `i` has the id `<counter + i>@<replica>`. The first one is anchored on
    `after_counter`, `after_replica` (0 and `""` for the head), each further one on the one
    before it. A removed element whose value was not kept has the value None.
    """

    __slots__ = ("after_counter", "after_replica", "counter", "deleted", "replica", "values")
    __match_args__ = ("replica", "counter", "after_replica", "after_counter", "values", "deleted")

    def __init__(
        self,
        replica: str,
        counter: int,
        after_replica: str,
        after_counter: int,
        values: Values,
        deleted: bool,
    ) -> None:
        self.replica = replica
        self.counter = counter
        self.after_replica = after_replica
        self.after_counter = after_counter
        self.values = values
        self.deleted = deleted


class MapEntry(Record):
    """One key of an observed-remove map.

    `puts` holds the newest write by replica, `seen` the newest write by replica that some drop
    has seen. A put is live if its counter is above what was seen of its replica.
    """

    __slots__ = ("puts", "seen")
    __match_args__ = ("puts", "seen")

    def __init__(self, puts: dict[str, tuple[int, Json]], seen: dict[str, int]) -> None:
        self.puts = puts
        self.seen = seen


class ListState(Record):
    """One list: the pieces of a regular list in document order, or the nodes of another.

    Attributes:
        visible: The live values in document order, a `str` if they are all characters; None if
            the list is irregular, because only the fold knows its order.
        nodes: The version-1 nodes of an irregular list; None if the list is regular.
        awaited: Those of its elements that were removed and have not come.
    """

    __slots__ = ("_decode", "_pieces", "awaited", "nodes", "visible")
    __match_args__ = ("visible", "nodes")

    def __init__(
        self,
        visible: Values | None,
        pieces: list[Piece] | None,
        nodes: list[dict[str, Any]] | None,
        decode: Callable[[], Rows] | None,
    ) -> None:
        self.visible = visible
        self.nodes = nodes
        self.awaited: list[Awaited] = []
        self._pieces = pieces
        self._decode = decode

    @staticmethod
    def of_pieces(pieces: list[Piece]) -> ListState:
        """A regular list of which the structure is known."""
        return ListState(join_values(p.values for p in pieces if not p.deleted), pieces, None, None)

    @staticmethod
    def of_nodes(nodes: list[dict[str, Any]], awaited: Iterable[Awaited] = ()) -> ListState:
        """An irregular list."""
        state = ListState(None, None, nodes, None)
        state.awaited = list(awaited)
        return state

    @staticmethod
    def deferred(visible: Values, decode: Callable[[], Rows]) -> ListState:
        """A regular list of which the structure is decoded on first need."""
        return ListState(visible, None, None, decode)

    @property
    def is_regular(self) -> bool:
        """Whether the list has pieces rather than nodes."""
        return self.nodes is None

    @property
    def pieces(self) -> list[Piece]:
        """The pieces of a regular list in document order, tombstones included.

        Raises:
            MalformedError: The packed structure, decoded now, is malformed; so it will be at
                every further access.
        """
        if self._pieces is None:
            assert self._decode is not None, "an irregular list has no pieces"
            self._pieces = [Piece(*row[:5], not row[5]) for row in self._decode().all()]
            self._decode = None
        return self._pieces

    def rows(self) -> Rows:
        """The same as columns, decoded anew unless the pieces are there.

        Raises:
            MalformedError: The packed structure is malformed.
        """
        if self._decode is not None:
            return self._decode()
        return Rows.of(
            [
                (
                    piece.replica,
                    piece.counter,
                    piece.after_replica,
                    piece.after_counter,
                    piece.values,
                    0 if piece.deleted else len(piece.values),
                )
                for piece in self.pieces
            ]
        )

    def _fields(self) -> tuple[object, ...]:
        # How a list is cut into pieces is no part of its state.
        awaited = [each.fields() for each in normal(self.awaited)]
        return (self.nodes, awaited, join_pieces(self.pieces) if self.is_regular else None)


class State(Record):
    """Everything a document consists of.

    `counter` is the highest counter that the document has seen, at least that of every clock
    in it: a clock that only removed something has left no other trace.
    """

    __slots__ = ("counter", "lists", "maps", "registers")
    __match_args__ = ("registers", "lists", "maps", "counter")

    def __init__(
        self,
        registers: dict[str, Register],
        lists: dict[str, ListState],
        maps: dict[str, dict[str, MapEntry]],
        counter: int,
    ) -> None:
        self.counter = counter
        self.registers = registers
        self.lists = lists
        self.maps = maps


def join_values(parts: Iterable[Values]) -> Values:
    """The values of all `parts` in a row: a `str` if all are characters."""
    parts = list(parts)
    if all(type(part) is str or all(map(is_character, part)) for part in parts):
        return "".join(["".join(part) for part in parts])
    return [value for part in parts for value in part]


def join_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """The same elements in as few pieces as can say them; `pieces` stay as they are."""
    groups: list[list[Piece]] = []
    replica, counter, deleted = "", 0, False
    for piece in pieces:
        if counter == piece.counter and deleted == piece.deleted and replica == piece.replica:
            groups[-1].append(piece)
        else:
            groups.append([piece])
            replica, deleted = piece.replica, piece.deleted
        counter = piece.counter + len(piece.values)
    return [_join(group) for group in groups]


def _join(group: list[Piece]) -> Piece:
    first = group[0]
    if len(group) == 1 and type(first.values) is str:
        return first
    return Piece(
        first.replica,
        first.counter,
        first.after_replica,
        first.after_counter,
        join_values([piece.values for piece in group]),
        first.deleted,
    )
