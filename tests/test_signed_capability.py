"""Capabilities and request signatures, held against what the TypeScript packages recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import load, named
from walstore.canon import canonical_bytes, parse
from walstore.errors import MalformedError
from walstore.signed import Identity
from walstore.signed.capability import (
    Capability,
    CapabilityRefusedError,
    Kind,
    Scope,
    encode_nonce,
    issue_capability,
    path_allowed,
    read_capability,
    request_signature_input,
)
from walstore.signed.capability_shape import AUDIENCE_MAX
from walstore.signed.encoding import encode_signature

CAPS = load("caps.json")
SIGNED = [case for case in load("http.json") if "signing_input" in case]
ANN, BOB = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2))
SCOPE = Scope(["read", "write"], ["log"], ["docs/**"])


def issue(kind: Kind = "device", **changes: Any) -> Capability:
    options: dict[str, Any] = {
        "scope": SCOPE,
        "not_before_s": 1_700_000_000,
        "expires_s": 1_900_000_000,
        "nonce": bytes(16),
        **changes,
    }
    if kind == "member":
        options |= {"subject": BOB.public_key, "subject_kem": BOB.kem_public_key}
    return issue_capability(ANN, kind=kind, **options)


def members_of(capability: Capability) -> dict[str, Any]:
    members = parse(capability.canonical)
    assert isinstance(members, dict)
    return members


def resigned(members: dict[str, Any]) -> dict[str, Any]:
    """The members with a good signature by their issuer."""
    unsigned = {name: member for name, member in members.items() if name != "sig"}
    signed = b"starfish-capcert-v1\n" + canonical_bytes(unsigned)
    return {**unsigned, "sig": encode_signature(ANN.sign(signed))}


# ── what the packages recorded ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", CAPS, ids=[case["user_id"] for case in CAPS])
def test_a_capability_is_issued_byte_for_byte_as_the_packages_issue_it(
    case: dict[str, Any],
) -> None:
    recorded = case["cap"]
    capability = issue_capability(
        Identity.from_seed(case["priv"]),
        subject=recorded["sub"],
        subject_kem=recorded["subKem"],
        scope=Scope(**recorded["scope"]),
        not_before_s=recorded["nbf"],
        expires_s=recorded["exp"],
        nonce=bytes([7]) * 16,
    )
    assert members_of(capability) == recorded
    assert capability.authorization == case["authorization"]


@pytest.mark.parametrize("case", CAPS, ids=[case["user_id"] for case in CAPS])
def test_a_recorded_capability_is_read(case: dict[str, Any]) -> None:
    capability = read_capability(case["cap"])
    assert capability.authorization == case["authorization"]
    assert (capability.kind, capability.subject) == ("device", case["pub"])
    assert capability.scope == Scope(("read", "write"), ("log", "snap", "ring"))
    unsigned = {name: member for name, member in case["cap"].items() if name != "sig"}
    signed = b"starfish-capcert-v1\n" + canonical_bytes(unsigned)
    assert signed.decode() == case["signing_input"]


@named(SIGNED)
def test_a_request_is_signed_byte_for_byte_as_the_packages_sign_it(case: dict[str, Any]) -> None:
    request = case["request"]
    headers = request["headers"]
    signed = request_signature_input(
        method=request["method"],
        path=request["path_and_query"],
        body=(request["body"] or "").encode(),
        host=request["host"],
        ts_ms=int(headers["X-Starfish-Ts"]),
        nonce=headers["X-Starfish-Nonce"],
    )
    assert signed.decode() == case["signing_input"]
    signer = Identity.from_seed(
        next(each["priv"] for each in CAPS if each["pub"] == case["signer_pub"])
    )
    assert encode_signature(signer.sign(signed)) == headers["X-Starfish-Sig"]


# ── reading and issuing ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["device", "member", "audience"])
def test_what_is_issued_can_be_read(kind: Kind) -> None:
    capability = issue(kind)
    assert read_capability(members_of(capability)) == capability


@pytest.mark.parametrize("kind", ["device", "member", "audience"])
def test_no_member_can_be_altered_added_or_left_out(kind: Kind) -> None:
    members = members_of(issue(kind))
    for name in members:
        with pytest.raises(MalformedError):
            read_capability({each: members[each] for each in members if each != name})
        others: tuple[Any, ...] = (None, 0, "", [], {}, [name], "00" * 32)
        for other in others:
            with pytest.raises(MalformedError):
                read_capability({**members, name: other})
    with pytest.raises(MalformedError):
        read_capability({**members, "more": 1})


def test_members_that_the_format_does_not_know_are_kept_if_they_are_signed() -> None:
    members = resigned({**members_of(issue()), "x": {"note": 1}})
    assert members_of(read_capability(members)) == members


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("device", {"v": 2}),
        ("device", {"v": True}),
        ("device", {"kind": "root"}),
        ("device", {"issUserId": "0" * 32}),
        ("device", {"subUserId": ANN.user_id[::-1]}),
        ("device", {"aud": [BOB.public_key]}),
        ("device", {"sub": "00" * 32}),
        ("device", {"subKem": "AB" * 32}),
        ("device", {"nbf": 5, "exp": 5}),
        ("device", {"exp": 1.9e9 + 0.5}),
        ("device", {"nonce": "AAAAAAAAAAAAAAAAAAAAAA"}),
        ("device", {"nonce": "AAAAAAAAAAAAAAAAAAAAAB=="}),
        ("device", {"nonce": "AAAA"}),
        ("device", {"scope": {"ops": "read", "collections": []}}),
        ("device", {"scope": {"ops": ["own"], "collections": []}}),
        ("device", {"scope": {"ops": [["read"]], "collections": []}}),
        ("device", {"scope": {"ops": [], "collections": "log"}}),
        ("device", {"scope": {"ops": [], "collections": [], "paths": [1]}}),
        ("device", {"x": "y" * 8192}),
        ("member", {"subUserId": ANN.user_id}),
        ("audience", {"sub": BOB.public_key}),
        ("audience", {"aud": []}),
        ("audience", {"aud": [BOB.public_key, BOB.public_key]}),
        ("audience", {"aud": [BOB.public_key.upper()]}),
        ("audience", {"aud": [f"{number:064x}" for number in range(AUDIENCE_MAX + 1)]}),
    ],
)
def test_a_flaw_is_refused_though_it_is_signed(kind: Kind, changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        read_capability(resigned({**members_of(issue(kind)), **changes}))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_whatever_is_read_is_malformed_or_a_capability(data: st.DataObject) -> None:
    members = members_of(issue(data.draw(st.sampled_from(["device", "member", "audience"]))))
    name = data.draw(st.sampled_from([*members, "aud", "subUserId"]) | st.text())
    for value in ({**members, name: data.draw(json_values)}, data.draw(json_values)):
        try:
            read_capability(value)
        except MalformedError:
            continue
        assert value == members


@pytest.mark.parametrize(
    "make",
    [
        lambda: issue("member", scope=SCOPE._replace(paths=None)),
        lambda: issue("audience", scope=SCOPE._replace(paths=[])),
        lambda: issue("audience", audience=[]),
        lambda: issue("audience", subject=BOB.public_key),
        lambda: issue("device", audience=[BOB.public_key]),
        lambda: issue("device", subject=BOB.public_key),
        lambda: issue("device", nonce=b"short"),
        lambda: issue("device", expires_s=1_700_000_000),
        lambda: issue("device", scope=SCOPE._replace(ops=["own"])),
        lambda: issue("device", scope=SCOPE._replace(paths=["x" * 8192])),
    ],
)
def test_what_no_server_accepts_is_not_issued(make: Callable[[], Capability]) -> None:
    with pytest.raises(CapabilityRefusedError):
        make()


def test_a_capability_holds_for_its_time_and_for_its_holder() -> None:
    device, member = issue(), issue("member")
    assert [device.is_for(each.public_key) for each in (ANN, BOB)] == [True, False]
    assert [member.is_for(each.public_key) for each in (ANN, BOB)] == [False, True]
    assert issue("audience").is_for(BOB.public_key)
    chosen = issue("audience", audience=[BOB.public_key])
    assert [chosen.is_for(each.public_key) for each in (ANN, BOB)] == [False, True]
    edges = (1_700_000_000 - 301, 1_700_000_000 - 300, 1_900_000_000 + 300, 1_900_000_000 + 301)
    assert [device.is_current(now_s=now_s) for now_s in edges] == [False, True, True, False]


def test_a_nonce_is_spelled_in_padded_base64() -> None:
    assert encode_nonce(b"\xff" * 16) == "/////////////////////w=="


# ── globs ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "globs", "expected"),
    [
        ("docs/1", None, True),
        ("docs/1", [], True),
        ("docs/1", ["docs/*"], True),
        ("docs/1/log", ["docs/*"], False),
        ("docs/1/log", ["docs/**"], True),
        ("docs", ["docs/**"], False),
        ("docs/1", ["docs/1"], True),
        ("docs/11", ["docs/1"], False),
        ("docs/1", ["!docs/2"], False),
        ("docs/2", ["docs/*", "!docs/2"], False),
        ("docs/2", ["!docs/2", "docs/*"], False),
        ("docs/2/below", ["docs/**", "!docs/2"], False),
        ("docs/22", ["docs/**", "!docs/2"], True),
        ("docs//./2/", ["docs/**", "!docs/2"], False),
        ("a/b/cx", ["**/*x"], True),
        ("a/b/secret", ["**", "!**/*secret"], False),
        ("a.b", ["a?b", "a[.]b"], False),
    ],
)
def test_a_glob_allows_what_it_matches_unless_another_denies_it(
    path: str, globs: list[str] | None, expected: bool
) -> None:
    assert path_allowed(path, globs) is expected


@given(
    st.lists(st.sampled_from(["**", "*", "/", "a", "b"]), max_size=8).map("".join),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map("/".join),
)
def test_a_glob_matches_as_its_regular_expression_does(glob: str, path: str) -> None:
    parts = {"**": ".*", "*": "[^/]*"}
    pattern = "".join(parts.get(part, part) for part in re.findall(r"\*\*|\*|[^*]", glob))
    # An empty list of globs would allow all.
    assert path_allowed(path, [glob]) is bool(re.fullmatch(pattern, path))
    denied = bool(re.fullmatch(f"{pattern}(/.*)?", path))
    assert path_allowed(path, ["**", f"!{glob}"]) is not denied


def test_no_glob_is_slow() -> None:
    assert not path_allowed("a" * 2000, ["*a" * 500 + "b"])
