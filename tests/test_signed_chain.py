"""The chain: few signature checks, and exactly the answers of a naive fixpoint over all of them."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.errors import MalformedError
from walstore.signed import (
    ChainElement,
    Domain,
    Head,
    Identity,
    Verdict,
    check_chain,
    link,
    sign_bytes,
    signing_input,
    verify_bytes,
)

ALICE, BOB = Identity.from_seed(bytes(32)), Identity.from_seed(bytes([1]) * 32)
KEY = "spaces/s1/doc"
SPOILED = b64encode(bytes(64)).decode()


def write(
    author: Identity, session: str, seq: int, prev: str | None, *, key: str = KEY
) -> ChainElement:
    data = {"author": author.public_key, "session": session, "seq": seq, "prev": prev}
    signed = signing_input(Domain.APPEND, key, data)
    signature = sign_bytes(signed, author).author_signature
    return ChainElement(author.public_key, session, seq, prev, signed, signature)


def link_of(element: ChainElement) -> str:
    return link(element.signed, author_pubkey=element.writer, author_signature=element.signature)


def write_session(
    author: Identity, session: str, count: int, prev: str | None = None
) -> list[ChainElement]:
    elements: list[ChainElement] = []
    for seq in range(1, count + 1):
        elements.append(write(author, session, seq, prev))
        prev = link_of(elements[-1])
    return elements


def verdicts(*elements: ChainElement) -> list[Verdict]:
    return check_chain(elements).verdicts


def accepted(elements: list[ChainElement]) -> list[bool]:
    return [verdict.accepted for verdict in check_chain(elements).verdicts]


def naive_accepted(elements: list[ChainElement]) -> list[bool]:
    """The definition: signed, or linked to by something accepted of the same writer."""
    proven = [verify_bytes(e.writer, e.signed, e.signature) for e in elements]
    for _ in elements:
        for child, is_proven in zip(elements, list(proven), strict=True):
            if not is_proven or child.prev is None or child.prev.encode() not in child.signed:
                continue
            for place, parent in enumerate(elements):
                try:
                    named = link_of(parent) == child.prev
                except MalformedError:
                    continue
                if named and parent.writer == child.writer:
                    proven[place] = True
    return proven


class Growth(NamedTuple):
    """One more element of a random forest: who writes it, after which one, and what is wrong."""

    author: Identity
    session: str
    after: int
    flaw: str


growths = st.builds(
    Growth,
    st.sampled_from([ALICE, BOB]),
    st.sampled_from(["s", "t"]),
    st.integers(-1, 12),
    st.sampled_from(["", "", "", "", "spoiled", "misspelled", "stolen", "beside", "altered"]),
)


def grow(plan: list[Growth]) -> list[ChainElement]:
    elements: list[ChainElement] = []
    for seq, (author, session, after, flaw) in enumerate(plan, 1):
        prev = None
        if 0 <= after < len(elements) and elements[after].signature[-1] == "=":
            # Also across writers, which an honest writer never does.
            prev = link_of(elements[after])
        elements.append(spoil(write(author, session, seq, prev), flaw))
    return elements


def spoil(element: ChainElement, flaw: str) -> ChainElement:
    match flaw:
        case "spoiled":
            return element._replace(signature=SPOILED)
        case "misspelled":
            return element._replace(signature=element.signature.rstrip("="))
        case "stolen":
            thief = BOB if element.writer == ALICE.public_key else ALICE
            return element._replace(writer=thief.public_key)
        case "beside":
            # The link stands beside the signed bytes, not in them.
            unlinked = write(ALICE, element.session, element.seq, None)
            return unlinked._replace(prev=element.prev)
        case "altered":
            return element._replace(signed=element.signed + b" ")
        case _:
            return element


@settings(max_examples=150, deadline=None)
@given(st.lists(growths, max_size=12), st.randoms(use_true_random=False))
def test_exactly_what_the_definition_accepts_is_accepted(
    plan: list[Growth], chance: random.Random
) -> None:
    elements = grow(plan)
    elements += chance.choices(elements, k=3) if elements else []
    chance.shuffle(elements)
    assert accepted(elements) == naive_accepted(elements)


@settings(max_examples=60, deadline=None)
@given(st.lists(growths, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_elements_does_not_matter(plan: list[Growth], chance: random.Random) -> None:
    elements = grow(plan)
    shuffled = chance.sample(elements, len(elements))
    left, right = check_chain(elements), check_chain(shuffled)
    assert {link: v for link, v in zip(left.links, left.verdicts, strict=True) if link} == {
        link: v for link, v in zip(right.links, right.verdicts, strict=True) if link
    }
    assert left.heads == right.heads


@settings(max_examples=60, deadline=None)
@given(st.lists(growths, max_size=12))
def test_more_elements_never_take_an_acceptance_back(plan: list[Growth]) -> None:
    elements = grow(plan)
    whole = accepted(elements)
    for end in range(len(elements)):
        assert all(
            not before or whole[place] for place, before in enumerate(accepted(elements[:end]))
        )


def test_only_the_leaf_of_a_session_is_verified() -> None:
    elements = write_session(ALICE, "s", 50)
    assert verdicts(*elements) == [Verdict.LINKED] * 49 + [Verdict.SIGNED]


def test_two_sessions_grow_from_one_element_and_both_leaves_are_verified() -> None:
    root = write_session(ALICE, "s", 3)
    left = write_session(ALICE, "t", 2, link_of(root[1]))
    report = check_chain([*root, *left])
    assert report.verdicts.count(Verdict.SIGNED) == 2
    assert report.heads == {
        ALICE.public_key: {Head(link_of(root[2]), "s", 3), Head(link_of(left[1]), "t", 2)}
    }
    assert report.twins == []
    assert report.unlinked == []


def test_elements_without_links_are_verified_one_by_one() -> None:
    elements = [write(ALICE, "s", seq, None) for seq in range(1, 6)]
    elements[2] = elements[2]._replace(signature=SPOILED)
    expected = [Verdict.SIGNED] * 5
    expected[2] = Verdict.FORGED
    assert verdicts(*elements) == expected


def test_a_forged_leaf_is_the_only_one_rejected() -> None:
    elements = write_session(ALICE, "s", 5)
    forged = write(BOB, "s", 6, link_of(elements[4]))._replace(writer=ALICE.public_key)
    assert verdicts(*elements, forged) == [Verdict.LINKED] * 4 + [Verdict.SIGNED, Verdict.FORGED]


def test_a_long_forged_end_is_cut_off_exactly() -> None:
    elements = write_session(ALICE, "s", 5)
    prev = link_of(elements[-1])
    for seq in range(6, 26):
        forged = write(BOB, "s", seq, prev)._replace(writer=ALICE.public_key)
        elements.append(forged)
        prev = link_of(forged)
    assert accepted(elements) == [True] * 5 + [False] * 20


def test_an_element_altered_in_the_middle_is_the_only_one_rejected() -> None:
    elements = write_session(ALICE, "s", 5)
    elements[2] = elements[2]._replace(signed=elements[2].signed.replace(b'"seq":3', b'"seq":9'))
    report = check_chain(elements)
    assert [v.accepted for v in report.verdicts] == [True, True, False, True, True]
    # Its successor shows the hole, and what came before it ends in a leaf of its own.
    assert report.unlinked == [3]
    assert report.verdicts[1] is Verdict.SIGNED


def test_a_spoiled_signature_is_noticed_although_the_signed_bytes_are_linked() -> None:
    elements = write_session(ALICE, "s", 3)
    elements[1] = elements[1]._replace(signature=SPOILED)
    assert accepted(elements) == [True, False, True]


def test_a_writer_who_links_to_a_spoiled_element_vouches_for_it_whenever_it_is_met() -> None:
    first = write(ALICE, "s", 1, None)._replace(signature=SPOILED)
    second = write(ALICE, "s", 2, link_of(first))
    assert verdicts(first) == [Verdict.FORGED]
    assert verdicts(first, second) == [Verdict.LINKED, Verdict.SIGNED]
    assert verdicts(second, first) == [Verdict.SIGNED, Verdict.LINKED]


def test_another_spelling_of_the_signature_is_rejected_whoever_links() -> None:
    first, second = write_session(ALICE, "s", 2)
    misspelled = first._replace(signature=first.signature[:-2])
    assert verdicts(misspelled, second) == [Verdict.MALFORMED, Verdict.SIGNED]


def test_stray_bits_in_a_signature_are_rejected_whoever_links() -> None:
    elements = write_session(ALICE, "s", 3)
    digits = elements[1].signature.rstrip("=")
    # The last digit has four bits that decoders ignore.
    stray = digits[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[digits[-1]] + "=="
    assert b64decode(stray) == b64decode(elements[1].signature)
    elements[1] = elements[1]._replace(signature=stray)
    assert verdicts(*elements) == [Verdict.SIGNED, Verdict.MALFORMED, Verdict.SIGNED]


def test_another_spelling_of_the_key_is_rejected_whoever_links() -> None:
    first, second = write_session(ALICE, "s", 2)
    misspelled = first._replace(writer=first.writer.upper())
    assert verdicts(misspelled, second) == [Verdict.MALFORMED, Verdict.SIGNED]


def test_nobody_vouches_for_another_writer() -> None:
    forged = write(BOB, "s", 1, None)._replace(signature=SPOILED)
    vouching = write(ALICE, "s", 1, link_of(forged))
    assert verdicts(forged, vouching) == [Verdict.FORGED, Verdict.SIGNED]


def test_a_link_never_reaches_into_another_document() -> None:
    foreign = write(ALICE, "s", 1, None, key="spaces/s1/other")
    heir = write(ALICE, "s", 2, link_of(foreign))
    data = {"author": ALICE.public_key, "session": "s", "seq": 1, "prev": None}
    moved = foreign._replace(signed=signing_input(Domain.APPEND, KEY, data))
    assert verdicts(moved, heir) == [Verdict.FORGED, Verdict.SIGNED]


def test_a_link_beside_the_signed_bytes_vouches_for_nothing() -> None:
    forged = write(ALICE, "s", 1, None)._replace(signature=SPOILED)
    bearer = write(ALICE, "s", 2, None)._replace(prev=link_of(forged))
    assert verdicts(forged, bearer) == [Verdict.FORGED, Verdict.SIGNED]


def test_copies_share_one_verdict() -> None:
    elements = write_session(ALICE, "s", 3)
    assert verdicts(*elements, *elements) == 2 * [Verdict.LINKED, Verdict.LINKED, Verdict.SIGNED]


def test_a_known_head_is_accepted_unseen_and_vouches_for_its_past() -> None:
    elements = write_session(ALICE, "s", 3)
    heads = check_chain(elements).heads
    report = check_chain(elements, heads)
    assert report.verdicts == [Verdict.LINKED, Verdict.LINKED, Verdict.KNOWN]
    assert report.heads == heads


def test_a_tail_links_up_to_the_heads_of_a_snapshot() -> None:
    elements = write_session(ALICE, "s", 6)
    heads = check_chain(elements[:3]).heads
    report = check_chain(elements[3:], heads)
    assert report.unlinked == []
    assert report.heads == {ALICE.public_key: {Head(link_of(elements[5]), "s", 6)}}
    assert check_chain(elements[4:], heads).unlinked == [0]


def test_a_head_does_not_make_its_successor_accepted() -> None:
    elements = write_session(ALICE, "s", 2)
    forged = elements[1]._replace(signature=SPOILED)
    heads = check_chain(elements[:1]).heads
    report = check_chain([forged], heads)
    assert report.verdicts == [Verdict.FORGED]
    assert report.heads == heads


def test_a_head_of_another_writer_is_no_ancestor() -> None:
    foreign = write(BOB, "s", 1, None)
    heads = check_chain([foreign]).heads
    assert check_chain([write(ALICE, "s", 1, link_of(foreign))], heads).unlinked == [0]


def test_whatever_nothing_goes_on_from_is_a_head() -> None:
    elements = write_session(ALICE, "s", 4)
    heads = check_chain(elements).heads
    # Whether it was there before knows who keeps it.
    again = Head(link_of(elements[1]), "s", 2)
    assert check_chain(elements[1:2], heads).heads[ALICE.public_key] == {
        *heads[ALICE.public_key],
        again,
    }


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), max_size=4), st.integers(0, 12))
def test_heads_carried_from_pull_to_pull_are_those_of_one_pull(
    sessions: list[tuple[int, int]], cut: int
) -> None:
    elements: list[ChainElement] = []
    for number, (count, root) in enumerate(sessions):
        prev = link_of(elements[root % len(elements)]) if elements else None
        elements += write_session(ALICE, f"s{number}", count, prev)
    first = check_chain(elements[:cut])
    second = check_chain(elements[cut:], first.heads)
    assert second.heads == check_chain(elements).heads
    ends = {link_of(e) for e in elements} - {e.prev for e in elements}
    assert {head.link for head in second.heads.get(ALICE.public_key, ())} == ends


def test_a_session_that_counts_twice_is_reported() -> None:
    left, right = write(ALICE, "s", 1, None), write(ALICE, "s", 1, "0" * 64)
    report = check_chain([left, right])
    assert [twins.links for twins in report.twins] == [(link_of(left), link_of(right))]
    assert check_chain([left, left]).twins == []
    later = check_chain([right], check_chain([left]).heads)
    assert [twins.links for twins in later.twins] == [(link_of(left), link_of(right))]


def test_forged_elements_are_never_evidence() -> None:
    left = write(ALICE, "s", 1, None)
    forged = write(BOB, "s", 1, None)._replace(writer=ALICE.public_key)
    assert check_chain([left, forged]).twins == []


def test_the_link_pins_key_signature_and_signed_bytes() -> None:
    element = write(ALICE, "s", 1, None)
    expected = sha256(
        b"walstore-link-v1\n"
        + bytes.fromhex(element.writer)
        + b64decode(element.signature)
        + element.signed
    ).hexdigest()
    assert link_of(element) == expected == check_chain([element]).links[0]


def test_a_misspelled_proof_has_no_link() -> None:
    element = write(ALICE, "s", 1, None)
    with pytest.raises(MalformedError):
        link_of(element._replace(signature="AAAA"))
    with pytest.raises(MalformedError):
        link_of(element._replace(writer="00" * 32))


def test_a_chain_of_many_thousands_neither_recurses_nor_needs_a_pool() -> None:
    elements = write_session(ALICE, "s", 3000)
    with ThreadPoolExecutor(2) as pool:
        report = check_chain(elements, pool=pool)
    assert report.verdicts.count(Verdict.LINKED) == 2999


def test_garbage_in_the_links_is_harmless() -> None:
    element = write(ALICE, "s", 1, None)._replace(prev="\ud800")
    heads = {ALICE.public_key: [Head("\ud800", "s", 1)]}
    assert check_chain([element], heads).verdicts == [Verdict.SIGNED]


def test_nothing_gives_nothing() -> None:
    report = check_chain([])
    assert (report.verdicts, report.links, report.heads) == ([], [], {})
