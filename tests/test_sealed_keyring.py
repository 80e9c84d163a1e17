"""Keyrings: who gets a key, and every way in which a relay could try to change that."""

from __future__ import annotations

import copy
import random
import sys
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.canon import canonical_text, parse
from walstore.errors import PeerError, UsageError
from walstore.sealed import (
    ContentKeys,
    KeyringMovedError,
    KeyringRefusedError,
    KeyringRollbackError,
    NativeEncryptor,
    RandomnessError,
    RecipientKeyError,
    RecipientsError,
    SealContext,
    StarfishEncryptor,
    StarfishExtraMissingError,
    UnreadableError,
    add_recipient,
    bind_keyring,
    create_keyring,
    key_id,
    open_keyring,
    rotate_keyring,
)
from walstore.sealed.entry import entry_signing_input
from walstore.signed import Identity, verify_bytes

ADMIN, ALICE, BOB, EVE = (Identity.from_seed(bytes([number]) * 32) for number in range(4))
SCOPE = "spaces/s1/doc"
CONTEXT = SealContext(SCOPE, ALICE.public_key, 1)

Keyring = dict[str, Any]


def seeded(seed: int = 0) -> Any:
    return random.Random(seed).randbytes


def make(*recipients: Identity, scope: str = SCOPE, seed: int = 0) -> Keyring:
    keys = [recipient.kem_public_key for recipient in recipients]
    return create_keyring(keys, scope=scope, adder=ADMIN, now_s=1700000000, randomness=seeded(seed))


def read(keyring: object, recipient: Identity = ALICE, **options: Any) -> ContentKeys:
    defaults = {"scope": SCOPE, "epoch_min": 0, "trusted_adders": {ADMIN.public_key}}
    chosen: dict[str, Any] = {**defaults, **options}
    return open_keyring(keyring, recipient=recipient, verify=verify_bytes, **chosen)


def rotate(keyring: Keyring, *recipients: Identity, scope: str = SCOPE, seed: int = 1) -> Keyring:
    return rotate_keyring(
        keyring,
        read(keyring, scope=scope, trust_unbound=True),
        [recipient.kem_public_key for recipient in recipients],
        scope=scope,
        adder=ADMIN,
        now_s=1700000100,
        randomness=seeded(seed),
    )


def add(keyring: Keyring, recipient: Identity, seed: int = 2) -> Keyring:
    return add_recipient(
        keyring,
        read(keyring),
        recipient.kem_public_key,
        adder=ADMIN,
        now_s=1700000200,
        randomness=seeded(seed),
    )


def entries(keyring: Keyring, epoch: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = keyring["epochs"][str(epoch)]["wrappedKeys"]
    return found


def unbound(keyring: Keyring) -> Keyring:
    bare = copy.deepcopy(keyring)
    for epoch in bare["epochs"].values():
        del epoch["x"]
    return bare


def refusal(keyring: object, recipient: Identity = ALICE, **options: Any) -> KeyringRefusedError:
    with pytest.raises(KeyringRefusedError) as caught:
        read(keyring, recipient, **options)
    assert isinstance(caught.value, PeerError)
    return caught.value


def test_every_recipient_gets_the_same_key_and_nobody_else_any() -> None:
    keyring = make(ALICE, BOB)
    assert read(keyring, ALICE).key(1) == read(keyring, BOB).key(1)
    assert "0 entries" in refusal(keyring, EVE).reason


def test_a_keyring_survives_the_wire() -> None:
    keyring = make(ALICE, BOB)
    assert read(parse(canonical_text(keyring))).key_ids == read(keyring).key_ids


def test_an_added_recipient_reads_from_the_current_epoch_on() -> None:
    before = rotate(make(ALICE), ALICE)
    frozen = copy.deepcopy(before)
    after = add(before, BOB)
    assert before == frozen
    assert read(after, BOB).key(2) == read(after, ALICE).key(2)
    with pytest.raises(UnreadableError):
        read(after, BOB).key(1)


def test_rotating_shuts_out_who_is_left_out_and_keeps_the_past() -> None:
    first = make(ALICE, EVE)
    frozen = copy.deepcopy(first)
    second = rotate(first, ALICE)
    assert first == frozen
    assert read(second).current_epoch == 2
    assert read(second).key(1) == read(first).key(1)
    assert read(second).key(2) != read(first).key(1)
    refusal(second, EVE)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([StarfishEncryptor, NativeEncryptor]))
