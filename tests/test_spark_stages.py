"""What tasks do, without a Spark: the same as the plain engine, however their batches are cut."""

from __future__ import annotations

import asyncio
import pickle
import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra parquet is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive_sources import Kept
from tests.rigged import ALICE, BOB, CAROL, MALLORY, MEMBERS, signed, spoiled, write_packed
from tests.spark_logs import ARCHIVE, BY_KEYS, Logs, Rows, cut, ran, rows_of
from tests.test_archive_hosts import Host, Lines
from walstore.archive.authority import Authority
from walstore.archive.folded import COLUMNS as FOLDED
from walstore.archive.folded import Report
from walstore.archive.source import Event
from walstore.archive.verification import verify_rows
from walstore.canon import canonical_text, parse
from walstore.crdt.runs import Set
from walstore.errors import MalformedError, UsageError
from walstore.relay.sqlite import SqliteLog
from walstore.spark.address import Address
from walstore.spark.archive_source import ArchiveSource
from walstore.spark.conflict_stage import ConflictStage
from walstore.spark.fold_stage import FoldStage
from walstore.spark.history_stage import HistoryStage
from walstore.spark.schema import events_batch
from walstore.spark.stages import BATCH_ROWS_MAX, VerifyStage, batches_of
from walstore.spark.trust import Trust

RANDOMS = st.randoms(use_true_random=False)
TRUST = Trust(BY_KEYS)


def written(rng: random.Random, count: int = 25) -> list[Event]:
    """The events of a log in which a few things have happened."""

    async def write() -> list[Event]:
        logs = Logs()
        await logs.happen(rng, rng.randint(1, count))
        return await logs.events()

    return asyncio.run(write())


# ── what hosts of archives say ─────────────────────────────────────────────────────────

HALF = "\ud800"


@pytest.mark.parametrize(
    "change",
    [
        *({name: HALF} for name in ("data", "author", "id", "signature", "kind", "document")),
        *({"kind": "x"}, {"kind": None}, {"ts": None}, {"seq": None}, {"vc": {HALF: 1}}),
    ],
    ids=ascii,
)
def test_a_cell_that_a_host_has_changed_ends_no_job(change: dict[str, Any]) -> None:
    def tamper(lines: Lines) -> None:
        lines[0].update(change)
        lines.sort(key=lambda line: (line["document"], line["seq"] or 0))

    async def given() -> list[Any]:
        host = Host("sealed")
        document = await host.world.document("notes/a")
        for value in (1, 2):
            document.set_field("count", value)
            await document.commit()
        await host.world.engine().run_once()
        await host.tamper(0, tamper)
        return list((await ArchiveSource(host.archive).page(0)).events)

    found = asyncio.run(given())
    found.sort(key=lambda event: (event.document, event.seq))
    batch = events_batch(found)
    history = HistoryStage(Trust())
    for stage in (history.ops, history.blame, FoldStage(Trust()).rows, ConflictStage(Trust()).run):
        list(stage(iter([batch])))
    told = [row for each in VerifyStage(True).run(iter([batch])) for row in each.to_pylist()]
    assert len(told) == len(found)
    is_gone, is_harmless = "seq" in change, change.get("id", change.get("vc")) is not None
    assert is_gone or is_harmless or "rejected" in {row["verdict"] for row in told}


# ── verify ─────────────────────────────────────────────────────────────────────────────


def tampered(rows: Rows, rng: random.Random) -> Rows:
    """Rows of which some say something else than they did."""
    for row in rng.sample(rows, k=min(len(rows), rng.randint(0, 4))):
        name = rng.choice(list(row))
        match row[name]:
            case bool(value):
                row[name] = not value
            case int(value):
                row[name] = max(value + rng.choice([-1, 1, 1000]), 0)
            case str(value) if value and name not in ("document", "kind"):
                place = rng.randrange(len(value))
                row[name] = value[:place] + rng.choice("aZ0") + value[place + 1 :]
            case _:
                pass
    if rows and rng.random() < 0.3:
        rows.append(dict(rng.choice(rows)))
    return sorted(rows, key=lambda row: (row["document"], row["seq"]))


