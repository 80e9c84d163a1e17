"""Grants: what is signed is what is read, and nothing else is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.canon import canonical_bytes
from walstore.errors import MalformedError
from walstore.signed import Identity
from walstore.signed.encoding import encode_signature
from walstore.signed.grant import (
    PREFIX_SIZE_MAX,
    Grant,
    GrantError,
    Role,
    read_grant,
    sign_grant,
)

ISSUER = Identity.from_seed(bytes([1]) * 32)
MEMBER = Identity.from_seed(bytes([2]) * 32)
AT_MS = 1_700_000_000_000


def signed(**changes: Any) -> dict[str, Any]:
    """A grant with a good signature, whatever its members are."""
    members: dict[str, Any] = {
        "v": 1,
        "prefix": "notes/",
        "to": MEMBER.public_key,
        "roles": ["read", "write"],
        "by": ISSUER.public_key,
        "at": AT_MS,
        **changes,
    }
    members = {name: member for name, member in members.items() if member is not ...}
    text = b"walstore-grant-v1\n" + canonical_bytes(members)
    return {**members, "signature": encode_signature(ISSUER.sign(text))}


@given(
    prefix=st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40),
    roles=st.lists(st.sampled_from(Role)),
    at_ms=st.integers(0, 2**52),
    life_ms=st.none() | st.integers(1, 2**40),
)
def test_a_grant_is_read_as_it_was_made(
    prefix: str, roles: list[Role], at_ms: int, life_ms: int | None
) -> None:
    expires_ms = None if life_ms is None else at_ms + life_ms
    value = sign_grant(
        ISSUER,
        prefix=prefix,
        to=MEMBER.public_key,
        roles=roles,
        at_ms=at_ms,
        expires_ms=expires_ms,
    )
    assert read_grant(value) == Grant(
        prefix=prefix,
        to=MEMBER.public_key,
        roles=tuple(sorted(set(roles))),
        by=ISSUER.public_key,
        at_ms=at_ms,
        expires_ms=expires_ms,
    )


def test_what_is_signed_is_the_tag_and_the_canonical_text_of_the_other_members() -> None:
    made = sign_grant(
        ISSUER, prefix="notes/", to=MEMBER.public_key, roles=["write", "read"], at_ms=AT_MS
    )
    assert made == signed()


def test_an_empty_list_of_roles_revokes() -> None:
    assert read_grant(signed(roles=[])).roles == ()


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("prefix", "other/"),
        ("to", ISSUER.public_key),
        ("roles", ["grant"]),
        ("by", MEMBER.public_key),
        ("at", AT_MS + 1),
        ("expires", AT_MS + 1),
        ("signature", encode_signature(bytes(64))),
        ("signature", "no signature"),
        ("signature", None),
    ],
)
def test_a_grant_that_was_changed_is_refused(name: str, member: object) -> None:
    with pytest.raises(MalformedError):
        read_grant({**signed(), name: member})


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": True},
        {"v": 1.0},
        {"v": ...},
        {"prefix": 7},
        {"prefix": "a" * (PREFIX_SIZE_MAX + 1)},
        {"prefix": "line\nbreak"},
        {"prefix": "\ud800"},
        {"to": MEMBER.public_key.upper()},
        {"to": "00" * 32},
        {"to": MEMBER.public_key[:-1]},
        {"to": None},
        {"roles": ["write", "read"]},
        {"roles": ["read", "read"]},
        {"roles": ["admin"]},
        {"roles": [["read"]]},
        {"roles": "read"},
        {"roles": {"read": True}},
        {"roles": ...},
        {"at": -1},
        {"at": AT_MS + 0.5},
        {"at": True},
        {"at": "now"},
        {"expires": AT_MS},
        {"expires": None},
        {"expires": "later"},
        {"note": "hello"},
    ],
)
def test_a_grant_of_another_shape_is_refused_however_well_it_is_signed(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(MalformedError):
        read_grant(signed(**changes))


@pytest.mark.parametrize("value", [None, 7, "grant", [], {}, [signed()], {"signature": "x"}])
def test_what_is_no_object_with_these_members_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        read_grant(value)


def test_a_giant_time_is_refused() -> None:
    with pytest.raises(MalformedError):
        read_grant({**signed(), "at": 10**5000})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    st.sampled_from(sorted(signed())),
)
def test_no_member_raises_anything_else(member: object, name: str) -> None:
    value = signed()
    if value[name] == member:
        return
    with pytest.raises(MalformedError):
        read_grant({**value, name: member})


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": "\x00"},
        {"to": "somebody"},
        {"roles": ["admin"]},
        {"at_ms": -1},
        {"expires_ms": AT_MS},
    ],
)
def test_a_grant_that_nobody_would_read_cannot_be_made(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "prefix": "notes/",
        "to": MEMBER.public_key,
        "roles": ["read"],
        "at_ms": AT_MS,
    }
    with pytest.raises(GrantError):
        sign_grant(ISSUER, **{**arguments, **wrong})
