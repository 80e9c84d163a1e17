"""One regular list in packed form: its live values in the open, its structure in bytes.

- `[visible, removed count, removed, piece count, structure]`. Live text is one string, ready to
  be shown; `removed` and `structure` are decoded on first need.
- An id is one number, its stamp: `counter * len(replicas) + index`. Because the table of
  replicas is sorted, stamps sort like clocks. The next of a chain is `len(replicas)` further.
- The structure holds no anchors. In a regular list an element's anchor is the nearest element
  before it that has a smaller stamp (else the head, stamp 0), so the stamps in document order
  are the whole tree, and every sequence of distinct stamps is a valid one.
- A chain of typing that was later typed into is interrupted and resumed, like brackets:

      typed "helo", then "l" after the first "l":   h e l [l] o
      pieces:                                       starts "hel", interrupts "l", resumes "o"

- Nothing is inflated further than the counts in front of it allow.
"""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from operator import lt
from typing import Any, Final

from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.packed_ops import is_scalar_text
from walstore.crdt.runs import Values
from walstore.crdt.state import ListState, Piece, join_values
from walstore.crdt.tree import Rows
from walstore.errors import MalformedError, UsageError

# Kinds of pieces: where a piece begins, and a bit for those whose elements are removed.
_CONTINUES: Final = 0  # in the chain of the piece before it
_RESUMES: Final = 1  # in the chain that was interrupted last
_STARTS: Final = 2  # in a chain of its own
_INTERRUPTS: Final = 3  # in a chain of its own; the chain of the piece before it is resumed later
_BEGINNINGS: Final = 3
_DELETED: Final = 4
_AS_BEGINNING = bytes([kind & _BEGINNINGS for kind in range(256)])

# The first byte of a blob.
_STORED = b"\x00"
_DEFLATED = b"\x01"

# Removed text resembles the text that replaced it, so each block of it is deflated with the
# live text around the same relative place as dictionary, as far as deflate can look back.
_BLOCK_BYTES = 2**14
_WINDOW_BYTES = 2**15

_COUNTERS: Final = COUNTER_MAX + 1
_NUMBER_BYTES_MAX = 16
_RAW_DEFLATE = -15


class NotRegularError(UsageError):
    """Pieces were given for a list that is not regular: it must be given as nodes."""

    def __init__(self) -> None:
        super().__init__("the pieces are not those of a regular list in document order")


def malformed(reason: str) -> MalformedError:
    """The error for packed state that is not what the format allows."""
    return MalformedError("packed state", reason)


class _Columns:
    """A structure: kind and size of each piece, and the step to each one with its own chain."""

    __slots__ = ("kinds", "sizes", "steps")

    def __init__(self, kinds: bytes, sizes: Sequence[int], steps: list[int]) -> None:
        self.kinds = kinds
        self.sizes = sizes
        self.steps = steps


def pack_list(pieces: list[Piece], table: dict[str, int], *, keep_removed: bool) -> list[Any]:
    """Write a regular list.

    Args:
        pieces: The list in document order, in as few pieces as can say it.
        table: The index of every replica, in sorted order.
        keep_removed: Whether to keep the values of removed elements.

    Raises:
        NotRegularError: The pieces contradict the rules of a regular list.
    """
    visible = join_values([piece.values for piece in pieces if not piece.deleted])
    removed = join_values([piece.values for piece in pieces if piece.deleted])
    columns = _columns(pieces, table)
    _check_regular(pieces, columns, list(table), visible, removed)
    if type(visible) is str and not is_scalar_text(visible):
        visible = list(visible)
    kept: str | list[Any] = [len(removed)] if removed else []
    if keep_removed:
        kept = _pack_removed(removed, visible)
    return [visible, len(removed), kept, len(pieces), _pack_columns(columns)]


def _columns(pieces: list[Piece], table: dict[str, int]) -> _Columns:
    count = len(table)
    sizes = [len(piece.values) for piece in pieces]
    starts = [piece.counter * count + table[piece.replica] for piece in pieces]
    ends = [start + (size - 1) * count for start, size in zip(starts, sizes, strict=True)]
    befores = [0, *ends][: len(pieces)]
    anchors = [_anchor(piece, table) for piece in pieces]
    interrupted = {
        anchor
        for start, before, anchor in zip(starts, befores, anchors, strict=True)
        if anchor == start - count and anchor != before
    }
    kinds = bytearray()
    steps: list[int] = []
    for piece, start, before, anchor in zip(pieces, starts, befores, anchors, strict=True):
        if before == start - count:
            kind = _CONTINUES
        elif anchor == start - count:
            kind = _RESUMES
        else:
            kind = _INTERRUPTS if before in interrupted else _STARTS
            steps.append(start - before)
        kinds.append(kind | _DELETED if piece.deleted else kind)
    return _Columns(bytes(kinds), sizes, steps)


