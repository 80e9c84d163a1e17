"""What all connections together hold of snapshots that are coming in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from walstore.relay.uploads import Uploads


def test_the_one_that_rests_makes_room_for_those_that_go_on() -> None:
    uploads = Uploads(bytes_max=10)
    for owner in "abc":
        uploads.begin(owner)
    assert [uploads.add(owner, b"123") for owner in "abc"] == [3, 3, 3]
    assert uploads.add("a", b"4") == 4
    assert uploads.add("c", b"4") == 4
    assert uploads.add("b", b"4") is None
    assert uploads.add("a", b"56") == 6
    assert uploads.take("a") == b"123456"


def test_one_alone_may_be_larger_than_the_limit() -> None:
    uploads = Uploads(bytes_max=10)
    uploads.begin("a")
    assert uploads.add("a", b"x" * 11) == 11
    assert uploads.take("a") == b"x" * 11


def test_what_is_being_stored_makes_no_room() -> None:
    uploads = Uploads(bytes_max=10)
    for owner in "ab":
        uploads.begin(owner)
        uploads.add(owner, b"12345")
    text = uploads.take("a")
    assert uploads.add("b", b"6") is None
    uploads.done(len(text))
    uploads.begin("b")
    assert uploads.add("b", b"x" * 10) == 10


owners = st.sampled_from("abcd")
steps = st.one_of(
    st.tuples(st.just("begin"), owners, st.just(0)),
    st.tuples(st.just("add"), owners, st.integers(0, 8)),
    st.tuples(st.just("take"), owners, st.just(0)),
    st.tuples(st.just("done"), owners, st.just(0)),
    st.tuples(st.just("forget"), owners, st.just(0)),
)


@given(st.lists(steps))
def test_whatever_happens_texts_are_whole_and_all_room_comes_back(
    happened: list[tuple[str, str, int]],
) -> None:
    uploads, sent, taken = Uploads(bytes_max=20), dict[str, bytes](), list[bytes]()
    for verb, owner, size in happened:
        if verb == "begin":
            uploads.begin(owner)
            sent[owner] = b""
        elif verb == "add":
            piece = owner.encode() * size
            length = uploads.add(owner, piece)
            sent[owner] = sent.get(owner, b"") + piece
            assert length in (None, len(sent[owner]))
            if length is None:
                del sent[owner]
        elif verb == "take" and owner in sent and uploads.add(owner, b"") is not None:
            taken.append(uploads.take(owner))
            assert taken[-1] == sent.pop(owner)
        elif verb == "done" and taken:
            uploads.done(len(taken.pop()))
        elif verb == "forget":
            uploads.forget(owner)
            sent.pop(owner, None)
    # With nothing left there is room for as much as at first.
    for text in taken:
        uploads.done(len(text))
    for owner in "abcd":
        uploads.forget(owner)
    for owner in "ab":
        uploads.begin(owner)
    assert [uploads.add(owner, b"x" * 10) for owner in "ab"] == [10, 10]
    assert [uploads.add(owner, b"") for owner in "ab"] == [10, 10]
