"""Manifests for tests: some by hand, and any by chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from walstore.archive.manifest import POSITION_MAX, Manifest, Part, opened
from walstore.archive.rows import Column
from walstore.archive.times import TIME_MS_MAX
from walstore.canon import INTEGER_MAX

NOW_MS = 1_772_366_400_000
COLUMNS = (Column("id", "text"), Column("n", "integer"), Column("ok", "boolean"))


def one_object(name: str, size_bytes: int = 100) -> dict[str, tuple[Part, ...]]:
    """An artifact as one object."""
    key = f"notes/{name}.jsonl"
    return {"jsonl": (Part(f"s3://bucket/{key}", size_bytes, key, "ab" * 32),)}


def in_parts(name: str, *counts: int) -> dict[str, tuple[Part, ...]]:
    """An artifact in parts, with so many rows in each."""
    keys = [f"notes/{name}-part-{number}.jsonl" for number in range(len(counts))]
    return {
        "jsonl": tuple(
            Part(f"s3://bucket/{key}", 10 * count, key, "cd" * 32, count)
            for key, count in zip(keys, counts, strict=True)
        )
    }


def example() -> Manifest:
    """Two epochs: a base to 40 and diffs to 50 and 57; a base to 57 and a diff to 60."""
    manifest = opened(
        "notes",
        now_ms=NOW_MS,
        columns=COLUMNS,
        key_fields=("id",),
        mode="rows",
        source="relay-1",
    )
    manifest = manifest.with_base(to=40, count=9, formats=one_object("b40"), now_ms=NOW_MS)
    for to in (50, 57):
        manifest = manifest.with_diff(
            to=to, count=3, formats=one_object(f"d{to}", 30), now_ms=NOW_MS + to, churn=10
        )
    manifest = manifest.with_base(to=57, count=12, formats=one_object("b57"), now_ms=NOW_MS + 57)
    formats = one_object("d60", 20)
    return manifest.with_diff(
        to=60, count=2, formats=formats, now_ms=NOW_MS + 60, churn=4, table_rows=13
    )


def parted_example() -> Manifest:
    """A base and a diff, each in three parts, of documents, above another archive."""
    manifest = opened(
        "notes", now_ms=NOW_MS, parts=3, mode="sealed", prefix="notes/", first_epoch=4
    )
    manifest = manifest.with_base(to=7, count=9, formats=in_parts("b7", 4, 0, 5), now_ms=NOW_MS)
    manifest = manifest.with_diff(to=9, count=2, formats=in_parts("d9", 1, 1, 0), now_ms=NOW_MS)
    return replace(manifest, gap_upto=5)


def _edited(index: int, **changes: Any) -> Manifest:
    """The example with another artifact."""
    artifacts = list(example().artifacts)
    artifacts[index] = replace(artifacts[index], **changes)
    return replace(example(), artifacts=tuple(artifacts))


def _without(index: int) -> Manifest:
    """The example without an artifact."""
    manifest = example()
    return replace(manifest, artifacts=manifest.artifacts[:index] + manifest.artifacts[index + 1 :])


# What is wrong with each, and what is said about it.
BROKEN: dict[str, tuple[Manifest, str]] = {
    "a gap": (_edited(1, from_position=41), "begins at 41"),
    "an overlap": (_edited(1, from_position=39), "begins at 39"),
    "an empty range": (_edited(2, from_position=50, to_position=50), "covers nothing"),
    "a range backwards": (_edited(2, to_position=49), "covers nothing"),
    "a diff from nowhere": (_edited(1, from_position=None), "begins at None"),
    "a base from somewhere": (_edited(3, from_position=57), "begins somewhere"),
    "a base behind": (_edited(3, to_position=56), "behind"),
    "an epoch twice": (_edited(3, epoch=1), "epoch 1 after epoch 1"),
    "an epoch backwards": (_edited(0, epoch=3), "no base opens"),
    "epoch 0": (
        replace(_edited(0, epoch=0), artifacts=_edited(0, epoch=0).artifacts[:1]),
        "epoch 0",
    ),
    "a diff of another epoch": (_edited(4, epoch=3), "no base opens"),
    "a diff missing": (_without(1), "begins at 50"),
    "a base missing": (_without(3), "no base opens"),
    "the first base missing": (_without(0), "no base opens"),
    "the last diff missing": (_without(4), "its head is at 60"),
    "a head beyond": (replace(example(), head_position=61), "its head is at 61"),
    "an epoch beyond": (replace(example(), epoch=3), "its epoch is 3"),
    "a head of nothing": (replace(opened("notes", now_ms=0), head_position=5), "its head is at 5"),
    "an epoch of nothing": (replace(opened("notes", now_ms=0), epoch=1), "its epoch is 1"),
    "an epoch before the first": (replace(example(), first_epoch=2), "from before epoch 2"),
    "no format": (_edited(0, formats={}), "in no format"),
    "too many parts": (_edited(0, formats=in_parts("b", 4, 5)), "2 parts in jsonl, and not 1"),
    "too few parts": (replace(example(), parts=2), "1 parts in jsonl, and not 2"),
    "no parts": (replace(example(), parts=0), "0 parts"),
    "a column twice": (replace(example(), columns=COLUMNS + COLUMNS), "one name"),
    "a key field twice": (replace(example(), key_fields=("id", "id")), "named twice"),
    "a key field of no column": (replace(example(), key_fields=("key",)), "none of its columns"),
}


_TEXT = st.text(min_size=1, max_size=8)
_COUNTS = st.integers(0, INTEGER_MAX)
_TIMES = st.integers(0, TIME_MS_MAX)
_SHA256 = st.binary(min_size=32, max_size=32).map(bytes.hex)
_KEYS = st.from_regex(r"[a-zä=_-]{1,5}(/[a-zä=_.-]{0,5}[a-z]){0,2}", fullmatch=True)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Any manifest that can come of its operations."""
    columns = draw(st.lists(_columns(), max_size=3, unique_by=lambda column: column.name))
    names = [column.name for column in columns]
    fields = st.sampled_from(names) if names else _TEXT
    manifest = opened(
        draw(_TEXT),
        now_ms=draw(_TIMES),
        parts=draw(st.sampled_from([1, 1, 2, 3])),
        columns=tuple(columns),
        key_fields=tuple(draw(st.lists(fields, max_size=3, unique=True))),
        mode=draw(st.sampled_from(["rows", "sealed", "folded"])),
        source=draw(st.none() | _TEXT),
        first_epoch=draw(st.sampled_from([1, 1, 2, 7])),
        prefix=draw(st.none() | st.just("") | _TEXT),
    )
    for _ in range(draw(st.integers(0, 5))):
        manifest = _and_one_more(draw, manifest)
    manifest = replace(manifest, gap_upto=draw(st.sampled_from([0, 0, 3])))
    return manifest.dropping_epochs(draw(st.integers(0, 3)))


