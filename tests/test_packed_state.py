"""Packed state: lossless, shown before it is decoded, and closed to everything else."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.make_vectors import state_from_json
from tests.test_packed_ops import counters, json_values, mutate, names, replicas
from walstore.crdt.clock import COUNTER_MAX, REPLICA_SIZE_MAX
from walstore.crdt.packed_list import NotRegularError
from walstore.crdt.packed_state import (
    STATE_PIECES_MAX,
    STATE_REMOVED_MAX,
    StateTooLargeError,
    pack_state,
    unpack_state,
)
from walstore.crdt.runs import Values
from walstore.crdt.state import ListState, MapEntry, Piece, Register, State, join_pieces
from walstore.errors import MalformedError

VECTORS = json.loads((Path(__file__).parent / "vectors" / "packed_state.json").read_text())

ANN = "a1" * 32 + ":7f"
BOB = "b2" * 32 + ":0"

LONG = next(case for case in VECTORS["cases"] if case["deflated"])

Clock = tuple[int, str]


def nearest_older(clocks: list[Clock]) -> Clock:
    """The anchor of the last of `clocks`, said as plainly as can be."""
    return next((clock for clock in reversed(clocks[:-1]) if clock < clocks[-1]), (0, ""))


def visit(children: dict[Clock, list[Clock]], clock: Clock) -> list[Clock]:
    """What hangs on an element in document order: newest child first, depth first."""
    newest_first = sorted(children.get(clock, []), reverse=True)
    return [c for child in newest_first for c in (child, *visit(children, child))]


# A half of a character is no text; it stands among other values.
characters = st.characters(exclude_categories=["Cs"])


@st.composite
def regular_lists(draw: st.DrawFn) -> ListState:
    """Any sequence of distinct ids, cut into pieces at random."""
    cuts = st.tuples(replicas, st.integers(1, 30) | counters, st.integers(1, 4), st.booleans())
    is_text = draw(st.booleans())
    value: st.SearchStrategy[Any] = characters if is_text else json_values | st.just("x")
    clocks: list[Clock] = []
    pieces: list[Piece] = []
    for replica, counter, size, deleted in draw(st.lists(cuts, max_size=12)):
        added = [(counter + i, replica) for i in range(size) if counter + i <= COUNTER_MAX]
        if set(added) & set(clocks):
            continue
        values: Values = draw(st.lists(value, min_size=len(added), max_size=len(added)))
        clocks.append(added[0])
        after_counter, after_replica = nearest_older(clocks)
        clocks += added[1:]
        pieces.append(
            Piece(
                replica,
                counter,
                after_replica,
                after_counter,
                "".join(values) if is_text else values,
                deleted,
            )
        )
    return ListState.of_pieces(pieces)


nodes = st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), max_size=3)
lists = regular_lists() | st.builds(ListState.of_nodes, nodes)
map_entries = st.builds(
    MapEntry,
    st.dictionaries(replicas, st.tuples(counters, json_values)),
    st.dictionaries(replicas, counters),
)
states = st.builds(
    State,
    st.dictionaries(
        names, st.builds(Register, counters, replicas, json_values, st.booleans()), max_size=2
    ),
    st.dictionaries(names, lists, max_size=2),
    st.dictionaries(names, st.dictionaries(names, map_entries, max_size=2), max_size=2),
    st.integers(0, COUNTER_MAX),
)


def read(packed: object) -> State:
    """A packed state with all that is deferred decoded."""
    state = unpack_state(packed)
    for entry in state.lists.values():
        assert not entry.is_regular or entry.pieces is not None
    return state


def text_list(*pieces: Piece) -> State:
    return State({}, {"body": ListState.of_pieces(list(pieces))}, {}, COUNTER_MAX)


@given(states)
def test_any_state_comes_back_as_it_was(state: State) -> None:
    packed = json.loads(json.dumps(pack_state(state)))
    assert unpack_state(packed) == state
    assert unpack_state(packed).lists.keys() == state.lists.keys()


@given(states)
def test_live_values_are_there_before_the_structure_is_decoded(state: State) -> None:
    for name, entry in unpack_state(pack_state(state)).lists.items():
        assert entry.visible == state.lists[name].visible


@given(regular_lists(), st.randoms(use_true_random=False))
def test_one_state_packs_to_the_same_arrays_however_it_was_cut(
    entry: ListState, random: Any
) -> None:
    cut: list[Piece] = []
    for piece in entry.pieces:
        at = random.randrange(len(piece.values))
        if at:
            left, right = piece.values[:at], piece.values[at:]
            end = piece.counter + at - 1
            cut += [
                Piece(
                    piece.replica,
                    piece.counter,
                    piece.after_replica,
                    piece.after_counter,
                    left,
                    piece.deleted,
                ),
                Piece(piece.replica, end + 1, piece.replica, end, right, piece.deleted),
            ]
        else:
            cut.append(piece)
    one = State({}, {"body": entry}, {}, COUNTER_MAX)
    assert pack_state(text_list(*cut)) == pack_state(one)
    assert unpack_state(pack_state(one)) == text_list(*cut)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([ANN, BOB])), max_size=30))
def test_anchors_need_not_be_written_because_the_document_order_tells_them(
    edits: list[tuple[int, str]],
) -> None:
    anchors: dict[Clock, Clock] = {}
    for back, replica in edits:
        # Each element is newer than its anchor, as every honest writer makes it.
        anchor = [(0, ""), *anchors][-1 - back % (len(anchors) + 1)]
        counter = anchor[0] + 1
        while (counter, replica) in anchors:
            counter += 1
        anchors[counter, replica] = anchor
    children: dict[Clock, list[Clock]] = {}
    for clock, anchor in anchors.items():
        children.setdefault(anchor, []).append(clock)
    order = visit(children, (0, ""))
    pieces = [Piece(r, c, anchors[c, r][1], anchors[c, r][0], "x", c % 3 > 0) for c, r in order]
    unpacked = unpack_state(pack_state(text_list(*pieces))).lists["body"].pieces
    assert anchors_of(unpacked) == [(clock, anchors[clock]) for clock in order]


def anchors_of(pieces: list[Piece]) -> list[tuple[Clock, Clock]]:
    """Each element in document order with its anchor."""
    found: list[tuple[Clock, Clock]] = []
    for piece in pieces:
        anchor = (piece.after_counter, piece.after_replica)
        for counter in range(piece.counter, piece.counter + len(piece.values)):
            found.append(((counter, piece.replica), anchor))
            anchor = (counter, piece.replica)
    return found


@given(states)
def test_without_removed_values_all_else_is_kept(state: State) -> None:
    unpacked = read(json.loads(json.dumps(pack_state(state, keep_removed=False))))
    for entry in state.lists.values():
        if entry.is_regular:
            for piece in entry.pieces:
                piece.values = [None] * len(piece.values) if piece.deleted else piece.values
    assert unpacked == state


@st.composite
def altered_states(draw: st.DrawFn) -> object:
    """A packed state with a few of its entries exchanged, dropped or repeated."""
    packed: Any = pack_state(draw(states))
    for _ in range(draw(st.integers(1, 3))):
        packed = mutate(packed, draw)
    return packed


@st.composite
def altered_blobs(draw: st.DrawFn) -> object:
    """A packed state with a few bytes changed in what is decoded later."""
    packed: Any = pack_state(State({}, {"body": draw(regular_lists())}, {}, COUNTER_MAX))
    row = packed[3][0]
    for index in (3, 5):
        if isinstance(row[index], str):
            raw = bytearray(base64.b64decode(row[index]))
            at = draw(st.integers(0, len(raw)))
            raw[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
            row[index] = base64.b64encode(raw).decode()
    return packed


@given(altered_states() | altered_blobs())
def test_altered_input_is_refused_or_packs_again(packed: object) -> None:
    try:
        state = read(packed)
    except MalformedError:
        return
    assert unpack_state(pack_state(state)) == state


@given(st.integers(0, 10**6), st.binary(max_size=3))
def test_altered_deflated_bytes_are_refused_or_pack_again(at: int, patch: bytes) -> None:
    packed = json.loads(json.dumps(LONG["packed"]))
    row = packed[3][0]
    index = 3 if at % 2 else 5
    raw = bytearray(base64.b64decode(row[index]))
    assert raw[0] == 1, "this vector is deflated"
    at = at // 2 % len(raw)
    raw[at : at + len(patch)] = patch
    row[index] = base64.b64encode(raw).decode()
    try:
        state = read(packed)
    except MalformedError:
        return
    assert unpack_state(pack_state(state)) == state


@given(json_values)
def test_any_other_json_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        unpack_state([1, [], [], value, None, 0])


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["name"]))
def test_recorded_states_are_written_and_read_exactly(case: dict[str, Any]) -> None:
    state = state_from_json(case["state"])
    assert read(case["packed"]) == state
    if not case["deflated"]:
        assert pack_state(state) == case["packed"]


@pytest.mark.parametrize("case", VECTORS["malformed"], ids=lambda case: str(case["name"]))
def test_recorded_malformed_states_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match=r"^malformed packed state: "):
        read(case["packed"])


def test_text_can_be_shown_although_the_structure_is_broken() -> None:
    packed = [1, ["r"], [], [["body", "shown", 0, [], 1, "broken"]], [], COUNTER_MAX]
    entry = unpack_state(packed).lists["body"]
    assert entry.visible == "shown"
    for _ in range(2):
        with pytest.raises(MalformedError):
            _ = entry.pieces


def test_removed_text_of_many_blocks_comes_back() -> None:
    words = "".join(f"word {n * n} é " for n in range(9000))
    state = text_list(
        Piece("r", 1, "", 0, words, False),
        Piece("r", 1 + len(words), "r", len(words), words[::-1] + words, True),
    )
    packed = pack_state(state)
    assert isinstance(packed[3][0][3], str)
    assert len(packed[3][0][3]) < len(words)
    assert unpack_state(packed) == state


def test_removed_text_beside_live_values_that_are_not_text_comes_back() -> None:
    removed = "again and again " * 20
    state = text_list(Piece("r", 1, "", 0, [1, 2], False), Piece("r", 3, "r", 2, removed, True))
    assert unpack_state(pack_state(state)) == state


def test_surrogates_stay_apart() -> None:
    halves = ["\ud83d", "\ude00"]
    state = text_list(Piece("r", 1, "", 0, halves, False), Piece("r", 3, "r", 2, halves, True))
    unpacked = unpack_state(json.loads(json.dumps(pack_state(state))))
    assert unpacked == state
    assert unpacked.lists["body"].visible == halves


def test_counters_at_the_limit_of_many_replicas_come_back() -> None:
    # The steps between these take more than eight bytes.
    crowd = {str(n): Register(1, str(n), None, False) for n in range(5000)}
    pieces = [
        Piece("a", COUNTER_MAX, "", 0, "x", False),
        Piece("b", 1, "", 0, "y", False),
        Piece("a", COUNTER_MAX - 1, "b", 1, "z", False),
    ]
    state = State(crowd, {"body": ListState.of_pieces(pieces)}, {}, COUNTER_MAX)
    assert unpack_state(pack_state(state)).lists["body"].pieces == pieces


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece("r", 2, "", 0, "a", False), Piece("r", 5, "", 0, "b", False)],
        [Piece("r", 5, "", 0, "a", False), Piece("r", 2, "r", 5, "b", False)],
        [Piece("r", 2, "r", 1, "a", False)],
        [Piece("r", 2, "gone", 1, "a", False)],
        [Piece("r", 2, "", 0, "ab", False), Piece("r", 3, "r", 2, "b", False)],
        [Piece("r", 2, "", 0, "", False)],
    ],
    ids=["older sibling first", "older child", "unknown id", "unknown replica", "twice", "empty"],
)
def test_pieces_that_are_not_a_regular_list_are_not_written(pieces: list[Piece]) -> None:
    with pytest.raises(NotRegularError):
        pack_state(text_list(*pieces))


def test_a_state_that_no_reader_accepts_is_not_written() -> None:
    state = text_list(Piece("r", 1, "", 0, "x" * (STATE_REMOVED_MAX + 1), True))
    with pytest.raises(StateTooLargeError):
        pack_state(state, keep_removed=False)


def claiming(removed: int, pieces: int) -> list[Any]:
    """Two lists that claim these numbers together."""
    half = ["", removed // 2, [removed // 2], pieces // 2, ""]
    rest = ["", removed - removed // 2, [], pieces - pieces // 2, ""]
    return [1, ["r"], [], [["a", *half], ["b", *rest]], [], COUNTER_MAX]


def test_claims_beyond_the_limits_are_refused_before_anything_is_decoded() -> None:
    unpack_state(claiming(STATE_REMOVED_MAX, STATE_PIECES_MAX))
    for removed, pieces in (
        (STATE_REMOVED_MAX + 1, STATE_PIECES_MAX),
        (STATE_REMOVED_MAX, STATE_PIECES_MAX + 1),
    ):
        with pytest.raises(MalformedError):
            unpack_state(claiming(removed, pieces))


def deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, wbits=-15)
    return deflate.compress(data) + deflate.flush()


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


ONE_REMOVED = b"\0\x06\1\1\1\2"
BOMB_BYTES = 2**24


@pytest.mark.parametrize(
    ("removed", "structure"),
    [
        (sized(b"x"), b"\1" + deflate(bytes(BOMB_BYTES))),
        (b"\1" + (4).to_bytes(4) + sized(deflate(bytes(BOMB_BYTES))), ONE_REMOVED),
        (b"\1" + BOMB_BYTES.to_bytes(4) + 1024 * sized(deflate(bytes(2**14))), ONE_REMOVED),
    ],
    ids=["structure", "block of removed text", "blocks of removed text"],
)
def test_a_small_blob_cannot_inflate_beyond_what_was_announced(
    removed: bytes, structure: bytes
) -> None:
    blobs = [base64.b64encode(blob).decode() for blob in (removed, structure)]
    state = unpack_state([1, ["r"], [], [["body", "", 1, blobs[0], 1, blobs[1]]], [], COUNTER_MAX])
    tracemalloc.start()
    with pytest.raises(MalformedError):
        _ = state.lists["body"].pieces
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < BOMB_BYTES // 16


def test_a_replica_that_is_too_long_is_refused() -> None:
    for size, is_fine in ((REPLICA_SIZE_MAX, True), (REPLICA_SIZE_MAX + 1, False)):
        packed = [1, ["x" * size], [["r", 0, 1, "v"]], [], [], 1]
        if is_fine:
            assert unpack_state(packed).registers["r"].value == "v"
        else:
            with pytest.raises(MalformedError, match="too long"):
                unpack_state(packed)


def test_joining_pieces_leaves_the_given_ones_alone() -> None:
    pieces = [Piece("r", 1, "", 0, "a", False), Piece("r", 2, "r", 1, "b", False)]
    assert join_pieces(pieces) == [Piece("r", 1, "", 0, "ab", False)]
    assert [piece.values for piece in pieces] == ["a", "b"]