def test_a_revoked_member_opens_nothing_sealed_later(
    seed: int, kind: type[StarfishEncryptor] | type[NativeEncryptor]
) -> None:
    first = make(ALICE, EVE, seed=seed)
    alice = kind(read(first, ALICE), randomness=seeded(seed + 1))
    eve = kind(read(first, EVE), randomness=seeded(seed + 2))
    assert eve.open(alice.seal({"n": 1}, CONTEXT), CONTEXT) == {"n": 1}
    alice.adopt(read(rotate(first, ALICE, seed=seed + 3), ALICE))
    later = alice.seal({"n": 2}, CONTEXT)
    assert later["_epoch"] == 2
    for claimed in (later, later | {"_epoch": 1}):
        with pytest.raises(PeerError):
            eve.open(claimed, CONTEXT)


def test_unknown_members_are_carried_along() -> None:
    keyring = make(ALICE)
    keyring["note"] = "mine"
    keyring["epochs"]["1"]["x"]["other"] = 1
    after = rotate(add(keyring, BOB), ALICE, BOB)
    assert after["note"] == "mine"
    assert after["epochs"]["1"]["x"]["other"] == 1
    assert after["epochs"]["1"]["x"]["binding"] == keyring["epochs"]["1"]["x"]["binding"]


@pytest.mark.parametrize("recipients", [[], [ALICE.kem_public_key] * 2])
def test_an_epoch_needs_recipients_and_each_once(recipients: list[str]) -> None:
    with pytest.raises(RecipientsError) as caught:
        create_keyring(recipients, scope=SCOPE, adder=ADMIN, now_s=0, randomness=seeded())
    assert isinstance(caught.value, UsageError)


def test_a_recipient_is_added_once() -> None:
    with pytest.raises(RecipientsError):
        add(make(ALICE), ALICE)


@pytest.mark.parametrize(
    "key",
    ["", "00" * 32, "01" + "00" * 31, ALICE.kem_public_key.upper(), ALICE.kem_public_key[:-1]],
)
def test_nothing_is_wrapped_for_an_unusable_key(key: str) -> None:
    with pytest.raises(RecipientKeyError):
        create_keyring([key], scope=SCOPE, adder=ADMIN, now_s=0, randomness=seeded())


def test_a_source_of_too_little_randomness_is_refused() -> None:
    with pytest.raises(RandomnessError):
        create_keyring(
            [ALICE.kem_public_key], scope=SCOPE, adder=ADMIN, now_s=0, randomness=lambda count: b""
        )


def test_keys_of_another_epoch_change_nothing() -> None:
    first = make(ALICE)
    second, old = rotate(first, ALICE), read(first)
    options: dict[str, Any] = {"adder": ADMIN, "now_s": 0, "randomness": seeded()}
    with pytest.raises(KeyringMovedError):
        add_recipient(second, old, BOB.kem_public_key, **options)
    with pytest.raises(KeyringMovedError):
        rotate_keyring(second, old, [BOB.kem_public_key], scope=SCOPE, **options)
    with pytest.raises(KeyringMovedError):
        bind_keyring(second, old, scope=SCOPE, adder=ADMIN)


def test_rotation_never_replaces_an_epoch() -> None:
    keyring = make(ALICE)
    keys = read(keyring)
    keyring["epochs"]["2"] = {"wrappedKeys": []}
    with pytest.raises(KeyringRefusedError):
        rotate_keyring(
            keyring,
            keys,
            [ALICE.kem_public_key],
            scope=SCOPE,
            adder=ADMIN,
            now_s=0,
            randomness=seeded(),
        )


def test_a_keyring_older_than_one_seen_is_refused() -> None:
    first = make(ALICE)
    second = rotate(first, ALICE)
    seen = read(second).current_epoch
    assert read(second, epoch_min=seen).current_epoch == 2
    with pytest.raises(KeyringRollbackError) as caught:
        read(first, epoch_min=seen)
    assert (caught.value.epoch, caught.value.epoch_min) == (1, 2)


def test_a_current_epoch_set_back_is_refused_at_first_sight() -> None:
    keyring = rotate(make(ALICE), ALICE)
    with pytest.raises(KeyringRollbackError):
        read({**keyring, "currentEpoch": 1})


def test_a_current_epoch_set_forward_is_refused() -> None:
    assert "missing" in refusal({**make(ALICE), "currentEpoch": 2}).reason


def test_the_keyring_of_another_document_is_refused() -> None:
    foreign = make(ALICE, EVE, scope="spaces/s1/other")
    assert "another scope" in refusal(foreign).reason
    assert "another scope" in refusal(foreign, trust_unbound=True).reason


def test_the_entry_of_another_document_is_refused() -> None:
    keyring, foreign = make(ALICE), make(ALICE, EVE, scope="spaces/s1/other", seed=5)
    keyring["epochs"]["1"]["wrappedKeys"] = foreign["epochs"]["1"]["wrappedKeys"]
    assert "another key" in refusal(keyring).reason


