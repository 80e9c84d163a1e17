"""Cards and invitations: one line each, signed, without secrets; grants for one document."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.errors import MalformedError
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.signed.grant import GrantError, read_grant, sign_grant
from walstore.signed.invitation import Invitation, InvitationError
from walstore.signed.statement import LINE_SIZE_MAX, from_line, sign_statement, to_line

ANNA, BEN = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2))
LOG = "0f" * 16
URL_SAFE = re.compile(r"[A-Za-z0-9._~-]+")


def invitation(**changes: Any) -> Invitation:
    arguments: dict[str, Any] = {
        "document": "notes/日本",
        "to": BEN.public_key,
        "relay": "wss://relay.example:443",
        "log": LOG,
        "is_sealed": True,
    }
    return Invitation.sign(ANNA, **{**arguments, **changes})


def test_a_card_is_one_line_that_names_both_keys() -> None:
    card = Card.of(BEN)
    assert URL_SAFE.fullmatch(card.line)
    assert str(card) == card.line
    assert Card.read(f" {card.line}\n") == card
    assert (card.public_key, card.kem_public_key) == (BEN.public_key, BEN.kem_public_key)


def test_nobody_puts_another_key_into_a_card() -> None:
    members = from_line("walstore-card", Card.of(BEN).line)
    swapped = to_line("walstore-card", {**members, "kem": ANNA.kem_public_key})
    with pytest.raises(MalformedError, match="signature"):
        Card.read(swapped)


@pytest.mark.parametrize("kem", ["00" * 32, "01" + "00" * 31, "", "zz" * 32, None, 7])
def test_a_card_with_a_key_that_gives_no_secret_is_refused(kem: object) -> None:
    members = {"v": 1, "key": BEN.public_key, "kem": kem}
    line = to_line("walstore-card", sign_statement(b"walstore-card-v1\n", members, BEN))
    with pytest.raises(MalformedError, match="key"):
        Card.read(line)


def test_an_invitation_is_one_line_that_tells_where_and_whose() -> None:
    made = invitation()
    assert URL_SAFE.fullmatch(made.line)
    found = Invitation.read(made.line)
    assert found == made
    assert (found.document, found.relay, found.log) == (
        "notes/日本",
        "wss://relay.example:443",
        LOG,
    )
    assert (found.owner, found.to, found.is_sealed) == (ANNA.public_key, BEN.public_key, True)


def test_an_invitation_may_leave_open_where_it_is() -> None:
    made = invitation(relay=None, log=None, is_sealed=False)
    assert Invitation.read(made.line) == made


@pytest.mark.parametrize(
    "changes",
    [
        {"document": ""},
        {"document": "a\nb"},
        {"document": "x" * 513},
        {"to": "nobody"},
        {"relay": "ws://\x00"},
        {"relay": "x" * 1025},
        {"log": "other"},
        {"is_sealed": 1},
    ],
)
def test_what_an_invitation_cannot_hold_is_refused_at_the_call(changes: dict[str, Any]) -> None:
    with pytest.raises(InvitationError):
        invitation(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": BEN.public_key},
        {"document": "notes/b"},
        {"sealed": False},
        {"sealed": None},
        {"relay": "ws://elsewhere"},
        {"log": None},
        {"v": 2},
        {"more": 1},
    ],
)
def test_an_altered_invitation_is_refused(changes: dict[str, Any]) -> None:
    members = from_line("walstore-invitation", invitation().line)
    with pytest.raises(MalformedError):
        Invitation.read(to_line("walstore-invitation", {**members, **changes}))


def test_one_kind_of_line_is_not_taken_for_another() -> None:
    with pytest.raises(MalformedError):
        Card.read(invitation().line)
    with pytest.raises(MalformedError):
        Invitation.read(Card.of(BEN).line)


@given(st.text(max_size=200))
def test_any_other_text_is_malformed(text: str) -> None:
    for line in (text, f"walstore-card.{text}", f"walstore-invitation.{text}"):
        with pytest.raises(MalformedError):
            Card.read(line)
        with pytest.raises(MalformedError):
            Invitation.read(line)


@given(st.data())
def test_no_other_spelling_of_a_line_is_taken(data: st.DataObject) -> None:
    line = Card.of(BEN).line
    place = data.draw(st.integers(0, len(line) - 1))
    letter = data.draw(st.characters(exclude_characters=line[place]))
    with pytest.raises(MalformedError):
        Card.read(line[:place] + letter + line[place + 1 :])


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(MalformedError):
        Card.read("walstore-card." + "A" * LINE_SIZE_MAX)


def test_a_grant_can_be_for_exactly_one_document() -> None:
    grant = sign_grant(
        ANNA, prefix="notes/a", to=BEN.public_key, roles=["read"], at_ms=1, is_exact=True
    )
    found = read_grant(grant)
    assert found.is_exact
    assert found.covers("notes/a", is_prefix=False)
    assert not found.covers("notes/ab", is_prefix=False)
    assert not found.covers("notes/a", is_prefix=True)
    wide = read_grant(sign_grant(ANNA, prefix="notes/a", to=BEN.public_key, roles=[], at_ms=1))
    assert wide.covers("notes/ab", is_prefix=False)
    for exact in (False, None, 1, "true"):
        with pytest.raises(MalformedError, match="exact"):
            read_grant({**grant, "exact": exact})
    with pytest.raises(MalformedError, match="signature"):
        read_grant({name: member for name, member in grant.items() if name != "exact"})
    with pytest.raises(GrantError):
        sign_grant(ANNA, prefix="\n", to=BEN.public_key, roles=[], at_ms=1, is_exact=True)
