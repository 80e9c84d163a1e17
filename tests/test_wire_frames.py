"""Frames: what is written is read again, and nothing but `FrameError` comes of anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walstore.canon import canonical_bytes
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import (
    Append,
    Auth,
    Challenge,
    ClientFrame,
    Close,
    Closed,
    Code,
    Delivered,
    Elements,
    EndOfStored,
    Events,
    EventStatus,
    FeedStatus,
    FollowChanges,
    FrameError,
    GetSnapshot,
    Hello,
    Kept,
    Ok,
    Presence,
    PublishGrant,
    Pull,
    PullTail,
    PutSnapshot,
    Refusal,
    RelayFrame,
    Request,
    SetPresence,
    Shown,
    SnapshotPiece,
    client_frame,
    elements_body,
    read_client_frame,
    read_relay_frame,
    relay_frame,
)
from walstore.wire.limits import (
    CHANGES_MAX,
    COUNTS_MAX,
    DOCUMENT_KEY_SIZE_MAX,
    ELEMENT_VALUES_MAX,
    FRAME_BRACKETS_MAX,
    FRAME_BYTES_MAX,
    FRAME_VALUES_MAX,
    PRESENCE_BYTES_MAX,
    PULL_ELEMENTS_MAX,
    REF_SIZE_MAX,
    REQUEST_IDS_MAX,
    SNAPSHOT_PIECE_SIZE,
    TS_MAX,
)

KEY = "a1" * 32
SIGNATURE = "A" * 86 + "=="
LOG = "0f" * 16
REVISION = "0123456789abcdef" * 4

# ── what can be said ───────────────────────────────────────────────────────────────────

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
refs = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=REF_SIZE_MAX)
keys = st.text("0123456789abcdef", min_size=64, max_size=64)
logs = st.none() | st.text("0123456789abcdef", min_size=32, max_size=32)
signatures = st.text(st.characters(codec="ascii"), min_size=88, max_size=88)
documents = st.text(
    st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=DOCUMENT_KEY_SIZE_MAX
).filter(str.isprintable)
places = st.integers(0, TS_MAX)
filters = st.none() | st.frozensets(documents, max_size=5)
json_objects = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers(-TS_MAX, TS_MAX) | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
# The data of an element is anybody's text: lone surrogates, quotes, brackets and all.
wild_objects = st.dictionaries(
    st.text(max_size=8),
    st.text(max_size=12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.text('{}[],"\\ud800', max_size=6), max_size=3),
    max_size=4,
)
element_data = wild_objects.map(canonical_bytes)

client_frames: st.SearchStrategy[ClientFrame] = st.one_of(
    st.builds(Auth, refs, keys, signatures),
    st.builds(PublishGrant, refs, json_objects),
    st.builds(Append, refs, documents, logs, keys, signatures, element_data),
    st.builds(
        Pull,
        refs,
        documents,
        logs,
        places,
        st.integers(1, PULL_ELEMENTS_MAX),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(PullTail, refs, documents, logs, places, st.integers(1, PULL_ELEMENTS_MAX)),
    st.builds(GetSnapshot, refs, documents, logs, st.none() | keys),
    st.builds(PutSnapshot, refs, documents, logs, st.none() | keys, texts, st.booleans()),
    st.builds(
        FollowChanges,
        refs,
        st.just("tail"),
        documents | st.just(""),
        places,
        st.none(),
        st.integers(1, CHANGES_MAX),
        filters,
        filters,
        filters,
        st.booleans(),
    ),
    st.builds(
        FollowChanges,
        refs,
        st.sampled_from(["bootstrap", "tail"]),
        documents,
        places,
        places,
        st.integers(1, CHANGES_MAX),
        filters,
        filters,
        filters,
        st.just(False),
    ),
    st.builds(
        Request,
        refs,
        st.lists(keys, min_size=1, max_size=5, unique=True).map(tuple),
        filters,
        filters,
        filters,
    ),
    st.builds(SetPresence, documents, st.none() | json_objects),
    st.builds(Close, refs),
)

relay_frames: st.SearchStrategy[RelayFrame] = st.one_of(
    st.builds(
        Hello,
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.text("0123456789abcdef", min_size=32, max_size=32),
        keys,
        st.dictionaries(texts, places, max_size=4),
        texts,
        st.lists(st.text(max_size=64), max_size=3).map(tuple),
    ),
    st.builds(Kept, refs, st.sampled_from(["roster", "keyring"]), keys),
    st.builds(Challenge, keys),
    st.builds(Ok, refs, json_objects),
    st.builds(Refusal, st.none() | refs, st.sampled_from(Code), texts, json_objects),
    st.builds(
        Elements,
        refs,
        st.lists(st.builds(Delivered, places, places, keys, signatures, element_data), max_size=4),
    ),
    st.builds(EndOfStored, refs, json_objects),
    st.builds(
        SnapshotPiece,
        refs,
        st.none() | keys,
        st.none() | texts,
        st.booleans(),
        st.text("0123456789abcdef", min_size=32, max_size=32),
    ),
    st.builds(FeedStatus, refs, json_objects),
    st.builds(
        Events,
        refs,
        st.lists(st.builds(Shown, places, json_objects, st.none() | element_data), max_size=3),
    ),
    st.builds(EventStatus, refs, json_objects),
    st.builds(Presence, documents, refs, st.none() | keys, st.none() | json_objects),
    st.builds(Closed, refs, texts),
)


@given(client_frames)
def test_what_a_client_says_is_what_a_relay_hears(frame: ClientFrame) -> None:
    assert read_client_frame(client_frame(frame)) == frame
    assert read_client_frame(client_frame(frame).decode()) == frame


@given(relay_frames)
def test_what_a_relay_says_is_what_a_client_hears(frame: RelayFrame) -> None:
    assert read_relay_frame(relay_frame(frame)) == frame
    assert read_relay_frame(relay_frame(frame).decode()) == frame


@given(refs, st.lists(st.none() | element_data, min_size=1, max_size=5))
@example("r", [rb'{"a":"\ud800"}', None, b"{}", b'{"b":"],{"}', None])
def test_the_payloads_of_events_come_back_to_the_byte(
    ref: str, payloads: list[bytes | None]
) -> None:
    events = [Shown(place, {"id": KEY}, each) for place, each in enumerate(payloads, start=1)]
    assert read_relay_frame(relay_frame(Events(ref, events))) == Events(ref, events)


@given(refs, st.lists(element_data, min_size=1, max_size=5))
@example("r", [rb'{"a":"\ud800"}', b"{}", b'{"b":"],{"}'])
def test_the_data_of_elements_come_back_to_the_byte(ref: str, data: list[bytes]) -> None:
    elements = [
        Delivered(place, place, KEY, SIGNATURE, each) for place, each in enumerate(data, start=1)
    ]
    heard = read_relay_frame(elements_body(elements).around(ref))
    assert isinstance(heard, Elements)
    assert [each.data for each in heard.elements] == data
    for each in data:
        appended = read_client_frame(
            client_frame(Append(ref, "notes/a", None, KEY, SIGNATURE, each))
        )
        assert isinstance(appended, Append)
        assert appended.data == each


# ── what cannot be said ────────────────────────────────────────────────────────────────


def refused(text: str | bytes) -> FrameError:
    with pytest.raises(FrameError) as caught:
        read_client_frame(text)
    assert isinstance(caught.value.code, Code)
    return caught.value


def attempt(
    read: Callable[[bytes], ClientFrame | RelayFrame], text: bytes
) -> ClientFrame | RelayFrame | FrameError:
    """What comes of a text; anything but a frame or a frame error is raised."""
    try:
        return read(text)
    except FrameError as error:
        return error


def is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def spell(*members: Any) -> bytes:
    return orjson.dumps(list(members))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"null",
        b"true",
        b"7",
        b'"PULL"',
        b"{}",
        b'{"verb":"PULL"}',
        b"[]",
        b"[[]]",
        b"[1]",
        b"[null]",
        b"[{}]",
        b"NaN",
        b"[NaN]",
        b'["CLOSE","r"',
        b'["CLOSE","r"]]',
        b'["CLOSE","r"] x',
        b"[\"CLOSE\",'r']",
        b'["CLOSE","r",]',
        b'\xef\xbb\xbf["CLOSE","r"]',
        b'["CLOSE","\xff"]',
        b'["CLOSE","\xed\xa0\x80"]',
        b"\x00",
        b'["CLOSE","\x00"]',
        b"[" * 100_000,
        b"[" * 2000 + b"]" * 2000,
        b'["CLOSE",' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]",
        b"[" + b"9" * 100_000 + b"]",
        b'["CLOSE",' + b"9" * 100_000 + b"]",
        rb'["\ud800"]',
        rb'["CLOSE","\ud800"]',
        rb'["CLOSE","\udfff\ud800"]',
        rb'["CLOSE","\ud8',
        rb'["CLOSE","\ud800",' + b"[" * 5000 + b"]" * 5000 + b"]",
    ],
)
def test_what_is_no_frame_is_malformed_or_an_unknown_verb(text: bytes) -> None:
    error = refused(text)
    assert error.code in (Code.MALFORMED, Code.UNKNOWN_VERB)
    assert error.ref is None
    with pytest.raises(FrameError):
        read_relay_frame(text)


def test_text_with_half_a_character_is_malformed_whichever_way_it_comes() -> None:
    assert refused('["CLOSE","\ud800"]').ref is None
    assert refused('["CL\ud800SE","r"]').code is Code.MALFORMED


def test_an_unknown_verb_names_its_ref() -> None:
    error = refused('["SELECT","r7",{}]')
    assert (error.code, error.ref) == (Code.UNKNOWN_VERB, "r7")


def test_a_frame_that_is_too_large_is_not_even_parsed() -> None:
    error = refused(b" " * (2 * FRAME_BYTES_MAX + 1))
    assert (error.code, error.ref) == (Code.TOO_LARGE, None)


def test_a_presence_has_no_ref_to_be_mistaken_for_one() -> None:
    assert refused('["PRESENCE","notes/a",7]').ref is None


WRONG: list[tuple[Any, ...]] = [
    ("AUTH", "r"),
    ("AUTH", "r", KEY),
    ("AUTH", "r", KEY, SIGNATURE, 1),
    ("AUTH", "r", KEY.upper(), SIGNATURE),
    ("AUTH", "r", KEY[:-1], SIGNATURE),
    ("AUTH", "r", KEY[:-1] + "é", SIGNATURE),
    ("AUTH", "r", KEY, SIGNATURE[:-1]),
    ("AUTH", "r", KEY, None),
    ("AUTH", 7, KEY, SIGNATURE),
    ("AUTH", "", KEY, SIGNATURE),
    ("AUTH", "r" * (REF_SIZE_MAX + 1), KEY, SIGNATURE),
    ("GRANT", "r", []),
    ("GRANT", "r", None),
    ("GRANT", "r"),
    ("PULL", "r", "d"),
    ("PULL", "r", "d", {}),
    ("PULL", "r", "d", []),
    ("PULL", "r", "d", {"after": -1}),
    ("PULL", "r", "d", {"after": True}),
    ("PULL", "r", "d", {"after": 1.0}),
    ("PULL", "r", "d", {"after": "1"}),
    ("PULL", "r", "d", {"after": None}),
    ("PULL", "r", "d", {"after": TS_MAX + 1}),
    ("PULL", "r", "d", {"after": 2**64 - 1}),
    ("PULL", "r", "d", {"after": 0, "limit": 0}),
    ("PULL", "r", "d", {"after": 0, "limit": PULL_ELEMENTS_MAX + 1}),
    ("PULL", "r", "d", {"after": 0, "live": 1}),
    ("PULL", "r", "d", {"after": 0, "log": "x" * 32}),
    ("PULL", "r", "d", {"after": 0, "log": LOG + "0"}),
    ("PULL", "r", "d", {"after": 0, "filter": "*"}),
    ("PULL", "r", "d", {"upto": 5}),
    ("PULL", "r", "d", {"last": 5}),
    ("PULL", "r", "d", {"upto": 5, "last": 0}),
    ("PULL", "r", "d", {"upto": 5, "last": PULL_ELEMENTS_MAX + 1}),
    ("PULL", "r", "d", {"upto": 5, "last": 1, "live": False}),
    ("PULL", "r", "d", {"upto": 5, "last": 1, "after": 0}),
    ("PULL", "r", "d", {"upto": 5, "last": 1, "records": True}),
    ("PULL", "r", "d", {"after": 0, "records": 1}),
    ("PULL", "r", "", {"after": 0}),
    ("PULL", "r", "d" * (DOCUMENT_KEY_SIZE_MAX + 1), {"after": 0}),
    ("PULL", "r", "a\nb", {"after": 0}),
    ("PULL", "r", "a\x00", {"after": 0}),
    ("PULL", "r", "a\u202e", {"after": 0}),
    ("PULL", "r", ["d"], {"after": 0}),
    ("SNAPSHOT", "r", "d"),
    ("SNAPSHOT", "r", "d", None),
    ("SNAPSHOT", "r", "d", {"revision": "x" * 64}),
    ("SNAPSHOT", "r", "d", {"after": 0}),
    ("PUT", "r", "d", None, None, "{}"),
    ("PUT", "r", "d", None, None, {}, True),
    ("PUT", "r", "d", None, None, "{}", 1),
    ("PUT", "r", "d", 7, None, "{}", True),
    ("PUT", "r", "d", None, LOG, "{}", True),
    ("PUT", "r", "d", None, None, "x" * (SNAPSHOT_PIECE_SIZE + 1), True),
    ("CHANGES", "r"),
    ("CHANGES", "r", {}),
    ("CHANGES", "r", {"mode": "tail"}),
    ("CHANGES", "r", {"prefix": ""}),
    ("CHANGES", "r", {"mode": ["tail"], "prefix": ""}),
    ("CHANGES", "r", {"mode": "all", "prefix": ""}),
    ("CHANGES", "r", {"mode": "tail", "prefix": None}),
    ("CHANGES", "r", {"mode": "tail", "prefix": ["a", "b"]}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "a\x00"}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "since": -1}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "limit": CHANGES_MAX + 1}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "limit": 0}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "until_seq": "9"}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "live": True, "until_seq": 9}),
    ("CHANGES", "r", {"mode": "bootstrap", "prefix": "", "live": True}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "documents": "a"}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "documents": [1]}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "kinds": ["a\x00"]}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "authors": [KEY] * (REQUEST_IDS_MAX + 1)}),
    ("CHANGES", "r", {"mode": "tail", "prefix": "", "#d": []}),
    ("REQ", "r", {}),
    ("REQ", "r", {"ids": []}),
    ("REQ", "r", {"ids": KEY}),
    ("REQ", "r", {"ids": [7]}),
    ("REQ", "r", {"ids": ["x" * 64]}),
    ("REQ", "r", {"ids": [KEY] * (REQUEST_IDS_MAX + 1)}),
    ("REQ", "r", {"ids": [KEY], "prefix": ""}),
    ("PRESENCE", "d"),
    ("PRESENCE", "d", []),
    ("PRESENCE", "d", "here"),
    ("PRESENCE", 7, {}),
    ("CLOSE",),
    ("CLOSE", 7),
    ("CLOSE", "r", "now"),
    ("CLOSE", None),
]


@pytest.mark.parametrize("members", WRONG, ids=lambda members: repr(members)[:60])
def test_a_wrong_member_is_malformed(members: tuple[Any, ...]) -> None:
    error = refused(spell(*members))
    assert error.code is Code.MALFORMED
    if len(members) > 1 and members[1] == "r":
        assert error.ref == "r"


def test_a_presence_may_be_small_and_no_more() -> None:
    filler = "x" * PRESENCE_BYTES_MAX
    error = refused(spell("PRESENCE", "d", {"name": filler}))
    assert (error.code, error.ref) == (Code.TOO_LARGE, None)


@pytest.mark.parametrize("depth", [253, 254, 255, 400, 1000])
def test_a_presence_that_could_not_be_passed_on_is_not_taken(depth: int) -> None:
    text = '["PRESENCE","d",{"a":%s}]' % ("[" * depth + "]" * depth)
    frame = attempt(read_client_frame, text.encode())
    if isinstance(frame, SetPresence):
        relay_frame(Presence(frame.document, "1", None, frame.payload))
    else:
        assert isinstance(frame, FrameError)
        assert frame.code is Code.MALFORMED


def test_a_presence_with_half_a_character_is_not_taken() -> None:
    assert refused(rb'["PRESENCE","d",{"a":"\ud800"}]').code is Code.MALFORMED


# ── sizes that lie ─────────────────────────────────────────────────────────────────────


def append_text(size: object, data: str, *, end: str = "]") -> str:
    head = orjson.dumps(["APPEND", "r", "d", None, KEY, SIGNATURE, size]).decode()
    return f"{head[:-1]},{data}{end}"


@pytest.mark.parametrize("size", [-1, 0, 1, 2, 6, 8, 100, TS_MAX, 2**64 - 1, True, None, "7", 7.0])
def test_an_append_whose_size_lies_is_malformed(size: object) -> None:
    assert refused(append_text(size, '{"n":1}')).code is Code.MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        append_text(8, ' {"n":1}'),
        append_text(8, '{"n":1} '),
        append_text(7, '{"n":1}', end=" ]"),
        append_text(7, '{"n":1}', end="] "),
        append_text(3, "[1]"),
        append_text(4, "null"),
        append_text(7, '"{n:1}"'),
        append_text(9, '{"n":1},2'),
    ],
)
def test_an_append_whose_data_do_not_stand_where_they_should_is_malformed(text: str) -> None:
    assert refused(text).code is Code.MALFORMED


@given(st.integers(-2, 60), wild_objects)
def test_an_append_gives_its_whole_data_or_nothing_that_is_json(
    size: int, data: dict[str, Any]
) -> None:
    canonical = canonical_bytes(data)
    frame = attempt(read_client_frame, append_text(size, canonical.decode()).encode())
    if isinstance(frame, FrameError):
        assert frame.code is Code.MALFORMED
        return
    assert isinstance(frame, Append)
    # A part of the data that begins like an object is cut out unread; it never is one.
    assert frame.data == canonical or not is_json(frame.data)


def test_what_is_in_an_append_is_not_read_with_its_frame() -> None:
    # Whatever a reader would stumble over, and so everything that would cost it time.
    for data in ("{no JSON at all}", '{"a":[{},{},"\\ud800"', "{" * 1000):
        frame = read_client_frame(append_text(len(data) + 1, data + "}"))
        assert isinstance(frame, Append)
        assert frame.data == f"{data}}}".encode()


@pytest.mark.parametrize("space", ["", " ", "\n\t "])
def test_an_append_may_be_spelled_with_white_space_before_its_data(space: str) -> None:
    members = ['"APPEND"', '"r,\\"["', '"d"', "null", f'"{KEY}"', f'"{SIGNATURE}"', "17"]
    frame = read_client_frame(f'[{space}{f"{space},{space}".join(members)},{{"half":"\\ud800"}}]')
    assert isinstance(frame, Append)
    assert (frame.ref, frame.data) == ('r,"[', rb'{"half":"\ud800"}')


def test_a_frame_of_a_great_many_containers_is_refused_unread() -> None:
    many = ",".join(["[]"] * (FRAME_BRACKETS_MAX + 1))
    for text in (f'["GRANT","r",{{"a":[{many}]}}]', f'["PUT",{many}]', f'["REQ","r",[{many}]'):
        assert "brackets" in refused(text).reason


def test_a_text_may_hold_as_many_brackets_as_fit() -> None:
    piece = PutSnapshot("r", "d", None, None, '["\\]{' * (SNAPSHOT_PIECE_SIZE // 5), True)
    assert read_client_frame(client_frame(piece)) == piece


def elements_text(sizes: list[Any], data: list[bytes]) -> bytes:
    rows = [[place, place, KEY, SIGNATURE, size] for place, size in enumerate(sizes, start=1)]
    return b'["ELEMENTS","r",%b,%b]' % (orjson.dumps(rows), b",".join(data))


def test_an_element_of_more_values_than_any_relay_takes_is_no_part_of_a_message() -> None:
    def heard(values: int) -> object:
        data = b'{"v":[%b0]}' % (b"0," * (values - 3))
        assert has_too_many_values(data) == (values > ELEMENT_VALUES_MAX)
        return attempt(read_relay_frame, elements_text([len(data)], [data]))

    assert isinstance(heard(ELEMENT_VALUES_MAX), Elements)
    refused = heard(ELEMENT_VALUES_MAX + 1)
    assert isinstance(refused, FrameError)
    assert (refused.code, refused.ref) == (Code.TOO_LARGE, "r")


def test_a_message_of_very_many_values_is_refused_unread() -> None:
    for text in (b'["OK","r",{"v":[%b0]}]', b"[[%b0]", b"[%b0"):
        heard = attempt(read_relay_frame, text % (b"0," * FRAME_VALUES_MAX))
        assert isinstance(heard, FrameError)
        assert heard.code is Code.TOO_LARGE
        assert "values" in heard.reason
    # Of text there may be as much as fits.
    said = Closed("r", ",[{" * 600)
    piece = SnapshotPiece("r", "ab" * 32, ',"[' * (SNAPSHOT_PIECE_SIZE // 3), True, "cd" * 16)
    assert read_relay_frame(relay_frame(said)) == said
    assert read_relay_frame(relay_frame(piece)) == piece


def test_a_request_of_a_great_many_values_is_refused_unread() -> None:
    for text in ('["REQ","r",[%s0]]', '["GRANT","r",{"a":[%s0]}]', "[%s0"):
        assert "values" in refused(text % ("0," * FRAME_BRACKETS_MAX)).reason
    ids = tuple([f"{number:064x}" for number in range(REQUEST_IDS_MAX)])
    named = frozenset([f"notes/,{number}" for number in range(REQUEST_IDS_MAX)])
    most = Request("r", ids, named, named, None)
    assert read_client_frame(client_frame(most)) == most


def test_the_most_values_that_an_honest_relay_sends_are_read() -> None:
    # Together, elements of 256 KiB: all brackets, and a thousand of them; alone, an element that
    # has as many values as one may; or what a snapshot counts, and such a snapshot.
    size = 256 * 2**10 // PULL_ELEMENTS_MAX
    data = [b'{"v":[%b[]]}' % (b"[]," * ((size - 12) // 3))] * PULL_ELEMENTS_MAX
    assert isinstance(read_relay_frame(elements_text([len(each) for each in data], data)), Elements)
    payload = b'{"v":[%b0]}' % (b"0," * (ELEMENT_VALUES_MAX - 4))
    vc = {f"{number}": 1 for number in range(COUNTS_MAX)}
    event = {"id": "ab" * 32, "kind": "snapshot", "vc": vc}
    shown = Events("r", [Shown(1, event, payload)])
    assert read_relay_frame(relay_frame(shown)) == shown


@given(
    st.lists(element_data, min_size=1, max_size=4),
    st.lists(st.integers(-3, 3), min_size=4, max_size=4),
)
def test_elements_whose_sizes_lie_are_refused(data: list[bytes], lies: list[int]) -> None:
    sizes = [len(each) + lie for each, lie in zip(data, lies, strict=False)]
    heard = attempt(read_relay_frame, elements_text(sizes, data))
    if isinstance(heard, Elements) and any(lies[: len(data)]):
        # Other cuts at a `},{` are possible, between two objects of one element: no JSON there.
        assert not all(is_json(element.data) for element in heard.elements)
    else:
        assert isinstance(heard, FrameError if any(lies[: len(data)]) else Elements)


@pytest.mark.parametrize(
    "text",
    [
        b'["ELEMENTS","r"]',
        b'["ELEMENTS","r",{}]',
        b'["ELEMENTS","r",[],{}]',
        b'["ELEMENTS","r",[[1,1,"a","b",2]]]',
        b'["ELEMENTS","r",[[1,1,"a","b",2]],{},{}]',
        b'["ELEMENTS","r",[[true,1,"a","b",2]],{}]',
        b'["ELEMENTS","r",[[1,true,"a","b",2]],{}]',
        b'["ELEMENTS","r",[[1,1,"a","b",true]],{}]',
        b'["ELEMENTS","r",[[-1,1,"a","b",2]],{}]',
        b'["ELEMENTS","r",[[9007199254740992,1,"a","b",2]],{}]',
        b'["ELEMENTS","r",[[1,1,"a","b",18446744073709551615]],{}]',
        b'["ELEMENTS","r",[[1,1,"a",null,2]],{}]',
        b'["ELEMENTS","r",[[1,1,"a","b",2,3]],{}]',
        b'["ELEMENTS","r",[[1,1,"a","b",2]],[]]',
        b'["ELEMENTS","r",[[1,1,"a","b",4]],"{}"]',
        b'["EVENTS","r"]',
        b'["EVENTS","r",{}]',
        b'["EVENTS","r",[[1,{}]]]',
        b'["EVENTS","r",[[true,{},null]]]',
        b'["EVENTS","r",[[1,[],null]]]',
        b'["EVENTS","r",[[1,{},null]],{}]',
        b'["EVENTS","r",[[1,{},2]]]',
        b'["EVENTS","r",[[1,{},true]],{}]',
        b'["EVENTS","r",[[1,{},7]],{"a":1,"b":2}]',
        b'["EVENTS","r",[[1,{},18446744073709551615]],{}]',
        b'["OK","r",[]]',
        b'["OK",null,{}]',
        b'["ERR","r","malformed","",[]]',
        b'["ERR",7,"malformed","",{}]',
        b'["HELLO",{}]',
        b'["HELLO",[]]',
        b'["AUTH","short"]',
        b'["SNAPSHOT","r",null,null,true,{}]',
        b'["CLOSED","r"]',
        b'["PRESENCE","d","","",{}]',
        b'["EOSE","r",null]',
        b'["STATUS","r",7]',
    ],
)
def test_a_relay_that_says_nonsense_is_refused(text: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        read_relay_frame(text)
    assert caught.value.code is Code.MALFORMED


def test_a_code_that_is_not_known_yet_is_a_refusal_all_the_same() -> None:
    heard = read_relay_frame('["ERR","r","moon-phase","no",{}]')
    assert heard == Refusal("r", Code.INVALID, "no", {})


def test_of_two_members_of_one_name_the_last_counts() -> None:
    heard = read_client_frame('["PULL","r","d",{"after":1,"after":2}]')
    assert isinstance(heard, Pull)
    assert heard.after == 2


# ── whatever the text ──────────────────────────────────────────────────────────────────

SPECIMENS = [
    client_frame(frame)
    for frame in (
        Auth("r", KEY, SIGNATURE),
        PublishGrant("r", {"v": 1, "prefix": "", "roles": ["read"]}),
        Append("r", "notes/é", LOG, KEY, SIGNATURE, b'{"a":[1,{"b":"},{"}],"c":null}'),
        Pull("r", "d", LOG, 5, 10, True),
        Pull("r", "d", None, 5, 10, True, with_records=True),
        PullTail("r", "d", None, 5, 10),
        GetSnapshot("r", "d", None, REVISION),
        PutSnapshot("r", "d", LOG, REVISION, '{"state":{}}', True),
        FollowChanges("r", "tail", "p", 1, 2, 3, frozenset("d"), frozenset(), None, False),
        Request("r", (KEY,), None, frozenset("a"), frozenset(["element"])),
        SetPresence("d", {"name": "Anna"}),
        Close("r"),
    )
] + [
    relay_frame(frame)
    for frame in (
        Hello((1,), LOG, KEY, {"frame_bytes_max": 1}, "walstore"),
        Hello((1,), LOG, KEY, {}, "walstore", ("records", "more")),
        Kept("r", "roster", REVISION),
        Elements(
            "r",
            [
                Delivered(1, 1, KEY, SIGNATURE, b'{"a":1}'),
                Delivered(2, 2, KEY, SIGNATURE, b'{"b":[{},{}]}'),
            ],
        ),
        Events("r", [Shown(1, {"id": KEY}, b'{"a":[{},{}]}'), Shown(2, {}, None)]),
        SnapshotPiece("r", REVISION, "{}", True, LOG),
        Presence("d", "1", KEY, None),
        Refusal(None, Code.STORAGE, "no", {}),
    )
]
INSERTS = [
    b"",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b'"',
    b"\\",
    rb"\ud800",
    rb"\u0000",
    b"\x00",
    b"\xff",
    b"9" * 400,
    b"-1",
    b"1e999",
    b"true",
    b"null",
    b"[" * 2000,
]


def read_both(text: bytes) -> None:
    for read in (read_client_frame, read_relay_frame):
        heard = attempt(read, text)
        if isinstance(heard, FrameError):
            assert isinstance(heard.code, Code)
            # It is told to the sender, so it has to be something that can be written.
            orjson.dumps([heard.ref, heard.reason])


@pytest.mark.parametrize("seed", range(4))
def test_a_frame_that_was_tampered_with_is_a_frame_or_a_frame_error(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2500):
        text = bytearray(chance.choice(SPECIMENS))
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(text) + 1)
            end = min(len(text), start + chance.choice((0, 1, 1, 2, 8)))
            text[start:end] = chance.choice(INSERTS) or bytes([chance.randrange(256)])
        read_both(bytes(text))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_frame_error(text: bytes) -> None:
    read_both(text)


@given(
    st.sampled_from(["AUTH", "GRANT", "APPEND", "PULL", "SNAPSHOT", "PUT", "CHANGES", "REQ"])
    | st.sampled_from(["PRESENCE", "CLOSE", "HELLO", "OK", "ERR", "ELEMENTS", "EOSE", "EVENTS"])
    | st.text(max_size=5),
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.sampled_from(["r", KEY, LOG, SIGNATURE, "tail", "d"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["after", "ids", "mode", "prefix", "live", "log", "upto", "last"]
                    )
                    | st.text(max_size=3),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=5,
        ),
        max_size=8,
    ),
)
def test_any_array_with_a_verb_is_a_frame_or_a_frame_error(verb: str, members: list[Any]) -> None:
    read_both(json.dumps([verb, *members]).encode())
