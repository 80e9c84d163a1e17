"""Envelopes: what is written is read back, what is beyond a limit is not, and nothing else raises.

- A round trip goes through JSON text, plain and sealed, in both profiles.
- Every limit of `wire.limits` has its test here or is named in it.
- However data is spoilt, if its author signed it, it is folded or rejected whole, and the document
  can still be published and read.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import load
from tests.strategies import randoms
from walstore.canon import (
    FORBIDDEN_NAMES,
    VALUE_DEPTH_MAX,
    canonical_bytes,
    canonical_text,
    parse,
)
from walstore.crdt import COUNTER_MAX, Run, WalCrdt, Writer, to_ops
from walstore.crdt.runs import Drop, Insert, Remove, Set, Verbatim
from walstore.document import (
    ALLOW_ANY,
    SnapshotRefusedError,
    SnapshotVerdict,
    ValueTooLargeError,
    WalDocument,
)
from walstore.document.events import Rejection
from walstore.document.log import DocumentLog
from walstore.document.ports import Body, RawElement
from walstore.document.snapshot import make_snapshot, read_snapshot
from walstore.errors import MalformedError, NameRefusedError, NotJsonError
from walstore.net import MemorySnapshots, MemoryTransport
from walstore.sealed import (
    ContentKeys,
    Encryptor,
    NativeEncryptor,
    PlainEncryptor,
    SealContext,
    StarfishEncryptor,
)
from walstore.signed import Identity, sign_append
from walstore.wire import limits
from walstore.wire.element import _BLOCK_BYTES, has_too_many_values, read_element
from walstore.wire.envelope import (
    Envelope,
    Header,
    Profile,
    inner_packed,
    inner_starfish,
    outer_packed,
    outer_starfish,
    read_header,
    read_packed,
    read_starfish,
)

KEY = "spaces/w/doc"
AUTHOR = Identity.from_seed(bytes([1]) * 32)
OTHER = Identity.from_seed(bytes([2]) * 32)
SESSION = "s"
REPLICA = f"{AUTHOR.public_key}:{SESSION}"
HEADER = Header(SESSION, 1, None, {})
PLAIN = PlainEncryptor()
CONTENT_KEYS = ContentKeys(3, {3: bytes(32)})
ENCRYPTORS: dict[str, Encryptor] = {
    "plain": PLAIN,
    "starfish seal": StarfishEncryptor(CONTENT_KEYS, randomness=bytes),
    "native seal": NativeEncryptor(CONTENT_KEYS, randomness=bytes),
}
WIRES: list[Any] = ["starfish", "packed"]

every_encryptor = pytest.mark.parametrize("encryptor", ENCRYPTORS.values(), ids=ENCRYPTORS.keys())
every_profile = pytest.mark.parametrize("profile", list(Profile), ids=[p.value for p in Profile])
every_wire = pytest.mark.parametrize("wire", WIRES)


# ── round trips ────────────────────────────────────────────────────────────────────────

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-COUNTER_MAX, COUNTER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3).filter(lambda name: name not in FORBIDDEN_NAMES), inner, max_size=3
        )
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(["l", "t", "😀", ""])
PLACES = st.integers(0, 12)
EDITS = st.lists(
    st.tuples(st.just("insert_text"), st.just("t"), PLACES, st.text(max_size=6))
    | st.tuples(st.just("insert"), NAMES, PLACES, st.lists(JSON_VALUES, max_size=3))
    | st.tuples(st.just("remove"), NAMES, PLACES, st.integers(1, 6))
    | st.tuples(st.just("set"), st.sampled_from(["r", "é"]), JSON_VALUES)
    | st.tuples(st.just("delete"), st.sampled_from(["r", "é"]))
    | st.tuples(st.just("put"), st.just("m"), st.sampled_from(["k", "\ud800"]), JSON_VALUES)
    | st.tuples(st.just("drop"), st.just("m"), st.sampled_from(["k", "\ud800"])),
    min_size=1,
    max_size=8,
)
LINKS = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNTS = st.integers(1, COUNTER_MAX)
NAMES_OF_ANY = st.text(min_size=1, max_size=limits.SESSION_SIZE_MAX)
SESSIONS = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E),
    min_size=1,
    max_size=limits.SESSION_SIZE_MAX,
)
HEADERS = st.builds(
    Header,
    SESSIONS,
    COUNTS,
    st.none() | LINKS,
    st.dictionaries(NAMES_OF_ANY, COUNTS, max_size=limits.SEEN_SESSIONS_MAX),
)


def runs_of(edits: Sequence[tuple[Any, ...]], replica: str) -> list[Run]:
    """What a writer records who edits what somebody else has written."""
    crdt = WalCrdt()
    other = Writer(crdt, f"{OTHER.public_key}:0")
    other.insert_text("t", 0, "somebody")
    other.put("m", "k", 1)
    writer = Writer(crdt, replica)
    for call, *arguments in edits:
        getattr(writer, call)(*arguments)
    return writer.take()


def write(
    profile: Profile, runs: Sequence[Run], header: Header, encryptor: Encryptor, seq: int = 1
) -> dict[str, Any]:
    """The data of an element, through text as it would travel."""
    author = AUTHOR.public_key
    context = SealContext(KEY, author, header.seq)
    if profile is Profile.STARFISH:
        inner = inner_starfish(author, seq, runs)
        data = outer_starfish(encryptor.seal(inner, context), header)
    else:
        inner = inner_packed(f"{author}:{header.session}", runs)
        data = outer_packed(encryptor.seal(inner, context), author, header)
    return cast("dict[str, Any]", parse(canonical_bytes(data)))


def read(profile: Profile, data: dict[str, Any], encryptor: Encryptor) -> Envelope:
    header = read_header(data)
    assert header is not None
    context = SealContext(KEY, AUTHOR.public_key, header.seq)
    if profile is Profile.STARFISH:
        return read_starfish(encryptor.open(data, context), AUTHOR.public_key, header)
    return read_packed(encryptor.open(data["body"], context), AUTHOR.public_key, header)


def spelled_out(runs: Sequence[Run]) -> str:
    return canonical_text(to_ops(runs))


@every_encryptor
@every_profile
@given(edits=EDITS, header=HEADERS, seq=COUNTS)
@settings(max_examples=60)
def test_what_is_written_is_read_back(
    profile: Profile,
    encryptor: Encryptor,
    edits: list[tuple[Any, ...]],
    header: Header,
    seq: int,
) -> None:
    runs = runs_of(edits, f"{AUTHOR.public_key}:{header.session}")
    if not runs:
        return
    data = write(profile, runs, header, encryptor, seq)
    envelope = read(profile, data, encryptor)
    assert spelled_out(envelope.runs) == spelled_out(runs)
    assert envelope.author == AUTHOR.public_key
    assert envelope.author_seq == (seq if profile is Profile.STARFISH else None)
    assert envelope.header == header


@given(edits=EDITS, seq=COUNTS)
@settings(max_examples=60)
def test_a_peers_envelope_without_a_header_is_read_back(
    edits: list[tuple[Any, ...]], seq: int
) -> None:
    runs = runs_of(edits, REPLICA)
    inner = inner_starfish(AUTHOR.public_key, seq, runs)
    data = cast("dict[str, Any]", parse(canonical_bytes(outer_starfish(inner, None))))
    assert set(data) == {"v", "author", "seq", "ops"}
    assert read_header(data) is None
    envelope = read_starfish(data, AUTHOR.public_key, None)
    assert (envelope.author_seq, envelope.header) == (seq, None)
    assert spelled_out(envelope.runs) == spelled_out(runs)


@given(edits=EDITS)
@settings(max_examples=60)
def test_both_profiles_fold_to_the_same_document(edits: list[tuple[Any, ...]]) -> None:
    runs = runs_of(edits, REPLICA)
    if not runs:
        return
    states = set()
    for profile in Profile:
        crdt = WalCrdt()
        crdt.fold_runs(read(profile, write(profile, runs, HEADER, PLAIN), PLAIN).runs)
        states.add(crdt.canonical_state())
    assert len(states) == 1


@every_encryptor
def test_a_chain_can_be_checked_without_keys(encryptor: Encryptor) -> None:
    header = Header(SESSION, 7, "0" * 64, {f"{OTHER.public_key}:0": 3})
    for profile in Profile:
        data = write(profile, runs_of([("set", "r", 1)], REPLICA), header, encryptor)
        assert read_header(data) == header


def test_the_packed_table_leaves_the_own_replica_out() -> None:
    data = write(Profile.PACKED, runs_of([("set", "r", 1)], REPLICA), HEADER, PLAIN)
    assert REPLICA not in canonical_text(data)
    assert data["body"]["ops"][0] == [""]


# ── limits ─────────────────────────────────────────────────────────────────────────────


def check_refused(kind: type[Exception], *edits: Callable[[], None]) -> None:
    for edit in edits:
        with pytest.raises(kind):
            edit()


def refusal(profile: Profile, data: dict[str, Any]) -> str:
    with pytest.raises(MalformedError) as caught:
        read(profile, data, PLAIN)
    return caught.value.reason


def element_of(data: dict[str, Any], ts: int = 1) -> dict[str, Any]:
    proof = sign_append(KEY, data, AUTHOR)
    return {
        "ts": ts,
        "data": data,
        "authorPubkey": proof.author_pubkey,
        "authorSignature": proof.author_signature,
    }


def sets(count: int) -> list[Run]:
    return [Set("r", REPLICA, counter + 1, 1) for counter in range(count)]


@every_profile
def test_batch_ops_max_is_refused_on_read(profile: Profile) -> None:
    count = limits.BATCH_OPS_MAX
    assert len(read(profile, write(profile, sets(count), HEADER, PLAIN), PLAIN).runs) == count
    assert "more than" in refusal(profile, write(profile, sets(count + 1), HEADER, PLAIN))


def test_batch_ops_max_counts_the_runs_of_a_stretch() -> None:
    def typed(count: int) -> dict[str, Any]:
        row = [7, "l", 0, 1, "x" * count, [1] * count, [0, *[-1] * (count - 1)]]
        return outer_packed({"ops": [[""], row]}, AUTHOR.public_key, HEADER)

    most = limits.BATCH_OPS_MAX
    assert len(read(Profile.PACKED, typed(most), PLAIN).runs) == most
    assert "runs" in refusal(Profile.PACKED, typed(most + 1))


def test_batch_removes_max_is_refused_on_read() -> None:
    def removing(*sizes: int) -> dict[str, Any]:
        rows, counter = [], 1
        for size in sizes:
            rows.append([1, "l", 0, counter, 1, counter, size, 1])
            counter += size
        return outer_packed({"ops": [["", "r"], *rows]}, AUTHOR.public_key, HEADER)

    most = limits.BATCH_REMOVES_MAX
    assert len(read(Profile.PACKED, removing(most), PLAIN).runs) == 1
    assert len(read(Profile.PACKED, removing(most - 1, 1), PLAIN).runs) == 2
    assert "removes" in refusal(Profile.PACKED, removing(most + 1))
    assert "removes" in refusal(Profile.PACKED, removing(most, 1))


@every_profile
def test_session_size_max_is_refused_on_read(profile: Profile) -> None:
    for size, is_fine in ((limits.SESSION_SIZE_MAX, True), (limits.SESSION_SIZE_MAX + 1, False)):
        header = HEADER._replace(session="s" * size)
        runs = runs_of([("set", "r", 1)], f"{AUTHOR.public_key}:{header.session}")
        data = write(profile, runs, header, PLAIN)
        if is_fine:
            assert read(profile, data, PLAIN).header == header
        else:
            assert "session" in refusal(profile, data)


@pytest.mark.parametrize(
    "session", ["", "\n", "\x7f", "é", "a\u200bb", "\u0378", "\ud800", 7, None]
)
@every_profile
def test_a_session_of_characters_that_not_all_can_show_is_refused(
    profile: Profile, session: Any
) -> None:
    header = HEADER._replace(session=session)
    runs = runs_of([("set", "r", 1)], f"{AUTHOR.public_key}:{session}")
    assert "session" in refusal(profile, write(profile, runs, header, PLAIN))


@pytest.mark.parametrize("kind", ["anchor", "target", "seen"])
@every_profile
def test_replica_size_max_is_refused_on_read(profile: Profile, kind: str) -> None:
    for size, is_fine in ((limits.REPLICA_SIZE_MAX, True), (limits.REPLICA_SIZE_MAX + 1, False)):
        other = "x" * size
        runs: dict[str, Run] = {
            "anchor": Insert("l", REPLICA, 2, other, 1, "a"),
            "target": Remove("l", REPLICA, 2, other, 1, 1),
            "seen": Drop("m", "k", REPLICA, 2, {other: 1}),
        }
        data = write(profile, [runs[kind]], HEADER, PLAIN)
        if is_fine:
            assert read(profile, data, PLAIN).runs == [runs[kind]]
        else:
            assert "replica" in refusal(profile, data)


@pytest.mark.parametrize("member", ["id", "after"])
@every_profile
def test_id_size_max_is_refused_on_read(profile: Profile, member: str) -> None:
    for size, is_fine in ((limits.ID_SIZE_MAX, True), (limits.ID_SIZE_MAX + 1, False)):
        op = {"t": "rmv", "list": "l", "clock": {"c": 1, "r": REPLICA}, "id": "x"}
        if member == "after":
            op |= {"t": "ins", "id": f"1@{REPLICA}", "value": "a"}
        data = write(profile, [Verbatim({**op, member: "x" * size})], HEADER, PLAIN)
        if is_fine:
            assert len(read(profile, data, PLAIN).runs) == 1
        else:
            assert "id" in refusal(profile, data)


def test_a_replica_is_an_author_and_a_session() -> None:
    longest = f"{AUTHOR.public_key}:{'s' * limits.SESSION_SIZE_MAX}"
    assert len(longest) == limits.REPLICA_SIZE_MAX


@every_profile
def test_seen_sessions_max_is_refused_on_read(profile: Profile) -> None:
    for size, is_fine in ((limits.SEEN_SESSIONS_MAX, True), (limits.SEEN_SESSIONS_MAX + 1, False)):
        header = HEADER._replace(seen={f"r{number}": 1 for number in range(size)})
        data = write(profile, sets(1), header, PLAIN)
        if is_fine:
            assert read(profile, data, PLAIN).header == header
        else:
            assert "seen" in refusal(profile, data)


@every_profile
def test_element_bytes_max_and_data_depth_max_are_refused_on_read(profile: Profile) -> None:
    data = write(profile, sets(1), HEADER, PLAIN)
    room = limits.ELEMENT_BYTES_MAX - len(canonical_bytes({**data, "pad": ""}))
    assert read_element(element_of({**data, "pad": "." * room})).ts == 1
    with pytest.raises(MalformedError, match="bytes exceed"):
        read_element(element_of({**data, "pad": "." * (room + 1)}))
    deep: Any = []
    for _ in range(limits.DATA_DEPTH_MAX - 2):
        deep = [deep]
    assert read_element(element_of({**data, "pad": deep})).ts == 1
    with pytest.raises(MalformedError, match="levels"):
        read_element(element_of({**data, "pad": [deep]}))


def test_data_depth_max_is_refused_inside_a_seal() -> None:
    for name, encryptor in ENCRYPTORS.items():
        for profile in Profile:
            for levels, is_fine in ((58, True), (61, False), (120, False)):
                value: Any = 1
                for _ in range(levels):
                    value = [value]
                data = write(profile, [Set("r", REPLICA, 1, value)], HEADER, encryptor)
                log = DocumentLog(KEY, encryptor=encryptor, is_writer=ALLOW_ANY)
                reading = log.read([element_of(data)])
                assert (len(reading.folded) == 1) == is_fine, (name, profile, levels)


def test_ts_max_is_refused_on_read() -> None:
    data = write(Profile.PACKED, sets(1), HEADER, PLAIN)
    assert read_element(element_of(data, limits.TS_MAX)).ts == limits.TS_MAX
    with pytest.raises(MalformedError, match="ts"):
        read_element(element_of(data, limits.TS_MAX + 1))


@every_profile
def test_counter_jump_max_is_refused_on_read(profile: Profile) -> None:
    most = limits.COUNTER_JUMP_MAX
    for start, jump in ((0, most), (5, most), (0, most + 1), (5, most + 1)):
        log = DocumentLog(KEY, encryptor=PLAIN, is_writer=ALLOW_ANY)
        if start:
            log.read([element_of(write(profile, sets(start), HEADER, PLAIN), 1)])
        far: list[Run] = [Set("r", REPLICA, start + jump, "far")]
        second = write(profile, far, HEADER._replace(seq=2), PLAIN)
        reading = log.read([element_of(second, 2)])
        is_fine = jump == most
        assert (len(reading.folded) == 1) == is_fine
        assert (log.crdt.get_register("r") == "far") == is_fine
        assert log.crdt.counter == (start + jump if is_fine else start)


def test_ts_ahead_ms_max_is_refused_on_read_and_leaves_the_cursor_alone() -> None:
    data = write(Profile.PACKED, sets(1), HEADER, PLAIN)
    now = 1_700_000_000_000
    log = DocumentLog(KEY, encryptor=PLAIN, is_writer=ALLOW_ANY, now_ms=lambda: now)
    far = element_of(data, now + limits.TS_AHEAD_MS_MAX + 1)
    assert [type(event) for event in log.read([far]).events] == [Rejection]
    assert log.checkpoint == 0
    near = element_of(data, now + limits.TS_AHEAD_MS_MAX)
    assert len(log.read([near]).folded) == 1


FRAME_LIMITS = (
    "CHALLENGE_",
    "CHANGES_",
    "COUNTS_",
    "DOCUMENT_KEY_",
    "EVENTS_",
    "FRAME_",
    "PRESENCE_",
    "PULL_BYTES_",
    "RECORD_",
    "REF_",
    "REQUEST_",
    "SNAPSHOT_",
)


def test_every_limit_is_tested_here() -> None:
    """The others bind those who write: a stock server's elements, map values, messages, pages."""
    names = {name for name in vars(limits) if name.endswith("_MAX")} - {"VALUE_DEPTH_MAX"}
    # These bind frames; the tests of frames hold them.
    names -= {name for name in names if name.startswith(FRAME_LIMITS)}
    assert names == {
        "BATCH_OPS_MAX",
        "BATCH_REMOVES_MAX",
        "COUNTER_JUMP_MAX",
        "DATA_DEPTH_MAX",
        "ELEMENT_BYTES_MAX",
        "ELEMENT_VALUES_MAX",
        "ID_SIZE_MAX",
        "MAP_VALUE_DEPTH_MAX",
        "MESSAGE_SIZE_MAX",
        "PULL_ELEMENTS_MAX",
        "REPLICA_SIZE_MAX",
        "SEEN_SESSIONS_MAX",
        "SESSION_SIZE_MAX",
        "STARFISH_ELEMENT_BYTES_MAX",
        "TS_AHEAD_MS_MAX",
        "TS_MAX",
    }


