"""Readers of an archive: at the head, as of a position, following it, and what they refuse."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from threading import current_thread, main_thread
from types import ModuleType

import pytest

from tests.archive_tables import FIELDS, PREFIX, TRUNCATE, Source, keys_of, rows_of, writer
from walstore.archive import artifacts, local
from walstore.archive.artifacts import (
    DamagedObjectError,
    Encoded,
    MissingObjectError,
    NoFormatError,
    Spot,
    put_part,
    read_object,
)
from walstore.archive.destination import Destination, DestinationError, Found
from walstore.archive.follow import Follower, Moved, Replaced, Step
from walstore.archive.formats import open_format
from walstore.archive.keys import manifest_key
from walstore.archive.local import LocalDestination
from walstore.archive.manifest import Artifact, Kind, Manifest, Part
from walstore.archive.manifest_json import NewerManifestError, read_manifest, write_manifest
from walstore.archive.memory import MemoryDestination
from walstore.archive.place_file import PlaceFileError
from walstore.archive.plan import Place, plan, plan_as_of
from walstore.archive.policy import Policy
from walstore.archive.reader import (
    Archive,
    ArchiveNotFoundError,
    KeyFieldsError,
    NotReachedError,
)
from walstore.archive.rows import Action, Row, key_of
from walstore.archive.writer import Writer
from walstore.canon import canonical_bytes
from walstore.errors import PeerError


def artifact(kind: Kind, epoch: int, since: int | None, to: int) -> Artifact:
    return Artifact(kind, epoch, since, to, 0, 0, {"jsonl": (Part("epoch=0/x", 0),)})


MANIFEST = Manifest(
    "people",
    epoch=2,
    updated_ms=0,
    head_position=70,
    artifacts=(
        artifact(Kind.BASE, 1, None, 40),
        artifact(Kind.DIFF, 1, 40, 50),
        artifact(Kind.DIFF, 1, 50, 57),
        artifact(Kind.BASE, 2, None, 57),
        artifact(Kind.DIFF, 2, 57, 60),
        artifact(Kind.DIFF, 2, 60, 70),
    ),
)
EMPTY = Manifest("people", epoch=0, updated_ms=0, head_position=0)


@pytest.mark.parametrize(
    ("place", "has_base", "diffs"),
    [
        (None, True, 2),
        (Place(1, 39), True, 2),
        (Place(1, 50), True, 2),
        (Place(1, 57), True, 2),
        (Place(2, 57), False, 2),
        (Place(2, 60), False, 1),
        (Place(2, 61), True, 2),
        (Place(2, 70), False, 0),
        (Place(3, 70), True, 2),
    ],
)
def test_a_reader_goes_on_with_diffs_only_inside_its_chain(
    place: Place | None, has_base: bool, diffs: int
) -> None:
    way = plan(MANIFEST, place)
    assert way is not None
    assert (way.base is not None, len(way.diffs), way.place) == (has_base, diffs, Place(2, 70))


def test_nothing_leads_to_an_archive_without_a_base() -> None:
    assert plan(EMPTY) is None
    assert plan(EMPTY, Place(1, 1)) is None
    assert plan_as_of(EMPTY, 10) is None


@pytest.mark.parametrize(
    ("position", "reached"),
    [
        (39, None),
        (40, Place(1, 40)),
        (49, Place(1, 40)),
        (50, Place(1, 50)),
        (56, Place(1, 50)),
        (57, Place(2, 57)),
        (60, Place(2, 60)),
        (69, Place(2, 60)),
        (70, Place(2, 70)),
        (10**9, Place(2, 70)),
    ],
)
def test_as_of_a_position_is_what_ends_there_or_before(
    position: int, reached: Place | None
) -> None:
    way = plan_as_of(MANIFEST, position)
    assert (None if way is None else way.place) == reached


# ── reading ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def place() -> Destination:
    return MemoryDestination("here")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def written(place: Destination) -> Writer:
    made = writer([place], policy=Policy(max_churn_records=30), parts=3)
    await made.open()
    return made


async def advance(written: Writer, source: Source, random: Random, count: int = 5) -> None:
    source.happen(random, count)
    await written.commit(source.window(written.head))


@pytest.mark.parametrize("module", [artifacts, local])
async def test_what_is_large_is_hashed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    hashed: list[bool] = []

    def noting(body: bytes) -> object:
        hashed.append(len(body) > 2**20 and current_thread() is main_thread())
        return sha256(body)

    monkeypatch.setattr(module, "sha256", noting)
    place, body = LocalDestination(tmp_path), bytes(2**20 + 1)
    encoded = [Encoded("jsonl", ".jsonl", body, 1)]
    stored = await put_part(place, Spot(PREFIX, 1, None, 1, 1), 0, encoded)
    assert await read_object(place, PREFIX, stored["jsonl"]) == body
    assert hashed
    assert not any(hashed)


async def test_where_there_is_no_archive_it_says_so(place: Destination) -> None:
    with pytest.raises(ArchiveNotFoundError, match=r"people/manifest\.json"):
        await Archive(place, PREFIX).manifest()


async def test_a_later_version_is_refused(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    await place.put(manifest_key(PREFIX), canonical_bytes({"manifest_version": 3}))
    with pytest.raises(NewerManifestError):
        await Archive(place, PREFIX).manifest()


async def test_before_the_first_base_there_is_nothing(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    with pytest.raises(NotReachedError, match="4"):
        await rows_of(place, 4)


async def test_a_copy_of_an_archive_can_be_read_where_it_is(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    copy = MemoryDestination("copy")
    for key in await keys_of(place):
        found = await place.get(key)
        assert found is not None
        await copy.put(key.replace(PREFIX, "elsewhere/"), found.body)
    rows = [row async for row in Archive(copy, "elsewhere/").rows()]
    assert len(rows) == len(source.rows())


async def test_a_missing_object_is_named(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    key = next(key for key in await keys_of(place) if "epoch=" in key)
    await place.delete(key)
    with pytest.raises(MissingObjectError, match="epoch=1"):
        await rows_of(place)


async def test_formats_that_an_artifact_is_not_there_in_are_named(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    archive = Archive(place, PREFIX, formats=[open_format("parquet")])
    with pytest.raises(NoFormatError, match=r"jsonl.*parquet"):
        [row async for row in archive.rows()]


async def test_another_key_than_the_writers_is_refused(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    with pytest.raises(KeyFieldsError, match="team, id"):
        await Archive(place, PREFIX, key_fields=["id"]).manifest()


async def test_any_flipped_bit_of_an_archive_is_noticed_or_does_no_harm(
    place: Destination, written: Writer, source: Source
) -> None:
    random = Random(1)
    for _ in range(3):
        await advance(written, source, random)
    expected, keys = await rows_of(place), await keys_of(place)
    bodies = {key: found.body for key in keys if (found := await place.get(key)) is not None}
    noticed = 0
    for _ in range(10_000):
        key = random.choice([key for key in keys if bodies[key]])
        flipped = bytearray(bodies[key])
        for _ in range(random.choice([1, 1, 1, 2, 5])):
            flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        await place.put(key, bytes(flipped))
        try:
            assert await rows_of(place) == expected
        except (PeerError, ArchiveNotFoundError, MissingObjectError):
            noticed += 1
        await place.put(key, bodies[key])
    assert noticed > 9_000


async def test_a_manifest_that_names_other_counts_is_noticed(
    place: Destination, written: Writer, source: Source
) -> None:
    await advance(written, source, Random(1))
    manifest = await Archive(place, PREFIX).manifest()
    false = replace(manifest.artifacts[0], count=manifest.artifacts[0].count + 1)
    objects = {
        name: tuple(
            part._replace(row_count=(part.row_count or 0) + (index == 0))
            for index, part in enumerate(parts)
        )
        for name, parts in false.formats.items()
    }
    false = replace(false, formats=objects)
    await place.put(manifest_key(PREFIX), write_manifest(replace(manifest, artifacts=(false,))))
    with pytest.raises(DamagedObjectError, match="rows or changes"):
        await rows_of(place)


async def test_an_object_with_other_bytes_is_refused_even_if_they_can_be_read(
    place: Destination, written: Writer, source: Source
) -> None:
    for id in range(3):
        source.put("red", id)
    await written.commit(source.window(0))
    manifest = await Archive(place, PREFIX).manifest()
    part = max(manifest.artifacts[0].formats["jsonl"], key=lambda each: each.size_bytes)
    assert part.key is not None
    found = await place.get(part.key)
    assert found is not None
    other = found.body.replace(b'"red"', b'"der"')
    assert sha256(other).hexdigest() != part.sha256
    await place.put(part.key, other)
    with pytest.raises(DamagedObjectError, match="hash"):
        await rows_of(place)


# ── following ──────────────────────────────────────────────────────────────────────────


class Copy:
    """What a reader has taken over."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def take(self, step: Step) -> None:
        if isinstance(step, Replaced):
            self.rows = {repr(key_of(row, FIELDS)): row for row in step.rows}
            return
        for change in step.changes:
            if change.action is Action.TRUNCATE:
                self.rows.clear()
            elif change.new is None:
                self.rows.pop(repr(change.key), None)
            else:
                self.rows[repr(change.key)] = change.new

    def is_like(self, source: Source, at: int) -> bool:
        expected = {repr(key_of(row, FIELDS)): row for row in source.rows(at)}
        return self.rows == expected


