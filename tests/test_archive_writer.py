"""The archive's writer: bases, diffs, several places, somebody else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.archive_faults import Faults, FaultyDestination, Killed, conflicting, timed_out
from tests.archive_tables import (
    PREFIX,
    TRUNCATE,
    Clock,
    Source,
    keys_of,
    rows_of,
    table,
    writer,
)
from walstore.archive import mirror, orphans, places
from walstore.archive.artifacts import Encoded, Spot, encode_diff, put_part
from walstore.archive.destination import Destination, DestinationError, Found, Stored
from walstore.archive.follow import Follower, Replaced
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.keys import manifest_key
from walstore.archive.local import LocalDestination
from walstore.archive.manifest import Manifest
from walstore.archive.manifest_json import read_manifest
from walstore.archive.memory import MemoryDestination
from walstore.archive.mirror import DivergedError
from walstore.archive.orphans import GRACE_MS, collect_orphans
from walstore.archive.places import MovedError
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Action, Row, RowChange, Window
from walstore.archive.writer import OtherTableError, Writer
from walstore.errors import UsageError


@pytest.fixture
def place() -> Destination:
    return MemoryDestination("here")


@pytest.fixture
def source() -> Source:
    made = Source()
    for id in range(5):
        made.put("red", id)
    return made


async def opened(destinations: list[Destination], **options: object) -> Writer:
    made = writer(destinations, **options)  # type: ignore[arg-type]  # as the test names them
    await made.open()
    return made


@pytest.mark.parametrize("parts", [1, 4])
async def test_a_base_then_diffs_then_a_base_are_the_table_at_each_step(
    place: Destination, parts: int
) -> None:
    random, source = Random(parts), Source()
    written = await opened([place], policy=Policy(max_churn_records=25), parts=parts)
    epochs = []
    for _ in range(12):
        source.happen(random, 7)
        committed = await written.commit(source.window(written.head))
        assert committed is not None
        epochs.append(committed.manifest.epoch)
        assert await rows_of(place) == source.rows()
    assert epochs[0] == 1
    assert epochs[-1] > 2
    for artifact in written.manifest.artifacts if written.manifest else ():
        assert await rows_of(place, artifact.to_position) == source.rows(artifact.to_position)


async def test_a_base_that_was_asked_for_opens_the_next_epoch(
    place: Destination, source: Source
) -> None:
    written = await opened([place], policy=Policy(min_interval_ms=10**9))
    await written.commit(source.window(0))
    committed = await written.commit(source.window(written.head), is_base_wanted=True)
    assert committed is not None
    assert (committed.artifact.is_base, committed.manifest.epoch) == (True, 2)
    assert await rows_of(place) == source.rows()


async def test_the_trigger_of_a_base_is_named(place: Destination, source: Source) -> None:
    clock = Clock()
    written = await opened([place], policy=Policy(max_interval_ms=1000), clock=clock)
    await written.commit(source.window(0))
    source.put("blue", 1)
    clock.now_ms += 1000
    committed = await written.commit(source.window(written.head))
    assert committed is not None
    assert committed.trigger == "max_interval"


async def bytes_written(policy: Policy, source: Source) -> tuple[int, list[int], Manifest]:
    """What artifacts take if each event is committed alone, how many diffs they follow on, and
    what they are."""
    place = MemoryDestination("here")
    written = await opened([place], policy=policy)
    for to in range(1, len(source.events) + 1):
        await written.commit(source.window(written.head, to))
    manifest = written.manifest
    assert manifest is not None
    assert await rows_of(place) == source.rows()
    sizes = sum(each.stored_bytes for each in manifest.artifacts)
    bases = [at for at, each in enumerate(manifest.artifacts) if each.is_base]
    ends = [*bases[1:], len(manifest.artifacts)]
    return sizes, [end - base - 1 for base, end in zip(bases, ends, strict=True)], manifest


def steady() -> Source:
    """Thirty rows that change over and over."""
    source = Source()
    for id in range(30):
        source.put("red", id)
    for step in range(250):
        old = source.events[step]
        assert old.new is not None
        new: Row = {**old.new, "value": step}
        source.events.append(RowChange(Action.UPDATE, old.key, old.new, new))
    return source


def growing() -> Source:
    """A row more with each event."""
    source = Source()
    for id in range(280):
        source.put("red", id)
    return source


@pytest.mark.parametrize("happened", [steady, growing])
async def test_bases_are_due_by_themselves_and_cost_twice_the_diffs_at_most(
    happened: Callable[[], Source],
) -> None:
    source = happened()
    off = Policy(max_chain_fraction=0, max_chain_diffs=0)
    least, (longest,), _ = await bytes_written(off, source)
    assert longest == len(source.events) - 1
    size, lengths, manifest = await bytes_written(Policy(), source)
    assert len(lengths) > 3
    assert size < 3.1 * least
    # Whoever begins anew reads no more of diffs than of the base, about.
    for base in (each for each in manifest.artifacts if each.is_base):
        diffs = [each for each in manifest.artifacts if each.epoch == base.epoch][1:]
        if len(diffs) >= 16:
            assert sum(each.stored_bytes for each in diffs) <= 1.1 * base.stored_bytes


async def test_a_chain_of_small_diffs_ends_at_its_limit(place: Destination) -> None:
    source = Source()
    for id in range(500):
        source.put("red", id)
    written = await opened([place], policy=Policy(max_chain_diffs=20))
    await written.commit(source.window(0))
    triggers = []
    for id in range(40):
        source.put("blue", id)
        committed = await written.commit(source.window(written.head))
        assert committed is not None
        triggers.append(committed.trigger)
        # What finds nothing new changes nothing.
        assert await written.commit(source.window(written.head)) is None
    assert [at for at, each in enumerate(triggers, 1) if each == "max_chain_diffs"] == [20, 40]
    assert await rows_of(place) == source.rows()


async def test_a_chain_of_which_no_base_can_be_held_is_told_once(
    place: Destination, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    written = await opened([place], policy=Policy(max_chain_part_bytes=100))
    for id in range(20):
        source.put("red", id)
        await written.commit(source.window(written.head))
    assert written.manifest is not None
    assert len(written.manifest.diffs) == 19
    assert caplog.text.count("snapshot.max_chain_part_bytes") == 1


async def test_a_small_archive_with_few_diffs_gets_no_base(place: Destination) -> None:
    source = Source()
    written = await opened([place])
    for id in range(16):
        source.put("red", id)
        committed = await written.commit(source.window(written.head))
        assert committed is not None
        assert committed.artifact.is_base == (id == 0)
    source.put("red", 16)
    committed = await written.commit(source.window(written.head))
    assert committed is not None
    assert committed.trigger == "max_chain_fraction"


async def test_nothing_new_is_nothing_written(place: Destination, source: Source) -> None:
    written = await opened([place])
    await written.commit(source.window(0))
    before = await keys_of(place)
    assert await written.commit(source.window(written.head)) is None
    # The source may have moved on without a change for this table.
    assert await written.commit(Window(written.head, written.head + 10, (), 0)) is None
    assert await keys_of(place) == before


async def test_age_asks_for_a_base_only_if_something_has_happened(
    place: Destination, source: Source
) -> None:
    clock = Clock()
    written = await opened([place], policy=Policy(max_interval_ms=1000), clock=clock)
    await written.commit(source.window(0))
    clock.now_ms += 5000
    assert await written.commit(source.window(written.head)) is None
    clock.now_ms -= 4500
    source.put("blue", 1)
    await written.commit(source.window(written.head))
    clock.now_ms += 500
    committed = await written.commit(source.window(written.head))
    assert committed is not None
    assert committed.artifact.is_base


async def test_a_window_that_is_not_the_next_one_is_refused(
    place: Destination, source: Source
) -> None:
    written = await opened([place])
    await written.commit(source.window(0, 3))
    for window in (source.window(0), source.window(4), replace_to(source.window(3), 3)):
        with pytest.raises(UsageError, match="head"):
            await written.commit(window)


def replace_to(window: Window, to: int) -> Window:
    return window._replace(to=to)


async def test_a_table_that_is_read_anew_replaces_the_old_one(
    place: Destination, source: Source
) -> None:
    written = await opened([place])
    await written.commit(source.window(0))
    whole = Source()
    whole.put("blue", 7)
    window = Window(0, 100, (TRUNCATE, *whole.window(0).changes), churn=1)
    with pytest.raises(UsageError, match="head"):
        await written.commit(window)
    committed = await written.commit(window, is_base_wanted=True)
    assert committed is not None
    assert committed.artifact.is_base
    assert await rows_of(place) == whole.rows()


# ── somebody else ──────────────────────────────────────────────────────────────────────


async def test_of_two_writers_the_second_is_told_and_goes_on_from_the_new_head(
    place: Destination, source: Source
) -> None:
    first, second = await opened([place]), await opened([place])
    await first.commit(source.window(0, 3))
    with pytest.raises(MovedError):
        await second.commit(source.window(0, 4))
    assert second.head == 0
    await second.open()
    assert second.head == 3
    await second.commit(source.window(second.head))
    assert await rows_of(place) == source.rows()
    manifest = await Archive(place, PREFIX).manifest()
    assert [each.to_position for each in manifest.artifacts] == [3, 5]


async def test_a_failed_commit_leaves_no_ghost_in_the_next_one(
    place: Destination, source: Source
) -> None:
    faults = Faults()
    written = await opened([FaultyDestination(place, faults)])
    await written.commit(source.window(0, 2))
    # The manifest of the next commit fails, before it is there.
    faults._at, faults._fault = len(faults.steps) + 1, timed_out
    with pytest.raises(DestinationError):
        await written.commit(source.window(2, 3))
    await written.commit(source.window(2, 5))
    manifest = await Archive(place, PREFIX).manifest()
    assert [each.to_position for each in manifest.artifacts] == [2, 5]
    assert await rows_of(place) == source.rows()


@pytest.mark.parametrize("fault", [timed_out, conflicting])
async def test_a_commit_whose_answer_is_lost_is_a_commit(
    place: Destination, source: Source, fault: object
) -> None:
    faults = Faults()
    written = await opened([FaultyDestination(place, faults)])
    await written.commit(source.window(0, 2))
    faults._at, faults._when, faults._fault = len(faults.steps) + 1, "after", fault  # type: ignore[assignment]
    committed = await written.commit(source.window(2, 5))
    assert committed is not None
    assert faults.steps[-1].startswith("get ")
    assert await rows_of(place) == source.rows()


async def test_a_beginning_whose_outcome_nobody_could_tell_is_gone_on_from(
    place: Destination, source: Source
) -> None:
    def cut_off() -> BaseException:
        faults._at = len(faults.steps)
        return timed_out()

    faults, clock = Faults(), Clock()
    written = await opened([FaultyDestination(place, faults)], clock=clock)
    # The first manifest is there, but neither that nor what is there is told.
    faults._at, faults._when, faults._fault = len(faults.steps), "after", cut_off
    with pytest.raises(DestinationError):
        await written.commit(source.window(0, 2))
    assert await place.get(f"{PREFIX}manifest.json")
    faults._at = None
    clock.now_ms += 1
    assert await written.commit(source.window(0, 5)) is not None
    assert await rows_of(place) == source.rows()


# ── several places ─────────────────────────────────────────────────────────────────────


async def test_all_places_hold_the_same_bytes(tmp_path: Path, source: Source) -> None:
    places: list[Destination] = [LocalDestination(tmp_path / name) for name in "ab"]
    written = await opened(places)
    await written.commit(source.window(0, 3))
    await written.commit(source.window(3))
    assert await objects_of(places[0]) == await objects_of(places[1])
    assert await rows_of(places[1]) == source.rows()


async def objects_of(place: Destination) -> dict[str, bytes]:
    found = {key: await place.get(key) for key in await keys_of(place)}
    return {key: each.body for key, each in found.items() if each is not None}


class Distant(MemoryDestination):
    """A place that cannot be reached at times."""

    is_away = False

    async def get(self, key: str) -> Found | None:
        self._look()
        return await super().get(key)

    async def put(self, key: str, body: bytes) -> Stored:
        self._look()
        return await super().put(key, body)

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        self._look()
        return await super().put_if(key, body, revision)

    def _look(self) -> None:
        if self.is_away:
            raise DestinationError(self.name, "it is away")


async def test_a_copy_that_cannot_be_reached_holds_nobody_up(
    place: Destination, source: Source
) -> None:
    copy = Distant("there")
    written = await opened([place, copy])
    await written.commit(source.window(0, 1))
    before = await objects_of(copy)
    copy.is_away = True
    await written.commit(source.window(1, 2))
    await written.commit(source.window(2, 3))
    # Whoever begins anew while it is away goes on, too.
    written = await opened([place, copy])
    await written.commit(source.window(3, 4))
    assert written.head == 4
    copy.is_away = False
    assert await objects_of(copy) == before
    await written.commit(source.window(4))
    assert await objects_of(copy) == await objects_of(place)
    assert await rows_of(copy) == source.rows()


async def test_a_place_that_missed_the_commit_is_rolled_forward_with_the_same_artifact(
    place: Destination, source: Source
) -> None:
    second = MemoryDestination("there")
    faults = Faults(fault=timed_out)
    written = await opened([place, FaultyDestination(second, faults)])
    await written.commit(source.window(0, 1))
    # After a look at the manifest the artifact gets there, and the manifest that names it does not.
    faults._at = len(faults.steps) + 2
    assert await written.commit(source.window(1, 2)) is not None
    assert (await Archive(second, PREFIX).manifest()).head_position == 1
    assert len(await keys_of(second)) == 3
    await written.commit(source.window(2))
    assert await objects_of(place) == await objects_of(second)
    manifest = await Archive(second, PREFIX).manifest()
    assert [each.to_position for each in manifest.artifacts] == [1, 2, 5]


async def test_what_a_copy_holds_without_naming_it_is_not_taken_for_the_object(
    place: Destination, source: Source
) -> None:
    await (await opened([place])).commit(source.window(0, 2))
    copy = MemoryDestination("there")
    for key, body in (await objects_of(place)).items():
        if key != manifest_key(PREFIX):
            # As long as the object, and left by somebody who was killed.
            await copy.put(key, bytes(len(body)))
    await opened([place, copy])
    assert await objects_of(copy) == await objects_of(place)


async def test_a_new_place_gets_everything(place: Destination, source: Source) -> None:
    await (await opened([place])).commit(source.window(0, 2))
    second = MemoryDestination("there")
    await opened([place, second])
    assert await objects_of(place) == await objects_of(second)


class Tiring(MemoryDestination):
    """A place that takes some objects at a time, and then fails."""

    left = 0

    async def put(self, key: str, body: bytes) -> Stored:
        if not self.left:
            raise DestinationError(self.name, "it is tired")
        self.left -= 1
        return await super().put(key, body)


async def test_a_new_place_that_fails_again_and_again_gets_everything_in_the_end(
    place: Destination,
) -> None:
    source, copy = Source(), Tiring("there")
    written = await opened([place])
    for id in range(70):
        source.put("red", id)
        await written.commit(source.window(id))
    heads = []
    for _ in range(4):
        copy.left = 25
        # Whoever was stopped begins anew, with what nobody names collected meanwhile.
        await opened([place, copy])
        archive = Archive(copy, PREFIX)
        await collect_orphans(archive, now_ms=2**62)
        heads.append((await archive.manifest()).head_position)
        assert await rows_of(copy) == source.rows(heads[-1])
    assert heads == sorted(set(heads))
    copy.left = 25
    await opened([place, copy])
    assert await objects_of(copy) == await objects_of(place)


async def test_a_copy_that_takes_long_is_brought_up_over_many_commits(
    place: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = Source(), MemoryDestination("there")
    written = await opened([place])
    for id in range(20):
        source.put("red", id)
        await written.commit(source.window(written.head))
    # As if the first object of it had taken all the time that there is.
    monkeypatch.setattr(places, "BRING_UP_S_MAX", 0.0)
    written = await opened([place, copy])
    assert (await Archive(copy, PREFIX).manifest()).head_position == 1
    source.put("red", 20)
    assert await written.commit(source.window(20)) is not None
    assert (await Archive(copy, PREFIX).manifest()).head_position == 2
    # Whoever begins anew goes on from there, and also if nothing more happens.
    written = await opened([place, copy])
    for behind in range(18):
        assert await rows_of(copy) == source.rows(3 + behind)
        assert await written.commit(source.window(21)) is None
    assert await objects_of(copy) == await objects_of(place)


async def test_an_object_that_the_first_place_has_lost_holds_up_the_copy_alone(
    place: Destination, source: Source
) -> None:
    written = await opened([place])
    for position in range(3):
        await written.commit(source.window(position, position + 1))
    assert written.manifest is not None
    lost, damaged = (str(next(each.objects).key) for each in written.manifest.artifacts[:2])
    body = (await objects_of(place))[lost]
    copy = MemoryDestination("there")
    await place.delete(lost)
    written = await opened([place, copy])
    await written.commit(source.window(3, 4))
    await place.put(lost, body)
    body = (await objects_of(place))[damaged]
    await place.put(damaged, bytes(len(body)))
    await written.commit(source.window(4))
    assert written.head == 5
    await place.put(damaged, body)
    await opened([place, copy])
    assert await objects_of(copy) == await objects_of(place)


async def test_a_place_with_another_archive_is_left_alone(
    place: Destination, source: Source
) -> None:
    second = MemoryDestination("there")
    await (await opened([place])).commit(source.window(0, 2))
    await (await opened([second])).commit(source.window(0, 3))
    before = await objects_of(second)
    with pytest.raises(DivergedError, match="there"):
        await opened([place, second])
    assert await objects_of(second) == before


async def test_the_manifest_of_a_copy_that_is_up_is_not_parsed_for_each_commit(
    place: Destination, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, parsed = await opened([place, MemoryDestination("there")]), list[bytes]()

    def read_counted(body: bytes) -> Manifest:
        parsed.append(body)
        return read_manifest(body)

    await written.commit(source.window(0, 1))
    monkeypatch.setattr(mirror, "read_manifest", read_counted)
    for to in range(2, len(source.events) + 1):
        await written.commit(source.window(to - 1, to))
    assert await objects_of(place) == await objects_of(written.destinations[1])
    assert parsed == []


async def test_a_copy_whose_manifest_is_damaged_is_named(
    place: Destination, source: Source
) -> None:
    copy = MemoryDestination("there")
    written = await opened([place, copy])
    await written.commit(source.window(0, 2))
    await copy.put(manifest_key(PREFIX), b"{}")
    # It is committed all the same, and raised before the next one.
    assert await written.commit(source.window(2, 3)) is not None
    for attempt in (written.commit(source.window(3)), opened([place, copy])):
        with pytest.raises(DivergedError, match="there holds another archive: its manifest"):
            await attempt
    # Where it may be all that there is, it is left alone, and named as well.
    await place.delete(manifest_key(PREFIX))
    with pytest.raises(DivergedError, match="there holds another archive: its manifest"):
        await opened([place, copy])


async def test_a_copy_is_left_alone_if_the_first_place_was_lost(
    place: Destination, source: Source
) -> None:
    copy = MemoryDestination("there")
    await (await opened([place, copy])).commit(source.window(0, 3))
    before = await objects_of(copy)
    empty = MemoryDestination("here")
    with pytest.raises(DivergedError, match=r"there holds .* at 3, and the first place has none"):
        await opened([empty, copy])
    assert (await objects_of(copy), await objects_of(empty)) == (before, {})
    # Put first, it is the archive, and the other one its copy.
    await (await opened([copy, empty])).commit(source.window(3))
    assert await rows_of(empty) == source.rows()


async def test_a_copy_is_left_alone_if_the_first_place_has_begun_above_it(
    place: Destination, source: Source
) -> None:
    copy = MemoryDestination("there")
    await (await opened([place, copy])).commit(source.window(0, 3))
    before = await objects_of(copy)
    await place.delete(manifest_key(PREFIX))
    await (await opened([place])).commit(source.window(0))
    with pytest.raises(DivergedError, match="epoch 1, the first place began with epoch 2"):
        await opened([place, copy])
    assert await objects_of(copy) == before


async def test_who_begins_while_another_one_does_goes_on_from_its_head(source: Source) -> None:
    place, copy = Hooked(Clock()), MemoryDestination("there")

    async def commit() -> None:
        await (await opened([place, copy])).commit(source.window(0, 3))

    # Right after it was seen that there is no archive.
    place.reads_left, place.happen = 1, commit
    written = await opened([place, copy])
    assert written.head == 3


def of_documents(place: Destination, prefix: str | None) -> Writer:
    return Writer(
        table()._replace(documents=prefix),
        [place],
        base_formats=[JsonlFormat()],
        diff_formats=[JsonlFormat()],
        policy=Policy(),
        now_ms=Clock(),
    )


@pytest.mark.parametrize("other", ["", "notes", "notes/a/"])
async def test_an_archive_of_other_documents_is_refused(
    place: Destination, source: Source, other: str
) -> None:
    written = of_documents(place, "notes/")
    await written.open()
    committed = await written.commit(source.window(0))
    assert committed is not None
    assert committed.manifest.prefix == "notes/"
    with pytest.raises(OtherTableError, match=r"source\.prefix 'notes/', not"):
        await of_documents(place, other).open()
    await of_documents(place, "notes/").open()


async def test_an_archive_that_does_not_say_what_it_is_of_says_so_from_the_next_commit_on(
    place: Destination, source: Source
) -> None:
    await (await opened([place])).commit(source.window(0, 3))
    written = of_documents(place, "")
    await written.open()
    assert await written.commit(Window(3, 3, (), churn=0)) is None
    assert (await Archive(place, PREFIX).manifest()).prefix is None
    await written.commit(source.window(3))
    assert (await Archive(place, PREFIX).manifest()).prefix == ""
    with pytest.raises(OtherTableError):
        await of_documents(place, "notes/").open()


async def test_the_archive_of_something_else_is_refused(place: Destination, source: Source) -> None:
    await (await opened([place])).commit(source.window(0))
    other = Writer(
        table()._replace(key_fields=("id",)),
        [place],
        base_formats=[JsonlFormat()],
        diff_formats=[JsonlFormat()],
        policy=Policy(),
        now_ms=Clock(),
    )
    with pytest.raises(OtherTableError, match="key"):
        await other.open()


# ── what goes away ─────────────────────────────────────────────────────────────────────


async def test_epochs_that_are_not_kept_are_really_removed(
    place: Destination, source: Source
) -> None:
    written = await opened([place], keep_epochs=2)
    for _ in range(4):
        await written.commit(source.window(written.head), is_base_wanted=True)
    manifest = await Archive(place, PREFIX).manifest()
    assert [each.epoch for each in manifest.artifacts] == [3, 4]
    epochs = {key.split("/")[1] for key in await keys_of(place)} - {"manifest.json"}
    assert epochs == {"epoch=3", "epoch=4"}


async def test_orphans_are_collected_after_a_grace_period_and_nothing_else_is(
    tmp_path: Path, source: Source
) -> None:
    place = LocalDestination(tmp_path)
    written = await opened([place])
    await written.commit(source.window(0))
    named = await objects_of(place)
    await place.put(f"{PREFIX}epoch=1/diff-5-9.jsonl", b"left behind\n")
    await place.put("elsewhere/epoch=1/diff-5-9.jsonl", b"of another archive\n")
    archive, now_ms = Archive(place, PREFIX), (await newest_ms(place)) + 1000
    young = await collect_orphans(archive, now_ms=now_ms, grace_ms=5000)
    assert young.objects == ()
    shown = await collect_orphans(archive, now_ms=now_ms, grace_ms=500, dry_run=True)
    assert [each.key for each in shown.objects] == [f"{PREFIX}epoch=1/diff-5-9.jsonl"]
    assert len(await keys_of(place)) == len(named) + 2
    await collect_orphans(archive, now_ms=now_ms, grace_ms=500)
    assert set(await keys_of(place)) == {*named, "elsewhere/epoch=1/diff-5-9.jsonl"}


async def newest_ms(place: Destination) -> int:
    return max([each.modified_ms async for each in place.list("")])


class Hooked(MemoryDestination):
    """A place where something happens once its manifest was read so many times."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("here", now_ms=clock)
        self.reads_left = 0
        self.happen: Callable[[], Awaitable[object]] | None = None

    async def get(self, key: str) -> Found | None:
        found = await super().get(key)
        if key == manifest_key(PREFIX) and self.happen is not None:
            self.reads_left -= 1
            if self.reads_left == 0:
                happen, self.happen = self.happen, None
                await happen()
        return found