def _anchor(piece: Piece, table: dict[str, int]) -> int:
    if not piece.after_counter:
        return 0
    return piece.after_counter * len(table) + table.get(piece.after_replica, 0)


def _check_regular(
    pieces: list[Piece],
    columns: _Columns,
    replicas: list[str],
    visible: Values,
    removed: Values,
) -> None:
    """Refuse pieces of which the columns do not say everything."""
    try:
        read = _rows(columns, replicas, visible, removed)
    except MalformedError as error:
        raise NotRegularError from error
    for piece, (_, _, replica, counter, _, _) in zip(pieces, read.all(), strict=True):
        if piece.after_counter != counter or (counter and piece.after_replica != replica):
            raise NotRegularError


def _pack_columns(columns: _Columns) -> str:
    folded = [2 * step if step >= 0 else -2 * step - 1 for step in columns.steps]
    # A block of deflate has one code for all its bytes, so each column gets its own block.
    parts = [columns.kinds, *_planes(columns.sizes), *_planes(folded)]
    deflate = zlib.compressobj(9, zlib.DEFLATED, _RAW_DEFLATE, 9, zlib.Z_FILTERED)
    deflated = [deflate.compress(part) + deflate.flush(zlib.Z_BLOCK) for part in parts]
    return _blob(b"".join(parts), b"".join([*deflated, deflate.flush()]))


