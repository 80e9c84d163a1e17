"""Keys are spelled as they always were, and lead nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.archive.keys import (
    KEY_BYTES_MAX,
    KeyRefusedError,
    PartOf,
    base_key,
    check_key,
    check_prefix,
    diff_key,
    escaped,
    key_flaw,
    manifest_key,
    other_key,
)


def test_keys_are_spelled_as_they_always_were() -> None:
    assert manifest_key("notes/") == "notes/manifest.json"
    assert manifest_key("") == "manifest.json"
    assert base_key("notes/", 1, 42, ".jsonl") == "notes/epoch=1/snapshot-42.jsonl"
    assert diff_key("notes/", 12, 42, 57, ".pb") == "notes/epoch=12/diff-42-57.pb"
    assert diff_key("", 1, None, 57, ".pb") == "epoch=1/diff-start-57.pb"


def test_positions_are_escaped() -> None:
    assert base_key("t/", 1, "0/16B3748", ".jsonl") == "t/epoch=1/snapshot-0_16B3748.jsonl"
    assert diff_key("t/", 1, "a b:c/d", "", ".pb") == "t/epoch=1/diff-a_b_c_d-0.pb"
    assert [escaped(each) for each in (None, "", "0", 0, "a.b", "//", "ä-b_c")] == [
        "start",
        "0",
        "0",
        "0",
        "a.b",
        "__",
        "ä-b_c",
    ]


def test_parts_and_other_bytes_have_keys_of_their_own() -> None:
    part = PartOf(2, 16)
    assert base_key("t/", 3, 9, ".parquet", part) == (
        "t/epoch=3/snapshot-9-part-00002-of-00016.parquet"
    )
    assert diff_key("t/", 3, 9, 12, ".jsonl", part) == (
        "t/epoch=3/diff-9-12-part-00002-of-00016.jsonl"
    )
    digest = "0123456789abcdef" * 4
    assert other_key("t/epoch=3/snapshot-9.jsonl", ".jsonl", digest) == (
        "t/epoch=3/snapshot-9-0123456789ab.jsonl"
    )
    assert other_key("t/snapshot-9", "", digest) == "t/snapshot-9-0123456789ab"


@given(st.text(min_size=1, max_size=30))
def test_no_segment_leads_out_of_its_place(text: str) -> None:
    if key_flaw(text) is None:
        segments = text.split("/")
        assert not {"", ".", ".."} & set(segments)
        assert "\0" not in text
        assert "\\" not in text
        assert text.encode()


@pytest.mark.parametrize("prefix", ["", "notes/", "a b/", "ä/b-", "deep/er/", "k" * 700 + "/"])
def test_a_prefix_that_begins_keys_is_fine(prefix: str) -> None:
    check_prefix(prefix)
    check_key(diff_key(prefix, 10**6, 10**18, 10**18 + 1, ".parquet", PartOf(4095, 4096)))


@pytest.mark.parametrize("prefix", ["/", "/a/", "a//", "../", "a/../", "./", "a\0/", "\ud800/"])
def test_a_prefix_that_begins_none_is_refused(prefix: str) -> None:
    with pytest.raises(KeyRefusedError):
        check_prefix(prefix)


def test_a_long_key_is_refused_in_bytes() -> None:
    check_key("ä" * (KEY_BYTES_MAX // 2))
    with pytest.raises(KeyRefusedError, match="longer than"):
        check_key("ä" * (KEY_BYTES_MAX // 2) + "a")
    with pytest.raises(KeyRefusedError):
        check_prefix("k" * KEY_BYTES_MAX)