def open_document(
    transport: MemoryTransport, *, identity: Identity = AUTHOR, **options: Any
) -> WalDocument:
    return WalDocument(
        KEY,
        transport=transport,
        identity=identity,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        **options,
    )


@pytest.mark.parametrize("edit", ["text", "values", "fields", "removes"])
@every_wire
async def test_what_a_document_writes_keeps_every_limit(wire: Any, edit: str) -> None:
    transport = MemoryTransport()
    document = open_document(transport, wire=wire)
    await document.open()
    if edit == "text":
        document.insert_text("t", 0, "é" * 9_000)
    elif edit == "values":
        document.set_list("l", [f"{number:0100d}" for number in range(1_000)])
    elif edit == "fields":
        for number in range(2 * limits.BATCH_OPS_MAX):
            document.set_field(f"f{number % 50}", number)
    else:
        document.insert_text("t", 0, "ab" * 5_000)
        for place in range(3_000, 0, -1):
            document.remove_at("t", place)
    await document.commit()
    elements = await transport.pull(KEY, 0)
    largest = limits.STARFISH_ELEMENT_BYTES_MAX if wire == "starfish" else limits.ELEMENT_BYTES_MAX
    assert all(len(element.data) <= largest for element in elements)
    reader = open_document(transport, identity=OTHER)
    await reader.open()
    assert reader.materialize() == document.materialize()