@pytest.mark.parametrize("is_committed", [True, False])
async def test_what_is_about_to_be_committed_is_no_orphan_however_old(
    source: Source, is_committed: bool
) -> None:
    clock = Clock()
    place, faults = Hooked(clock), Faults(fault=timed_out)
    written = await opened([FaultyDestination(place, faults)])
    await written.commit(source.window(0, 2))
    # Its object is left behind for long: the manifest cannot be replaced.
    faults._at = len(faults.steps) + 1
    with pytest.raises(DestinationError):
        await written.commit(source.window(2))
    clock.now_ms += GRACE_MS + 1
    key = f"{PREFIX}epoch=1/diff-2-5.jsonl"
    body = (await objects_of(place))[key]

    async def put_again() -> None:
        await put_part(place, Spot(PREFIX, 1, 2, 5, 1), 0, [Encoded("jsonl", ".jsonl", body, 3)])

    async def commit() -> None:
        await written.commit(source.window(2))

    # Right after whoever tidies has seen that nobody names it.
    place.reads_left, place.happen = 1, commit if is_committed else put_again
    found = await collect_orphans(Archive(place, PREFIX), now_ms=clock.now_ms)
    assert place.reads_left == 0
    assert found.objects == ()
    assert key in await keys_of(place)
    await opened([place])
    assert len(await rows_of(place)) == (5 if is_committed else 2)


