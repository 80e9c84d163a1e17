"""Encryptors: what is sealed opens, and nothing else does, anywhere else, ever."""

from __future__ import annotations

import hmac
import os
import random
from base64 import b64decode, b64encode
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt

from walstore.errors import NotJsonError, PeerError, UsageError
from walstore.sealed import (
    SEALS_BEFORE_ROTATION,
    SEALS_MAX,
    ContentKeys,
    DelegatedEncryptor,
    Encryptor,
    KeyringRefusedError,
    KeyringRollbackError,
    NativeEncryptor,
    PlainEncryptor,
    RandomnessError,
    SealBudget,
    SealBudgetError,
    SealContext,
    SealRejectedError,
    StarfishEncryptor,
    UnreadableError,
    key_id,
)
from walstore.sealed.aes_gcm import gcm_seal

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
KEYS = ContentKeys(2, {1: FIRST, 2: SECOND})
CONTEXT = SealContext("spaces/s1/doc", "ab" * 32, 7)
PLAIN = {"v": 1, "seq": 7, "ops": [{"t": "set", "value": "é\u2028😀"}]}

Keyed: TypeAlias = type[StarfishEncryptor] | type[NativeEncryptor]

both = pytest.mark.parametrize("kind", [StarfishEncryptor, NativeEncryptor])
kinds = st.sampled_from([StarfishEncryptor, NativeEncryptor])

json_objects = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
    max_size=5,
)


def make(kind: Keyed, keys: ContentKeys = KEYS, budget: SealBudget | None = None) -> Any:
    return kind(keys, randomness=os.urandom, budget=budget)


def body_name(kind: Keyed) -> str:
    return "_encrypted" if kind is StarfishEncryptor else "_sealed"


def rejected(encryptor: Encryptor, sealed: object, context: SealContext = CONTEXT) -> None:
    with pytest.raises(SealRejectedError) as caught:
        encryptor.open(sealed, context)
    assert isinstance(caught.value, PeerError)
    # All rejections look the same from outside.
    assert str(caught.value) == "the sealed data is rejected"


@given(kinds, json_objects)
def test_what_is_sealed_opens(kind: Keyed, plain: dict[str, Any]) -> None:
    encryptor = make(kind)
    sealed = encryptor.seal(plain, CONTEXT)
    assert set(sealed) == {body_name(kind), "_epoch"}
    assert sealed["_epoch"] == 2
    assert encryptor.open(sealed, CONTEXT) == plain


@both
def test_json_text_is_sealed_as_it_is_spelled(kind: Keyed) -> None:
    encryptor = make(kind)
    assert encryptor.open(encryptor.seal(b' { "a" : 1e0 } ', CONTEXT), CONTEXT) == {"a": 1}


@both
def test_sealing_twice_gives_two_texts(kind: Keyed) -> None:
    encryptor = make(kind)
    texts = {encryptor.seal(PLAIN, CONTEXT)[body_name(kind)][:16] for _ in range(2000)}
    assert len(texts) == 2000


@settings(max_examples=300)
@given(kinds, st.data())
def test_any_flipped_bit_is_rejected(kind: Keyed, data: st.DataObject) -> None:
    encryptor, name = make(kind), body_name(kind)
    sealed = encryptor.seal(PLAIN, CONTEXT)
    body = bytearray(b64decode(sealed[name]))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    rejected(encryptor, {**sealed, name: b64encode(body).decode()})


@both
def test_a_body_cut_anywhere_is_rejected(kind: Keyed) -> None:
    encryptor, name = make(kind), body_name(kind)
    sealed = encryptor.seal(PLAIN, CONTEXT)
    body = b64decode(sealed[name])
    for length in range(len(body)):
        rejected(encryptor, {**sealed, name: b64encode(body[:length]).decode()})
    rejected(encryptor, {**sealed, name: b64encode(body + b"\0").decode()})


@both
@pytest.mark.parametrize("value", [None, 7, [], {}, "", "AAAA", "*", "\ud800", b"AAAA"])
def test_a_body_that_is_not_sealed_text_is_rejected(kind: Keyed, value: object) -> None:
    rejected(make(kind), {body_name(kind): value, "_epoch": 2})


