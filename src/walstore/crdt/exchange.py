"""Whole states in and out: version 1 as dictionaries, packed as pieces.

- Reading builds everything aside and hands it over complete, or raises and changes nothing.
- Version-1 nodes are written in order of arrival, as the peers write them.
- The packed form keeps no order of arrival; read back, elements count as having arrived in the
  order of their clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from walstore.crdt.convert import read_clock, read_counter, read_counters, read_value
from walstore.crdt.maps import ObservedRemoveMap
from walstore.crdt.nodes import Node, NodeSequence
from walstore.crdt.ops import Json, fresh
from walstore.crdt.packed_sequence import PackedSequence
from walstore.crdt.packed_state import StateTooLargeError
from walstore.crdt.placeholders import Awaited, normal
from walstore.crdt.registers import Registers
from walstore.crdt.sequence import RunSequence
from walstore.crdt.state import ListState, MapEntry, Piece, Register, State
from walstore.errors import MalformedError

Sequence = RunSequence | NodeSequence | PackedSequence
Lists = dict[str, Sequence]
Maps = dict[str, ObservedRemoveMap]

# Placeholders that are spelled out in a version-1 state, at a hundred bytes and more each: such a
# state is at the limit of what a snapshot may be.
SPELLED_MAX: Final = 2**19

# Peers can neither show nor export a register or list of this name, so nobody does.
IGNORED_NAME: Final = "__proto__"
_WHAT = "state"


class Content(NamedTuple):
    """Everything that a document holds."""

    registers: Registers
    lists: Lists
    maps: Maps
    counter: int


def export_state(registers: Registers, lists: Lists, maps: Maps) -> dict[str, Any]:
    """The version-1 state.

    Raises:
        StateTooLargeError: It would be far longer than what anybody can read.
    """
    _check_spelling(lists)
    state: dict[str, Any] = {
        "v": 1,
        "regs": {name: _register_entry(entry) for name, entry in registers.entries.items()},
        "lists": {
            name: [_node_entry(node) for node in _as_nodes(sequence).all()]
            for name, sequence in lists.items()
        },
    }
    if maps:
        state["x"] = {"maps": _map_entries(maps)}
    return state


def _check_spelling(lists: Lists) -> None:
    """Refuse to spell out placeholders that nobody could have written one by one."""
    sequences = [each for each in lists.values() if isinstance(each, NodeSequence)]
    if sum([awaited.size for each in sequences for awaited in each.awaited]) > SPELLED_MAX:
        raise StateTooLargeError


def canonical_parts(registers: Registers, lists: Lists, maps: Maps) -> dict[str, Any]:
    """What the canonical text of a state is made of."""
    parts = export_state(registers, lists, maps)
    del parts["v"]
    for nodes in parts["lists"].values():
        nodes.sort(key=_node_age)
    if maps:
        parts["maps"] = parts.pop("x")["maps"]
    return parts


def compared_parts(registers: Registers, lists: Lists, maps: Maps) -> dict[str, Any]:
    """The same in fewer words: what has not come, and was removed, is not spelled out."""
    parts = export_state(registers, {}, maps)
    for name, sequence in lists.items():
        nodes, ranges = _as_nodes(sequence).parted()
        entries = sorted([_node_entry(node) for node in nodes], key=_node_age)
        parts["lists"][name] = [entries, [[*each.fields()] for each in normal(ranges)]]
    return parts


def import_state(state: object) -> Content:
    """Read a version-1 state.

    Raises:
        MalformedError: It is not of the format.
    """
    fields = _object(state, "the state")
    if fields.get("v") != 1 or isinstance(fields["v"], bool):
        raise MalformedError(_WHAT, "`v` is not 1")
    registers = Registers()
    for name, entry in _named(fields.get("regs"), "`regs`"):
        registers.entries[name] = _read_register(entry)
    lists: Lists = {}
    for name, entries in _named(fields.get("lists"), "`lists`"):
        lists[name] = _read_list(entries)
    extension = fields.get("x")
    maps = _read_maps(extension.get("maps", {})) if isinstance(extension, dict) else {}
    return Content(registers, lists, maps, _counter_max(registers, lists, maps))


def to_state(registers: Registers, lists: Lists, maps: Maps, counter: int) -> State:
    """The records that the packed form is written from; containers are the document's own."""
    return State(
        registers.entries,
        {name: _list_state(sequence) for name, sequence in lists.items()},
        {name: entries.entries for name, entries in maps.items()},
        counter,
    )


def from_state(state: State) -> Content:
    """Take over the records that the packed form was read into; regular lists stay packed.

    Raises:
        MalformedError: The state is not sound.
    """
    registers = Registers()
    registers.entries.update(state.registers)
    registers.entries.pop(IGNORED_NAME, None)
    maps: Maps = {}
    for name, entries in state.maps.items():
        if name != IGNORED_NAME:
            maps[name] = ObservedRemoveMap()
            maps[name].entries.update({key: _live(entry) for key, entry in entries.items()})
    lists: Lists = {
        name: PackedSequence(entry, state.counter)
        if entry.nodes is None
        else _read_list(entry.nodes, entry.awaited)
        for name, entry in state.lists.items()
        if name != IGNORED_NAME
    }
    if _counter_max(registers, lists, maps) > state.counter:
        raise MalformedError("packed state", "a clock is above the document's counter")
    return Content(registers, lists, maps, state.counter)