LEFT = [f"{PREFIX}epoch=1/diff-5-{to}.jsonl" for to in range(10, 99)]


async def with_orphans(source: Source) -> tuple[MemoryDestination, Writer, Clock]:
    """An archive, with what killed writers have left, long ago."""
    clock = Clock()
    place = MemoryDestination("here", now_ms=clock)
    written = await opened([place])
    await written.commit(source.window(0, 2))
    for key in LEFT:
        await place.put(key, b"left behind\n")
    clock.now_ms += GRACE_MS + 1
    return place, written, clock


async def test_many_orphans_are_collected_with_few_looks(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _, clock = await with_orphans(source)
    faults, parsed = Faults(), []

    def read_counted(body: bytes) -> Manifest:
        parsed.append(body)
        return read_manifest(body)

    monkeypatch.setattr(orphans, "read_manifest", read_counted)
    archive = Archive(FaultyDestination(place, faults), PREFIX)
    removed = await collect_orphans(archive, now_ms=clock.now_ms)
    assert [each.key for each in removed.objects] == LEFT
    looks = [step for step in faults.steps if step.startswith("list ")]
    assert len(looks) < len(LEFT) / 10
    assert len(parsed) == 1


@pytest.mark.parametrize("is_committed", [True, False])
async def test_what_is_put_again_while_others_are_removed_is_no_orphan(
    source: Source, is_committed: bool
) -> None:
    place, written, clock = await with_orphans(source)
    delete, deleted = place.delete, list[str]()

    async def deleting(key: str) -> None:
        if not deleted:
            await place.put(LEFT[-1], b"put again\n")
            if is_committed:
                await written.commit(source.window(2))
        deleted.append(key)
        await delete(key)

    place.delete = deleting  # type: ignore[method-assign]
    await collect_orphans(Archive(place, PREFIX), now_ms=clock.now_ms)
    assert deleted == LEFT[:-1]
    assert await rows_of(place) == source.rows(5 if is_committed else 2)


async def test_other_bytes_under_a_key_are_never_replaced(
    place: Destination, source: Source
) -> None:
    written = await opened([place])
    await written.commit(source.window(0, 2))
    await place.put(f"{PREFIX}epoch=1/diff-2-5.jsonl", b"{}\n")
    await written.commit(source.window(2))
    assert (await objects_of(place))[f"{PREFIX}epoch=1/diff-2-5.jsonl"] == b"{}\n"
    assert await rows_of(place) == source.rows()


class Taken(MemoryDestination):
    """A place where something happens right after an object was read."""

    happen: Callable[[], Awaitable[object]] | None = None

    async def get(self, key: str) -> Found | None:
        found = await super().get(key)
        if "diff-2-5" in key and self.happen is not None:
            happen, self.happen = self.happen, None
            await happen()
        return found


async def test_what_somebody_else_commits_meanwhile_under_a_key_is_not_replaced(
    source: Source,
) -> None:
    place = Taken("here")
    slow, quick = await opened([place]), await opened([place])
    await quick.commit(source.window(0, 2))
    await slow.open()
    window = source.window(2)
    other = window._replace(changes=window.changes[:-1])
    encoded = encode_diff(window.changes, [JsonlFormat()], slow.table.columns)
    # It is there already, as if its writer had been killed before the commit.
    left = await put_part(place, Spot(PREFIX, 1, 2, 5, 1), 0, encoded)

    async def happen() -> None:
        # Collected as an orphan; then somebody else has other bytes for the same positions.
        await place.delete(left["jsonl"].key or "")
        await quick.commit(other)

    place.happen = happen
    with pytest.raises(MovedError):
        await slow.commit(window)
    assert len(await rows_of(place)) == len(source.rows()) - 1


class Collected(MemoryDestination):
    """A place where an object is collected once it was looked at so many times."""

    key, looks_left = "", 0

    async def get(self, key: str) -> Found | None:
        found = await super().get(key)
        if key == self.key:
            self.looks_left -= 1
            if self.looks_left == 0:
                await self.delete(key)
        return found


@pytest.mark.parametrize("looks", [1, 2])
async def test_what_is_collected_while_it_is_looked_at_is_put_again(
    source: Source, looks: int
) -> None:
    place, spot = Collected("here"), Spot(PREFIX, 1, 2, 5, 1)
    encoded = encode_diff(source.window(2).changes, [JsonlFormat()], table().columns)
    # Its own key has other bytes, and the object beside them is an orphan until it is named.
    await place.put(spot.key(0, ".jsonl"), b"{}\n")
    place.key = (await put_part(place, spot, 0, encoded))["jsonl"].key or ""
    place.looks_left = looks
    assert (await put_part(place, spot, 0, encoded))["jsonl"].key == place.key
    assert place.looks_left <= 0
    assert place.key in await keys_of(place)


async def test_who_is_killed_before_the_first_commit_begins_again_as_if_nothing_was(
    place: Destination, source: Source
) -> None:
    faults = Faults(fault=timed_out)
    written = await opened([FaultyDestination(place, faults)])
    faults._at = len(faults.steps) + 2
    with pytest.raises(DestinationError):
        await written.commit(source.window(0))
    left = await objects_of(place)
    assert len(left) == 2
    committed = await (await opened([place])).commit(source.window(0))
    assert committed is not None
    assert (committed.manifest.epoch, committed.manifest.first_epoch) == (1, 1)
    assert (await objects_of(place)).keys() == left.keys()


@pytest.mark.parametrize("places", [1, 2])
async def test_an_archive_whose_manifest_was_moved_away_stays_and_another_begins_above(
    place: Destination, source: Source, places: int
) -> None:
    destinations = [place, MemoryDestination("there")][:places]
    written = await opened(destinations)
    await written.commit(source.window(0, 2))
    await written.commit(source.window(2))
    follower = Follower(Archive(place, PREFIX))
    step = await follower.next()
    assert isinstance(step, Replaced)
    follower.mark(step)
    moved = [await objects_of(each) for each in destinations]
    for each in destinations:
        await each.delete(manifest_key(PREFIX))

    # The relay has let go of the rest.
    window = Window(0, 5, source.window(2).changes, churn=1)
    written = await opened(destinations, keep_epochs=1)
    for is_first in (True, False):
        committed = await written.commit(window, is_base_wanted=True)
        assert committed is not None
        assert committed.manifest.first_epoch == 2
        assert committed.manifest.epoch == (2 if is_first else 3)
        step = await follower.next()
        assert isinstance(step, Replaced)
        follower.mark(step)
        window = Window(5, 5, (), churn=0)
    for each, before in zip(destinations, moved, strict=True):
        now_ms = await newest_ms(each) + 1
        await collect_orphans(Archive(each, PREFIX), now_ms=now_ms, grace_ms=0)
        epochs = {key.split("/")[1] for key in await keys_of(each)}
        assert epochs == {"epoch=1", "epoch=3", "manifest.json"}
        # Whoever moves it back has all of it again.
        await each.put(manifest_key(PREFIX), before[manifest_key(PREFIX)])
        assert await rows_of(each) == source.rows()


@pytest.mark.parametrize("settings", [{"name": ""}, {"prefix": "/absolute/"}])
def test_a_writer_that_cannot_work_is_refused_at_once(settings: dict[str, str]) -> None:
    place = MemoryDestination()
    jsonl = [JsonlFormat()]
    with pytest.raises(UsageError):
        Writer(
            table()._replace(**settings),  # type: ignore[arg-type]  # names and prefixes
            [place],
            base_formats=jsonl,
            diff_formats=jsonl,
            policy=Policy(),
            now_ms=Clock(),
        )


# ── kills ──────────────────────────────────────────────────────────────────────────────

# Before and after a step in each twentieth of a run: forty points in all.
SEEDS = int(os.environ.get("WALSTORE_ARCHIVE_PANICS", "50"))
POINTS = 20


@cache
def steps_of(seed: int) -> list[str]:
    """The steps of a run that nothing breaks."""
    faults = Faults()
    places: list[Destination] = [
        FaultyDestination(MemoryDestination(name), faults) for name in ("first", "second")
    ]
    with asyncio.Runner() as runner:
        runner.run(work(places, Source(), Random(seed)))
    return faults.steps


def step_at(seed: int, point: int) -> int:
    """Which of them a point is, for this seed."""
    count = len(steps_of(seed))
    ends = count * point // POINTS, count * (point + 1) // POINTS
    return Random(f"{seed} {point}").randrange(*ends)


@pytest.mark.parametrize("point", range(POINTS))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_step_leaves_base_and_diffs_that_are_the_table(point: int, when: str) -> None:
    kills = 0
    for seed in range(SEEDS):
        step = step_at(seed, point)
        with asyncio.Runner() as runner:
            runner.run(die_and_go_on(seed, Faults(at=step, when=when)))  # type: ignore[arg-type]  # one of the two
        kills += 1
    print(f"{kills} kills of a writer {when} a step")


async def die_and_go_on(seed: int, faults: Faults) -> None:
    random, source = Random(seed), Source()
    places: list[Destination] = [MemoryDestination(name) for name in ("first", "second")]
    broken: list[Destination] = [FaultyDestination(each, faults) for each in places]
    with pytest.raises(Killed):
        await work(broken, source, random)
    await check(places, source)
    # The next process goes on where the archive is.
    await work(places, source, random)
    await check(places, source)


async def work(places: list[Destination], source: Source, random: Random) -> None:
    """Write diffs and bases, and let go of what is older than the newest base."""
    written = await opened(places, policy=Policy(max_churn_records=8), parts=2, keep_epochs=1)
    for _ in range(4):
        source.happen(random, random.randrange(1, 8))
        await written.commit(source.window(written.head))


async def check(places: list[Destination], source: Source) -> None:
    for place in places:
        if manifest_key(PREFIX) in await keys_of(place):
            manifest = await Archive(place, PREFIX).manifest()
            if manifest.artifacts:
                assert await rows_of(place) == source.rows(manifest.head_position)


def test_the_points_reach_every_kind_of_step() -> None:
    met = {
        (step.split()[0], step.endswith("manifest.json"))
        for seed in range(SEEDS)
        for step in (steps_of(seed)[step_at(seed, point)] for point in range(POINTS))
    }
    assert met >= {("get", True), ("put_if", False), ("put_if", True), ("delete", False)}