def flaws_of(rows: Rows) -> Counter[tuple[str, int, str]]:
    """What an archive's own check says of rows."""
    found = verify_rows([{**row, "vc": _parsed(row["vc"])} for row in rows])
    # Only whoever has met all documents can tell this one.
    flaws = [flaw for flaw in found.flaws if flaw.reason != "its seq is used twice"]
    return Counter((flaw.document, flaw.seq, flaw.reason) for flaw in flaws)


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except MalformedError:
        return None


@settings(deadline=None, max_examples=60)
@given(RANDOMS)
def test_every_event_is_judged_once_as_an_archive_is_checked(rng: random.Random) -> None:
    rows = tampered(rows_of(written(rng)), rng)
    found = ran(VerifyStage(is_chained=True).run, cut(rows, rng))
    as_given = [{name: row[name] for name in list(row)[:-2]} for row in found]
    assert sorted(map(canonical_text, as_given)) == sorted(map(canonical_text, rows))
    told: Counter[tuple[str, int, str]] = Counter()
    for row in found:
        assert (row["verdict"] == "rejected") == (row["reason"] is not None)
        reasons = [] if row["reason"] is None else row["reason"].split("; ")
        told.update((row["document"], row["seq"], reason) for reason in reasons)
    assert told == flaws_of(rows)


def test_an_element_counts_by_its_signature_or_by_a_later_one() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        doc = await logs.opened("a")
        for value in range(3):
            doc.set_field("n", value)
            await doc.commit()
        await doc.snapshot()
        await logs.log.compact([])
        await logs.harm("a", random.Random(4), 1)
        return await logs.events()

    rows = rows_of(asyncio.run(write()))
    chained = ran(VerifyStage(is_chained=True).run, cut(rows))
    verdicts = {row["seq"]: row["verdict"] for row in chained}
    assert [verdicts[seq] for seq in (1, 2, 3, 4)] == ["linked", "linked", "signed", "signed"]
    alone = ran(VerifyStage(is_chained=False).run, cut(rows[::-1]))
    assert {row["verdict"] for row in alone if row["seq"] <= 4} == {"signed"}


def test_alone_nothing_vouches_for_what_is_not_signed() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        run = Set("x", f"{CAROL.public_key}:s", 1, 1)
        data = write_packed(CAROL, [run])["data"]
        first = spoiled(signed(data, CAROL, document_key="a"))
        await logs.transport.put_in("a", first)
        (event,) = await logs.events()
        later = {**data, "seq": 2, "prev": event.id, "body": {"ops": [[]]}}
        await logs.transport.put_in("a", signed(later, CAROL, document_key="a"))
        return await logs.events()

    rows = rows_of(asyncio.run(write()))
    chained = ran(VerifyStage(is_chained=True).run, cut(rows))
    assert {row["seq"]: row["verdict"] for row in chained} == {1: "linked", 2: "signed"}
    alone = {row["seq"]: row for row in ran(VerifyStage(is_chained=False).run, cut(rows))}
    assert alone[2]["verdict"] == "signed"
    assert alone[1]["reason"] == "nothing proves that its author has signed it"


def test_a_row_without_a_place_is_told_and_stops_nothing() -> None:
    rows = rows_of(written(random.Random(1)))
    lost = [{**rows[0], "seq": -3}, {**rows[0], "document": None}]
    batches = [*cut(rows), *(batch for row in lost for batch in cut([row]))]
    for is_chained in (True, False):
        found = ran(VerifyStage(is_chained=is_chained).run, batches)
        assert len(found) == len(rows) + 2
        reasons = [row["reason"] for row in found if row["seq"] == -3 or row["document"] is None]
        assert reasons == ["it has no document or no seq"] * 2
    folded = ran(FoldStage(TRUST).rows, batches)
    assert folded == ran(FoldStage(TRUST).rows, cut(rows))


# ── fold ───────────────────────────────────────────────────────────────────────────────


