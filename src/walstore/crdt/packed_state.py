"""A document's state as JSON arrays: small at rest, and shown before it is understood.

- `[1, replicas, registers, lists, maps, counter]`: replica ids stand once, sorted, in the table,
  and are named by index everywhere else; the counter is the highest that the document has seen.
- A regular list shows its live values as they are; see `walstore.crdt.packed_list`.
- The same state always packs to the same arrays, whatever its pieces were cut into, as long
  as the same zlib deflates them.
- Reading trusts nothing: everything but the deferred lists is checked at once, and those
  when they are decoded.

The format is specified in docs/wire.md.
"""

from __future__ import annotations

from operator import lt
from typing import Any, TypeVar

from walstore.crdt.clock import COUNTER_MAX, REPLICA_SIZE_MAX
from walstore.crdt.ops import Json
from walstore.crdt.packed_list import malformed, pack_list, unpack_list
from walstore.crdt.placeholders import Awaited, normal
from walstore.crdt.state import ListState, MapEntry, Piece, Register, State, join_pieces
from walstore.errors import UsageError

_T = TypeVar("_T")

STATE_VERSION = 1

# Zeros deflate a thousandfold, so what a state claims is limited before anything is inflated:
# a piece takes about 200 bytes once decoded, a removed value 8.
STATE_PIECES_MAX = 2**21
STATE_REMOVED_MAX = 2**24


class StateTooLargeError(UsageError):
    """The state is larger than what a reader accepts as one state."""

    def __init__(self) -> None:
        super().__init__(
            f"more than {STATE_PIECES_MAX} pieces or {STATE_REMOVED_MAX} removed elements, or too "
            "many that were removed before they came to be spelled out"
        )


def pack_state(state: State, *, keep_removed: bool = True) -> list[Any]:
    """Write a state as JSON arrays.

    `unpack_state` gives back an equal state.

    Args:
        state: The state; its deferred lists are decoded.
        keep_removed: Whether to keep the values of removed list elements. If not, they come
            back as None; nothing that is shown depends on them.

    Raises:
        NotRegularError: The pieces of a list contradict the rules of a regular list.
        StateTooLargeError: No reader would accept it.
        MalformedError: A deferred list of `state` turned out to be malformed.
    """
    pieces = {name: join_pieces(s.pieces) for name, s in state.lists.items() if s.is_regular}
    _check_bounds(pieces)
    replicas = sorted(_replicas_of(state, pieces))
    table = {replica: index for index, replica in enumerate(replicas)}
    lists: list[list[Any]] = []
    for name, entry in _sorted_items(state.lists):
        if entry.is_regular:
            lists.append([name, *pack_list(pieces[name], table, keep_removed=keep_removed)])
        elif entry.awaited:
            lists.append([name, entry.nodes, _awaited_rows(entry.awaited)])
        else:
            lists.append([name, entry.nodes])
    registers = [
        _register_row(name, state.registers[name], table) for name in sorted(state.registers)
    ]
    maps = [_map_row(name, state.maps[name], table) for name in sorted(state.maps)]
    return [STATE_VERSION, replicas, registers, lists, maps, state.counter]


def _awaited_rows(ranges: list[Awaited]) -> list[list[Any]]:
    """Ranges by their two replicas, in order."""
    rows: list[list[Any]] = []
    for replica, remover, first, size, counter, step in [each.fields() for each in normal(ranges)]:
        if not rows or rows[-1][:2] != [replica, remover]:
            rows.append([replica, remover, []])
        # Even for clocks that count down, odd for clocks that count up.
        rows[-1][2] += [first, 2 * size - (step == 1), counter]
    return rows


def _sorted_items(entries: dict[str, _T]) -> list[tuple[str, _T]]:
    return [(name, entries[name]) for name in sorted(entries)]


def _replicas_of(state: State, pieces: dict[str, list[Piece]]) -> set[str]:
    replicas = {register.replica for register in state.registers.values()}
    for list_pieces in pieces.values():
        replicas.update([piece.replica for piece in list_pieces])
    for entries in state.maps.values():
        for entry in entries.values():
            replicas.update(entry.puts, entry.seen)
    return replicas


def _check_bounds(pieces: dict[str, list[Piece]]) -> None:
    joined = [piece for list_pieces in pieces.values() for piece in list_pieces]
    removed = sum([len(piece.values) for piece in joined if piece.deleted])
    if len(joined) > STATE_PIECES_MAX or removed > STATE_REMOVED_MAX:
        raise StateTooLargeError


def _register_row(name: str, register: Register, table: dict[str, int]) -> list[Any]:
    row = [name, table[register.replica], register.counter]
    if not register.deleted:
        return [*row, register.value]
    # A tombstone has no value, but a state of version 1 may have come with one.
    return row if register.value is None else [*row, register.value, 1]


def _map_row(name: str, entries: dict[str, MapEntry], table: dict[str, int]) -> list[Any]:
    row: list[Any] = [name]
    for key, entry in _sorted_items(entries):
        puts = [part for r, put in _sorted_items(entry.puts) for part in (table[r], *put)]
        seen = [part for r, counter in _sorted_items(entry.seen) for part in (table[r], counter)]
        row.append([key, puts, seen])
    return row


