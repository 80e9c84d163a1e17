"""Roles: from the operator's file and from grants, and never more than they say."""

from __future__ import annotations

import time
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.relay import roles as roles_module
from walstore.relay.roles import Role, Roles, RolesError
from walstore.signed import Identity
from walstore.signed.grant import Grant
from walstore.wire.limits import TS_AHEAD_MS_MAX

OWNER, ANNA, BEN, CARL = (
    Identity.from_seed(bytes([number]) * 32).public_key for number in range(1, 5)
)
NOW_MS = 1_700_000_000_000
EVERYTHING = (Role.READ, Role.WRITE, Role.SNAPSHOT)


def roles_of(text: str) -> Roles:
    names = {"OWNER": OWNER, "ANNA": ANNA, "BEN": BEN, "CARL": CARL}
    for name, key in names.items():
        text = text.replace(name, f'"{key}"')
    return Roles.from_table(tomllib.loads(text), source="roles.toml")


def grant(
    to: str,
    *given_roles: Role,
    by: str = OWNER,
    prefix: str = "notes/",
    at_ms: int = NOW_MS,
    expires_ms: int | None = None,
) -> Grant:
    return Grant(prefix, to, tuple(sorted(given_roles)), by, at_ms, expires_ms)


def allows(roles: Roles, role: Role, document: str, *keys: str, now_ms: int = NOW_MS) -> bool:
    return roles.allows(role, document, set(keys), now_ms)


def owned() -> Roles:
    return roles_of('[[grant]]\nprefix = "notes/"\ngrant = [OWNER]')


# The file.


def test_without_an_entry_nobody_may_do_anything() -> None:
    roles = roles_of("")
    assert not any(allows(roles, role, "notes/a", ANNA) for role in Role)


def test_a_prefix_covers_the_keys_that_begin_with_it_exactly() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nwrite = [ANNA]')
    assert allows(roles, Role.WRITE, "notes/a", ANNA)
    assert allows(roles, Role.WRITE, "notes/", ANNA)
    for other in ("notes", "Notes/a", "anotes/", "note", "n"):
        assert not allows(roles, Role.WRITE, other, ANNA)


def test_a_key_covers_that_document_alone() -> None:
    roles = roles_of('[[grant]]\nkey = "notes/a"\nwrite = [ANNA]')
    assert allows(roles, Role.WRITE, "notes/a", ANNA)
    assert not allows(roles, Role.WRITE, "notes/ab", ANNA)
    assert not roles.allows_prefix(Role.WRITE, "notes/a", {ANNA}, NOW_MS)


def test_one_role_does_not_bring_another() -> None:
    roles = roles_of('[[grant]]\nprefix = ""\nwrite = [ANNA]\nsnapshot = [BEN]')
    assert not allows(roles, Role.READ, "x", ANNA)
    assert not allows(roles, Role.SNAPSHOT, "x", ANNA)
    assert not allows(roles, Role.WRITE, "x", BEN)


def test_entries_add_up() -> None:
    roles = roles_of(
        '[[grant]]\nprefix = "notes/"\nread = [ANNA]\n'
        '[[grant]]\nprefix = "notes/"\nread = [BEN]\n'
        '[[grant]]\nprefix = "no"\nwrite = [ANNA]\n'
        '[[grant]]\nkey = "notes/a"\nsnapshot = [ANNA]\n'
    )
    assert allows(roles, Role.READ, "notes/a", ANNA)
    assert allows(roles, Role.READ, "notes/a", BEN)
    assert allows(roles, Role.WRITE, "notes/a", ANNA)
    assert allows(roles, Role.SNAPSHOT, "notes/a", ANNA)
    assert not allows(roles, Role.SNAPSHOT, "notes/a", BEN)


def test_any_of_the_proved_keys_is_enough() -> None:
    roles = roles_of('[[grant]]\nprefix = ""\nwrite = [ANNA]')
    assert allows(roles, Role.WRITE, "x", BEN, ANNA)
    assert not allows(roles, Role.WRITE, "x", BEN, CARL)
    assert not allows(roles, Role.WRITE, "x")


def test_what_anybody_may_read_needs_no_key_but_writing_does() -> None:
    roles = roles_of('[[grant]]\nprefix = "wiki/"\nread = "any"\nwrite = "any"')
    assert allows(roles, Role.READ, "wiki/a")
    assert allows(roles, Role.READ, "wiki/a", CARL)
    assert roles.allows_prefix(Role.READ, "wiki/", set(), NOW_MS)
    assert allows(roles, Role.WRITE, "wiki/a", CARL)
    assert not allows(roles, Role.WRITE, "wiki/a")
    assert not allows(roles, Role.READ, "other")


