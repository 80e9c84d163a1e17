"""Keystrokes: what is read at a glance is exactly what the readers of any element would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walstore.canon import canonical_bytes, parse_canonical
from walstore.crdt import to_ops
from walstore.crdt.runs import Insert, Remove, Run, Set
from walstore.errors import MalformedError
from walstore.wire.element import read_raw_element
from walstore.wire.envelope import Header, inner_packed, outer_packed, read_header, read_packed
from walstore.wire.keystrokes import Typing, read_keystroke, read_keystrokes, write_keystroke
from walstore.wire.limits import SESSION_SIZE_MAX

AUTHOR = "a1" * 32
LINK = "0f" * 32


def write(runs: Sequence[Run], *, session: str = "s", seq: int = 1, **fields: Any) -> bytes:
    header = Header(session, seq, fields.get("prev", LINK), fields.get("seen", {}))
    body = inner_packed(f"{AUTHOR}:{session}", runs)
    return canonical_bytes(outer_packed(body, AUTHOR, header))


def typed(counter: int, text: str, *, after: int | None = None, **fields: Any) -> bytes:
    session = fields.get("session", "s")
    own, anchor = f"{AUTHOR}:{session}", counter - 1 if after is None else after
    name = fields.pop("name", "t")
    return write([Insert(name, own, counter, own if anchor else "", anchor, text)], **fields)


def removed(counter: int, target: int, **fields: Any) -> bytes:
    own = f"{AUTHOR}:{fields.get('session', 's')}"
    return write([Remove(fields.pop("name", "t"), own, counter, own, target)], **fields)


def read_slowly(text: bytes) -> tuple[str, Header, list[Any]]:
    """What the readers of any element make of a text."""
    data = read_raw_element(1, text, AUTHOR, "").data
    header = read_header(data)
    assert parse_canonical(text) == data
    assert data["v"] == 2
    assert header is not None
    return data["author"], header, to_ops(read_packed(data["body"], data["author"], header).runs)


def check_typing(typing: Typing, texts: Sequence[bytes]) -> None:
    """Hold what was read at a glance against the same texts read one by one."""
    ops: list[Any] = []
    counter = typing.start
    for offset, text in enumerate(texts[typing.place : typing.place + len(typing)]):
        author, header, own = read_slowly(text)
        assert author == typing.author
        assert header == Header(typing.session, typing.seq + offset, typing.prevs[offset], {})
        assert typing.strokes[offset][1] == counter == own[0]["clock"]["c"]
        counter += len(own)
        ops += own
    assert counter == typing.end
    assert to_ops(typing.runs()) == ops


def test_what_is_typed_on_is_one_run() -> None:
    texts = [typed(c, "ab"[c % 2], seq=c) for c in range(1, 40)]
    (typing,) = read_keystrokes(texts)
    own = f"{AUTHOR}:s"
    assert typing.runs() == [Insert("t", own, 1, "", 0, "".join("ab"[c % 2] for c in range(1, 40)))]
    check_typing(typing, texts)


def test_removes_moves_and_other_lists_are_runs_of_their_own() -> None:
    texts = [
        typed(1, "one"),
        typed(4, " two", seq=2),
        removed(8, 7, seq=3),
        typed(9, "x", after=6, seq=4),
        typed(10, "y", after=3, seq=5),
        typed(11, "z", name="other", seq=6),
        typed(12, "z", name="t", seq=7),
        removed(13, 12, seq=8),
        # What it follows is the clock of a remove, and no element.
        typed(14, "z", after=13, seq=9),
    ]
    (typing,) = read_keystrokes(texts)
    kinds = [type(run) for run in typing.runs()]
    assert kinds == [Insert, Remove, *[Insert] * 4, Remove, Insert]
    check_typing(typing, texts)


@pytest.mark.parametrize(
    "second",
    [
        typed(2, "b", seq=3),
        typed(2, "b", seq=1),
        typed(3, "b", seq=2),
        typed(1, "b", after=0, seq=2),
        typed(2, "b", seq=2, session="t"),
        typed(2, "b", seq=2).replace(AUTHOR.encode(), b"b2" * 32),
    ],
)
def test_where_the_count_breaks_another_typing_begins(second: bytes) -> None:
    first, second_typing = read_keystrokes([typed(1, "a"), second])
    assert (first.place, len(first), second_typing.place, len(second_typing)) == (0, 1, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        write([Insert("t", f"{AUTHOR}:s", 2, "other:s", 1, "b")], seq=2),
        write([Remove("t", f"{AUTHOR}:s", 2, f"{AUTHOR}:s", 1, 2)], seq=2),
        typed(2, "b", seq=2, seen={"other:s": 1}),
        typed(2, "b", seq=2, session="x" * (SESSION_SIZE_MAX + 1)),
        typed(2, "b", seq=2, session="é"),
        typed(2, "b", seq=2, session="\x7f"),
        typed(2, "b", seq=2, prev="0f"),
        typed(10**15, "b", seq=2),
        typed(2, "b", seq=10**15),
        typed(2, "b", seq=2).replace(b'"b"', b'""'),
        typed(2, "b", seq=2).replace(b'"b"', b'["b"]'),
        typed(2, "b", seq=2).replace(b'"v":2', b'"v":2.0'),
        typed(2, "b", seq=2).replace(b'"v":2', b'"v":2,"w":1'),
        typed(2, "b", seq=2).replace(b'"seq":2', b'"seq":02'),
        removed(2, 1, seq=2).replace(b",0,1]", b",0,0]"),
        typed(2, "b", seq=2) + b" ",
        b"{}",
        b"",
    ],
)
def test_anything_else_is_no_keystroke_and_parts_its_neighbours(text: bytes) -> None:
    texts = [typed(1, "a"), text, typed(3, "c", seq=3)]
    assert [typing.place for typing in read_keystrokes(texts)] == [0, 2]


@pytest.mark.parametrize("typed_text", ["\n", "\t", '"', "\\", "\x00", "é", "😀", "\x7f", "\u2028"])
def test_whatever_character_was_typed_is_read(typed_text: str) -> None:
    texts = [typed(1, "a"), typed(2, typed_text, seq=2), typed(3, "c", seq=3)]
    (typing,) = read_keystrokes(texts)
    assert typing.strokes[1][3] == typed_text
    check_typing(typing, texts)


@pytest.mark.parametrize("spelled", [rb"\u0041", rb"\/", rb"\ud800", rb"\ud83d\ude00", rb"\u000A"])
def test_an_escape_that_is_not_canonical_or_no_character_is_no_keystroke(spelled: bytes) -> None:
    text = typed(2, "b", seq=2).replace(b'"b"', b'"' + spelled + b'"')
    assert [typing.place for typing in read_keystrokes([typed(1, "a"), text])] == [0]


@pytest.mark.parametrize("place", [b'"author":"', b'"prev":"', b'"session":"', b'[0,"'])
def test_an_escape_outside_the_text_is_no_keystroke(place: bytes) -> None:
    # A link has its length, escape or not.
    text = typed(2, "b", seq=2).replace(place + b"0f", place).replace(place, place + rb"\n")
    assert [typing.place for typing in read_keystrokes([typed(1, "a"), text])] == [0]


def test_two_texts_that_make_a_keystroke_only_together_make_none() -> None:
    whole = typed(1, "a")
    for cut in range(1, len(whole)):
        assert not read_keystrokes([whole[:cut], whole[cut:]])
        assert not read_keystrokes([whole[:cut] + b"\n" + whole[cut:]])


def test_no_texts_hold_no_keystrokes() -> None:
    assert read_keystrokes([]) == []


keystrokes = st.one_of(
    st.builds(
        typed,
        st.integers(1, 4),
        st.text(min_size=1, max_size=3),
        after=st.integers(0, 3),
        seq=st.integers(1, 3),
        name=st.sampled_from(["", "t", "é", "\n"]),
    ),
    st.builds(removed, st.integers(1, 4), st.integers(1, 3), seq=st.integers(1, 3)),
)
PIECES = [b"0", b"1", b'"', b"\\", b"\n", b"\x01", b",", b"[]", b"{", b"}", b" ", b"\xff", b"\xc3"]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A keystroke with something put in, taken out or replaced."""
    text = draw(keystrokes)
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(start + 3, len(text))))
        text = text[:start] + draw(st.sampled_from([b"", *PIECES])) + text[end:]
    return text


