"""Who wrote what, when and beside whom: read off the logs of documents, without a Spark."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra parquet is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, CAROL, set_op, signed
from tests.spark_logs import BY_KEYS, KEYS, Logs, Rows, cut, edit, ran, rows_of
from walstore.archive.source import Event
from walstore.canon import parse
from walstore.document import WalDocument
from walstore.sealed.keys import ContentKeys
from walstore.sealed.native import NativeEncryptor
from walstore.spark.conflict_stage import ConflictStage
from walstore.spark.fold_stage import FoldStage
from walstore.spark.history_stage import HistoryStage
from walstore.spark.trust import Trust

RANDOMS = st.randoms(use_true_random=False)
TRUST = Trust(BY_KEYS)
HISTORY = HistoryStage(TRUST)


def ops_of(events: list[Event], rng: random.Random | None = None) -> Rows:
    return ran(HISTORY.ops, cut(rows_of(events), rng))


def conflicts_of(events: list[Event], rng: random.Random | None = None) -> Rows:
    return ran(ConflictStage(TRUST).run, cut(rows_of(events), rng))


# ── ops ────────────────────────────────────────────────────────────────────────────────


def test_each_run_of_ops_is_a_row() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        doc = await logs.opened("a")
        doc.insert_text("text", 0, "Hello")
        doc.set_field("title", {"a": 1})
        await doc.commit(message="a start")
        doc.remove_text("text", 1, 3)
        doc.put("map", "key", [1])
        doc.drop("map", "key")
        doc.insert("list", 0, {"is": "an item"})
        doc.delete_field("title")
        await doc.commit()
        return await logs.events()

    events = asyncio.run(write())
    rows = sorted(ops_of(events), key=lambda row: (row["seq"], row["place"]))
    said = [(row["kind"], row["name"], row["key"], row["size"], row["text"]) for row in rows]
    assert said == [
        ("insert", "text", None, 5, "Hello"),
        ("set", "title", None, 1, None),
        ("remove", "text", None, 3, None),
        ("put", "map", "key", 1, None),
        ("drop", "map", "key", 1, None),
        ("insert", "list", None, 1, None),
        ("delete", "title", None, 1, None),
    ]
    assert [row["growth"] for row in rows] == [5, 0, -3, 0, 0, 1, 0]
    values = [row["value"] for row in rows]
    assert values == [None, '{"a":1}', None, "[1]", None, '[{"is":"an item"}]', None]
    assert [row["message"] for row in rows[:3]] == ["a start", "a start", None]
    first = rows[0]
    assert (first["document"], first["author"]) == ("a", ALICE.public_key)
    assert (first["seq"], first["ts"], first["id"]) == (1, events[0].ts, events[0].id)
    assert [row["writer_seq"] for row in rows] == [1, 1, 2, 2, 2, 2, 2]
    assert {row["accepted_ms"] for row in rows} == {event.accepted_ms for event in events}


@settings(deadline=None, max_examples=50)
@given(RANDOMS)
def test_what_documents_grew_by_adds_up_to_their_size(rng: random.Random) -> None:
    async def write() -> list[Event]:
        logs = Logs()
        await logs.happen(rng, rng.randint(1, 30), cuts=False)
        return await logs.events()

    events = asyncio.run(write())
    sizes: dict[str, int] = defaultdict(int)
    for row in ops_of(events, rng):
        sizes[row["document"]] += row["growth"]
    for row in ran(FoldStage(TRUST).rows, cut(rows_of(events), rng)):
        value: Any = parse(row["value"])
        expected = len(value.get("text", [])) + len(value.get("list", []))
        assert sizes[row["document"]] == expected


def test_what_two_have_removed_at_once_has_gone_once() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        alice, bob = await logs.opened("a"), await logs.opened("a", BOB)
        alice.insert_text("text", 0, "Hello")
        await alice.commit()
        await bob.pull()
        for document, size in ((alice, 2), (bob, 3)):
            document.remove_text("text", 0, size)
            await document.commit()
        return await logs.events()

    rows = sorted(ops_of(asyncio.run(write())), key=lambda row: row["seq"])
    assert [(row["size"], row["growth"]) for row in rows] == [(5, 5), (2, -2), (3, -1)]


def test_what_no_key_opens_is_a_row_that_says_so() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        keys = ContentKeys(1, {1: bytes(32)})
        sealer = NativeEncryptor(keys, randomness=os.urandom)
        doc = await logs.opened("a", encryptor=sealer)
        doc.insert_text("text", 0, "secret")
        await doc.commit()
        return await logs.events()

    (row,) = ops_of(asyncio.run(write()))
    assert (row["kind"], row["author"], row["writer_seq"]) == ("sealed", ALICE.public_key, 1)
    assert (row["name"], row["text"], row["growth"]) == (None, None, 0)


def test_what_was_rejected_is_no_op() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        for number in range(12):
            await logs.harm("a", random.Random(number), number)
        return await logs.events()

    events = asyncio.run(write())
    rejected = {row["seq"] for row in ran(FoldStage(TRUST).notices, cut(rows_of(events)))}
    assert rejected
    assert not rejected & {row["seq"] for row in ops_of(events)}


# ── blame ──────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=40)
@given(RANDOMS)
def test_blame_is_that_of_the_document(rng: random.Random) -> None:
    async def write() -> tuple[list[Event], dict[str, WalDocument]]:
        logs = Logs()
        await logs.happen(rng, rng.randint(1, 30), cuts=False)
        reading = {key: await logs.opened(key, posture="re-derive") for key in KEYS}
        return await logs.events(), reading

    events, documents = asyncio.run(write())
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    texts: dict[str, str] = defaultdict(str)
    ids = {(event.document, event.ts): event.id for event in events if event.kind == "element"}
    for row in ran(HISTORY.blame, cut(rows_of(events), rng)):
        place = row["document"], row["name"]
        found[place].append((row["start"], row["size"], row["author"], row["ts"]))
        assert row["id"] == ids.get((row["document"], row["ts"]))
        if row["name"] == "text":
            texts[row["document"]] += row["text"]
    for key, document in documents.items():
        value = document.materialize()
        assert texts[key] == "".join(value.get("text", []))
        for name in value:
            shown = name.replace("\ud800", "\ufffd")
            assert found.pop((key, shown), []) == [tuple(each) for each in document.blame(name)]
    assert not found


def test_blame_holds_what_was_written() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        alice = await logs.opened("a")
        alice.insert_text("text", 0, "Hello world")
        alice.put("map", "k", {"a": 1})
        await alice.commit()
        bob = await logs.opened("a", BOB)
        bob.insert_text("text", 5, ", dear")
        bob.set_field("title", "T")
        await bob.commit()
        return await logs.events()

    rows = ran(HISTORY.blame, cut(rows_of(asyncio.run(write()))))
    said = [(row["name"], row["key"], row["text"], row["author"], row["seq"]) for row in rows]
    first, second = ALICE.public_key, BOB.public_key
    assert sorted(said, key=str) == sorted(
        [
            ("text", None, "Hello", first, 1),
            ("text", None, ", dear", second, 2),
            ("text", None, " world", first, 1),
            ("map", "k", '{"a":1}', first, 1),
            ("title", None, '"T"', second, 2),
        ],
        key=str,
    )


# ── conflicts ──────────────────────────────────────────────────────────────────────────


def test_edits_are_in_conflict_if_neither_author_saw_the_other_s() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        alice = await logs.opened("a")
        alice.insert_text("text", 0, "Hello")  # 1
        await alice.commit()
        bob = await logs.opened("a", BOB)
        bob.insert_text("text", 5, "!")  # 2: has seen 1
        await bob.commit()
        alice.insert_text("text", 5, "?")  # 3: has not seen 2
        alice.set_field("title", 1)
        await alice.commit()
        await alice.pull()
        alice.insert_text("text", 0, "> ")  # 4: has seen all
        await alice.commit()
        return await logs.events()

    events = asyncio.run(write())
    (row,) = conflicts_of(events)
    assert (row["seq"], row["author"], row["other_author"]) == (3, ALICE.public_key, BOB.public_key)
    assert row["other_first_ts"] == row["other_last_ts"] == events[1].ts
    assert row["other_elements"] == 1
    assert row["names"] == '["text"]'


async def watched(
    rng: random.Random, *, all_first: bool
) -> tuple[list[Event], dict[int, set[tuple[str, int]]]]:
    """A log, and for each element those of others that it had not seen: author and `ts`.

    Args:
        rng: What happens.
        all_first: Whether everybody writes something before anybody reads.
    """
    logs = Logs()
    people = [ALICE, ALICE, BOB, CAROL]
    documents: list[WalDocument] = []
    read: list[int] = []
    unseen: dict[int, set[tuple[str, int]]] = {}

    async def head() -> int:
        return max([event.ts for event in await logs.events()], default=0)

    async def write(place: int) -> None:
        before = await logs.events()
        edit(documents[place], rng)
        await documents[place].commit()
        (event,) = (await logs.events())[len(before) :]
        own = people[place].public_key
        others = {(each.author, each.ts) for each in before if each.ts > read[place]}
        unseen[event.ts] = {each for each in others if each[0] != own}

    for place in range(rng.randint(2, 4)):
        documents.append(await logs.opened("a", people[place], posture="re-derive"))
        read.append(await head())
        if not all_first and rng.random() < 0.5:
            await write(place)
    if all_first:
        for place in range(len(documents)):
            await write(place)
    for _ in range(rng.randint(1, 25)):
        place = rng.randrange(len(documents))
        if rng.random() < 0.4:
            await documents[place].pull()
            read[place] = await head()
        else:
            await write(place)
    return await logs.events(), unseen


def told_by(rows: Rows, events: list[Event]) -> dict[int, set[tuple[str, int]]]:
    """What rows say that elements had not seen, as far as it can be told from their columns."""
    told: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for row in rows:
        span = range(row["other_first_ts"], row["other_last_ts"] + 1)
        theirs = [
            event.ts
            for event in events
            if event.ts in span
            and event.author == row["other_author"]
            and session_of(event) == row["other_session"]
        ]
        assert len(theirs) == row["other_elements"]
        told[row["ts"]] |= {(row["other_author"], ts) for ts in theirs}
    return told


def session_of(event: Event) -> str:
    data: Any = parse(event.payload or b"")
    return str(data["session"])


@settings(deadline=None, max_examples=60)
@given(RANDOMS)
def test_conflicts_are_exactly_what_nobody_had_seen(rng: random.Random) -> None:
    events, unseen = asyncio.run(watched(rng, all_first=True))
    told = told_by(conflicts_of(events, rng), events)
    assert dict(told) == {ts: others for ts, others in unseen.items() if others}


@settings(deadline=None, max_examples=60)
@given(RANDOMS)
def test_nothing_is_called_a_conflict_that_was_none(rng: random.Random) -> None:
    events, unseen = asyncio.run(watched(rng, all_first=False))
    for ts, others in told_by(conflicts_of(events, rng), events).items():
        assert others <= unseen[ts]


def test_what_came_in_a_snapshot_was_seen() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        alice = await logs.opened("a")
        for value in range(3):
            alice.set_field("n", value)
            await alice.commit()
        await alice.snapshot()
        # Nothing is read of the log, and so nothing is named.
        bob = await logs.opened("a", BOB, posture="trust")
        bob.set_field("n", 9)
        await bob.commit()
        bob.set_field("n", 10)
        await bob.commit()
        return await logs.events()

    assert conflicts_of(asyncio.run(write())) == []


def test_of_a_peer_without_sessions_the_clock_tells() -> None:
    async def write() -> list[Event]:
        logs = Logs()
        for who, counter in ((ALICE, 1), (BOB, 1), (BOB, 2)):
            data = {"v": 1, "author": who.public_key, "seq": counter}
            data["ops"] = [set_op(who, counter, 1)]
            await logs.transport.put_in("a", signed(data, who, document_key="a"))
        return await logs.events()

    (row,) = conflicts_of(asyncio.run(write()))
    assert (row["seq"], row["session"], row["other_session"]) == (2, None, None)
    assert (row["names"], row["other_elements"]) == ('["title"]', 1)