def _planes(numbers: Sequence[int]) -> list[bytes]:
    """The width in bytes, then the lowest bytes of all numbers, then the next ones, and so on."""
    width = max([1, *[(number.bit_length() + 7) // 8 for number in numbers]])
    joined = b"".join([number.to_bytes(width, "little") for number in numbers])
    return [bytes([width]), *[joined[byte::width] for byte in range(width)]]


def _pack_removed(removed: Values, visible: Values) -> str | list[Any]:
    """Text as a blob; anything else as parts: arrays of values, and how often null in a row."""
    if type(removed) is str and removed and is_scalar_text(removed):
        return _pack_text(removed.encode(), _live_bytes(visible))
    parts: list[Any] = []
    for value in removed:
        kind = int if value is None else list
        if not parts or type(parts[-1]) is not kind:
            parts.append(kind())
        parts[-1] += 1 if value is None else [value]
    return parts


def _pack_text(text: bytes, live: bytes) -> str:
    blocks = -(-len(text) // _BLOCK_BYTES)
    deflated = [len(text).to_bytes(4)]
    for block in range(blocks):
        dictionary = _dictionary(live, block, blocks)
        deflate = zlib.compressobj(9, zlib.DEFLATED, _RAW_DEFLATE, 9, zdict=dictionary)
        start = block * _BLOCK_BYTES
        part = deflate.compress(text[start : start + _BLOCK_BYTES]) + deflate.flush()
        deflated += [len(part).to_bytes(4), part]
    return _blob(text, b"".join(deflated))


def _live_bytes(visible: Values) -> bytes:
    return visible.encode() if isinstance(visible, str) else b""


def _dictionary(live: bytes, block: int, blocks: int) -> bytes:
    """The live text that lies where the block lies in the removed text."""
    middle = (2 * block + 1) * len(live) // (2 * blocks)
    return live[max(0, middle - _WINDOW_BYTES // 2) : middle + _WINDOW_BYTES // 2]


def _blob(plain: bytes, deflated: bytes) -> str:
    shorter = _STORED + plain if len(plain) <= len(deflated) else _DEFLATED + deflated
    return binascii.b2a_base64(shorter, newline=False).decode()


def unpack_list(entries: list[Any], replicas: list[str]) -> ListState:
    """Read what `pack_list` wrote; the structure is decoded and checked when it is asked for.

    Raises:
        MalformedError: The entries are of the wrong type, or their counts cannot be.
    """
    visible, removed_count, removed, piece_count, structure = entries
    if type(visible) is not list and (type(visible) is not str or not is_scalar_text(visible)):
        raise malformed("the live values of a list are neither text nor an array")
    if type(removed_count) is not int or type(piece_count) is not int or removed_count < 0:
        raise malformed("a count of a list is not an integer, or negative")
    elements = len(visible) + removed_count
    if not (0 < piece_count <= elements or piece_count == elements == 0):
        raise malformed("a list cannot have that many pieces")
    if type(removed) is not str and type(removed) is not list:
        raise malformed("the removed values of a list are neither text nor an array")
    if type(structure) is not str:
        raise malformed("the structure of a list is not text")
    if piece_count and not replicas:
        raise malformed("a list has elements, but no replica wrote them")
    shown = visible if type(visible) is str else join_values([visible])
    return ListState.deferred(shown, partial(_decode, entries, replicas))


def _decode(entries: list[Any], replicas: list[str]) -> Rows:
    visible, removed_count, removed, piece_count, structure = entries
    columns = _unpack_columns(_unbase64(structure), piece_count)
    values = _unpack_removed(removed, removed_count, visible)
    return _rows(columns, replicas, visible, values)


def _rows(columns: _Columns, replicas: list[str], visible: Values, removed: Values) -> Rows:
    """The pieces of a list, their ids, sizes and anchors checked."""
    stamps, anchors = _stamps(columns, len(replicas))
    values: list[Values] = []
    lives: list[int] = []
    shown = gone = 0
    for kind, size in zip(columns.kinds, columns.sizes, strict=True):
        if kind >= _DELETED:
            values.append(removed[gone : gone + size])
            lives.append(0)
            gone += size
        else:
            values.append(visible[shown : shown + size])
            lives.append(size)
            shown += size
    if 0 in columns.sizes or gone != len(removed) or shown != len(visible):
        raise malformed("a list has not as many values as elements")
    if type(visible) is list or type(removed) is list:
        values = [_with_text(part) for part in values]
    return Rows(replicas, stamps, anchors, values, lives)


def _stamps(columns: _Columns, count: int) -> tuple[list[int], list[int]]:
    """The first stamp of each piece, and the stamp of its anchor."""
    starts: list[int] = []
    anchors: list[int] = []
    # First and last stamp of every chain; the head counts as one, for its successor's sake.
    chain_starts = [0]
    chain_ends: list[int] = []
    # The last stamps of the chains that are to be resumed.
    interrupted: list[int] = []
    # First and last stamp of the stretches in which a later piece may be anchored. Of two of
    # them, the later one in the document is the newer one.
    open_starts, open_ends = [0], [0]
    end = 0
    steps = iter(columns.steps)
    for beginning, size in zip(columns.kinds.translate(_AS_BEGINNING), columns.sizes, strict=True):
        if beginning == _CONTINUES:
            starts.append(end + count)
            anchors.append(end)
            end += size * count
            open_ends[-1] = end
            continue
        if beginning == _RESUMES:
            if not interrupted:
                raise malformed("a piece resumes a chain that nothing interrupted")
            chain_ends.append(end)
            start = interrupted.pop() + count
        else:
            if beginning == _INTERRUPTS:
                interrupted.append(end)
            else:
                chain_ends.append(end)
            start = end + next(steps)
            if start < count:
                raise malformed("a counter of a list is below 1")
            chain_starts.append(start)
        anchor = end
        if start < end:
            while open_starts[-1] > start:
                open_starts.pop()
                open_ends.pop()
            anchor = open_ends[-1]
            if anchor > start:
                # Concurrent chains overlap in time: only the older part of that one counts.
                anchor = start - 1 - (start - 1 - open_starts[-1]) % count
        end = start + (size - 1) * count
        starts.append(start)
        anchors.append(anchor)
        if anchor == start - count and anchor == open_ends[-1]:
            open_ends[-1] = end
        else:
            open_starts.append(start)
            open_ends.append(end)
    chain_ends.append(end)
    if interrupted:
        raise malformed("an interrupted chain is not resumed")
    _check_chains(chain_starts, chain_ends, count)
    return starts, anchors


def _with_text(values: Values) -> Values:
    """Characters are kept joined, even where other values stand beside them."""
    if type(values) is list and type(values[0]) is str:
        return join_values([values])
    return values


def _check_chains(starts: list[int], ends: list[int], count: int) -> None:
    """Refuse counters out of range and elements that stand twice."""
    if max(ends) > COUNTER_MAX * count + count - 1 and count:
        raise malformed("a counter of a list is above 2^53 - 1")
    if count > 1:
        # By replica, then counter: the stamps of replicas that write together interleave.
        starts = [start % count * _COUNTERS + start // count for start in starts]
        ends = [end % count * _COUNTERS + end // count for end in ends]
    # Sorted on their own, starts and ends alternate exactly if no two chains overlap.
    if not all(map(lt, sorted(ends), sorted(starts)[1:])):
        raise malformed("an element stands twice in a list")


def _unpack_columns(blob: bytes, pieces: int) -> _Columns:
    body = _unpack_body(blob, 2 + pieces * (1 + 2 * _NUMBER_BYTES_MAX))
    kinds = body[:pieces]
    if len(kinds) != pieces or (kinds and max(kinds) > _BEGINNINGS | _DELETED):
        raise malformed("a kind of piece is unknown or missing")
    chains = sum([kinds.count(k | d) for k in (_STARTS, _INTERRUPTS) for d in (0, _DELETED)])
    sizes, offset = _numbers(body, pieces, pieces)
    folded, offset = _numbers(body, offset, chains)
    if offset != len(body):
        raise malformed("there is more to a structure than its columns")
    # An even number is a step forward, an odd one a step back.
    steps = [~(number >> 1) if number & 1 else number >> 1 for number in folded]
    return _Columns(kinds, sizes, steps)


def _numbers(body: bytes, offset: int, count: int) -> tuple[Sequence[int], int]:
    """A column of numbers, and where it ends."""
    width = body[offset] if offset < len(body) else 0
    end = offset + 1 + width * count
    if not 1 <= width <= _NUMBER_BYTES_MAX or end > len(body):
        raise malformed("a column of numbers is cut short or too wide")
    words = 1 if width <= 8 else 2
    padded = bytearray(8 * words * count)
    for byte in range(width):
        start = offset + 1 + byte * count
        padded[byte :: 8 * words] = body[start : start + count]
    numbers = struct.unpack(f"<{words * count}Q", padded)
    if words == 1:
        return numbers, end
    return [low | high << 64 for low, high in zip(numbers[::2], numbers[1::2], strict=True)], end


def _unpack_body(blob: bytes, bytes_max: int) -> bytes:
    if blob[:1] == _STORED:
        return blob[1:]
    if blob[:1] != _DEFLATED:
        raise malformed("bytes are neither stored nor deflated")
    return _inflate(blob[1:], bytes_max, b"")


def _inflate(deflated: bytes, bytes_max: int, dictionary: bytes) -> bytes:
    inflate = zlib.decompressobj(_RAW_DEFLATE, zdict=dictionary)
    try:
        # One byte more than allowed, so that a stream that would go on is seen not to end.
        inflated = inflate.decompress(deflated, bytes_max + 1)
    except zlib.error as error:
        raise malformed("bytes cannot be inflated") from error
    if not inflate.eof or inflate.unused_data or len(inflated) > bytes_max:
        raise malformed("deflated bytes are cut short, too many, or followed by others")
    return inflated


def _unpack_removed(packed: str | list[Any], count: int, visible: Values) -> Values:
    if isinstance(packed, str):
        return _unpack_text(_unbase64(packed), count, _live_bytes(visible))
    removed: list[Any] = []
    for part in packed:
        if type(part) is int and 0 < part <= count - len(removed):
            removed += [None] * part
        elif type(part) is list and part:
            removed += part
        else:
            raise malformed("a part of the removed values is neither a count nor an array")
    if len(removed) != count:
        raise malformed("a list has not as many removed values as it says")
    return removed


def _unpack_text(blob: bytes, count: int, live: bytes) -> str:
    encoded = blob[1:] if blob[:1] == _STORED else _inflate_text(blob, 4 * count, live)
    try:
        text = encoded.decode()
    except UnicodeDecodeError as error:
        raise malformed("removed text is not UTF-8") from error
    if len(text) != count:
        raise malformed("a list has not as many removed values as it says")
    return text


def _inflate_text(blob: bytes, bytes_max: int, live: bytes) -> bytes:
    length = int.from_bytes(blob[1:5])
    if blob[:1] != _DEFLATED or len(blob) < 5 or length > bytes_max:
        raise malformed("removed text is neither stored nor deflated, or too long")
    blocks = -(-length // _BLOCK_BYTES)
    parts: list[bytes] = []
    offset = 5
    for block in range(blocks):
        end = offset + 4 + int.from_bytes(blob[offset : offset + 4])
        size = min(_BLOCK_BYTES, length - block * _BLOCK_BYTES)
        part = _inflate(blob[offset + 4 : end], size, _dictionary(live, block, blocks))
        if len(part) != size:
            raise malformed("a block of removed text is too short")
        parts.append(part)
        offset = end
    if offset != len(blob):
        raise malformed("there is more, or less, to removed text than its blocks")
    return b"".join(parts)


def _unbase64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise malformed("bytes are not in base64") from error
