"""Identities: where they come from, how they are kept, and what they never show."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from nacl.bindings import crypto_scalarmult_base

from walstore.errors import PeerError, StorageError, UsageError
from walstore.signed import (
    Identity,
    KeyAgreementError,
    KeyfileCorruptError,
    KeyfileError,
    KeyfileExistsError,
    KeyfileExposedError,
    KeyfileMissingError,
    SeedError,
)

SEED = "0de14f6f9d4fea81ed32f22bd16d060daceaca1c97de0aa08a3d7b4141a3256f"
PUBLIC = "45dee12ca2b57c22d8b7bef7005366226be6b887f029c248a2ef478a1d3f8a0d"
KEM_SEED = "70971d5b2ed6728633166e39784c13fc3b336ef4ce917d0e9c76a64a2101dcc4"
KEM_PUBLIC = "70782c173352eab20a546ca0717ef81b5e98b0fdf10d2faa5776a872caa8ea5b"

posix_only = pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX")


def test_a_seed_gives_the_recorded_keys() -> None:
    identity = Identity.from_seed(SEED, kem_private_key=KEM_SEED)
    assert identity.public_key == PUBLIC
    assert identity.kem_public_key == KEM_PUBLIC


def test_hex_and_bytes_give_one_identity() -> None:
    left, right = Identity.from_seed(SEED), Identity.from_seed(bytes.fromhex(SEED))
    assert left.public_key == right.public_key
    assert left.kem_public_key == right.kem_public_key


def test_the_derived_kem_key_is_another_one_than_the_seed() -> None:
    identity = Identity.from_seed(SEED)
    assert identity.kem_public_key != crypto_scalarmult_base(bytes.fromhex(SEED)).hex()
    assert identity.kem_public_key == Identity.from_seed(SEED).kem_public_key


def test_generated_identities_differ() -> None:
    assert Identity.generate().public_key != Identity.generate().public_key


@pytest.mark.parametrize(
    "seed", ["", SEED[:-1], SEED.upper(), "zz" * 32, b"", bytes(31), bytes(64)]
)
def test_another_form_of_seed_is_refused(seed: str | bytes) -> None:
    with pytest.raises(SeedError):
        Identity.from_seed(seed)
    with pytest.raises(SeedError):
        Identity.from_seed(SEED, kem_private_key=seed)


def test_no_secret_is_shown() -> None:
    identity = Identity.from_seed(SEED, kem_private_key=KEM_SEED)
    shown = repr(identity) + str(identity) + f"{identity}"
    assert SEED not in shown
    assert KEM_SEED not in shown
    assert PUBLIC in shown


def test_two_identities_agree_on_one_secret() -> None:
    left, right = Identity.generate(), Identity.generate()
    shared = left.agree(bytes.fromhex(right.kem_public_key))
    assert shared == right.agree(bytes.fromhex(left.kem_public_key))


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31), bytes(31), b""])
def test_no_secret_is_agreed_on_with_an_unusable_key(public: bytes) -> None:
    with pytest.raises(KeyAgreementError) as caught:
        Identity.from_seed(SEED).agree(public)
    assert isinstance(caught.value, PeerError)


def test_a_saved_identity_is_loaded_whole(tmp_path: Path) -> None:
    path = tmp_path / "me"
    saved = Identity.from_seed(SEED, kem_private_key=KEM_SEED)
    saved.save(path)
    loaded = Identity.load(str(path))
    assert (loaded.public_key, loaded.kem_public_key) == (PUBLIC, KEM_PUBLIC)
    assert loaded.sign(b"x") == saved.sign(b"x")
    assert [file.name for file in tmp_path.iterdir()] == ["me"]


@posix_only
def test_a_saved_identity_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Identity.generate().save(tmp_path / "me")
    finally:
        os.umask(before)
    assert (tmp_path / "me").stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "me"
    first, second = Identity.generate(), Identity.generate()
    first.save(path)
    with pytest.raises(KeyfileExistsError) as caught:
        second.save(path)
    assert isinstance(caught.value, UsageError)
    assert caught.value.path == path
    assert Identity.load(path).public_key == first.public_key
    second.save(path, overwrite=True)
    assert Identity.load(path).public_key == second.public_key
    assert [file.name for file in tmp_path.iterdir()] == ["me"]


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(KeyfileMissingError) as caught:
        Identity.load(tmp_path / "nobody")
    assert isinstance(caught.value, StorageError)
    assert caught.value.path == tmp_path / "nobody"


@posix_only
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o620])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "me"
    Identity.generate().save(path)
    path.chmod(mode)
    with pytest.raises(KeyfileExposedError) as caught:
        Identity.load(path)
    assert isinstance(caught.value, StorageError)
    assert caught.value.mode == mode


@posix_only
def test_a_read_only_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "me"
    Identity.from_seed(SEED).save(path)
    path.chmod(0o400)
    assert Identity.load(path).public_key == PUBLIC


def overwritten(path: Path, content: bytes) -> Path:
    Identity.from_seed(SEED).save(path)
    with path.open("r+b") as file:
        file.truncate()
        file.write(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"v":2}',
        b'{"v":1,"seed":7}',
        b"[" * 4000,
        b" " * 5000,
        b"1" * 4096,
    ],
)
def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path, content: bytes) -> None:
    path = overwritten(tmp_path / "me", content)
    with pytest.raises(KeyfileCorruptError) as caught:
        Identity.load(path)
    assert isinstance(caught.value, StorageError)


@pytest.mark.parametrize("member", ["seed", "publicKey", "kemPrivateKey", "kemPublicKey"])
def test_any_altered_key_is_noticed_and_not_shown(tmp_path: Path, member: str) -> None:
    path = tmp_path / "me"
    Identity.from_seed(SEED).save(path)
    members = json.loads(path.read_bytes())
    members[member] = Identity.generate().public_key
    overwritten(tmp_path / "other", json.dumps(members).encode())
    with pytest.raises(KeyfileCorruptError) as caught:
        Identity.load(tmp_path / "other")
    assert members[member] not in str(caught.value)


def test_a_cut_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "me"
    Identity.from_seed(SEED).save(path)
    whole = path.read_bytes()
    for length in range(len(whole) - 2):
        with pytest.raises(KeyfileCorruptError):
            Identity.load(overwritten(tmp_path / f"cut{length}", whole[:length]))


def test_a_failing_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyfileError):
        Identity.generate().save(tmp_path / "no" / "such" / "place")
    with pytest.raises(KeyfileError):
        Identity.load(tmp_path)
    (tmp_path / "taken").mkdir()
    with pytest.raises(KeyfileError):
        Identity.generate().save(tmp_path / "taken", overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