@both
def test_another_spelling_of_the_body_is_rejected(kind: Keyed) -> None:
    encryptor, name = make(kind), body_name(kind)
    sealed = encryptor.seal({}, CONTEXT)
    text = sealed[name]
    for spelling in (
        text.rstrip("=") + "\n",
        " " + text,
        text + "====",
        text[:4] + "\n" + text[4:],
    ):
        rejected(encryptor, {**sealed, name: spelling})


@both
def test_a_wrong_epoch_label_is_rejected(kind: Keyed) -> None:
    encryptor = make(kind)
    rejected(encryptor, encryptor.seal(PLAIN, CONTEXT) | {"_epoch": 1})


@both
def test_one_key_under_two_epochs_does_not_make_them_one(kind: Keyed) -> None:
    encryptor = make(kind, ContentKeys(2, {1: FIRST, 2: FIRST}))
    rejected(encryptor, encryptor.seal(PLAIN, CONTEXT) | {"_epoch": 1})


@both
@pytest.mark.parametrize("epoch", [0, -1, True, 1.5, 2.0, "2", None, [], 2**32, 10**400])
def test_an_epoch_label_that_is_no_epoch_is_rejected(kind: Keyed, epoch: object) -> None:
    encryptor = make(kind)
    rejected(encryptor, encryptor.seal(PLAIN, CONTEXT) | {"_epoch": epoch})


@both
def test_an_epoch_without_key_is_unreadable_not_rejected(kind: Keyed) -> None:
    later = make(kind).seal(PLAIN, CONTEXT)
    reader = make(kind, ContentKeys(1, {1: FIRST}))
    with pytest.raises(UnreadableError) as caught:
        reader.open(later, CONTEXT)
    assert isinstance(caught.value, PeerError)
    assert caught.value.epoch == 2
    reader.adopt(KEYS)
    assert reader.open(later, CONTEXT) == PLAIN


@both
@pytest.mark.parametrize("sealed", [None, 7, "text", [], {}, {"v": 1, "ops": []}, b"{}"])
def test_plain_data_is_rejected_in_a_sealed_document(kind: Keyed, sealed: object) -> None:
    rejected(make(kind), sealed)


@both
def test_a_wrapper_of_the_other_kind_is_rejected(kind: Keyed) -> None:
    other = NativeEncryptor if kind is StarfishEncryptor else StarfishEncryptor
    sealed = make(other).seal(PLAIN, CONTEXT)
    rejected(make(kind), sealed)
    rejected(make(kind), {body_name(kind): sealed[body_name(other)], "_epoch": 2})


@both
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b'"text"',
        b"null",
        b"{",
        b"\xff",
        b"NaN",
        b"[" * 5000,
        b'{"a":1}x',
        b"\xef\xbb\xbf{}",
    ],
)
def test_sealed_text_that_is_no_object_is_rejected(kind: Keyed, text: bytes) -> None:
    encryptor = make(kind)
    rejected(encryptor, encryptor.seal(text, CONTEXT))


@both
def test_members_beside_the_seal_are_left_to_the_signature(kind: Keyed) -> None:
    encryptor = make(kind)
    assert encryptor.open(encryptor.seal(PLAIN, CONTEXT) | {"x": {"prev": 1}}, CONTEXT) == PLAIN


@both
def test_an_object_without_canonical_text_is_refused_and_costs_no_seal(kind: Keyed) -> None:
    encryptor = make(kind)
    with pytest.raises(NotJsonError):
        encryptor.seal({"a": float("nan")}, CONTEXT)
    assert encryptor.seal_counts == {}


@both
@pytest.mark.parametrize("drawn", [b"", bytes(11), bytes(23), bytes(25), "x" * 24, bytearray(24)])
def test_a_nonce_of_another_size_is_refused(kind: Keyed, drawn: Any) -> None:
    encryptor = kind(KEYS, randomness=lambda count: drawn)
    with pytest.raises(RandomnessError):
        encryptor.seal(PLAIN, CONTEXT)


