"""A manifest is chains without a gap, and every operation gives another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.manifests import BROKEN, NOW_MS, example, in_parts, one_object, parted_example
from walstore.archive.chain import check
from walstore.archive.manifest import Kind, ManifestError, opened
from walstore.archive.manifest_json import write_manifest
from walstore.errors import UsageError

# ── operations ─────────────────────────────────────────────────────────────────────────


def test_a_base_opens_an_epoch_and_diffs_go_on_from_the_head() -> None:
    manifest = example()
    assert [(a.kind, a.epoch, a.from_position, a.to_position) for a in manifest.artifacts] == [
        (Kind.BASE, 1, None, 40),
        (Kind.DIFF, 1, 40, 50),
        (Kind.DIFF, 1, 50, 57),
        (Kind.BASE, 2, None, 57),
        (Kind.DIFF, 2, 57, 60),
    ]
    assert (manifest.epoch, manifest.head_position) == (2, 60)
    assert manifest.updated_ms == NOW_MS + 60
    assert manifest.newest_base is manifest.artifacts[3]
    assert manifest.chain == manifest.artifacts[3:]
    check(manifest)


def test_an_operation_changes_nothing_but_what_it_gives() -> None:
    before = example()
    formats = one_object("d70")
    after = before.with_diff(to=70, count=1, formats=formats, now_ms=NOW_MS)
    formats.clear()
    assert before == example()
    assert after.artifacts[:-1] == before.artifacts
    assert after.artifacts[-1].formats == one_object("d70")


def test_churn_is_counted_since_the_last_base() -> None:
    assert example().churn == 4
    assert replace(example(), epoch=1).churn == 20
    manifest = example().with_diff(to=61, count=7, formats=one_object("d61"), now_ms=NOW_MS)
    assert manifest.churn == 11


def test_an_archive_begins_with_nothing() -> None:
    manifest = opened("notes", now_ms=NOW_MS)
    assert (manifest.epoch, manifest.head_position, manifest.artifacts) == (0, 0, ())
    assert manifest.newest_base is None
    assert manifest.chain == ()
    assert manifest.churn == 0
    check(manifest)


def test_a_base_of_an_empty_table_is_a_base() -> None:
    manifest = opened("notes", now_ms=NOW_MS)
    manifest = manifest.with_base(to=0, count=0, formats=one_object("b0", 0), now_ms=NOW_MS)
    assert (manifest.epoch, manifest.head_position) == (1, 0)
    check(manifest.with_diff(to=1, count=1, formats=one_object("d1"), now_ms=NOW_MS))


@pytest.mark.parametrize("to", [60, 59, 0])
def test_a_diff_that_does_not_move_the_head_is_refused(to: int) -> None:
    with pytest.raises(UsageError, match="does not move the head"):
        example().with_diff(to=to, count=1, formats=one_object("d"), now_ms=NOW_MS)


def test_a_diff_without_a_base_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a base"):
        opened("notes", now_ms=0).with_diff(to=1, count=1, formats=one_object("d"), now_ms=NOW_MS)


def test_a_base_behind_the_head_is_refused() -> None:
    with pytest.raises(UsageError, match="falls behind"):
        example().with_base(to=59, count=1, formats=one_object("b"), now_ms=NOW_MS)
    assert example().with_base(to=60, count=1, formats=one_object("b"), now_ms=0).epoch == 3


def test_epochs_are_dropped_whole_and_the_oldest_first() -> None:
    manifest = example()
    for epoch in (3, 4):
        manifest = manifest.with_base(to=60, count=1, formats=one_object("b"), now_ms=epoch)
    expected = {0: [1, 2, 3, 4], 1: [4], 2: [3, 4], 3: [2, 3, 4], 4: [1, 2, 3, 4], 9: [1, 2, 3, 4]}
    for keep, epochs in expected.items():
        kept = manifest.dropping_epochs(keep)
        assert sorted({each.epoch for each in kept.artifacts}) == epochs
        assert replace(kept, artifacts=manifest.artifacts) == manifest
        check(kept)
    with pytest.raises(UsageError, match="negative"):
        manifest.dropping_epochs(-1)


def test_sizes_are_by_format() -> None:
    base = parted_example().artifacts[0]
    assert base.size_bytes("jsonl") == 90
    assert base.size_bytes("parquet") == 0
    assert len(list(base.objects)) == 3


# ── chains ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_chain_is_refused(name: str) -> None:
    manifest, said = BROKEN[name]
    with pytest.raises(ManifestError, match=said):
        check(manifest)
    with pytest.raises(ManifestError, match=said):
        write_manifest(manifest)


def test_parts_have_to_add_up() -> None:
    parted = parted_example()
    base, diff = parted.artifacts
    for wrong in (replace(base, count=8), replace(base, formats=in_parts("b7", 4, 0, 6))):
        with pytest.raises(ManifestError, match="do not add up"):
            check(replace(parted, artifacts=(wrong, diff)))
    uncounted = {"jsonl": tuple(part._replace(row_count=None) for part in base.formats["jsonl"])}
    with pytest.raises(ManifestError, match="do not add up"):
        check(replace(parted, artifacts=(replace(base, formats=uncounted), diff)))