def as_cells(rows: Iterable[Any]) -> Rows:
    """Rows of an archive, as a DataFrame has them."""
    types = {column.name: column.type for column in FOLDED}
    return [
        {
            name: canonical_text(value) if types[name] == "json" and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]


def by_key(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["document"]: dict(row) for row in rows}


async def plain(logs: Logs, ends: list[int], authority: Authority = BY_KEYS) -> tuple[Kept, int]:
    """The table that the plain engine makes, in windows."""
    kept, events = Kept(), await logs.events()
    head = (await logs.source.status()).head_seq
    for to in [*sorted({end for end in ends if 0 < end < head}), head]:
        some = [event for event in events if event.seq > kept.position]
        await kept.fold(logs.folder(authority), some, to)
    return kept, head


@settings(deadline=None, max_examples=60)
@given(RANDOMS)
def test_documents_are_folded_as_an_archive_folds_them(rng: random.Random) -> None:
    async def write() -> tuple[Rows, list[Event], list[Report]]:
        logs = Logs()
        await logs.happen(rng, rng.randint(1, 25))
        kept, _ = await plain(logs, [])
        return as_cells(kept.rows.values()), await logs.events(), kept.reports

    with tempfile.TemporaryDirectory() as directory:
        key = Path(directory) / "archive.key"
        ARCHIVE.save(key)
        expected, events, reports = asyncio.run(write())
        stage = FoldStage(Trust(BY_KEYS, str(key)))
        found = ran(stage.rows, cut(rows_of(events), rng))
        assert by_key(found) == by_key(expected)
        notices = ran(stage.notices, cut(rows_of(events), rng))
    rejected = Counter(
        (row["document"], row["reason"]) for row in notices if row["kind"] == "rejected"
    )
    assert rejected == Counter(
        (each.document, one.reason) for each in reports for one in each.rejections
    )
    assert {row["document"] for row in notices} == {each.document for each in reports}


@settings(deadline=None, max_examples=25)
@given(RANDOMS, st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_a_fold_goes_on_from_the_one_before(rng: random.Random, ends: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database, key = str(Path(directory) / "relay.db"), Path(directory) / "archive.key"
        ARCHIVE.save(key)

        async def write() -> tuple[Rows, list[Event], int]:
            async with SqliteLog.open(database) as log:
                logs = Logs(log)
                await logs.happen(rng, 20)
                kept, head = await plain(logs, ends)
                return as_cells(kept.rows.values()), await logs.events(), head

        expected, events, head = asyncio.run(write())
        trust = Trust(BY_KEYS, str(key), Address(database=database))
        folded: Rows = []
        position = 0
        for to in [*sorted({end for end in ends if end < head}), head]:
            some = rows_of(event for event in events if position < event.seq <= to)
            stage = FoldStage(trust, has_previous=position > 0)
            folded = ran(stage.rows, cut(some, rng, kept=folded))
            position = to
        assert by_key(folded) == by_key(expected)


def test_a_document_without_new_events_keeps_its_row_as_it_is(tmp_path: Path) -> None:
    ARCHIVE.save(tmp_path / "archive.key")
    stage = FoldStage(Trust(BY_KEYS, str(tmp_path / "archive.key")), has_previous=True)

    async def write() -> tuple[list[Event], list[Event]]:
        logs = Logs()
        for key in ("a", "b"):
            doc = await logs.opened(key)
            doc.set_field("n", 1)
            await doc.commit()
        first = await logs.events()
        doc.set_field("n", 2)
        await doc.commit()
        return first, [event for event in await logs.events() if event not in first]

    first, later = asyncio.run(write())
    before = by_key(ran(stage.rows, cut(rows_of(first))))
    after = by_key(ran(stage.rows, cut(rows_of(later), kept=before.values())))
    assert after["a"] == before["a"]
    assert parse(after["b"]["value"]) == {"n": 2}
    assert (after["b"]["elements"], parse(after["b"]["authors"])) == (2, [ALICE.public_key])


def test_a_state_that_somebody_has_changed_is_not_believed(tmp_path: Path) -> None:
    ARCHIVE.save(tmp_path / "archive.key")
    stage = FoldStage(Trust(BY_KEYS, str(tmp_path / "archive.key")), has_previous=True)
    events = written(random.Random(3))
    folded = by_key(ran(stage.rows, cut(rows_of(events))))
    lies = [{**row, "seq": 0, "value": "{}", "state": '{"v":1}'} for row in folded.values()]
    again = by_key(ran(stage.rows, cut(rows_of(events), kept=lies)))
    assert {key: row["value"] for key, row in again.items()} == {
        key: row["value"] for key, row in folded.items()
    }


def test_bytes_that_are_no_text_hide_a_document_unless_it_can_be_read_anew(tmp_path: Path) -> None:
    database = str(tmp_path / "relay.db")

    async def write() -> list[Event]:
        async with SqliteLog.open(database) as log:
            logs = Logs(log)
            doc = await logs.opened("a")
            doc.set_field("n", 1)
            await doc.commit()
            # No relay takes this. Who knows whether it was let go of, with all before it.
            await logs.transport.add("a", b"\xff\xfe", BOB.public_key, "A" * 86 + "==")
            return await logs.events()

    rows = rows_of(asyncio.run(write()))
    (row,) = ran(FoldStage(TRUST).rows, cut(rows))
    assert row["value"] is None
    assert {each["kind"] for each in ran(FoldStage(TRUST).notices, cut(rows))} == {"problem"}
    trust = Trust(BY_KEYS, address=Address(database=database))
    (row,) = ran(FoldStage(trust).rows, cut(rows))
    assert (parse(row["value"]), row["rejected"]) == ({"n": 1}, 1)


def test_documents_are_shown_as_they_were_at_a_time() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        doc = await logs.opened("a")
        for value in range(5):
            doc.set_field("n", value)
            await doc.commit()
        return await logs.events()

    events = asyncio.run(write())
    for place, event in enumerate(events):
        stage = FoldStage(TRUST, until_ms=event.accepted_ms)
        (row,) = ran(stage.rows, cut(rows_of(events)))
        assert (parse(row["value"]), row["state"]) == ({"n": place}, None)
    assert ran(FoldStage(TRUST, until_ms=0).rows, cut(rows_of(events))) == []


# ── who is believed ────────────────────────────────────────────────────────────────────


def test_a_stage_can_be_sent_elsewhere_and_has_no_secret_in_it(tmp_path: Path) -> None:
    ARCHIVE.save(tmp_path / "archive.key")
    stage = FoldStage(Trust(BY_KEYS, str(tmp_path / "archive.key")))
    sent = pickle.dumps(stage.rows)
    assert bytes([9]) * 32 not in sent
    events = written(random.Random(5))
    assert ran(pickle.loads(sent), cut(rows_of(events))) == ran(stage.rows, cut(rows_of(events)))


def test_rosters_have_to_be_somewhere() -> None:
    with pytest.raises(UsageError, match="say where they are"):
        Trust(Authority(writers="roster"))


def test_whoever_may_not_write_changes_nothing_and_is_told() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        for who in (ALICE, MALLORY):
            everybody = [*MEMBERS, MALLORY.public_key]
            doc = await logs.opened("a", who, writers=everybody)
            doc.set_field(who.public_key[:4], 1)
            await doc.commit()
        return await logs.events()

    events = asyncio.run(write())
    (row,) = ran(FoldStage(TRUST).rows, cut(rows_of(events)))
    assert (parse(row["value"]), row["rejected"]) == ({ALICE.public_key[:4]: 1}, 1)
    (notice,) = ran(FoldStage(TRUST).notices, cut(rows_of(events)))
    assert (notice["kind"], notice["author"]) == ("rejected", MALLORY.public_key)
    assert (notice["seq"], notice["reason"]) == (2, "its author may not write")


# ── batches ────────────────────────────────────────────────────────────────────────────


def test_batches_are_not_very_large() -> None:
    columns = FOLDED[:1]
    sizes = [batch.num_rows for batch in batches_of((["x"] for _ in range(5000)), columns)]
    assert sizes == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 1000]
    large = [batch.num_rows for batch in batches_of((["x" * 2**21] for _ in range(9)), columns)]
    assert large == [4, 4, 1]
    assert list(batches_of([], columns)) == []