@pytest.mark.parametrize(
    "moved",
    [
        CONTEXT._replace(document_key="spaces/s1/doc2"),
        CONTEXT._replace(document_key="spaces/s1/doc__snapshot"),
        CONTEXT._replace(author="cd" * 32),
        CONTEXT._replace(seq=8),
    ],
)
def test_a_native_seal_opens_in_its_own_place_only(moved: SealContext) -> None:
    encryptor = make(NativeEncryptor)
    rejected(encryptor, encryptor.seal(PLAIN, CONTEXT), moved)


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=2, max_size=2))
def test_two_native_contexts_never_look_alike(places: list[tuple[str, str]]) -> None:
    encryptor = make(NativeEncryptor)
    left, right = (SealContext(key, author, 1) for key, author in places)
    sealed = encryptor.seal({}, left)
    if left == right:
        assert encryptor.open(sealed, right) == {}
    else:
        rejected(encryptor, sealed, right)


def test_the_native_form_is_the_documented_one() -> None:
    sealed = make(NativeEncryptor).seal({"a": 1}, CONTEXT)
    body = b64decode(sealed["_sealed"])
    aad = f'["walstore-seal-v1","spaces/s1/doc","{"ab" * 32}",7,2]'.encode()
    key = hmac.digest(SECOND, b"walstore-seal-v1", "sha256")
    plain = crypto_aead_xchacha20poly1305_ietf_decrypt(body[24:], aad, body[:24], key)
    assert plain == b'{"a":1}'


def test_a_native_wrapper_without_epoch_is_rejected() -> None:
    encryptor = make(NativeEncryptor)
    sealed = encryptor.seal(PLAIN, CONTEXT)
    del sealed["_epoch"]
    rejected(encryptor, sealed)


def test_a_starfish_wrapper_without_epoch_means_the_current_one() -> None:
    encryptor = make(StarfishEncryptor)
    sealed = encryptor.seal(PLAIN, CONTEXT)
    del sealed["_epoch"]
    assert encryptor.open(sealed, CONTEXT) == PLAIN
    rejected(make(StarfishEncryptor, ContentKeys(1, {1: FIRST})), sealed)


@given(st.binary(max_size=100), st.text(alphabet="a/é", max_size=5))
def test_sealed_bytes_open_in_their_context(plain: bytes, context: str) -> None:
    encryptor = make(StarfishEncryptor)
    sealed = encryptor.seal_bytes(plain, context)
    assert sealed[:4] == b"\0\0\0\2"
    assert encryptor.open_bytes(sealed, context) == plain
    with pytest.raises(SealRejectedError):
        encryptor.open_bytes(sealed, context + "b")


@given(st.data())
def test_any_flipped_bit_of_sealed_bytes_is_refused(data: st.DataObject) -> None:
    encryptor = make(StarfishEncryptor)
    sealed = bytearray(encryptor.seal_bytes(b"some bytes", "file"))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((SealRejectedError, UnreadableError)):
        encryptor.open_bytes(bytes(sealed), "file")


@pytest.mark.parametrize("length", range(33))
def test_sealed_bytes_cut_short_are_rejected(length: int) -> None:
    sealed = make(StarfishEncryptor).seal_bytes(b"x")
    with pytest.raises(SealRejectedError):
        make(StarfishEncryptor).open_bytes(sealed[:length])


def test_a_context_of_bytes_must_be_unicode() -> None:
    with pytest.raises(UsageError):
        make(StarfishEncryptor).seal_bytes(b"", "\ud800")


@both
def test_after_a_newer_keyring_nothing_is_sealed_in_the_old_epoch(kind: Keyed) -> None:
    encryptor = make(kind, ContentKeys(1, {1: FIRST}))
    early = encryptor.seal(PLAIN, CONTEXT)
    encryptor.adopt(KEYS)
    assert encryptor.current_epoch == 2
    assert encryptor.seal(PLAIN, CONTEXT)["_epoch"] == 2
    assert encryptor.open(early, CONTEXT) == PLAIN