@every_wire
async def test_a_value_that_fits_no_element_is_refused_at_the_call(wire: Any) -> None:
    document = open_document(MemoryTransport(), wire=wire)
    await document.open()
    largest = limits.STARFISH_ELEMENT_BYTES_MAX if wire == "starfish" else limits.ELEMENT_BYTES_MAX
    large = "x" * largest
    check_refused(
        ValueTooLargeError,
        partial(document.set_field, "r", large),
        partial(document.push, "l", [large]),
        partial(document.set_list, "l", [1, large]),
        partial(document.put, "m", "k", large),
        partial(document.update, {"a": 1, "r": large}),
    )
    assert document.materialize() == {}
    assert await document.commit() is None


async def test_what_is_written_holds_no_more_values_than_a_relay_takes() -> None:
    transport = MemoryTransport()
    document = open_document(transport, wire="packed")
    await document.open()
    many = [7] * (limits.ELEMENT_VALUES_MAX + 10)
    check_refused(ValueTooLargeError, partial(document.set_field, "r", many))
    document.set_list("l", many)
    document.set_field("text", "1,2,[{" * 80_000)
    await document.commit()
    elements = await transport.pull(KEY, 0)
    assert not any(has_too_many_values(element.data) for element in elements)
    assert len(elements) > 1
    reader = open_document(transport, identity=OTHER)
    await reader.open()
    assert reader.materialize() == document.materialize()


