"""Keyrings and sealed data against the recorded cases of the TypeScript packages."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from walstore.canon import canonical_text
from walstore.sealed import (
    ContentKeys,
    KeyringRefusedError,
    KeyringRollbackError,
    Randomness,
    SealContext,
    SealRejectedError,
    StarfishEncryptor,
    UnreadableError,
    make_entry,
    open_keyring,
)
from walstore.sealed.entry import entry_signing_input
from walstore.sealed.wrap import unwrap
from walstore.signed import Identity, verify_append, verify_bytes, verify_document

VECTORS = Path(__file__).with_name("vectors")
NOWHERE = SealContext("", "", 0)


def load(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((VECTORS / name).read_bytes())["cases"]
    return cases


WRAPS, KEYRINGS = load("keyring_wrap.json"), load("keyring.json")
ATTACKS = [(case, attack) for case in KEYRINGS for attack in case["attacks"]]

every_wrap = pytest.mark.parametrize("case", WRAPS, ids=[case["name"] for case in WRAPS])
every_keyring = pytest.mark.parametrize("case", KEYRINGS, ids=[case["name"] for case in KEYRINGS])
every_attack = pytest.mark.parametrize(
    ("case", "attack"),
    ATTACKS,
    ids=[f"{case['name']}: {attack['name']}" for case, attack in ATTACKS],
)


def person(private: str) -> Identity:
    return Identity.from_seed(bytes(32), kem_private_key=private)


def open_as(case: dict[str, Any], name: str, keyring: object, *, epoch_min: int = 0) -> ContentKeys:
    return open_keyring(
        keyring,
        recipient=person(case["people"][name]["kem_priv_hex"]),
        trusted_adders=case["trusted_adders"],
        verify=verify_bytes,
        scope="spaces/enc/doc",
        epoch_min=epoch_min,
        trust_unbound=True,
    )


def no_randomness(count: int) -> bytes:
    raise AssertionError("opening needs no randomness")


def always(drawn: bytes) -> Randomness:
    return lambda count: drawn


def reader(keys: ContentKeys, randomness: Randomness = no_randomness) -> StarfishEncryptor:
    return StarfishEncryptor(keys, randomness=randomness)


@every_wrap
def test_a_content_key_is_wrapped_as_recorded(case: dict[str, Any]) -> None:
    entry = make_entry(
        bytes.fromhex(case["cek_hex"]),
        case["recipient_pub_hex"],
        epoch=case["epoch"],
        adder=Identity.from_seed(case["adder_priv_hex"]),
        added_at_s=case["added_at"],
        ephemeral_private=bytes.fromhex(case["eph_priv_hex"]),
        iv=bytes.fromhex(case["iv_hex"]),
    )
    assert entry == case["entry"]
    assert entry_signing_input(entry, case["epoch"]) == case["added_sig_input"].encode()


@every_wrap
def test_a_recorded_content_key_is_unwrapped(case: dict[str, Any]) -> None:
    keyring = {
        "v": 1,
        "currentEpoch": case["epoch"],
        "epochs": {str(case["epoch"]): {"wrappedKeys": [case["entry"]], "createdAt": 0}},
    }
    keys = open_keyring(
        keyring,
        recipient=person(case["recipient_priv_hex"]),
        trusted_adders=[case["entry"]["addedBy"]],
        verify=verify_bytes,
        scope="any",
        epoch_min=0,
        trust_unbound=True,
    )
    assert keys.key(case["epoch"]).hex() == case["cek_hex"]


@every_keyring
def test_every_reader_opens_what_is_recorded(case: dict[str, Any]) -> None:
    for name, results in case["readers"].items():
        if all(result.get("at") == "keyring" for result in results):
            with pytest.raises(KeyringRefusedError):
                open_as(case, name, case["keyring"])
            continue
        encryptor = reader(open_as(case, name, case["keyring"]))
        for item, result in zip(case["sealed"], results, strict=True):
            if result["opens"]:
                assert (
                    canonical_text(encryptor.open(item["sealed"], NOWHERE)) == result["plaintext"]
                )
            else:
                with pytest.raises(UnreadableError) as caught:
                    encryptor.open(item["sealed"], NOWHERE)
                assert caught.value.epoch == item["epoch"]


@every_keyring
def test_the_keys_are_the_recorded_ones(case: dict[str, Any]) -> None:
    keys = open_as(case, "alice", case["keyring"])
    assert {str(epoch): keys.key(epoch).hex() for epoch in keys.key_ids} == case["ceks"]


@every_keyring
def test_sealing_gives_the_recorded_bytes(case: dict[str, Any]) -> None:
    ceks = {int(epoch): bytes.fromhex(key) for epoch, key in case["ceks"].items()}
    for item in case["sealed"]:
        iv = iv_of(item["sealed"]["_encrypted"])
        encryptor = reader(ContentKeys(item["epoch"], ceks), always(iv))
        assert encryptor.seal(item["plaintext_json"].encode(), NOWHERE) == item["sealed"]


def iv_of(sealed: str) -> bytes:
    return b64decode(sealed)[:12]


@every_keyring
def test_sealed_bytes_are_the_recorded_ones(case: dict[str, Any]) -> None:
    keys = open_as(case, "alice", case["keyring"])
    for blob in case["blobs"]:
        sealed, plain = bytes.fromhex(blob["blob_hex"]), bytes.fromhex(blob["plain_hex"])
        context = blob["aad"] or ""
        assert reader(keys).open_bytes(sealed, context) == plain
        again = reader(keys, always(sealed[4:16]))
        assert again.seal_bytes(plain, context) == sealed
        with pytest.raises(SealRejectedError):
            reader(keys).open_bytes(sealed, context + "x")


# The peer opens this one unless it remembers the epoch. The keyring itself holds the proof that
# its current epoch was set back, so we never do.
SET_BACK = "current epoch rolled back (peer accepts without a remembered minimum)"


@every_attack
def test_a_recorded_attack_fails(case: dict[str, Any], attack: dict[str, Any]) -> None:
    def run() -> str:
        epoch_min = attack.get("min_epoch", 0)
        keys = open_as(case, attack["reader"], attack["keyring"], epoch_min=epoch_min)
        return canonical_text(reader(keys).open(attack["sealed"], NOWHERE))

    peer = attack["peer"]
    if attack["name"] == SET_BACK or "min_epoch" in attack:
        with pytest.raises(KeyringRollbackError):
            run()
    elif peer["opens"]:
        assert run() == peer["plaintext"]
    elif peer["at"] == "keyring":
        with pytest.raises(KeyringRefusedError):
            run()
    else:
        expected = UnreadableError if attack["name"] == "epoch unknown" else SealRejectedError
        with pytest.raises(expected):
            run()


@every_keyring
def test_a_whole_sealed_log_is_verified_then_opened(case: dict[str, Any]) -> None:
    document = case["document"]
    alice = reader(open_as(case, "alice", case["keyring"]))
    carol = reader(open_as(case, "carol", case["keyring"]))
    for place, element in enumerate(document["elements"]):
        author = element["authorPubkey"]
        assert verify_append(
            document["document_key"], element["data"], author, element["authorSignature"]
        )
        assert alice.open(element["data"], NOWHERE)["author"] == author
        if place < 2:
            with pytest.raises(UnreadableError):
                carol.open(element["data"], NOWHERE)
        else:
            assert carol.open(element["data"], NOWHERE) == alice.open(element["data"], NOWHERE)


@every_keyring
def test_a_late_joiner_reads_the_snapshot(case: dict[str, Any]) -> None:
    document = case["document"]
    snapshot = document["snapshot"]
    content = {name: snapshot[name] for name in ("state", "uptoTs", "writerSeq", "producedBy")}
    key = document["document_key"] + "__snapshot"
    assert verify_document(key, content, snapshot["authorPubkey"], snapshot["authorSignature"])
    carol = reader(open_as(case, "carol", case["keyring"]))
    state = carol.open(snapshot["state"], NOWHERE)
    plain = json.loads(document["snapshot_plain_canonical"])
    assert state["regs"] == plain["regs"]


def test_a_key_wrapped_for_another_does_not_unwrap() -> None:
    case = WRAPS[0]
    ct, ephemeral = b64decode(case["entry"]["ct"]), bytes.fromhex(case["entry"]["ephKem"])
    assert unwrap(person(case["recipient_priv_hex"]), ephemeral, ct) is not None
    assert unwrap(Identity.from_seed(bytes(32)), ephemeral, ct) is None