@both
def test_older_or_other_keys_are_refused_and_change_nothing(kind: Keyed) -> None:
    encryptor = make(kind)
    with pytest.raises(KeyringRollbackError):
        encryptor.adopt(ContentKeys(1, {1: FIRST}))
    with pytest.raises(KeyringRefusedError):
        encryptor.adopt(ContentKeys(3, {1: SECOND, 3: FIRST}))
    assert encryptor.current_epoch == 2
    assert encryptor.open(encryptor.seal(PLAIN, CONTEXT), CONTEXT) == PLAIN


def test_keys_that_were_given_up_open_what_they_have_sealed_and_seal_no_more() -> None:
    ours, theirs = ContentKeys(1, {1: FIRST}), ContentKeys(2, {1: SECOND, 2: FIRST})
    encryptor = make(NativeEncryptor, ours)
    before = encryptor.seal(PLAIN, CONTEXT)
    with pytest.raises(KeyringRefusedError):
        encryptor.adopt(theirs)
    encryptor.adopt(theirs.after(ours))
    assert encryptor.open(before, CONTEXT) == PLAIN
    with pytest.raises(SealRejectedError):
        make(NativeEncryptor, theirs).open(before, CONTEXT)
    after = encryptor.seal(PLAIN, CONTEXT)
    assert make(NativeEncryptor, theirs).open(after, CONTEXT) == PLAIN
    # It stays so whatever newer keys come.
    newer = ContentKeys(3, {1: SECOND, 2: FIRST, 3: bytes(32)}).after(ours)
    encryptor.adopt(newer)
    assert encryptor.open(before, CONTEXT) == encryptor.open(after, CONTEXT) == PLAIN


def test_a_used_up_key_seals_no_more_but_still_opens() -> None:
    for kind in (StarfishEncryptor, NativeEncryptor):
        budget = SealBudget({key_id(SECOND): SEALS_MAX - 1})
        encryptor = make(kind, budget=budget)
        last = encryptor.seal(PLAIN, CONTEXT)
        with pytest.raises(SealBudgetError) as caught:
            encryptor.seal(PLAIN, CONTEXT)
        assert isinstance(caught.value, UsageError)
        assert caught.value.epoch == 2
        assert encryptor.seal_counts == {key_id(SECOND): SEALS_MAX}
        assert encryptor.open(last, CONTEXT) == PLAIN
        encryptor.adopt(ContentKeys(3, {3: bytes(32)}))
        assert encryptor.seal(PLAIN, CONTEXT)["_epoch"] == 3


@both
def test_a_key_seals_four_billion_times_and_not_once_more(kind: Keyed) -> None:
    # So many random nonces of 96 bits are safe; another count would be another promise.
    assert SEALS_MAX == 4_294_967_296
    drawn: list[int] = []

    def randomness(size: int) -> bytes:
        drawn.append(size)
        return os.urandom(size)

    def sealer(spent: int) -> Any:
        budget = SealBudget({key_id(SECOND): spent})
        return kind(KEYS, randomness=randomness, budget=budget)

    last = sealer(4_294_967_295)
    last.seal(PLAIN, CONTEXT)
    assert last.seal_counts == {key_id(SECOND): 4_294_967_296}
    before = len(drawn)
    for used_up in (last, sealer(4_294_967_296), sealer(4_294_967_297)):
        spent = used_up.seal_counts
        with pytest.raises(SealBudgetError):
            used_up.seal(PLAIN, CONTEXT)
        assert used_up.seal_counts == spent
    assert len(drawn) == before, "for what is not sealed no nonce is drawn"


def test_sealed_bytes_are_counted_too() -> None:
    encryptor = make(StarfishEncryptor, budget=SealBudget({key_id(SECOND): SEALS_MAX}))
    with pytest.raises(SealBudgetError):
        encryptor.seal_bytes(b"")