def test_a_binding_moved_between_epochs_is_refused() -> None:
    keyring = rotate(make(ALICE), ALICE)
    keyring["epochs"]["2"]["x"] = keyring["epochs"]["1"]["x"]
    assert "signature" in refusal(keyring).reason


@pytest.mark.parametrize("member", ["by", "cek", "scope", "sig"])
@pytest.mark.parametrize("value", ["", None, 7, EVE.public_key, [], {"a": 1}])
def test_an_altered_binding_is_refused(member: str, value: object) -> None:
    keyring = make(ALICE)
    keyring["epochs"]["1"]["x"]["binding"][member] = value
    refusal(keyring)
    refusal(keyring, trust_unbound=True)


@pytest.mark.parametrize("extension", [None, 7, [], {}, {"binding": None}])
def test_an_epoch_without_binding_needs_explicit_trust(extension: object) -> None:
    keyring = make(ALICE)
    keyring["epochs"]["1"]["x"] = extension
    assert "not bound" in refusal(keyring).reason
    assert read(keyring, trust_unbound=True).current_epoch == 1


def test_a_binding_by_someone_untrusted_is_refused() -> None:
    keyring = make(ALICE)
    bare = unbound(keyring)
    rogue = bind_keyring(bare, read(keyring), scope=SCOPE, adder=EVE)
    assert "not trusted" in refusal(rogue).reason


def test_an_unbound_keyring_is_bound_after_the_fact() -> None:
    keyring = unbound(rotate(make(ALICE), ALICE))
    frozen = copy.deepcopy(keyring)
    keys = read(keyring, trust_unbound=True)
    bound = bind_keyring(keyring, keys, scope=SCOPE, adder=ADMIN)
    assert keyring == frozen
    assert read(bound).key_ids == keys.key_ids
    # Somebody else's binding must not take the place of one that is there.
    assert bind_keyring(bound, keys, scope=SCOPE, adder=EVE) == bound


def test_a_pinned_key_cannot_be_replaced_even_without_bindings() -> None:
    keyring, foreign = unbound(make(ALICE)), unbound(make(ALICE, EVE, seed=5))
    pins = read(keyring, trust_unbound=True).key_ids
    assert read(keyring, trust_unbound=True, key_ids=pins).key_ids == pins
    assert "than before" in refusal(foreign, trust_unbound=True, key_ids=pins).reason


def test_two_entries_for_the_reader_are_refused_whatever_they_hold() -> None:
    keyring = make(ALICE)
    keyring["epochs"]["1"]["wrappedKeys"] = 2 * entries(keyring, 1)
    assert "2 entries" in refusal(keyring).reason
    keyring["epochs"]["1"]["wrappedKeys"][1] = {"subKem": ALICE.kem_public_key}
    assert "2 entries" in refusal(keyring).reason


def test_an_entry_by_a_rogue_adder_is_refused() -> None:
    rogue = create_keyring(
        [ALICE.kem_public_key], scope=SCOPE, adder=EVE, now_s=0, randomness=seeded()
    )
    assert "not trusted" in refusal(rogue).reason


def test_an_entry_that_names_a_trusted_adder_but_is_not_theirs_is_refused() -> None:
    rogue = create_keyring(
        [ALICE.kem_public_key], scope=SCOPE, adder=EVE, now_s=0, randomness=seeded()
    )
    entries(rogue, 1)[0]["addedBy"] = ADMIN.public_key
    assert "signature" in refusal(rogue).reason


def test_an_entry_moved_to_another_epoch_is_refused() -> None:
    keyring = rotate(make(ALICE), ALICE)
    keyring["epochs"]["2"]["wrappedKeys"] = entries(keyring, 1)
    assert "signature" in refusal(keyring).reason


def test_an_entry_addressed_to_another_is_refused() -> None:
    keyring = make(EVE)
    entries(keyring, 1)[0]["subKem"] = ALICE.kem_public_key
    assert "signature" in refusal(keyring).reason


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_altered_text_of_an_entry_is_refused(data: st.DataObject) -> None:
    keyring = make(ALICE)
    entry = entries(keyring, 1)[0]
    member = data.draw(st.sampled_from(["subKem", "ephKem", "ct", "addedBy", "addedSig"]))
    place = data.draw(st.integers(0, len(entry[member]) - 1))
    letter = data.draw(
        st.sampled_from("0a+/= Z\n").filter(lambda char: char != entry[member][place])
    )
    entry[member] = entry[member][:place] + letter + entry[member][place + 1 :]
    refusal(keyring)


@pytest.mark.parametrize("member", ["subKem", "ephKem", "ct", "addedBy", "addedSig", "addedAt"])
@pytest.mark.parametrize("value", [None, 7, [], {}, "", "\ud800", True, float("nan")])
def test_a_malformed_entry_is_refused(member: str, value: object) -> None:
    keyring = make(ALICE)
    entries(keyring, 1)[0][member] = value
    refusal(keyring)