texts = st.text('ab,[{"\\\\\ud800', max_size=8)
json_values = st.recursive(
    st.none() | st.integers(0, 9) | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=12,
)


@given(st.integers(0, 12), json_values)
def test_whether_a_text_holds_too_many_values_is_told_without_reading_it(
    values_max: int, value: Any
) -> None:
    def count(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value
        return 1 + (sum(map(count, inner)) if isinstance(value, list | dict) else 0)

    text = canonical_bytes(value)
    is_too_much = has_too_many_values(text, values_max)
    assert is_too_much or count(value) <= values_max or len(text) <= values_max
    # A container may count twice, and a member's name once: what is in a text never does.
    assert not is_too_much or 3 * count(value) >= values_max


@given(st.integers(0, 6), st.integers(0, 12), st.text('a,[{"\\', max_size=16))
def test_where_a_long_text_is_parted_changes_nothing_about_how_many_values_it_holds(
    values_max: int, ahead: int, tail: str
) -> None:
    def separators(text: str) -> int:
        return sum(map(text.count, ",[{"))

    bare = tail.replace("\\\\", "").replace('\\"', "")
    is_too_much = separators(tail) >= values_max and (
        bare.count('"') > 2 * values_max or separators("".join(bare.split('"')[::2])) >= values_max
    )
    text = b"x" * (_BLOCK_BYTES - ahead) + tail.encode()
    assert has_too_many_values(text, values_max) == is_too_much


def test_to_count_the_values_of_a_text_takes_little_memory() -> None:
    # What is made of a whole text at once is many times its size, and nothing else runs meanwhile.
    text = b"[" + b'"ab",' * 2**18 + b'"[[["]'
    tracemalloc.start()
    try:
        assert not has_too_many_values(text, 2**18 + 2)
        assert tracemalloc.get_traced_memory()[1] < len(text)
    finally:
        tracemalloc.stop()


# ── hostile data ───────────────────────────────────────────────────────────────────────

ODD: list[Any] = [
    None,
    True,
    0,
    1,
    2,
    -1,
    1.5,
    1e300,
    COUNTER_MAX,
    COUNTER_MAX + 1,
    "",
    "x",
    "\ud800",
    "1@x",
    "ins",
    "set",
    "drop",
    REPLICA,
    f"1@{REPLICA}",
    [],
    {},
    [[]],
    {"": None},
    {"c": 1, "r": REPLICA},
    {"__proto__": 1},
]


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value where something stands: container and key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
    return found


def spoil(rng: random.Random, data: dict[str, Any]) -> dict[str, Any]:
    """A copy with a few places changed, left out, doubled or exchanged."""
    spoilt = cast("dict[str, Any]", parse(canonical_bytes(data)))
    for _ in range(rng.randint(1, 3)):
        places = places_in(spoilt)
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, parse(canonical_bytes(holder[key])))
            case 2:
                other, other_key = rng.choice(places)
                holder[key] = parse(canonical_bytes(other[other_key]))
            case 3 if type(holder[key]) is int:
                holder[key] += rng.choice([-2, -1, 1, 2, 2**32, 2**53])
            case _:
                holder[key] = deepcopy(rng.choice(ODD))
    return cast("dict[str, Any]", parse(canonical_bytes(spoilt)))