def _live(entry: MapEntry) -> MapEntry:
    """A key without the writes that were dropped, which a writer may have kept."""
    puts = {
        replica: put for replica, put in entry.puts.items() if put[0] > entry.seen.get(replica, 0)
    }
    return MapEntry(puts, entry.seen)


def _list_state(sequence: Sequence) -> ListState:
    if isinstance(sequence, PackedSequence):
        return sequence.state
    if isinstance(sequence, NodeSequence):
        sequence = sequence.settled() or sequence
    if isinstance(sequence, NodeSequence):
        nodes, ranges = sequence.parted()
        return ListState.of_nodes([_node_entry(node) for node in nodes], normal(ranges))
    return ListState.of_pieces(
        [
            Piece(
                span.replica,
                span.counter,
                span.after_replica,
                span.after_counter,
                span.values,
                not span.live,
            )
            for span in sequence.spans()
        ]
    )


def _counter_max(registers: Registers, lists: Lists, maps: Maps) -> int:
    counters = [entry.counter for entry in registers.entries.values()]
    counters.extend(
        sequence.high for sequence in lists.values() if not isinstance(sequence, PackedSequence)
    )
    for entries in maps.values():
        for entry in entries.entries.values():
            # What a drop claims to have seen is no clock: it must not use up the counters.
            counters.extend(put[0] for put in entry.puts.values())
    return max(counters, default=0)


def _as_nodes(sequence: Sequence) -> NodeSequence:
    if isinstance(sequence, PackedSequence):
        sequence = sequence.opened()
    return sequence if isinstance(sequence, NodeSequence) else NodeSequence.of(sequence)


def _register_entry(entry: Register) -> dict[str, Any]:
    return {
        "clock": {"c": entry.counter, "r": entry.replica},
        "value": fresh(entry.value),
        "deleted": entry.deleted,
    }


def _node_entry(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "after": node.after,
        "clock": {"c": node.counter, "r": node.replica},
        "value": fresh(node.value),
        "deleted": node.deleted,
        "pending": node.pending,
    }


def _node_age(node: dict[str, Any]) -> tuple[int, str, str]:
    return node["clock"]["c"], node["clock"]["r"], node["id"]


def _map_entries(maps: Maps) -> dict[str, Any]:
    return {
        name: {
            key: {
                "puts": {
                    replica: [counter, fresh(value)]
                    for replica, (counter, value) in entry.puts.items()
                },
                "seen": dict(entry.seen),
            }
            for key, entry in entries.entries.items()
        }
        for name, entries in maps.items()
    }


def _object(value: object, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise MalformedError(_WHAT, f"{what} is not an object")
    return value


def _named(value: object, what: str) -> Iterator[tuple[str, object]]:
    """The members of an object, without the name that everyone ignores."""
    for name, member in _object(value, what).items():
        if not isinstance(name, str):
            raise MalformedError(_WHAT, f"a name in {what} is not text")
        if name != IGNORED_NAME:
            yield name, member


def _flag(fields: dict[Any, Any], member: str, default: bool | None = None) -> bool:
    flag = fields.get(member, default)
    if not isinstance(flag, bool):
        raise MalformedError(_WHAT, f"`{member}` is not true or false")
    return flag


def _value(fields: dict[Any, Any]) -> Json:
    if "value" not in fields:
        raise MalformedError(_WHAT, "`value` is missing")
    return read_value(fields["value"], _WHAT)


def _read_register(entry: object) -> Register:
    fields = _object(entry, "a register")
    counter, replica = read_clock(fields.get("clock"), _WHAT)
    return Register(counter, replica, _value(fields), _flag(fields, "deleted"))


def _read_list(entries: object, awaited: Iterable[Awaited] = ()) -> RunSequence | NodeSequence:
    if not isinstance(entries, list):
        raise MalformedError(_WHAT, "a list is not an array of nodes")
    nodes = NodeSequence(map(_read_node, entries))
    if not nodes.await_ranges(awaited):
        raise MalformedError(_WHAT, "an id stands twice in a list")
    return nodes.settled() or nodes


def _read_node(entry: object) -> Node:
    fields = _object(entry, "a node")
    counter, replica = read_clock(fields.get("clock"), _WHAT)
    id, after = fields.get("id"), fields.get("after")
    if not isinstance(id, str) or not id or not isinstance(after, str):
        raise MalformedError(_WHAT, "a node's `id` or `after` is not text, or the id is empty")
    value = _value(fields)
    deleted, pending = _flag(fields, "deleted"), _flag(fields, "pending", default=False)
    return Node(id, after, counter, replica, value, deleted, pending)


def _read_maps(value: object) -> Maps:
    maps: Maps = {}
    for name, keys in _named(value, "`x.maps`"):
        entries = maps[name] = ObservedRemoveMap()
        for key, entry in _object(keys, "a map").items():
            fields = _object(entry, "a map entry")
            if not isinstance(key, str):
                raise MalformedError(_WHAT, "a map key is not text")
            entries.drop(key, read_counters(fields.get("seen"), _WHAT))
            for replica, put in _object(fields.get("puts"), "`puts`").items():
                if not isinstance(replica, str) or not isinstance(put, list) or len(put) != 2:
                    raise MalformedError(_WHAT, "a put is not a counter and a value by replica")
                counter = read_counter(put[0], _WHAT)
                entries.put(key, counter, replica, read_value(put[1], _WHAT))
    return maps