def signed_entry(keyring: Keyring, **members: object) -> Keyring:
    """The keyring with an entry that its trusted adder really signed."""
    entry = entries(keyring, 1)[0] | members
    entry["addedSig"] = b64encode(ADMIN.sign(entry_signing_input(entry, 1))).decode()
    keyring["epochs"]["1"]["wrappedKeys"] = [entry]
    return keyring


@pytest.mark.parametrize(
    "members",
    [
        {"ephKem": "00" * 32},
        {"ephKem": "01" + "00" * 31},
        {"ephKem": "zz" * 32},
        {"ephKem": ALICE.kem_public_key},
        {"ct": ""},
        {"ct": "AAAA"},
        {"ct": "A" * 80},
        {"ct": "A" * 84},
    ],
)
def test_an_entry_that_does_not_unwrap_is_refused(members: dict[str, str]) -> None:
    refusal(signed_entry(make(ALICE), **members))


def test_a_bad_old_epoch_is_skipped_and_said_why() -> None:
    keyring = rotate(make(ALICE), ALICE)
    entries(keyring, 1)[0]["addedAt"] = 0
    keys = read(keyring)
    assert list(keys.key_ids) == [2]
    assert "signature" in keys.skipped[1]


@pytest.mark.parametrize(
    "keyring",
    [
        None,
        [],
        "keyring",
        {},
        {"v": 2},
        {"v": 1},
        {"v": 1, "currentEpoch": 1},
        {"v": 1, "currentEpoch": 1, "epochs": []},
        {"v": 1, "currentEpoch": 1, "epochs": {}},
        {"v": 1, "currentEpoch": 1, "epochs": {"1": None}},
        {"v": 1, "currentEpoch": 1, "epochs": {"1": {"wrappedKeys": {}}}},
    ],
)
def test_a_malformed_keyring_is_refused(keyring: object) -> None:
    refusal(keyring)
    with pytest.raises(PeerError):
        bind_keyring(keyring, ContentKeys(1, {1: bytes(32)}), scope=SCOPE, adder=ADMIN)


def test_entries_that_are_no_entries_are_passed_over() -> None:
    keyring = make(ALICE)
    keyring["epochs"]["1"]["wrappedKeys"] += [None, 1, [], {}, {"subKem": []}]
    assert read(keyring).current_epoch == 1
    del keyring["epochs"]["1"]["wrappedKeys"][0]
    refusal(keyring)


@pytest.mark.parametrize("current", [0, -1, True, 1.5, "1", None, 2**32, 10**400])
def test_a_current_epoch_that_is_no_epoch_is_refused(current: object) -> None:
    refusal({**make(ALICE), "currentEpoch": current})


@pytest.mark.parametrize(
    "name", ["01", "1 ", "+1", "1.0", "\u0661", "-1", "0", "9" * 5000, "x", ""]
)
def test_an_epoch_under_another_name_is_no_epoch(name: str) -> None:
    keyring = make(ALICE)
    keyring["epochs"] = {name: keyring["epochs"]["1"]}
    refusal(keyring)


def test_a_keyring_holds_no_secret() -> None:
    keyring = make(ALICE)
    shown = canonical_text(keyring) + repr(read(keyring))
    assert read(keyring).key(1).hex() not in shown
    assert keyring["epochs"]["1"]["x"]["binding"]["cek"] == key_id(read(keyring).key(1))


def test_newer_keys_keep_what_was_readable() -> None:
    first = make(ALICE)
    second = copy.deepcopy(rotate(first, ALICE))
    entries(second, 1).clear()
    keys = read(first).updated(read(second))
    assert (keys.current_epoch, sorted(keys.key_ids)) == (2, [1, 2])


def test_keys_neither_go_back_nor_change() -> None:
    first = make(ALICE)
    keys = read(rotate(first, ALICE))
    with pytest.raises(KeyringRollbackError):
        keys.updated(read(first))
    with pytest.raises(KeyringRefusedError):
        read(first).updated(read(make(ALICE, seed=9)))


@pytest.mark.parametrize(
    ("current", "keys"), [(1, {}), (2, {1: bytes(32)}), (1, {1: bytes(31)}), (0, {0: bytes(32)})]
)
def test_unsound_content_keys_are_refused(current: int, keys: dict[int, bytes]) -> None:
    with pytest.raises(UsageError):
        ContentKeys(current, keys)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = make(ALICE)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(StarfishExtraMissingError, match=r"pip install \"walstore\[starfish\]\""):
        make(ALICE)
    with pytest.raises(UsageError):
        read(keyring)
