"""What all connections together hold of snapshots that are coming in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from walstore.relay.uploads import Uploads


def test_whichever_key_holds_most_makes_room_with_its_largest() -> None:
    uploads = Uploads(bytes_max=10)
    for owner in "abc":
        uploads.begin(owner, "one key")
    uploads.begin("d", "another key")
    assert [uploads.add(owner, b"x" * size) for owner, size in zip("abc", (2, 3, 1), strict=True)]
    assert uploads.add("d", b"1234") == 4
    assert uploads.add("d", b"5") == 5
    assert [uploads.add(owner, b"") for owner in "abcd"] == [2, None, 1, 5]
    assert uploads.take("d") == b"12345"


def test_whoever_adds_to_much_again_and_again_keeps_nobody_from_being_heard() -> None:
    uploads = Uploads(bytes_max=40)
    for owner in "abcd":
        uploads.begin(owner, owner)
        uploads.add(owner, b"x" * 9)
    uploads.begin("slow", "slow")
    for size in range(1, 7):
        assert uploads.add("slow", b"y") == size
        for owner in "abcd":
            if uploads.add(owner, b"x") is None:
                uploads.begin(owner, owner)
                uploads.add(owner, b"x" * 9)
    assert uploads.take("slow") == b"y" * 6


def test_one_alone_may_be_larger_than_the_limit() -> None:
    uploads = Uploads(bytes_max=10)
    uploads.begin("a", "key")
    assert uploads.add("a", b"x" * 11) == 11
    assert uploads.take("a") == b"x" * 11


def test_what_is_being_stored_makes_no_room() -> None:
    uploads = Uploads(bytes_max=10)
    for owner in "ab":
        uploads.begin(owner, "key")
        uploads.add(owner, b"12345")
    text = uploads.take("a")
    assert uploads.add("b", b"6") is None
    uploads.done(len(text))
    uploads.begin("b", "key")
    assert uploads.add("b", b"x" * 10) == 10


owners = st.sampled_from("abcd")
key_of = {"a": "one", "b": "one", "c": "two", "d": "three"}
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
            uploads.begin(owner, key_of[owner])
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
        uploads.begin(owner, key_of[owner])
    assert [uploads.add(owner, b"x" * 10) for owner in "ab"] == [10, 10]
    assert [uploads.add(owner, b"") for owner in "ab"] == [10, 10]