@given(st.lists(spoilt(), max_size=6))
@example([typed(1, "a"), typed(2, "b", seq=2)])
def test_what_is_read_at_a_glance_is_what_reading_one_by_one_gives(texts: list[bytes]) -> None:
    for typing in read_keystrokes(texts):
        check_typing(typing, texts)


@given(spoilt())
def test_what_no_reader_takes_is_no_keystroke(text: bytes) -> None:
    try:
        read_slowly(text)
    except (MalformedError, AssertionError, KeyError):
        assert read_keystrokes([text]) == []


@given(spoilt())
@example(typed(1, "a"))
@example(removed(2, 1))
def test_a_single_keystroke_is_read_as_it_is_in_a_row(text: bytes) -> None:
    stroke, typings = read_keystroke(text), read_keystrokes([text])
    # What is escaped is left to the reader of rows.
    assert (stroke is None) == (not typings or b"\\" in text)
    if stroke is not None:
        (typing,) = typings
        assert (stroke.author, stroke.session, stroke.seq) == (
            typing.author,
            typing.session,
            typing.seq,
        )
        assert ([stroke.prev], [stroke.run], stroke.end) == (
            typing.prevs,
            typing.runs(),
            typing.end,
        )


replicas = st.sampled_from([f"{AUTHOR}:s", f"{AUTHOR}:s", f"{AUTHOR}:t", ""])
counters = st.integers(1, 2**53 - 1)
typed_texts = st.text('ab \n"\\é😀\x7f\u2028\ud800', min_size=1, max_size=3)
runs = st.one_of(
    st.builds(Insert, typed_texts, replicas, counters, replicas, counters, typed_texts),
    st.builds(Insert, st.just("t"), replicas, counters, st.just(""), st.just(0), typed_texts),
    st.builds(Insert, st.just("t"), replicas, counters, replicas, counters, st.just(["a", 1])),
    st.builds(Remove, st.just("t"), replicas, counters, replicas, counters),
    st.builds(
        Remove, st.just("t"), replicas, counters, replicas, counters, st.integers(1, 2), st.just(-1)
    ),
    st.builds(Set, st.just("r"), replicas, counters, typed_texts),
)
headers = st.builds(
    Header,
    st.sampled_from(["s", "s", "s", 's"', "é", "\n"]),
    counters,
    st.sampled_from([None, LINK]),
    st.sampled_from([{}, {}, {"other:s": 1}]),
)


@given(runs, headers)
def test_what_is_written_at_a_glance_is_the_canonical_text(run: Run, header: Header) -> None:
    written = write_keystroke(run, AUTHOR, header)
    if written is not None:
        body = inner_packed(f"{AUTHOR}:{header.session}", [run])
        assert written == canonical_bytes(outer_packed(body, AUTHOR, header))


def test_what_is_typed_and_removed_is_written_at_a_glance() -> None:
    own, header = f"{AUTHOR}:s", Header("s", 7, LINK, {})
    typing = Insert("t", own, 9, own, 8, "é")
    assert write_keystroke(typing, AUTHOR, header) == typed(9, "é", seq=7)
    assert write_keystroke(Insert("t", own, 9, "", 0, "ab"), AUTHOR, header) == typed(
        9, "ab", after=0, seq=7
    )
    assert write_keystroke(Remove("t", own, 9, own, 8), AUTHOR, header) == removed(9, 8, seq=7)