@both
def test_rotation_is_due_long_before_the_key_is_used_up(kind: Keyed) -> None:
    encryptor = make(kind, budget=SealBudget({key_id(SECOND): SEALS_BEFORE_ROTATION - 1}))
    assert not encryptor.rotation_due
    encryptor.seal(PLAIN, CONTEXT)
    assert encryptor.rotation_due
    encryptor.adopt(ContentKeys(3, {3: bytes(32)}))
    assert not encryptor.rotation_due


@both
def test_stored_counts_go_on_where_they_were(kind: Keyed) -> None:
    first = make(kind)
    for _ in range(3):
        first.seal(PLAIN, CONTEXT)
    second = make(kind, budget=SealBudget(first.seal_counts))
    second.seal(PLAIN, CONTEXT)
    assert first.seal_counts == {key_id(SECOND): 3}
    assert second.seal_counts == {key_id(SECOND): 4}


def test_no_key_is_shown() -> None:
    shown = repr(KEYS) + str(KEYS) + repr(make(NativeEncryptor)) + repr(make(StarfishEncryptor))
    for key in (FIRST, SECOND):
        assert key.hex() not in shown
        assert repr(key) not in shown


def test_plain_data_stays_as_it_is() -> None:
    encryptor: Encryptor = PlainEncryptor()
    assert encryptor.seal(PLAIN, CONTEXT) == PLAIN
    assert encryptor.seal(b'{"a":1}', CONTEXT) == {"a": 1}
    assert encryptor.open(PLAIN, CONTEXT) == PLAIN


@pytest.mark.parametrize("data", [None, [], "text", {"_encrypted": "AAAA"}, {"_sealed": "AAAA"}])
def test_sealed_data_is_rejected_in_a_plain_document(data: object) -> None:
    rejected(PlainEncryptor(), data)


def test_the_starfish_key_is_never_used_by_the_native_cipher() -> None:
    chance = random.Random(7)
    iv = chance.randbytes(12)
    starfish = b64encode(iv + gcm_seal(SECOND, iv, b"{}", b"2")).decode()
    assert make(StarfishEncryptor).open({"_encrypted": starfish, "_epoch": 2}, CONTEXT) == {}
    nonce = chance.randbytes(24)
    native = NativeEncryptor(KEYS, randomness=lambda count: nonce).seal({}, CONTEXT)
    body = b64decode(str(native["_sealed"]))
    aad = f'["walstore-seal-v1","spaces/s1/doc","{"ab" * 32}",7,2]'.encode()
    with pytest.raises(Exception, match="Decryption failed"):
        crypto_aead_xchacha20poly1305_ietf_decrypt(body[24:], aad, nonce, SECOND)


@pytest.mark.parametrize("seals", ["native", "starfish"])
def test_a_delegated_encryptor_opens_what_either_way_sealed(
    seals: Literal["native", "starfish"],
) -> None:
    delegated = DelegatedEncryptor(KEYS, randomness=os.urandom, seals=seals)
    for writer in (
        NativeEncryptor(KEYS, randomness=os.urandom),
        StarfishEncryptor(KEYS, randomness=os.urandom),
        delegated,
    ):
        assert delegated.open(writer.seal(PLAIN, CONTEXT), CONTEXT) == PLAIN
    assert ("_sealed" if seals == "native" else "_encrypted") in delegated.seal({}, CONTEXT)
    with pytest.raises(SealRejectedError):
        delegated.open(PLAIN, CONTEXT)


def test_both_ways_of_a_delegated_encryptor_share_a_budget_and_move_on_together() -> None:
    keys = ContentKeys(1, {1: FIRST})
    delegated = DelegatedEncryptor(keys, randomness=os.urandom, seals="starfish")
    delegated.seal({}, CONTEXT)
    assert sum(delegated.seal_counts.values()) == 1
    delegated.adopt(KEYS)
    assert delegated.current_epoch == 2
    assert delegated.seal({}, CONTEXT)["_epoch"] == 2
    sealed = NativeEncryptor(KEYS, randomness=os.urandom).seal(PLAIN, CONTEXT)
    assert delegated.open(sealed, CONTEXT) == PLAIN
