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
    assert uploads.take("a") == b"12345"
    assert uploads.add("b", b"6") is None
    uploads.done("a")
    uploads.begin("b", "key")
    assert uploads.add("b", b"x" * 10) == 10


def test_what_a_key_has_being_stored_counts_as_held_by_it() -> None:
    uploads = Uploads(bytes_max=20)
    for owner, key, size in (("a", "one", 9), ("b", "one", 4), ("c", "two", 6)):
        uploads.begin(owner, key)
        uploads.add(owner, b"x" * size)
    assert uploads.take("a") is not None
    assert uploads.add("c", b"yy") == 8
    assert uploads.add("b", b"") is None


def test_of_one_key_no_more_is_stored_at_a_time_than_leaves_room_for_others() -> None:
    uploads = Uploads(bytes_max=40)
    taken = []
    for owner in "abcd":
        uploads.begin(owner, "one key")
        uploads.add(owner, b"x" * 9)
        taken.append(uploads.take(owner) is not None)
    assert taken == [True, True, False, False]
    uploads.begin("slow", "another")
    assert uploads.add("slow", b"y" * 20) == 20
    assert uploads.take("slow") == b"y" * 20
    uploads.done("a")
    uploads.begin("a", "one key")
    uploads.add("a", b"x" * 9)
    assert uploads.take("a") == b"x" * 9


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
    uploads, sent, taken = Uploads(bytes_max=20), dict[str, bytes](), set[str]()
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
        elif verb == "take" and owner in sent.keys() - taken:
            if uploads.add(owner, b"") is not None:
                text = uploads.take(owner)
                assert text in (None, sent[owner])
                taken |= set() if text is None else {owner}
            del sent[owner]
        elif verb == "done" and owner in taken:
            uploads.done(owner)
            taken.remove(owner)
        elif verb == "forget":
            uploads.forget(owner)
            sent.pop(owner, None)
    # With nothing left there is room for as much as at first.
    for owner in taken:
        uploads.done(owner)
    for owner in "abcd":
        uploads.forget(owner)
    for owner in "ab":
        uploads.begin(owner, key_of[owner])
    assert [uploads.add(owner, b"x" * 10) for owner in "ab"] == [10, 10]
    assert [uploads.add(owner, b"") for owner in "ab"] == [10, 10]
