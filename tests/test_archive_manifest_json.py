"""The text of a manifest says exactly what it is, or is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import BROKEN, COLUMNS, NOW_MS, example, manifests, parted_example
from walstore.archive.chain import check
from walstore.archive.manifest import (
    Artifact,
    Kind,
    Manifest,
    ManifestError,
    NewerManifestError,
    Part,
    opened,
)
from walstore.archive.manifest_json import read_manifest, write_manifest
from walstore.archive.times import time_ms, time_text
from walstore.canon import canonical_bytes, content_hash

FLIPS = 10_000

# ── text ───────────────────────────────────────────────────────────────────────────────


def test_the_text_is_what_it_always_was() -> None:
    manifest = opened("notes", now_ms=NOW_MS, key_fields=("id",), columns=COLUMNS[:1], source="r")
    part = Part(
        "s3://b/notes/epoch=1/snapshot-40.jsonl", 100, "epoch=1/snapshot-40.jsonl", "a" * 64
    )
    manifest = manifest.with_base(to=40, count=9, formats={"jsonl": (part,)}, now_ms=NOW_MS)
    diff = Part("s3://b/notes/epoch=1/diff-40-41.jsonl", 5)
    manifest = manifest.with_diff(
        to=41, count=2, formats={"jsonl": (diff,)}, now_ms=NOW_MS + 1, churn=3
    )
    rest: dict[str, Any] = {
        "manifest_version": 1,
        "table": "notes",
        "epoch": 1,
        "updated_at": "2026-03-01T12:00:00.001Z",
        "head_position": "41",
        "mode": "rows",
        "source": "r",
        "key_fields": ["id"],
        "columns": [{"name": "id", "type": "text"}],
        "artifacts": [
            {
                "kind": "snapshot",
                "epoch": 1,
                "from_position": None,
                "to_position": "40",
                "created_at": "2026-03-01T12:00:00.000Z",
                "row_count": 9,
                "formats": {
                    "jsonl": {
                        "uri": "s3://b/notes/epoch=1/snapshot-40.jsonl",
                        "size_bytes": 100,
                        "key": "epoch=1/snapshot-40.jsonl",
                        "sha256": "a" * 64,
                    }
                },
            },
            {
                "kind": "diff",
                "epoch": 1,
                "from_position": "40",
                "to_position": "41",
                "created_at": "2026-03-01T12:00:00.001Z",
                "change_count": 2,
                "churn": 3,
                "formats": {
                    "jsonl": {"uri": "s3://b/notes/epoch=1/diff-40-41.jsonl", "size_bytes": 5}
                },
            },
        ],
    }
    assert write_manifest(manifest) == canonical_bytes({**rest, "checksum": content_hash(rest)})


def test_artifacts_in_parts_are_of_version_2() -> None:
    text = json.loads(write_manifest(parted_example()))
    assert text["manifest_version"] == 2
    assert text["parts"] == 3
    parts = text["artifacts"][0]["formats"]["jsonl"]["parts"]
    assert [part["row_count"] for part in parts] == [4, 0, 5]
    assert json.loads(write_manifest(example()))["manifest_version"] == 1
    assert "parts" not in json.loads(write_manifest(example()))


@pytest.mark.parametrize("manifest", [example(), parted_example(), opened("t", now_ms=0)])
def test_what_is_written_is_read(manifest: Manifest) -> None:
    assert read_manifest(write_manifest(manifest)) == manifest


@given(manifests())
def test_any_manifest_comes_back(manifest: Manifest) -> None:
    body = write_manifest(manifest)
    assert read_manifest(body) == manifest
    assert write_manifest(read_manifest(body)) == body


def test_a_manifest_of_others_has_less_and_is_read() -> None:
    text = {
        "manifest_version": 1,
        "table": "public.notes",
        "epoch": 1,
        "updated_at": "2026-03-01T12:00:00.123456789+01:00",
        "head_position": "40",
        "artifacts": [
            {
                "kind": "snapshot",
                "epoch": 1,
                "from_position": None,
                "to_position": "40",
                "created_at": "2026-03-01T12:00:00Z",
                "row_count": 9,
                "formats": {"jsonl": {"uri": "s3://b/k", "size_bytes": 100}},
            }
        ],
    }
    base = Artifact(Kind.BASE, 1, None, 40, NOW_MS, 9, {"jsonl": (Part("s3://b/k", 100),)})
    assert read_manifest(json.dumps(text, indent=2).encode()) == Manifest(
        "public.notes", 1, NOW_MS - 3_600_000 + 123, 40, (base,)
    )


def test_members_that_nobody_knows_are_let_be_but_checked() -> None:
    text = json.loads(write_manifest(example()))
    del text["checksum"]
    text["later"] = {"any": ["thing"]}
    text["artifacts"][0]["later"] = 1
    text["checksum"] = content_hash(text)
    assert read_manifest(canonical_bytes(text)) == example()
    text["later"] = None
    with pytest.raises(ManifestError, match="checksum"):
        read_manifest(canonical_bytes(text))


@pytest.mark.parametrize("version", [3, 4, 2**53 - 1])
def test_a_newer_version_is_refused_as_such(version: int) -> None:
    text = {"manifest_version": version, "whatever": "it says"}
    with pytest.raises(NewerManifestError, match=f"version {version}.*upgrade") as caught:
        read_manifest(canonical_bytes(text))
    assert caught.value.version == version
    assert not isinstance(caught.value, ManifestError)


# ── text that is wrong ─────────────────────────────────────────────────────────────────


BAD_BODIES: tuple[bytes, ...] = (
    b"",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b"\xff",
    b'{"manifest_version": NaN}',
    b'{"manifest_version": 1}',
    b"[" * 100_000,
    b'{"manifest_version":1,"table":"t","epoch":0,"updated_at":"","head_position":"0"}',
)


@pytest.mark.parametrize("body", BAD_BODIES)
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(ManifestError, match="malformed manifest: "):
        read_manifest(body)


def resealed(manifest: Manifest, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The text of a manifest after an edit, with a checksum that fits."""
    text = json.loads(write_manifest(manifest))
    del text["checksum"]
    edit(text)
    return canonical_bytes({**text, "checksum": content_hash(text)})