def unpack_state(packed: object) -> State:
    """Read what `pack_state` wrote; the pieces of lists are decoded when they are asked for.

    Args:
        packed: Any parsed JSON value.

    Raises:
        MalformedError: It is not a packed state, or claims more than the limits allow.
    """
    if type(packed) is not list or len(packed) != 6:
        raise malformed("not an array of six entries")
    version, replicas, registers, lists, maps, counter = packed
    if type(version) is not int or version != STATE_VERSION:
        raise malformed("an unknown version")
    if type(counter) is not int or not 0 <= counter <= COUNTER_MAX:
        raise malformed("the counter of the document is not an integer from 0 to 2^53 - 1")
    _check_table(replicas)
    return State(
        {row[0]: _register(row, replicas) for row in _rows(registers)},
        _lists(_rows(lists), replicas),
        {row[0]: _map(row, replicas) for row in _rows(maps)},
        counter,
    )


def _check_table(replicas: object) -> None:
    if type(replicas) is not list or not set(map(type, replicas)) <= {str}:
        raise malformed("the table of replicas is not an array of text")
    if max(map(len, replicas), default=0) > REPLICA_SIZE_MAX:
        raise malformed("a replica is too long a text")
    if not all(map(lt, replicas, replicas[1:])):
        raise malformed("the table of replicas is not sorted")


def _rows(rows: object) -> list[Any]:
    """Rows that begin with a name, each name once and in order."""
    if type(rows) is not list:
        raise malformed("registers, lists or maps are not an array")
    for row in rows:
        if type(row) is not list or not row or type(row[0]) is not str:
            raise malformed("a row does not begin with a name")
    names = [row[0] for row in rows]
    if not all(map(lt, names, names[1:])):
        raise malformed("names are not sorted")
    return rows


def _register(row: list[Any], replicas: list[str]) -> Register:
    if not 3 <= len(row) <= 5 or (len(row) == 5 and (type(row[4]) is not int or row[4] != 1)):
        raise malformed("a register has not three to five entries")
    replica, counter = _clock(row[1], row[2], replicas)
    return Register(counter, replica, row[3] if len(row) > 3 else None, len(row) != 4)


def _lists(rows: list[list[Any]], replicas: list[str]) -> dict[str, ListState]:
    lists: dict[str, ListState] = {}
    removed = pieces = 0
    for row in rows:
        if len(row) == 6:
            lists[row[0]] = unpack_list(row[1:], replicas)
            removed += row[2]
            pieces += row[4]
        elif 2 <= len(row) <= 3 and type(row[1]) is list and set(map(type, row[1])) <= {dict}:
            awaited = _awaited(row[2]) if len(row) == 3 else []
            lists[row[0]] = ListState.of_nodes(row[1], awaited)
        else:
            raise malformed("a list is neither regular nor an array of nodes")
    if removed > STATE_REMOVED_MAX or pieces > STATE_PIECES_MAX:
        raise malformed("lists claim more pieces or removed elements than a state may have")
    return lists


def _awaited(rows: object) -> list[Awaited]:
    if type(rows) is not list or not rows:
        raise malformed("what a list awaits is not an array of rows")
    ranges: list[Awaited] = []
    for row in rows:
        if type(row) is not list or len(row) != 3:
            raise malformed("what a list awaits has not three entries")
        replica, remover, numbers = row
        _check_replica(replica)
        _check_replica(remover)
        if type(numbers) is not list or not set(map(type, numbers)) <= {int} or len(numbers) % 3:
            raise malformed("what a list awaits is not in whole numbers")
        for first, folded, counter in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            size, step = (folded + 1) // 2, 1 if folded % 2 else -1
            last = counter + (size - 1) * step
            if size < 1 or min(first, counter, last) < 1:
                raise malformed("what a list awaits is below 1")
            if max(first + size - 1, counter, last) > COUNTER_MAX:
                raise malformed("what a list awaits is above 2^53 - 1")
            ranges.append(Awaited(replica, first, size, remover, counter, step, 0))
    if _awaited_rows(ranges) != rows:
        raise malformed("what a list awaits is not written in its one form")
    return ranges


def _check_replica(replica: object) -> None:
    if type(replica) is not str or len(replica) > REPLICA_SIZE_MAX:
        raise malformed("a replica is not a short text")


def _map(row: list[Any], replicas: list[str]) -> dict[str, MapEntry]:
    entries = _rows(row[1:])
    return {entry[0]: _map_entry(entry, replicas) for entry in entries}


def _map_entry(entry: list[Any], replicas: list[str]) -> MapEntry:
    if len(entry) != 3:
        raise malformed("a key of a map has not three entries")
    _, puts, seen = entry
    if type(puts) is not list or type(seen) is not list or len(puts) % 3 or len(seen) % 2:
        raise malformed("the puts or drops of a key are not arrays of whole entries")
    written: dict[str, tuple[int, Json]] = {}
    for index, counter, value in zip(puts[::3], puts[1::3], puts[2::3], strict=True):
        replica, checked = _clock(index, counter, replicas)
        written[replica] = (checked, value)
    dropped = dict(_clock(*pair, replicas) for pair in zip(seen[::2], seen[1::2], strict=True))
    if 3 * len(written) != len(puts) or 2 * len(dropped) != len(seen):
        raise malformed("a replica stands twice at one key of a map")
    return MapEntry(written, dropped)


def _clock(index: object, counter: object, replicas: list[str]) -> tuple[str, int]:
    if type(index) is not int or not 0 <= index < len(replicas):
        raise malformed("a replica is not an index of the table")
    if type(counter) is not int or not 1 <= counter <= COUNTER_MAX:
        raise malformed("a counter is not an integer from 1 to 2^53 - 1")
    return replicas[index], counter