def test_a_prefix_is_allowed_if_all_of_it_is() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\nread = [ANNA]')
    assert roles.allows_prefix(Role.READ, "notes/", {ANNA}, NOW_MS)
    assert roles.allows_prefix(Role.READ, "notes/2024", {ANNA}, NOW_MS)
    assert not roles.allows_prefix(Role.READ, "notes", {ANNA}, NOW_MS)
    assert not roles.allows_prefix(Role.READ, "", {ANNA}, NOW_MS)


def test_an_open_relay_lets_every_proved_key_do_all_but_grant() -> None:
    roles = Roles.open_to_all()
    assert all(allows(roles, role, "x", CARL) for role in EVERYTHING)
    assert not any(allows(roles, role, "x") for role in Role)
    assert not roles.may_grant(grant(ANNA, Role.READ, by=CARL), NOW_MS)


@pytest.mark.parametrize(
    ("text", "entry", "member"),
    [
        ("[relay]", 0, "relay"),
        ("grant = 1", 0, "grant"),
        ("grant = [1]", 0, "grant"),
        ("[grant]", 0, "grant"),
        ('[[grant]]\nprefix = ""\n[[grant]]\nprefix = ""\nwritet = []', 2, "writet"),
        ('[[grant]]\nkey = "a"\nprefix = "a"', 1, "prefix"),
        ("[[grant]]\nread = []", 1, "prefix"),
        ('[[grant]]\nkey = ""', 1, "key"),
        ("[[grant]]\nkey = 7", 1, "key"),
        ('[[grant]]\nkey = "a\\nb"', 1, "key"),
        ('[[grant]]\nprefix = ["a"]', 1, "prefix"),
        ('[[grant]]\nprefix = ""\nread = "all"', 1, "read"),
        ('[[grant]]\nprefix = ""\nread = ["any"]', 1, "read"),
        ('[[grant]]\nprefix = ""\nsnapshot = "any"', 1, "snapshot"),
        ('[[grant]]\nprefix = ""\ngrant = "any"', 1, "grant"),
        ('[[grant]]\nprefix = ""\nwrite = [1]', 1, "write"),
        ('[[grant]]\nprefix = ""\nwrite = ["abc"]', 1, "write"),
        (f'[[grant]]\nprefix = ""\nwrite = ["{"AB" * 32}"]', 1, "write"),
        (f'[[grant]]\nprefix = ""\nwrite = ["{"00" * 32}"]', 1, "write"),
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, entry: int, member: str) -> None:
    with pytest.raises(RolesError) as caught:
        Roles.from_table(tomllib.loads(text), source="roles.toml")
    error = caught.value
    assert (error.source, error.entry, error.member) == ("roles.toml", entry, member)
    assert str(error).startswith("roles.toml: ")
    assert f"`{member}`" in str(error)


# Grants.


def test_a_grant_by_a_holder_in_the_file_counts_for_its_prefix() -> None:
    roles = owned()
    given_grant = grant(ANNA, Role.READ, Role.WRITE)
    assert roles.may_grant(given_grant, NOW_MS)
    assert not allows(roles, Role.WRITE, "notes/a", ANNA)
    assert roles.add(given_grant)
    assert allows(roles, Role.WRITE, "notes/a", ANNA)
    assert roles.allows_prefix(Role.READ, "notes/", {ANNA}, NOW_MS)
    assert not allows(roles, Role.SNAPSHOT, "notes/a", ANNA)
    assert not allows(roles, Role.WRITE, "notes", ANNA)
    assert not allows(roles, Role.WRITE, "notes/a", BEN)


def test_a_grant_for_more_than_its_issuer_holds_is_not_his_to_give() -> None:
    roles = owned()
    wide = grant(ANNA, Role.READ, prefix="n")
    assert not roles.may_grant(wide, NOW_MS)
    # Even if it were kept, it would only reach as far as its issuer does.
    roles.add(wide)
    assert not allows(roles, Role.READ, "news", ANNA)
    assert allows(roles, Role.READ, "notes/a", ANNA)


def test_who_holds_grant_for_one_document_gives_roles_for_that_one() -> None:
    roles = roles_of('[[grant]]\nkey = "notes/a"\ngrant = [OWNER]')
    one = grant(ANNA, Role.READ, prefix="notes/a")
    assert roles.may_grant(one, NOW_MS)
    roles.add(one)
    assert allows(roles, Role.READ, "notes/a", ANNA)
    assert not allows(roles, Role.READ, "notes/ab", ANNA)
    assert not roles.may_grant(grant(ANNA, Role.READ, prefix="notes/"), NOW_MS)


def test_the_newest_grant_counts_in_any_order_of_arrival() -> None:
    older, newer = grant(ANNA, Role.WRITE), grant(ANNA, at_ms=NOW_MS + 1)
    for first, second in ((older, newer), (newer, older)):
        roles = owned()
        assert roles.add(first)
        assert roles.add(second) is (second is newer)
        assert not allows(roles, Role.WRITE, "notes/a", ANNA)


def test_a_grant_that_is_sent_again_does_not_undo_its_revocation() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.WRITE))
    roles.add(grant(ANNA, at_ms=NOW_MS + 1))
    assert not roles.add(grant(ANNA, Role.WRITE))
    assert not allows(roles, Role.WRITE, "notes/a", ANNA)


