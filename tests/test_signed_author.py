"""Author proofs: what is signed verifies, and nothing else does."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_open

from walstore.errors import NotJsonError
from walstore.signed import (
    AuthorProof,
    Domain,
    Identity,
    sign_append,
    sign_bytes,
    sign_document,
    signing_input,
    verify_append,
    verify_bytes,
    verify_document,
)
from walstore.signed.encoding import SMALL_ORDER_KEYS, decode_public_key

ME = Identity.from_seed(bytes(range(32)))
KEY = "spaces/s1/doc"
DATA = {"v": 1, "author": ME.public_key, "seq": 1, "ops": []}
PROOF = sign_append(KEY, DATA, ME)
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def signature_text(raw: bytes) -> str:
    return b64encode(raw).decode()


def flipped(raw: bytes, bit: int) -> bytes:
    return bytes(
        byte ^ (1 << bit % 8) if place == bit // 8 else byte for place, byte in enumerate(raw)
    )


@given(st.text(max_size=12), json_values)
def test_whatever_is_signed_verifies(key: str, data: Any) -> None:
    assert verify_append(key, data, *sign_append(key, data, ME))
    assert verify_document(key, data, *sign_document(key, data, ME))


@given(json_values, json_values)
def test_a_proof_holds_for_one_value_only(left: Any, right: Any) -> None:
    same = signing_input(Domain.APPEND, KEY, left) == signing_input(Domain.APPEND, KEY, right)
    assert verify_append(KEY, right, *sign_append(KEY, left, ME)) == same


def test_a_proof_holds_for_one_document_only() -> None:
    assert not verify_append(KEY + "2", DATA, *PROOF)


def test_a_proof_holds_for_one_domain_only() -> None:
    assert not verify_document(KEY, DATA, *PROOF)
    assert not verify_append(KEY, DATA, *sign_document(KEY, DATA, ME))


def test_a_proof_holds_for_one_author_only() -> None:
    other = Identity.from_seed(bytes(32))
    assert not verify_append(KEY, DATA, other.public_key, PROOF.author_signature)


@given(st.integers(0, 511))
def test_any_flipped_bit_of_a_signature_is_refused(bit: int) -> None:
    raw = flipped(b64decode(PROOF.author_signature), bit)
    assert not verify_append(KEY, DATA, PROOF.author_pubkey, signature_text(raw))


@given(st.integers(0, 255))
def test_any_flipped_bit_of_a_key_is_refused(bit: int) -> None:
    raw = flipped(bytes.fromhex(PROOF.author_pubkey), bit)
    assert not verify_append(KEY, DATA, raw.hex(), PROOF.author_signature)


@given(st.data())
def test_any_flipped_bit_of_the_signed_bytes_is_refused(data: st.DataObject) -> None:
    signed = signing_input(Domain.APPEND, KEY, DATA)
    proof = sign_bytes(signed, ME)
    altered = flipped(signed, data.draw(st.integers(0, 8 * len(signed) - 1)))
    assert verify_bytes(proof.author_pubkey, signed, proof.author_signature)
    assert not verify_bytes(proof.author_pubkey, altered, proof.author_signature)


def test_a_malleable_signature_is_refused() -> None:
    raw = b64decode(PROOF.author_signature)
    scalar = int.from_bytes(raw[32:], "little") + GROUP_ORDER
    twin = raw[:32] + scalar.to_bytes(32, "little")
    assert not verify_append(KEY, DATA, PROOF.author_pubkey, signature_text(twin))


def test_there_are_fourteen_small_order_keys() -> None:
    assert len(SMALL_ORDER_KEYS) == 14
    prime = 2**255 - 19
    for key in SMALL_ORDER_KEYS:
        # The y coordinates of the points whose order divides 8, by their defining equations.
        y = (int.from_bytes(key, "little") & (2**255 - 1)) % prime
        d = -121665 * pow(121666, -1, prime) % prime
        order_eight = (d * pow(y, 4, prime) + 2 * y * y - 1) % prime == 0
        assert y in (0, 1, prime - 1) or order_eight


@pytest.mark.parametrize("key", sorted(SMALL_ORDER_KEYS), ids=bytes.hex)
def test_a_small_order_key_is_no_key(key: bytes) -> None:
    assert decode_public_key(key.hex()) is None
    for signature in (bytes([1]) + bytes(63), key + bytes(32), bytes(64)):
        assert not verify_append(KEY, DATA, key.hex(), signature_text(signature))


@pytest.mark.parametrize(
    "spelling",
    [
        PROOF.author_pubkey.upper(),
        " " + PROOF.author_pubkey,
        PROOF.author_pubkey + "\n",
        PROOF.author_pubkey[:-1],
        PROOF.author_pubkey + "00",
        PROOF.author_pubkey[:30] + " " + PROOF.author_pubkey[31:],
        PROOF.author_pubkey[:31] + "  " + PROOF.author_pubkey[33:],
        "0x" + PROOF.author_pubkey[2:],
        "\uff10" * 64,
        "\ud800" * 64,
        "",
        None,
        7,
        bytes.fromhex(PROOF.author_pubkey),
        [PROOF.author_pubkey],
    ],
)
def test_another_spelling_of_the_key_is_refused(spelling: object) -> None:
    assert not verify_append(KEY, DATA, spelling, PROOF.author_signature)


@pytest.mark.parametrize(
    "spelling",
    [
        PROOF.author_signature.rstrip("="),
        PROOF.author_signature + "=",
        PROOF.author_signature[:40] + "\n" + PROOF.author_signature[40:],
        " " + PROOF.author_signature[:-1],
        PROOF.author_signature.replace("+", "-").replace("/", "_").rstrip("="),
        "\uff10" * 88,
        "\ud800" * 88,
        "=" * 88,
        "*" * 88,
        "",
        None,
        7,
        b64decode(PROOF.author_signature),
        [PROOF.author_signature],
    ],
)
def test_another_spelling_of_the_signature_is_refused(spelling: object) -> None:
    assert not verify_append(KEY, DATA, PROOF.author_pubkey, spelling)


def test_stray_low_bits_in_base64_are_refused() -> None:
    last = PROOF.author_signature[85]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for stray in range(1, 16):
        other = alphabet[alphabet.index(last) + stray]
        spelling = PROOF.author_signature[:85] + other + "=="
        assert b64decode(spelling) == b64decode(PROOF.author_signature)
        assert not verify_append(KEY, DATA, PROOF.author_pubkey, spelling)


@settings(max_examples=200)
@given(st.text(max_size=100) | st.binary(max_size=100), st.text(max_size=100))
@example("0" * 64, "A" * 86 + "==")
def test_verifying_never_raises(key: object, signature: object) -> None:
    assert not verify_append(KEY, DATA, key, signature)


@pytest.mark.parametrize("data", [float("nan"), {1: 2}, object(), [set()], 10**400])
def test_data_without_canonical_text_verifies_as_false_and_cannot_be_signed(data: object) -> None:
    assert not verify_append(KEY, data, *PROOF)
    with pytest.raises(NotJsonError):
        sign_append(KEY, data, ME)


def test_lone_surrogates_can_be_signed() -> None:
    assert verify_append(
        "\ud800", {"\udfff": "\ud83d"}, *sign_append("\ud800", {"\udfff": "\ud83d"}, ME)
    )


def test_signatures_are_plain_ed25519_and_deterministic() -> None:
    signed = signing_input(Domain.APPEND, KEY, DATA)
    proof = sign_bytes(signed, ME)
    assert proof == PROOF == AuthorProof(ME.public_key, signature_text(ME.sign(signed)))
    assert crypto_sign_open(ME.sign(signed) + signed, bytes.fromhex(ME.public_key)) == signed


def test_the_user_id_is_the_short_hash_of_the_key() -> None:
    digest = hashlib.sha256(bytes.fromhex(ME.public_key)).hexdigest()
    assert ME.user_id == digest[:32]
