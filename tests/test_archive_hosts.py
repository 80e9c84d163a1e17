"""A host that changes an archive, and its manifest with it: what it says no longer is what was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests.archive_world import MODES, World
from tests.rigged import ALICE, BOB
from walstore.archive.artifacts import DamagedObjectError
from walstore.archive.buckets import bucket_of
from walstore.archive.checking import Checked, check_archive
from walstore.archive.follow import Follower
from walstore.archive.keys import manifest_key
from walstore.archive.manifest import Artifact, Part
from walstore.archive.manifest_json import write_manifest
from walstore.archive.plan import Place
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Row
from walstore.canon import canonical_bytes
from walstore.document import WalDocument
from walstore.signed import Identity

Lines = list[dict[str, Any]]


class Host:
    """A world whose archive is in the hands of somebody else."""

    def __init__(self, mode: str) -> None:
        self.world = World(mode)
        self.world.policy = Policy()
        self.archive = Archive(self.world.place, "notes/")

    async def document(self, *values: int) -> WalDocument:
        """A base of the first value, and a diff of each further one."""
        document = await self.world.document("notes/a")
        for value in values:
            document.set_field("count", value)
            await document.commit()
            await self.world.engine().run_once()
        return document

    async def tamper(self, index: int, change: Callable[[Lines], None]) -> None:
        """Change the lines of an artifact, and make all hashes and counts fit."""
        manifest = await self.archive.manifest()
        artifacts = list(manifest.artifacts)
        artifacts[index] = await self._tampered(artifacts[index], change)
        body = write_manifest(replace(manifest, artifacts=tuple(artifacts)))
        await self.world.place.put(manifest_key("notes/"), body)

    async def _tampered(self, artifact: Artifact, change: Callable[[Lines], None]) -> Artifact:
        parts: list[Part] = []
        for part in artifact.formats["jsonl"]:
            found = await self.world.place.get(part.key or "")
            assert found is not None
            lines: Lines = [json.loads(line) for line in found.body.splitlines()]
            if lines:
                change(lines)
            body = b"".join(canonical_bytes(line) + b"\n" for line in lines)
            await self.world.place.put(part.key or "", body)
            digest = sha256(body).hexdigest()
            parts.append(part._replace(size_bytes=len(body), sha256=digest, row_count=len(lines)))
        count = sum(part.row_count or 0 for part in parts)
        return replace(artifact, formats={"jsonl": tuple(parts)}, count=count)

    async def verify(self) -> Checked:
        return await check_archive(self.archive)


async def test_a_position_beyond_the_head_does_not_freeze_a_document() -> None:
    host = Host("folded")
    document = await host.document(1)

    def raise_seq(lines: Lines) -> None:
        lines[0]["seq"] = 2**53 - 1

    await host.tamper(0, raise_seq)
    assert (await host.verify()).flaws == [
        f"notes/a: it is at {2**53 - 1}, but the snapshot ends at 1",
        f"notes/a: its state is that of 1, the row is at {2**53 - 1}",
    ]
    document.set_field("count", 2)
    await document.commit()
    await host.world.engine().run_once()
    await host.world.check()


class Rolled(Host):
    """A host that puts the row of the base back."""

    async def prepare(self, *, is_seq_kept: bool) -> WalDocument:
        """Three commits, and the row of the first one instead of that of the last."""
        document = await self.world.document("notes/a")
        for name in "abc":
            document.set_field(name, 1)
            await document.commit()
            await self.world.engine().run_once()
        (row,) = [row async for row in self.archive.rows(at=1)]

        def put_back(lines: Lines) -> None:
            lines[0]["new"] = row if is_seq_kept else {**row, "seq": 3}

        await self.tamper(2, put_back)
        assert [row["value"] for row in await self.world.rows()] == [{"a": 1}]
        return document

    async def go_on(self, document: WalDocument) -> Row:
        await document.pull()
        document.set_field("d", 1)
        await document.commit()
        await self.world.engine().run_once()
        (row,) = await self.world.rows()
        return row


@pytest.mark.parametrize("is_seq_kept", [True, False])
@pytest.mark.parametrize("who", [ALICE, BOB])
async def test_an_older_row_is_noticed_and_not_gone_on_from(
    is_seq_kept: bool, who: Identity
) -> None:
    host = Rolled("folded")
    await host.prepare(is_seq_kept=is_seq_kept)
    (flaw,) = (await host.verify()).flaws
    assert flaw == (
        "notes/a: it is at 1, but the diff begins after 2"
        if is_seq_kept
        else "notes/a: its state is that of 1, the row is at 3"
    )
    row = await host.go_on(await host.world.document("notes/a", who))
    assert row["value"] == dict.fromkeys("abcd", 1)
    await host.world.check()


async def test_a_row_that_was_withheld_is_read_anew() -> None:
    host = Rolled("folded")
    document = await host.prepare(is_seq_kept=True)
    for index in range(3):
        await host.tamper(index, lambda lines: lines.clear())
    assert await host.world.rows() == []
    assert (await host.go_on(document))["value"] == dict.fromkeys("abcd", 1)
    await host.world.check()


@pytest.mark.parametrize("mode", MODES)
async def test_a_change_with_the_row_of_another_key_is_refused(mode: str) -> None:
    host = Host(mode)
    await host.document(1, 2)

    def add_other(lines: Lines) -> None:
        key = ["notes/a~", *lines[0]["key"][1:]]
        lines.append({**lines[0], "key": key})

    await host.tamper(1, add_other)
    (flaw,) = (await host.verify()).flaws
    assert "has the row of another key" in flaw
    with pytest.raises(DamagedObjectError):
        await host.world.rows()
    follower = Follower(host.archive)
    follower.place = Place(1, 1)
    with pytest.raises(DamagedObjectError):
        await follower.next()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", [0, 1])
async def test_a_row_in_another_part_is_refused(mode: str, index: int) -> None:
    host = Host(mode)
    await host.document(1, 2)
    manifest = await host.archive.manifest()
    artifacts = list(manifest.artifacts)
    parts = list(artifacts[index].formats["jsonl"])
    own = bucket_of(("notes/a",), manifest.parts)
    found = await host.world.place.get(parts[own].key or "")
    assert found is not None
    await host.world.place.put(parts[1 - own].key or "", found.body)
    parts[1 - own] = parts[own]._replace(key=parts[1 - own].key, uri=parts[1 - own].uri)
    artifacts[index] = replace(artifacts[index], formats={"jsonl": tuple(parts)}, count=2)
    body = write_manifest(replace(manifest, artifacts=tuple(artifacts)))
    await host.world.place.put(manifest_key("notes/"), body)
    (flaw,) = (await host.verify()).flaws
    assert f"belongs into part {own}" in flaw
    with pytest.raises(DamagedObjectError):
        await host.world.rows()
    with pytest.raises(DamagedObjectError):
        await Follower(host.archive).next()


def _forge(lines: Lines) -> None:
    row = lines[0].get("new", lines[0])
    if row.get("data") is None:
        row["value"] = {"count": 666}
    else:
        row["data"] = row["data"].replace("count", "forged")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", [0, 1, 2, 3])
async def test_a_forged_row_is_noticed_wherever_it_is(mode: str, index: int) -> None:
    host = Host(mode)
    await host.document(1, 2)
    engine = host.world.engine()
    await engine.run_once()
    await engine.flush(is_base_wanted=True)
    await host.document(3)
    assert [each.is_base for each in (await host.archive.manifest()).artifacts] == [
        *(True, False, True, False)
    ]
    assert (await host.verify()).is_sound
    await host.tamper(index, _forge)
    checked = await host.verify()
    assert checked.flaws
    assert checked.rows == (3 if mode == "sealed" else 1)


@pytest.mark.parametrize("index", [0, 1])
async def test_a_value_that_nothing_proves_is_told(index: int) -> None:
    host = Host("folded")
    await host.document(1, 2)
    assert (await host.verify()).notes == []

    def strip(lines: Lines) -> None:
        _forge(lines)
        lines[0].get("new", lines[0])["state"] = None

    await host.tamper(index, strip)
    checked = await host.verify()
    assert checked.is_sound
    assert checked.notes == ["documents with a value that no state proves: 1, 'notes/a' the first"]


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_format_that_nobody_knows_is_told(is_alone: bool) -> None:
    host = Host("sealed")
    await host.document(1)
    manifest = await host.archive.manifest()
    (base,) = manifest.artifacts
    known = {} if is_alone else base.formats
    later = replace(base, formats={**known, "later": base.formats["jsonl"]})
    body = write_manifest(replace(manifest, artifacts=(later,)))
    await host.world.place.put(manifest_key("notes/"), body)
    checked = await host.verify()
    assert checked.is_sound
    assert len(checked.notes) == manifest.parts + is_alone
    assert "there is no format 'later'" in checked.notes[0]
    assert ("the rows at the head were not checked" in checked.notes[-1]) == is_alone


async def test_a_row_that_later_bases_do_not_have_is_noticed() -> None:
    host = Host("sealed")
    await host.document(1)
    engine = host.world.engine()
    await engine.run_once()
    await engine.flush(is_base_wanted=True)

    def add(lines: Lines) -> None:
        lines.append({**lines[0], "document": "notes/b", "seq": 1})

    await host.tamper(0, add)
    assert (await host.verify()).flaws == ["1 rows of before are not at the head"]