Path = tuple[Any, ...]


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of all members and elements in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for place, held in items:
        if place != "checksum":
            yield (*path, place)
        if isinstance(held, dict | list):
            yield from _paths(held, (*path, place))


def _set(text: Any, path: Path, value: object) -> None:
    for place in path[:-1]:
        text = text[place]
    text[path[-1]] = value


def _remove(text: Any, path: Path) -> None:
    for place in path[:-1]:
        text = text[place]
    del text[path[-1]]


OPTIONAL = {
    *("columns", "key_fields", "mode", "source", "prefix", "first_epoch", "gap_upto"),
    *("churn", "table_rows", "key", "sha256"),
}


@pytest.mark.parametrize("manifest", [example(), parted_example()])
def test_every_member_is_needed_or_may_be_missing(manifest: Manifest) -> None:
    original = json.loads(write_manifest(manifest))
    for path in _paths(original):
        body = resealed(manifest, partial(_remove, path=path))
        if _may_be_missing(original, path):
            assert read_manifest(body).artifacts
        else:
            with pytest.raises(ManifestError):
                pytest.fail(f"{path} is missing in {read_manifest(body)}")


def _may_be_missing(original: Any, path: Path) -> bool:
    match path:
        case ("columns", number):
            # The first one is the key.
            return bool(number != 0)
        case ("key_fields", _):
            return True
        case ("artifacts", 2):
            # A base may take in what is new itself, without a diff before it.
            return True
        case ("artifacts", number, "from_position"):
            # A base has none.
            return bool(original["artifacts"][number]["kind"] == "snapshot")
    return path[-1] in OPTIONAL


WRONG_VALUES: tuple[object, ...] = (
    *(7, -1, 1.5, True, False, 2**60),
    *("", "text", "007", "-1", "snapshot"),
    *([], {}, [[]], {"a": 1}),
)


@pytest.mark.parametrize("manifest", [example(), parted_example()])
def test_a_member_of_another_kind_is_refused(manifest: Manifest) -> None:
    original = json.loads(write_manifest(manifest))
    for path in _paths(original):
        for value in WRONG_VALUES:
            body = resealed(manifest, partial(_set, path=path, value=value))
            try:
                read = read_manifest(body)
            except (ManifestError, NewerManifestError):
                continue
            assert _may_be(path, value), (path, value)
            assert write_manifest(read)