def spoilt_data(
    rng: random.Random, profile: Profile, encryptor: Encryptor, runs: Sequence[Run]
) -> dict[str, Any]:
    """Data spoilt outside the seal or, signed and sealed by the author, inside."""
    data = write(profile, runs, HEADER, encryptor)
    if isinstance(encryptor, PlainEncryptor) or rng.random() < 0.3:
        return spoil(rng, data)
    author, context = AUTHOR.public_key, SealContext(KEY, AUTHOR.public_key, HEADER.seq)
    if profile is Profile.STARFISH:
        inner = spoil(rng, inner_starfish(author, 1, runs))
        return outer_starfish(encryptor.seal(inner, context), HEADER)
    inner = spoil(rng, inner_packed(REPLICA, runs))
    return outer_packed(encryptor.seal(inner, context), author, HEADER)


@every_encryptor
@every_profile
@given(edits=EDITS, rng=randoms())
@settings(max_examples=150)
def test_spoilt_data_is_folded_or_rejected_whole(
    profile: Profile, encryptor: Encryptor, edits: list[tuple[Any, ...]], rng: random.Random
) -> None:
    runs = runs_of(edits, REPLICA)
    if not runs:
        return
    data = spoilt_data(rng, profile, encryptor, runs)
    log = DocumentLog(KEY, encryptor=encryptor, is_writer=ALLOW_ANY)
    before = log.crdt.canonical_state()
    reading = log.read([element_of(data)])
    assert log.checkpoint == 1
    log.crdt.check()
    if not reading.folded:
        assert log.crdt.canonical_state() == before
        assert log.crdt.counter == 0
        rejections = [event for event in reading.events if isinstance(event, Rejection)]
        assert len(rejections) + len(log.unreadable) == 1
    good = write(profile, [Set("later", REPLICA, log.crdt.counter + 1, 1)], HEADER, encryptor)
    assert len(log.read([element_of(good, 2)]).folded) == 1
    assert log.crdt.get_register("later") == 1
    for written in Profile:
        assert published(log, written, encryptor) == log.crdt.canonical_state()