@st.composite
def _columns(draw: st.DrawFn) -> Column:
    return Column(draw(_TEXT), draw(st.sampled_from(["text", "integer", "boolean", "json"])))


def _and_one_more(draw: st.DrawFn, manifest: Manifest) -> Manifest:
    is_base = not manifest.artifacts or draw(st.booleans())
    head = manifest.head_position
    if head == POSITION_MAX and not is_base:
        return manifest
    counts = [draw(st.integers(0, 1000)) for _ in range(manifest.parts)]
    ids = draw(st.lists(_TEXT, min_size=1, max_size=2, unique=True))
    given: dict[str, Any] = {
        "to": draw(st.integers(head if is_base else head + 1, POSITION_MAX)),
        "count": sum(counts) if manifest.parts > 1 else draw(_COUNTS),
        "formats": {id_: tuple(_part(draw, manifest, count) for count in counts) for id_ in ids},
        "now_ms": draw(_TIMES),
        "churn": draw(st.none() | _COUNTS),
    }
    if is_base:
        return manifest.with_base(**given)
    return manifest.with_diff(**given, table_rows=draw(st.none() | _COUNTS))


def _part(draw: st.DrawFn, manifest: Manifest, count: int) -> Part:
    return Part(
        draw(_TEXT),
        draw(_COUNTS),
        draw(st.none() | _KEYS),
        draw(st.none() | _SHA256),
        count if manifest.parts > 1 else None,
    )