def _may_be(path: Path, value: object) -> bool:
    """Whether a value is one of those that a place may hold."""
    match path[-1]:
        case "table" | "uri" | "source" | "name" | "key":
            return isinstance(value, str) and value != ""
        case "prefix":
            return isinstance(value, str)
        case "size_bytes" | "churn" | "table_rows" | "row_count" | "change_count":
            return type(value) is int and 0 <= value < 2**53
        case "columns" | "key_fields":
            return value == []
        case "type":
            return value == "text"
        case "kind":
            return value == "snapshot" and path[1] in (0, 3)
    return False


@pytest.mark.parametrize("key", ["/etc/passwd", "../x", "a/../../x", "a//b", "a\0b", "a\\b", "."])
def test_a_key_that_leaves_its_place_is_refused(key: str) -> None:
    path = ("artifacts", 0, "formats", "jsonl", "key")
    with pytest.raises(ManifestError, match=r"artifacts\[0\]\.formats\.jsonl\.key "):
        read_manifest(resealed(example(), lambda text: _set(text, path, key)))


@pytest.mark.parametrize("name", BROKEN)
def test_a_text_that_is_no_chain_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, _ = BROKEN[name]
    with monkeypatch.context() as patched:
        patched.setattr("walstore.archive.manifest_json.check", lambda manifest: None)
        body = write_manifest(manifest)
    with pytest.raises(ManifestError):
        read_manifest(body)


def test_a_manifest_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    body = write_manifest(example())
    monkeypatch.setattr("walstore.archive.manifest_json.MANIFEST_BYTES_MAX", len(body) - 1)
    with pytest.raises(ManifestError, match="more than"):
        write_manifest(example())
    with pytest.raises(ManifestError, match="more than"):
        read_manifest(body)


@pytest.mark.parametrize("manifest", [example(), parted_example()])
def test_every_flipped_bit_is_found_or_does_no_harm(manifest: Manifest) -> None:
    body = write_manifest(manifest)
    chance = random.Random(11)
    places = range(8 * len(body))
    harmless = 0
    for place in chance.choices(places, k=FLIPS // 2):
        damaged = bytearray(body)
        damaged[place // 8] ^= 1 << place % 8
        try:
            read = read_manifest(bytes(damaged))
        except (ManifestError, NewerManifestError):
            continue
        assert read == manifest
        harmless += 1
    # Only the name of the checksum can be hit without a trace.
    assert harmless < FLIPS // 100


@given(st.data())
def test_a_cut_or_patched_text_is_a_clean_error_or_the_same(data: st.DataObject) -> None:
    manifest = data.draw(st.sampled_from([example(), parted_example()]))
    body = write_manifest(manifest)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, len(body)))
    patched = body[:start] + data.draw(st.binary(max_size=20)) + body[end:]
    try:
        read = read_manifest(patched)
    except (ManifestError, NewerManifestError):
        return
    assert read == manifest


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_hostile_text_is_a_clean_error_or_a_sound_manifest(data: st.DataObject) -> None:
    # Without a checksum, so that everything behind it is reached.
    manifest = data.draw(st.sampled_from([example(), parted_example()]))
    text = json.loads(write_manifest(manifest))
    del text["checksum"]
    for _ in range(data.draw(st.integers(1, 3))):
        paths = list(_paths(text))
        _set(text, data.draw(st.sampled_from(paths)), data.draw(_JSON))
        if not text["artifacts"]:
            break
    body = json.dumps(text, allow_nan=True).encode("utf-8", "surrogatepass")
    try:
        read = read_manifest(body)
    except (ManifestError, NewerManifestError):
        return
    check(read)
    assert read_manifest(write_manifest(read)) == read


# ── times ──────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 253_402_214_400_000))
def test_times_come_back(ms: int) -> None:
    assert time_ms(time_text(ms)) == ms


NO_TIMES = """
2026
2026-03-01
2026-03-01T12:00:00
2026-03-01 12:00:00Z
2026-W09-7T12:00:00Z
20260301T120000Z
2026-13-01T12:00:00Z
2026-02-30T12:00:00Z
2026-03-01T24:00:01Z
1969-12-31T23:59:59Z
0001-01-01T00:00:00+14:00
9999-12-31T23:59:59-14:00
2026-03-01T12:00:00.Z
2026-03-01T12:00:00Zz
２026-03-01T12:00:00Z
"""


@pytest.mark.parametrize("text", [*NO_TIMES.split("\n"), "2026-03-01T12:00:00Z\n"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert time_ms(text) is None