def published(log: DocumentLog, profile: Profile, encryptor: Encryptor) -> str:
    """The canonical state of a snapshot of the log, as its readers get it."""
    signed = make_snapshot(
        log.crdt,
        document_key=KEY,
        upto_ts=log.checkpoint,
        writer_seq=log.tracker.writer_seq(),
        heads=log.heads,
        seqs=log.tracker.seqs(),
        identity=AUTHOR,
        encryptor=encryptor,
        profile=profile,
    )
    snapshot = read_snapshot(
        parse(canonical_bytes(signed)),
        document_key=KEY,
        is_producer=ALLOW_ANY,
        encryptor=encryptor,
    )
    return snapshot.crdt.canonical_state()


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_text_for_data_is_folded_or_rejected(text: bytes) -> None:
    log = DocumentLog(KEY, encryptor=PLAIN, is_writer=ALLOW_ANY)
    reading = log.read([RawElement(1, text, AUTHOR.public_key, "A" * 86 + "==")])
    assert not reading.folded
    assert [type(event) for event in reading.events] == [Rejection]
    assert log.checkpoint == 1


# ── what a stock server takes ──────────────────────────────────────────────────────────

BODY_DEPTH_MAX = 64


def depth_of(value: Any) -> int:
    """How many containers a JSON value nests."""
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return depth