@pytest.mark.parametrize("seed", range(20))
async def test_a_follower_that_is_killed_now_and_then_has_the_table_at_each_step(
    place: Destination, written: Writer, source: Source, seed: int, tmp_path: Path
) -> None:
    random, copy, kinds = Random(seed), Copy(), set()
    follower = Follower(Archive(place, PREFIX), state=tmp_path / "state")
    assert await follower.next() is None
    for _ in range(25):
        for _ in range(random.randrange(3)):
            await advance(written, source, random, random.randrange(1, 8))
        if random.random() < 0.2:
            source.events.append(TRUNCATE)
        if random.random() < 0.3:
            follower = Follower(Archive(place, PREFIX), state=tmp_path / "state")
        step = await follower.next()
        if step is None:
            continue
        copy.take(step)
        kinds.add(type(step))
        assert copy.is_like(source, step.place.position)
        if random.random() < 0.7:
            follower.mark(step)
    assert kinds == {Replaced, Moved}


async def test_a_follower_waits_until_it_is_woken(
    place: Destination, written: Writer, source: Source
) -> None:
    follower = Follower(Archive(place, PREFIX), poll_s=3600)
    async with aclosing(follower.steps()) as steps:
        waiting = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0)
        await advance(written, source, Random(1))
        follower.wake()
        step = await waiting
    assert isinstance(step, Replaced)


