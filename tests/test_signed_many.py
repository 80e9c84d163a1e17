"""Many signatures at once give the answers that each gives alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.signed import Identity, SignatureCheck, sign_bytes, verify_bytes, verify_many
from walstore.signed.many import SLICE_CHECKS

ME = Identity.from_seed(bytes(32))
GOOD = SignatureCheck(ME.public_key, b"good", sign_bytes(b"good", ME).author_signature)
FORGED = GOOD._replace(signed=b"forged")
MISSPELLED = GOOD._replace(author_pubkey=ME.public_key.upper())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([GOOD, FORGED, MISSPELLED]), max_size=600))
def test_the_answers_are_those_of_one_by_one(checks: list[SignatureCheck]) -> None:
    assert verify_many(checks) == [verify_bytes(*check) for check in checks]


@pytest.mark.parametrize("count", [0, 1, SLICE_CHECKS, SLICE_CHECKS + 1, 2 * SLICE_CHECKS + 3])
def test_the_one_bad_signature_is_found_at_every_end(count: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        for bad in {0, count // 2, count - 1} & set(range(count)):
            checks = [FORGED if place == bad else GOOD for place in range(count)]
            expected = [place != bad for place in range(count)]
            assert verify_many(checks, pool) == verify_many(checks) == expected


def test_a_given_pool_stays_open() -> None:
    with ThreadPoolExecutor(1) as pool:
        verify_many([GOOD] * (SLICE_CHECKS + 1), pool)
        assert pool.submit(verify_many, [GOOD]).result() == [True]