def arrays(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def objects(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def sanitized(value: Any) -> Any:
    """What a stock server keeps of a value."""
    if not isinstance(value, dict):
        return value
    return {
        name: sanitized(member) for name, member in value.items() if name not in FORBIDDEN_NAMES
    }


@pytest.mark.parametrize("case", load("depth.json"), ids=lambda case: str(case["levels"]))
def test_the_depth_here_is_the_servers(case: dict[str, Any]) -> None:
    assert (depth_of(arrays(case["levels"])) <= BODY_DEPTH_MAX) == case["array_within_64"]
    assert (depth_of(objects(case["levels"])) <= BODY_DEPTH_MAX) == case["object_within_64"]


@pytest.mark.parametrize("case", load("sanitize.json"), ids=lambda case: str(case["json"]))
def test_the_sanitizing_here_is_the_servers(case: dict[str, Any]) -> None:
    assert canonical_text(sanitized(parse(case["json"]))) == case["sanitized"]


@pytest.mark.parametrize("nest", [arrays, objects])
@every_wire
async def test_the_deepest_values_fit_an_element_and_a_plain_snapshot(wire: Any, nest: Any) -> None:
    transport, snapshots = MemoryTransport(), MemorySnapshots()
    document = open_document(transport, wire=wire, snapshot_store=snapshots)
    await document.open()
    deepest = nest(VALUE_DEPTH_MAX)
    document.set_field("field", deepest)
    document.insert("list", 0, deepest)
    document.push("list", deepest)
    document.set_list("set", [deepest, 1])
    document.put("map", "key", nest(limits.MAP_VALUE_DEPTH_MAX))
    document.update({**document.materialize(), "other": {"a": objects(VALUE_DEPTH_MAX - 1)}})
    await document.commit()
    for element in await transport.pull(KEY, 0):
        assert depth_of({"data": parse(element.data)}) <= BODY_DEPTH_MAX
    signed = await document.snapshot()
    if wire == "starfish":
        assert depth_of({"data": signed, "baseHash": None}) <= BODY_DEPTH_MAX
    reader = open_document(transport, identity=OTHER, snapshot_store=snapshots, posture="re-derive")
    await reader.open()
    assert reader.snapshot_verdict is SnapshotVerdict.VERIFIED
    assert reader.materialize() == document.materialize()


@pytest.mark.parametrize("nest", [arrays, objects])
@pytest.mark.parametrize("extra", [1, 200, 100_000])
@every_wire
async def test_a_deeper_value_is_refused_at_the_call(wire: Any, nest: Any, extra: int) -> None:
    document = open_document(MemoryTransport(), wire=wire)
    await document.open()
    document.push("list", 1)
    before, deeper = document.materialize(), nest(VALUE_DEPTH_MAX + extra)
    check_refused(
        NotJsonError,
        partial(document.set_field, "field", deeper),
        partial(document.insert, "list", 0, deeper),
        partial(document.push, "list", deeper),
        partial(document.set_list, "list", [deeper]),
        partial(document.put, "map", "key", nest(limits.MAP_VALUE_DEPTH_MAX + extra)),
        partial(document.update, {"list": [1, deeper]}),
        partial(document.update, {"list": [], "field": {"a": deeper}}),
    )
    assert document.materialize() == before


async def test_a_value_that_holds_itself_is_refused_at_the_call() -> None:
    document = open_document(MemoryTransport())
    await document.open()
    ring: list[Any] = []
    ring.append(ring)
    check_refused(
        NotJsonError,
        partial(document.set_field, "field", ring),
        partial(document.push, "list", ring),
        partial(document.update, {"list": [ring]}),
    )
    assert document.materialize() == {}


@pytest.mark.parametrize("name", sorted(FORBIDDEN_NAMES))
@every_wire
async def test_a_reserved_name_is_refused_at_the_call(wire: Any, name: str) -> None:
    document = open_document(MemoryTransport(), wire=wire)
    await document.open()
    check_refused(
        NameRefusedError,
        partial(document.set_field, name, 1),
        partial(document.delete_field, name),
        partial(document.insert, name, 0, 1),
        partial(document.push, name, 1),
        partial(document.insert_text, name, 0, "text"),
        partial(document.set_text, name, "text"),
        partial(document.set_list, name, [1]),
        partial(document.put, name, "key", 1),
        partial(document.put, "map", name, 1),
        partial(document.update, {"good": 1, name: 1}),
    )
    for value in ({name: 1}, [{"a": {name: 1}}]):
        check_refused(
            NotJsonError,
            partial(document.set_field, "field", value),
            partial(document.push, "list", value),
            partial(document.set_list, "list", [1, value]),
            partial(document.put, "map", "key", value),
            partial(document.update, {"good": 1, "field": value}),
        )
    assert document.materialize() == {}
    assert await document.commit() is None


@every_wire
@given(edits=EDITS)
@settings(max_examples=30)
async def test_a_server_keeps_all_that_a_document_writes(
    wire: Any, edits: list[tuple[Any, ...]]
) -> None:
    transport = MemoryTransport()
    document = open_document(transport, wire=wire, snapshot_store=MemorySnapshots())
    await document.open()
    for call, *arguments in edits:
        calls = {
            "set": "set_field",
            "delete": "delete_field",
            "remove": "remove_text",
            "insert": "set_list",
        }
        if call == "insert":
            del arguments[1]
        getattr(document, calls.get(call, call))(*arguments)
    await document.commit()
    for element in await transport.pull(KEY, 0):
        data = parse(element.data)
        assert sanitized(data) == data
    signed = await document.snapshot()
    assert sanitized(signed) == signed


async def foreign(*ops: dict[str, Any]) -> MemoryTransport:
    """A log with an element that walstore would not have written."""
    clocked = [{**op, "clock": {"c": place, "r": REPLICA}} for place, op in enumerate(ops, start=1)]
    data = {"v": 1, "author": AUTHOR.public_key, "seq": 1, "ops": clocked}
    proof = sign_append(KEY, data, AUTHOR)
    transport = MemoryTransport()
    body = Body(canonical_bytes(data), proof.author_pubkey, proof.author_signature)
    await transport.append(KEY, body)
    return transport


@pytest.mark.parametrize("name", sorted(FORBIDDEN_NAMES - {"__proto__"}))
async def test_a_plain_snapshot_that_a_server_would_spoil_is_not_published(name: str) -> None:
    odd = {"t": "set", "reg": name, "value": 1}
    nested_odd = {"t": "set", "reg": "field", "value": {"a": {name: 1}}}
    listed = {"t": "ins", "list": "l", "id": f"1@{REPLICA}", "after": "", "value": {name: 1}}
    for ops, wire, is_fine in (
        ([odd], "starfish", False),
        ([nested_odd], "starfish", False),
        ([listed], "starfish", True),
        ([odd], "packed", True),
        ([nested_odd], "packed", True),
    ):
        transport, snapshots = await foreign(*ops), MemorySnapshots()
        document = open_document(transport, identity=OTHER, wire=wire, snapshot_store=snapshots)
        await document.open()
        if is_fine:
            assert sanitized(await document.snapshot()) == await document.snapshot()
            continue
        with pytest.raises(SnapshotRefusedError):
            await document.snapshot()
        assert await snapshots.read(KEY + "__snapshot") is None


async def test_what_others_wrote_does_not_keep_a_list_from_being_edited() -> None:
    odd = {"__proto__": 1, "deep": arrays(57)}
    transport = await foreign(
        {"t": "ins", "list": "l", "id": f"1@{REPLICA}", "after": "", "value": odd},
        {"t": "ins", "list": "l", "id": f"2@{REPLICA}", "after": f"1@{REPLICA}", "value": 1},
        {"t": "set", "reg": "r", "value": odd},
        {"t": "put", "map": "m", "key": "k", "value": odd},
    )
    document = open_document(transport, identity=OTHER)
    await document.open()
    document.set_list("l", [odd, 1, 2])
    document.update({**document.materialize(), "l": [odd, 2, 3], "s": 1})
    shown = document.materialize()
    assert shown == {"l": [odd, 2, 3], "r": odd, "s": 1, "m": {"k": odd}}
    for refused in ({"l": [odd, odd]}, {"x": odd}, {"m": {"k": odd, "j": odd}}):
        check_refused(NotJsonError, partial(document.update, {**shown, "s": 2, **refused}))
        assert document.materialize() == shown