async def test_a_follower_looks_again_after_a_while(
    place: Destination, written: Writer, source: Source
) -> None:
    follower = Follower(Archive(place, PREFIX), poll_s=0.001)
    async with aclosing(follower.steps()) as steps:
        waiting = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0)
        await advance(written, source, Random(1))
        assert isinstance(await waiting, Replaced)


async def test_what_cannot_be_read_for_now_is_reported_and_tried_again(
    place: Destination, written: Writer, source: Source
) -> None:
    class Flaky(MemoryDestination):
        failures = 3

        async def get(self, key: str) -> Found | None:
            if self.failures:
                self.failures -= 1
                raise DestinationError(self.name, "timed out")
            return await place.get(key)

    await advance(written, source, Random(1))
    told: list[Exception] = []
    follower = Follower(Archive(Flaky(), PREFIX), poll_s=0.001, on_unreachable=told.append)
    async with aclosing(follower.steps()) as steps:
        assert isinstance(await anext(steps), Replaced)
    assert len(told) == 3


async def test_an_epoch_that_is_dropped_while_it_is_read_is_read_anew(
    place: Destination, source: Source
) -> None:
    written = writer([place], keep_epochs=1)
    await written.open()
    await advance(written, source, Random(1))

    class Slow(MemoryDestination):
        is_first = True

        async def get(self, key: str) -> Found | None:
            if "epoch=1" in key and self.is_first:
                self.is_first = False
                source.put("late", 1)
                await written.commit(source.window(written.head), is_base_wanted=True)
            return await place.get(key)

    step = await Follower(Archive(Slow(), PREFIX)).next()
    assert isinstance(step, Replaced)
    assert step.place == Place(2, 6)


async def test_a_state_of_something_else_is_refused(place: Destination, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("[]")
    with pytest.raises(PlaceFileError, match="where a reader stands"):
        Follower(Archive(place, PREFIX), state=tmp_path / "state")


def test_what_a_writer_writes_is_what_a_reader_reads() -> None:
    assert read_manifest(write_manifest(EMPTY)) == EMPTY
