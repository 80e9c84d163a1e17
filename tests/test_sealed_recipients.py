"""A keyring is brought in line with a list of recipients, and only its adder has a say in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.canon import canonical_text, parse
from walstore.sealed import (
    ContentKeys,
    KeyringRefusedError,
    RecipientsError,
    create_keyring,
    open_keyring,
)
from walstore.sealed.recipients import fit_keyring, merge_epochs, settle_keyring
from walstore.signed import Identity, verify_bytes

ANNA, BEN, CARL, DORA = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2, 3, 4))
SCOPE = "notes/a"
EVERYBODY = (ANNA, BEN, CARL, DORA)


def kems(*people: Identity) -> list[str]:
    return [each.kem_public_key for each in people]


def opened(keyring: object, reader: Identity = ANNA) -> ContentKeys:
    return open_keyring(
        keyring,
        recipient=reader,
        trusted_adders={ANNA.public_key},
        verify=verify_bytes,
        scope=SCOPE,
        epoch_min=0,
    )


def made(*people: Identity) -> Any:
    return create_keyring(kems(*people), scope=SCOPE, adder=ANNA, now_s=1, randomness=os.urandom)


def settled(keyring: Any, recipients: Sequence[str], *, is_rotating: bool = False) -> Any:
    return settle_keyring(
        keyring,
        opened(keyring),
        recipients,
        scope=SCOPE,
        adder=ANNA,
        verify=verify_bytes,
        now_s=2,
        randomness=os.urandom,
        is_rotating=is_rotating,
    )


def test_nothing_changes_where_nothing_has_to() -> None:
    keyring = made(ANNA, BEN)
    assert settled(keyring, kems(BEN, ANNA)) == keyring


def test_somebody_missing_is_added_to_the_current_epoch() -> None:
    keyring = settled(made(ANNA), kems(ANNA, BEN, CARL))
    assert keyring["currentEpoch"] == 1
    assert opened(keyring, BEN).key(1) == opened(keyring).key(1) == opened(keyring, CARL).key(1)


def test_somebody_too_many_means_a_new_epoch() -> None:
    keyring = settled(made(ANNA, BEN), kems(ANNA, CARL))
    assert keyring["currentEpoch"] == 2
    assert opened(keyring, CARL).current_epoch == 2
    assert set(opened(keyring).key_ids) == {1, 2}
    with pytest.raises(KeyringRefusedError):
        opened(keyring, BEN)


def test_there_may_be_a_new_epoch_for_the_same_people() -> None:
    keyring = settled(made(ANNA, BEN), kems(ANNA, BEN), is_rotating=True)
    assert keyring["currentEpoch"] == 2
    assert opened(keyring, BEN).key(2) == opened(keyring).key(2) != opened(keyring).key(1)


def test_what_somebody_else_put_in_is_thrown_out() -> None:
    keyring = made(ANNA, BEN)
    mine, bens = keyring["epochs"]["1"]["wrappedKeys"]
    foreign = made(CARL)["epochs"]["1"]["wrappedKeys"][0]
    forged = {**bens, "subKem": DORA.kem_public_key}
    junk = [{**bens, "addedBy": BEN.public_key}, {"subKem": 7}, None, {**bens, "addedSig": 1}]
    keyring["epochs"]["1"]["wrappedKeys"] = [mine, *junk, bens, bens, forged]
    clean = settled(keyring, kems(ANNA, BEN))
    assert clean["epochs"]["1"]["wrappedKeys"] == [mine, bens]
    assert clean["currentEpoch"] == 1
    # What the adder did sign counts, for whomever it is.
    keyring["epochs"]["1"]["wrappedKeys"] = [mine, bens, foreign]
    assert settled(keyring, kems(ANNA, BEN))["currentEpoch"] == 2


def test_an_entry_that_a_relay_took_out_is_made_again() -> None:
    keyring = made(ANNA, BEN)
    del keyring["epochs"]["1"]["wrappedKeys"][1]
    assert opened(settled(keyring, kems(ANNA, BEN)), BEN).current_epoch == 1


def test_nobody_is_no_recipient() -> None:
    with pytest.raises(RecipientsError):
        settled(made(ANNA), [])
    with pytest.raises(RecipientsError):
        settled(made(ANNA, BEN), kems(ANNA, ANNA))


@given(st.lists(st.sets(st.sampled_from(EVERYBODY[1:])), max_size=6))
@settings(deadline=None, max_examples=40)
def test_exactly_the_recipients_have_the_current_key(memberships: list[set[Identity]]) -> None:
    keyring = made(ANNA)
    for members in memberships:
        keyring = settled(keyring, kems(ANNA, *members))
        current = opened(keyring)
        for person in EVERYBODY[1:]:
            if person in members:
                assert opened(keyring, person).key(current.current_epoch) == current.key(
                    current.current_epoch
                )
            else:
                with pytest.raises(KeyringRefusedError):
                    opened(keyring, person)


def test_epochs_that_a_newer_keyring_gives_no_key_for_are_kept() -> None:
    old = made(ANNA, BEN)
    new = settled(old, kems(ANNA, BEN), is_rotating=True)
    bare: Any = parse(canonical_text(new))
    del bare["epochs"]["1"]
    merged = merge_epochs(bare, old, opened(bare))
    assert opened(merged).key(1) == opened(old).key(1)
    assert merge_epochs(new, old, opened(new)) is new
    assert merge_epochs(new, None, opened(new)) is new
    # Never one that is above what the newer keyring calls the current one.
    assert merge_epochs(old, new, opened(old)) is old


def test_a_keyring_that_does_not_fit_lets_its_oldest_epochs_go() -> None:
    keyring = made(ANNA, BEN)
    for _ in range(9):
        keyring = settled(keyring, kems(ANNA, BEN), is_rotating=True)
    assert fit_keyring(keyring, 2**20) == canonical_text(keyring)
    text = fit_keyring(keyring, 4096)
    assert len(text) <= 4096
    left: Any = parse(text)
    numbers = sorted(map(int, left["epochs"]))
    assert numbers == list(range(numbers[0], 11))
    assert numbers[0] > 1
    assert opened(left, BEN).current_epoch == 10
    assert list(parse(fit_keyring(keyring, 1))["epochs"]) == ["10"]  # type: ignore[index, call-overload]
