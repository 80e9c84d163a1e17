"""Rosters: the owner's word, and nobody else's, never an older one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.canon import canonical_text, parse
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.signed.roster import (
    ROSTER_BYTES_MAX,
    Counted,
    MemberRefusedError,
    Roster,
    RosterRefusedError,
    RosterRollbackError,
    RosterTooLargeError,
    check_succession,
    counted_in,
    new_roster,
    read_roster,
)
from walstore.signed.statement import sign_statement

ANNA, BEN, CARL = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
KEY = "notes/a"
NOW_MS = 1_700_000_000_000
DOMAIN = b"walstore-roster-v1\n"


def invited(roster: Roster, who: Identity, *roles: str, now_ms: int = NOW_MS) -> Roster:
    return roster.with_member(ANNA, Card.of(who), roles, counted={}, now_ms=now_ms)


def public_key(number: int) -> str:
    return Identity.from_seed(number.to_bytes(32, "big")).public_key


def first() -> Roster:
    return new_roster(ANNA, KEY, now_ms=NOW_MS)


def reread(roster: Roster) -> Roster:
    return read_roster(roster.text, document=KEY, owner=ANNA.public_key)


def signed(signer: Identity = ANNA, **changes: Any) -> str:
    """A roster with other members than it should have, signed all the same."""
    members = parse(invited(first(), BEN, "write").text)
    assert isinstance(members, dict)
    del members["signature"]
    return canonical_text(sign_statement(DOMAIN, {**members, **changes}, signer))


def refusal(text: str) -> str:
    with pytest.raises(RosterRefusedError) as refused:
        read_roster(text, document=KEY, owner=ANNA.public_key)
    return refused.value.reason


# ── what it says ───────────────────────────────────────────────────────────────────────


def test_the_first_roster_names_nobody_but_its_owner() -> None:
    roster = first()
    assert (roster.version, roster.at_ms, roster.members, roster.revoked) == (1, NOW_MS, {}, {})
    owner = ANNA.public_key
    assert roster.may_read(owner)
    assert roster.may_write(owner)
    assert roster.is_producer(owner)
    assert not roster.may_read(BEN.public_key)


def test_a_roster_is_read_back_as_it_was_signed() -> None:
    roster = invited(invited(first(), BEN, "write"), CARL, "snapshot")
    roster = roster.without(ANNA, BEN.public_key, counted={"s": 3, "": 1}, now_ms=NOW_MS)
    assert reread(roster) == roster


def test_members_hold_the_roles_that_they_were_given_and_always_read() -> None:
    roster = invited(invited(first(), BEN, "write"), CARL, "snapshot")
    assert [roster.may_read(each.public_key) for each in (BEN, CARL)] == [True, True]
    assert [roster.may_write(each.public_key) for each in (BEN, CARL)] == [True, False]
    assert [roster.is_producer(each.public_key) for each in (BEN, CARL)] == [False, True]
    assert roster.members[BEN.public_key].kem_public_key == BEN.kem_public_key


def test_each_change_counts_the_version_up_and_nothing_else_does() -> None:
    one = invited(first(), BEN, "write")
    assert one.version == 2
    assert invited(one, BEN, "read", "write") is one
    two = one.without(ANNA, BEN.public_key, counted={"s": 1}, now_ms=NOW_MS)
    assert two.version == 3
    assert two.without(ANNA, BEN.public_key, counted={"s": 9}, now_ms=NOW_MS) is two


def test_of_two_rosters_of_one_version_comes_one_that_gives_nobody_more_than_both() -> None:
    both = invited(invited(first(), BEN, "write"), CARL, "write", "snapshot")
    one = both.without(ANNA, BEN.public_key, counted={"s": 3}, now_ms=NOW_MS)
    other = both.with_member(ANNA, Card.of(CARL), ["read"], counted={"k": 2}, now_ms=NOW_MS + 9)
    assert one.version == other.version
    for here, there in ((one, other), (other, one)):
        merged = here.merged(ANNA, there, now_ms=NOW_MS)
        assert reread(merged) == merged
        assert merged.version == one.version + 1
        assert merged.at_ms > max(one.at_ms, other.at_ms)
        assert merged.members.keys() == {CARL.public_key}
        assert not merged.may_write(CARL.public_key)
        assert merged.revoked == {BEN.public_key: {"s": 3}, CARL.public_key: {"k": 2}}


def test_of_two_rosters_of_one_version_all_who_were_invited_are_in_the_next() -> None:
    one, other = invited(first(), BEN, "write"), invited(first(), CARL, "read")
    merged = one.merged(ANNA, other, now_ms=NOW_MS)
    assert merged.may_write(BEN.public_key)
    assert merged.members.keys() == {BEN.public_key, CARL.public_key}
    # Two that say the same are followed by another one, too: else both would stay.
    assert one.merged(ANNA, one, now_ms=NOW_MS).version == one.version + 1


def test_the_time_of_a_roster_rises_whatever_the_clock_says() -> None:
    roster = invited(first(), BEN, "write", now_ms=5)
    assert roster.at_ms == NOW_MS + 1
    assert invited(roster, CARL, "read", now_ms=NOW_MS + 90).at_ms == NOW_MS + 90


def test_of_the_revoked_what_was_read_counts() -> None:
    roster = invited(first(), BEN, "write", "snapshot")
    assert roster.counted_of(BEN.public_key) is None
    after = roster.without(ANNA, BEN.public_key, counted={"s": 3}, now_ms=NOW_MS)
    assert after.counted_of(BEN.public_key) == {"s": 3}
    for may in (after.may_read, after.may_write, after.is_producer):
        assert not may(BEN.public_key)


def test_what_counts_is_named_by_seq_link_and_counter_or_as_before_by_seq() -> None:
    counted = {"s": Counted(3, "ab" * 32, 7), "t": Counted(2, None, 0), "": Counted(9, None, 7)}
    roster = invited(first(), BEN, "write")
    after = roster.without(ANNA, BEN.public_key, counted={**counted, "u": 4}, now_ms=NOW_MS)
    assert after.counted_of(BEN.public_key) == {**counted, "u": 4}
    assert '"s":[3,"' + "ab" * 32 + '",7]' in after.text
    assert '"u":4' in after.text
    assert read_roster(after.text, document=KEY, owner=ANNA.public_key) == after


def test_the_links_that_lead_to_others_find_room_first() -> None:
    sessions = {f"{number:032x}": Counted(9, None, 0) for number in range(20_000)}
    last = {"ff" * 16: Counted(1, "ab" * 32, 0)}
    roster = invited(first(), BEN, "write")
    after = roster.without(ANNA, BEN.public_key, counted=sessions | last, now_ms=NOW_MS)
    kept = after.counted_of(BEN.public_key)
    assert kept is not None
    assert last.items() <= kept.items()


def test_who_loses_the_right_to_write_stays_as_a_reader_with_what_was_read() -> None:
    roster = invited(first(), BEN, "write")
    after = roster.with_member(ANNA, Card.of(BEN), ["read"], counted={"s": 2}, now_ms=NOW_MS)
    assert (after.may_read(BEN.public_key), after.may_write(BEN.public_key)) == (True, False)
    assert after.counted_of(BEN.public_key) == {"s": 2}
    gone = after.without(ANNA, BEN.public_key, counted={"s": 7}, now_ms=NOW_MS)
    assert gone.counted_of(BEN.public_key) == {"s": 2}


def test_who_may_write_again_is_trusted_with_everything() -> None:
    roster = invited(first(), BEN, "write")
    roster = roster.without(ANNA, BEN.public_key, counted={"s": 3}, now_ms=NOW_MS)
    assert invited(roster, BEN, "read").counted_of(BEN.public_key) == {"s": 3}
    assert invited(roster, BEN, "write").counted_of(BEN.public_key) is None


def test_what_was_read_of_somebody_is_told_by_session() -> None:
    ben, carl = BEN.public_key, CARL.public_key
    seqs = {ben: 4, f"{ben}:s": 2, f"{ben}:t:u": 1, f"{carl}:s": 9, carl: 3}
    assert counted_in(seqs, ben) == {"": 4, "s": 2, "t:u": 1}


@pytest.mark.parametrize("roles", [["grant"], ["write", "owner"], [""]])
def test_a_role_that_only_an_operator_gives_is_refused(roles: list[str]) -> None:
    with pytest.raises(MemberRefusedError):
        invited(first(), BEN, *roles)


@pytest.mark.parametrize(
    "card",
    [
        Card("nobody", BEN.kem_public_key, ""),
        Card(BEN.public_key, "00" * 32, ""),
        Card(BEN.public_key, "", ""),
    ],
)
def test_a_key_that_nobody_can_use_makes_no_member(card: Card) -> None:
    with pytest.raises(MemberRefusedError):
        first().with_member(ANNA, card, ["read"], counted={}, now_ms=NOW_MS)


def test_the_owner_is_no_member() -> None:
    with pytest.raises(MemberRefusedError):
        invited(first(), ANNA, "write")
    for stranger in (ANNA.public_key, CARL.public_key, "nobody"):
        with pytest.raises(MemberRefusedError):
            first().without(ANNA, stranger, counted={}, now_ms=NOW_MS)


def test_nobody_becomes_irrevocable_by_opening_many_sessions() -> None:
    roster = invited(first(), BEN, "write")
    counted = {f"{number:032x}": 1 for number in range(20_000)} | {"ff" * 16: 500}
    after = roster.without(ANNA, BEN.public_key, counted=counted, now_ms=NOW_MS)
    kept = after.counted_of(BEN.public_key)
    assert kept is not None
    assert len(after.text.encode()) <= ROSTER_BYTES_MAX
    assert 1000 < len(kept) < len(counted)
    assert kept["ff" * 16] == 500
    assert all(counted[session] == seq for session, seq in kept.items())


def full_of_sessions() -> Roster:
    """A roster that Ben has filled, and Carl is in."""
    roster = invited(invited(first(), BEN, "write"), CARL, "write")
    counted = {f"{number:032x}": Counted(1, "ab" * 32, 5) for number in range(5_000)}
    return roster.without(ANNA, BEN.public_key, counted=counted, now_ms=NOW_MS)


def test_who_fills_a_roster_takes_nothing_from_those_who_leave_later() -> None:
    roster = full_of_sessions()
    assert len(roster.text) > ROSTER_BYTES_MAX * 3 // 4
    left = {}
    for number in range(100, 130):
        who = Identity.from_seed(bytes([number]) * 32)
        roster = invited(roster, who, "write")
        left[who.public_key] = {
            f"{session:032x}": Counted(400, "cd" * 32, 9000) for session in range(30)
        }
        roster = roster.without(ANNA, who.public_key, counted=left[who.public_key], now_ms=NOW_MS)
    assert all(roster.counted_of(key) == counted for key, counted in left.items())
    counted = roster.counted_of(BEN.public_key)
    assert counted is not None
    assert len(counted) > 500


def test_who_fills_a_roster_keeps_nobody_out() -> None:
    member = {"roles": ["read"], "kem": BEN.kem_public_key}
    members = {public_key(number): member for number in range(10, 1000)}
    counted = {f"{session:032x}": [1, "ab" * 32, 5] for session in range(965)}
    text = signed(members=members, revoked={public_key(9): counted, public_key(8): {"s": 3}})
    roster = read_roster(text, document=KEY, owner=ANNA.public_key)
    assert ROSTER_BYTES_MAX - 200 < len(roster.text) <= ROSTER_BYTES_MAX
    after = invited(roster, CARL, "write")
    assert after.may_write(CARL.public_key)
    assert after.counted_of(public_key(8)) == {"s": 3}
    kept = after.counted_of(public_key(9))
    assert kept is not None
    assert 800 < len(kept) < len(counted)


def test_a_full_roster_takes_nobody_in() -> None:
    members = {
        public_key(number): {"roles": ["read"], "kem": BEN.kem_public_key}
        for number in range(10, 1657)
    }
    roster = read_roster(signed(members=members), document=KEY, owner=ANNA.public_key)
    assert ROSTER_BYTES_MAX - 200 < len(roster.text) <= ROSTER_BYTES_MAX
    with pytest.raises(RosterTooLargeError):
        invited(roster, CARL, "write")


# ── whose word it is ───────────────────────────────────────────────────────────────────


def test_only_the_pinned_owners_word_counts() -> None:
    text = new_roster(BEN, KEY, now_ms=NOW_MS).text
    assert refusal(text) == "it names another owner"
    assert refusal(signed(BEN)) == "the signature is not the owner's"
    forged = invited(first(), BEN, "read").text.replace('["read"]', '["read","write"]')
    assert refusal(forged) == "the signature is not the owner's"


def test_a_roster_holds_for_one_document() -> None:
    other = new_roster(ANNA, "notes/b", now_ms=NOW_MS).text
    assert refusal(other) == "it is that of another document"


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": True},
        {"version": 0},
        {"version": True},
        {"version": 2**53},
        {"version": 1.5},
        {"at": -1},
        {"at": "now"},
        {"members": []},
        {"members": {"x": {"roles": ["read"], "kem": "00" * 32}}},
        {"members": {ANNA.public_key: {"roles": ["read"], "kem": "00" * 32}}},
        {"members": {BEN.public_key: None}},
        {"members": {BEN.public_key: {"roles": ["read"]}}},
        {"members": {BEN.public_key: {"roles": ["read"], "kem": "00"}}},
        {"members": {BEN.public_key: {"roles": [], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": ["write"], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": ["write", "read"], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": ["read", "read"], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": ["grant", "read"], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": ["read", 7], "kem": "00" * 32}}},
        {"members": {BEN.public_key: {"roles": [["read"]], "kem": "00" * 32}}},
        {"revoked": None},
        {"revoked": {ANNA.public_key: {}}},
        {"revoked": {BEN.public_key: []}},
        {"revoked": {BEN.public_key: {"s": -1}}},
        {"revoked": {BEN.public_key: {"s": True}}},
        {"revoked": {BEN.public_key: {"s" * 129: 1}}},
        {"revoked": {"00" * 32: {}}},
        {"revoked": {BEN.public_key: {"s": []}}},
        {"revoked": {BEN.public_key: {"s": [1, None]}}},
        {"revoked": {BEN.public_key: {"s": [1, None, 1, 1]}}},
        {"revoked": {BEN.public_key: {"s": [-1, None, 1]}}},
        {"revoked": {BEN.public_key: {"s": [1, "00", 1]}}},
        {"revoked": {BEN.public_key: {"s": [1, "AA" * 32, 1]}}},
        {"revoked": {BEN.public_key: {"s": [1, 1, 1]}}},
        {"revoked": {BEN.public_key: {"s": [1, None, 1.5]}}},
        {"more": 1},
    ],
)
def test_even_the_owners_word_has_to_have_its_shape(changes: dict[str, Any]) -> None:
    assert refusal(signed(**changes))


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '"roster"', "{", "\ud800", '"\\ud800"', "[" * 5000, "9" * 5000]
)
def test_text_that_is_no_roster_is_refused(text: str) -> None:
    assert refusal(text)


def test_a_second_spelling_is_refused() -> None:
    assert refusal(first().text.replace(",", ", ")) == "it is not canonical"
    assert refusal(first().text + " " * ROSTER_BYTES_MAX) == "it is too large"


@given(st.data())
def test_no_altered_roster_is_taken(data: st.DataObject) -> None:
    text = invited(first(), BEN, "write").text
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.characters(exclude_characters=text[place]))
    altered = text[:place] + letter + text[place + 1 :]
    assert refusal(altered)


@given(st.text() | st.from_type(dict).map(str))
def test_whatever_comes_is_a_refusal(text: str) -> None:
    assert refusal(text)


# ── never an older one ─────────────────────────────────────────────────────────────────


def test_a_reader_never_goes_back() -> None:
    old, new = first(), invited(first(), BEN, "write")
    check_succession(None, old)
    check_succession(old, old)
    check_succession(old, new)
    with pytest.raises(RosterRollbackError) as rollback:
        check_succession(new, old)
    assert (rollback.value.version, rollback.value.version_min) == (1, 2)


def test_of_two_rosters_with_one_version_the_known_one_is_kept() -> None:
    left, right = invited(first(), BEN, "write"), invited(first(), CARL, "write")
    with pytest.raises(RosterRefusedError, match="two rosters of version 2"):
        check_succession(left, right)