def test_a_grant_ends_when_it_says() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.WRITE, expires_ms=NOW_MS + 10))
    assert allows(roles, Role.WRITE, "notes/a", ANNA, now_ms=NOW_MS + 9)
    assert not allows(roles, Role.WRITE, "notes/a", ANNA, now_ms=NOW_MS + 10)


def test_of_two_issuers_one_can_revoke_only_what_he_gave() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [OWNER, CARL]')
    roles.add(grant(ANNA, Role.WRITE))
    roles.add(grant(ANNA, by=CARL, at_ms=NOW_MS + 1))
    assert allows(roles, Role.WRITE, "notes/a", ANNA)


def test_who_was_made_a_giver_gives_but_makes_no_givers() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.GRANT))
    assert roles.may_grant(grant(BEN, Role.WRITE, by=ANNA), NOW_MS)
    assert not roles.may_grant(grant(BEN, Role.GRANT, by=ANNA), NOW_MS)
    roles.add(grant(BEN, Role.GRANT, Role.WRITE, by=ANNA))
    assert allows(roles, Role.WRITE, "notes/a", BEN)
    assert not roles.may_grant(grant(CARL, Role.READ, by=BEN), NOW_MS)
    roles.add(grant(CARL, Role.READ, by=BEN))
    assert not allows(roles, Role.READ, "notes/a", CARL)


def test_an_issuer_who_loses_the_role_takes_his_grants_with_him() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.GRANT))
    roles.add(grant(BEN, Role.WRITE, by=ANNA))
    assert allows(roles, Role.WRITE, "notes/a", BEN)
    roles.add(grant(ANNA, at_ms=NOW_MS + 1))
    assert not allows(roles, Role.WRITE, "notes/a", BEN)


def test_a_giver_whose_time_is_over_takes_his_grants_with_him() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.GRANT, expires_ms=NOW_MS + 10))
    roles.add(grant(BEN, Role.WRITE, by=ANNA))
    assert allows(roles, Role.WRITE, "notes/a", BEN, now_ms=NOW_MS + 9)
    assert not allows(roles, Role.WRITE, "notes/a", BEN, now_ms=NOW_MS + 10)
    assert not roles.may_grant(grant(CARL, Role.READ, by=ANNA), NOW_MS + 10)


def test_stored_grants_of_a_key_that_left_the_file_count_no_more() -> None:
    roles = roles_of('[[grant]]\nprefix = "notes/"\ngrant = [CARL]')
    roles.add(grant(ANNA, Role.WRITE))
    assert not allows(roles, Role.WRITE, "notes/a", ANNA)


def test_who_may_no_longer_give_may_still_take_back() -> None:
    roles = owned()
    roles.add(grant(ANNA, Role.GRANT))
    roles.add(grant(BEN, Role.WRITE, by=ANNA))
    roles.add(grant(ANNA, at_ms=NOW_MS + 1))
    assert roles.may_grant(grant(BEN, by=ANNA, at_ms=NOW_MS + 2), NOW_MS)
    assert not roles.may_grant(grant(CARL, by=ANNA, at_ms=NOW_MS + 2), NOW_MS)


def test_a_grant_from_the_far_future_is_refused_because_nothing_could_be_newer() -> None:
    roles = owned()
    ahead = grant(ANNA, Role.READ, at_ms=NOW_MS + TS_AHEAD_MS_MAX)
    assert roles.may_grant(ahead, NOW_MS)
    assert not roles.may_grant(ahead, NOW_MS - 1)


