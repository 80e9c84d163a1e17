"""Places in a list that stay where they are while others edit: carets, and the ends of selections.

    position     0   1   2   3          side "after" of `b`, side "before" of `c`: both are 2 now,
    list           a   b   c            but what somebody inserts there goes between the two

- An anchor is the id of an element and a side of it. Without an id it is an end of the list:
  "after" nothing is the head, "before" nothing is the end.
- A removed element keeps its place, so an anchor on it slides to the nearest one that is left.
- An anchor on an element that was let go goes after the nearest earlier element of the same
  replica, as an insert would.
- An anchor on an element that is not known, because it has not arrived yet, has no position yet.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from walstore.crdt import WalCrdt, element_id, parse_element_id
from walstore.crdt.collection import moved
from walstore.crdt.runs import Insert
from walstore.errors import MalformedError

Side: TypeAlias = Literal["before", "after"]

# An element id: a counter, an author and a session, with room to spare for free-form ones.
ANCHOR_ID_SIZE_MAX = 256


class Anchor(NamedTuple):
    """A place beside an element of a list.

    Attributes:
        id: The element; empty for an end of the list.
        side: On which side of it.
    """

    id: str
    side: Side

    def to_json(self) -> list[str]:
        """The anchor as JSON, for `read_anchor`."""
        return [self.id, self.side]


HEAD = Anchor("", "after")
END = Anchor("", "before")


def anchor_at(crdt: WalCrdt, name: str, position: int, side: Side = "after") -> Anchor:
    """Anchor a position of a list.

    Args:
        crdt: The document.
        name: The list; one that is not there is empty.
        position: A position; outside the list it is its head or its end.
        side: "after" anchors it on the element before the position, so that what is inserted there
            goes behind it; "before" on the element that follows, so that it goes in front of it.
    """
    position = min(max(position, 0), crdt.list_length(name))
    if side == "after":
        return Anchor(crdt.id_at(name, position - 1), side) if position else HEAD
    at_end = position == crdt.list_length(name)
    return END if at_end else Anchor(crdt.id_at(name, position), side)


def resolve(crdt: WalCrdt, name: str, anchor: Anchor) -> int | None:
    """The position of an anchor by now; None if its element has not arrived yet."""
    if not anchor.id:
        return 0 if anchor.side == "after" else crdt.list_length(name)
    found = crdt.find_element(name, anchor.id)
    if found is None:
        return _beside_what_is_left(crdt, name, anchor.id)
    before, is_live = found
    return before + 1 if is_live and anchor.side == "after" else before


def read_anchor(value: object) -> Anchor:
    """Read an anchor that came from outside.

    Raises:
        MalformedError: It is none.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise MalformedError("anchor", "it is not a pair")
    id, side = value
    if not isinstance(id, str) or len(id) > ANCHOR_ID_SIZE_MAX:
        raise MalformedError("anchor", "its id is not a short text")
    if side == "before":
        return Anchor(id, "before")
    if side == "after":
        return Anchor(id, "after")
    raise MalformedError("anchor", "it has no side")


def _beside_what_is_left(crdt: WalCrdt, name: str, id: str) -> int | None:
    """The position of an element that was let go; None if it was not."""
    clock = parse_element_id(id)
    if clock is None or clock[0] > crdt.horizon:
        return None
    counter, replica = clock
    sequence = crdt.sequence(name) if name in crdt.lists else None
    instead = moved(Insert(name, replica, counter, replica, counter, ""), sequence)
    if instead is None or not instead.after_counter:
        return 0
    nearest = Anchor(element_id(instead.after_counter, instead.after_replica), "after")
    return resolve(crdt, name, nearest)