def test_one_issuer_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles_module, "GRANTS_PER_ISSUER_MAX", 2)
    roles = owned()
    roles.add(grant(ANNA, Role.READ))
    roles.add(grant(BEN, Role.READ))
    assert not roles.may_grant(grant(CARL, Role.READ), NOW_MS)
    assert roles.may_grant(grant(ANNA, Role.WRITE, at_ms=NOW_MS + 1), NOW_MS)


# Laws.

_KEYS = [OWNER, ANNA, BEN, CARL]
_PREFIXES = ["", "a", "a/", "a/b", "b"]
_grants = st.builds(
    Grant,
    prefix=st.sampled_from(_PREFIXES),
    to=st.sampled_from(_KEYS),
    roles=st.sets(st.sampled_from(Role)).map(lambda chosen: tuple(sorted(chosen))),
    by=st.sampled_from(_KEYS),
    at_ms=st.integers(0, 3),
    expires_ms=st.none() | st.integers(4, 8),
)
_entries = st.lists(
    st.fixed_dictionaries(
        {"prefix": st.sampled_from(_PREFIXES)},
        optional={
            role.value: st.lists(st.sampled_from(_KEYS), max_size=2, unique=True) for role in Role
        },
    ),
    max_size=4,
)


def plainly_allows(
    entries: list[dict[str, Any]],
    grants: list[Grant],
    role: Role,
    document: str,
    key: str,
    now: int,
) -> bool:
    """The rules, as they are written, one after the other."""
    newest: dict[tuple[str, str, str], Grant] = {}
    for each in grants:
        place = each.by, each.to, each.prefix
        if place not in newest or newest[place].at_ms < each.at_ms:
            newest[place] = each

    def in_file(wanted: Role, who: str) -> bool:
        return any(
            document.startswith(entry["prefix"]) and who in entry.get(wanted.value, [])
            for entry in entries
        )

    def by_grant(wanted: Role, who: str, is_issuer: Any) -> bool:
        return any(
            each.to == who
            and wanted in each.roles
            and document.startswith(each.prefix)
            and (each.expires_ms is None or now < each.expires_ms)
            and is_issuer(each.by)
            for each in newest.values()
        )

    def is_first(who: str) -> bool:
        return in_file(Role.GRANT, who)

    def is_issuer(who: str) -> bool:
        return is_first(who) or by_grant(Role.GRANT, who, is_first)

    return in_file(role, key) or by_grant(role, key, is_first if role is Role.GRANT else is_issuer)


@given(_entries, st.lists(_grants, max_size=8), st.sampled_from(["a", "a/b", "b", "c"]))
def test_the_answers_are_those_of_the_rules(
    entries: list[dict[str, Any]], grants: list[Grant], document: str
) -> None:
    roles = Roles.from_table({"grant": entries}, source="roles.toml")
    for each in grants:
        roles.add(each)
    for role in Role:
        for key in _KEYS:
            for now in (3, 6, 9):
                expected = plainly_allows(entries, grants, role, document, key, now)
                assert roles.allows(role, document, {key}, now) is expected
                assert roles.allows(role, document, {key}, now) is expected


@given(_entries, st.lists(_grants, max_size=8), st.sampled_from(_PREFIXES))
def test_what_holds_for_a_prefix_holds_for_every_document_below(
    entries: list[dict[str, Any]], grants: list[Grant], prefix: str
) -> None:
    roles = Roles.from_table({"grant": entries}, source="roles.toml")
    for each in grants:
        roles.add(each)
    for role in Role:
        for key in _KEYS:
            if roles.allows_prefix(role, prefix, {key}, 3):
                assert all(roles.allows(role, prefix + end, {key}, 3) for end in ("", "/", "zz"))


def test_a_repeated_question_costs_next_to_nothing() -> None:
    entries = [{"prefix": f"space-{number}/", "write": [ANNA]} for number in range(1000)]
    roles = Roles.from_table({"grant": entries}, source="roles.toml")
    keys = {ANNA}
    roles.allows(Role.WRITE, "space-500/a", keys, NOW_MS)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(2000):
            roles.allows(Role.WRITE, "space-500/a", keys, NOW_MS)
        times.append((time.perf_counter() - begun) / 2000)
    # About 0.3 µs; the bound leaves room for a busy machine.
    assert min(times) < 10e-6
