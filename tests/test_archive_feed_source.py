"""A relay as a source of an archive: the same as its database, over a network that may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.archive_sources import Kept, all_events
from tests.rigged import ALICE, BOB, MEMBERS
from walstore.archive.authority import Authority
from walstore.archive.feed_source import FeedSource
from walstore.archive.folder import Folder
from walstore.archive.sealed import sealed_row, sealed_window
from walstore.archive.source import Event, Source
from walstore.archive.verification import verify_rows
from walstore.document import CheckpointTooOldError, LogBehindError, WalDocument
from walstore.net import WebSocketTransport
from walstore.net.backoff import Backoff
from walstore.net.faults import FalseAnswerError, OtherRelayError, ReplayTooOldError
from walstore.relay.log import Bootstrap, FeedPage, Filter, RelayLog, Removal
from walstore.relay.log import Event as LogEvent
from walstore.relay.memory import MemoryLog
from walstore.relay.reading import LogSource
from walstore.relay.server import Relay
from walstore.signed import Identity

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
HASTE = Backoff(quick_ms_min=0, quick_ms_max=2, pause_ms_min=1, pause_ms_max=20, lasting_ms=0)
BY_KEYS = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})
PATIENCE_S = 30.0


class Line:
    """A relay, its log, and a source over the network."""

    def __init__(self, relay: Relay, log: RelayLog, transport: WebSocketTransport) -> None:
        self.relay = relay
        self.log = log
        self.transport = transport
        self.source = FeedSource(transport, page_events_max=4)
        self.database = LogSource(log, page_events_max=4)
        self.peers: dict[Identity, WebSocketTransport] = {}

    async def opened(self, key: str, who: Identity = ALICE, **options: Any) -> WalDocument:
        if who not in self.peers:
            peer = WebSocketTransport(self.relay.url, identity=who, backoff=HASTE)
            self.peers[who] = await peer.__aenter__()
        transport = self.peers[who]
        document = WalDocument(
            key,
            transport=transport,
            snapshot_store=transport,
            identity=who,
            writers=MEMBERS,
            snapshot_role=MEMBERS,
            on_author_error="skip",
            **options,
        )
        return await document.open()


@asynccontextmanager
async def line(log: MemoryLog | None = None) -> AsyncIterator[Line]:
    log = MemoryLog() if log is None else log
    async with (
        asyncio.timeout(PATIENCE_S),
        Relay.serve(log) as relay,
        WebSocketTransport(relay.url, identity=ARCHIVE, backoff=HASTE) as transport,
    ):
        opened = Line(relay, log, transport)
        try:
            yield opened
        finally:
            for peer in opened.peers.values():
                await peer.__aexit__(None, None, None)


def is_source(source: FeedSource) -> Source:
    """What the archive asks for, as the type checker sees it."""
    return source


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [sealed_row(event) for event in events]


async def write(at: Line) -> None:
    for key in ("notes/a", "notes/b", "other"):
        alice = await at.opened(key)
        for number in range(3):
            alice.insert_text("text", number, "abc"[number])
            await alice.commit()
        bob = await at.opened(key, BOB)
        bob.set_field("title", key)
        await bob.commit()
        await alice.pull()
        await alice.snapshot()
    await alice.delete_document()


async def test_the_feed_shows_what_the_database_holds() -> None:
    async with line() as at:
        await write(at)
        over_network = await all_events(at.source)
        assert rows_of(over_network) == rows_of(await all_events(at.database))
        assert len(over_network) == 16
        some = FeedSource(at.transport, "notes/", page_events_max=4)
        assert {event.document for event in await all_events(some)} == {"notes/a", "notes/b"}
        assert tuple(await at.source.status()) == (at.log.relay_id, 1, 16)
        rest = await at.source.page(16)
        assert (rest.events, rest.last_seq, rest.is_more) == ([], 16, False)
        is_source(at.source)


async def test_an_empty_relay_has_nothing() -> None:
    async with line() as at:
        assert tuple(await at.source.status()) == (at.log.relay_id, 0, 0)
        assert await all_events(at.source) == []


async def test_both_kinds_of_tables_are_the_same_over_the_network() -> None:
    async with line() as at:
        await write(at)
        tables: list[str] = []
        for source in (at.source, at.database):
            kept, events = Kept(), await all_events(source)
            for to in (5, 11, 16):
                folder = Folder(source, BY_KEYS, ARCHIVE)
                assert await kept.fold(folder, events, to) == []
            tables.append(kept.text())
        assert tables[0] == tables[1]
        assert set(kept.by_document()) == {"notes/a", "notes/b"}
        assert kept.by_document()["notes/b"]["value"] == {
            "text": list("abc"),
            "title": "notes/b",
        }
        sealed = sealed_window(events, since=0, to=16)
        assert verify_rows([change.new or {} for change in sealed.changes]).is_sound


async def test_a_large_snapshot_is_fetched() -> None:
    async with line() as at:
        alice = await at.opened("a")
        for number in range(8):
            alice.set_field(f"large{number}", "x" * 200_000)
            await alice.commit()
        await alice.pull()
        await alice.snapshot()
        shown = [event async for event in at.transport.changes(kinds=["snapshot"])]
        assert [event.payload for event in shown] == [None]
        large = (await all_events(at.source))[-1]
        assert large.payload == await at.database.snapshot("a") == await at.source.snapshot("a")
        _, current = await at.source.bootstrap()
        assert [event.payload async for event in current] == [large.payload]
        found = [event async for event in at.source.snapshots(["a"], 10**6)]
        assert [event.payload for event in found] == [large.payload]
        # Once it is gone, it comes like anything that was compacted.
        await at.log.compact([Removal("a", [large.id], 0)])
        assert (await all_events(at.source))[-1].payload is None


async def test_a_page_ends_when_it_grows_too_large() -> None:
    async with line() as at:
        alice = await at.opened("a")
        for number in range(4):
            alice.set_field("large", str(number) * 10_000)
            await alice.commit()
        source = FeedSource(at.transport, page_bytes_max=15_000)
        page = await source.page(0)
        assert (len(page.events), page.last_seq, page.is_more) == (2, 2, True)
        assert len(await all_events(source)) == 4


async def test_waiting_ends_with_the_first_event_of_the_prefix() -> None:
    async with line() as at:
        source = FeedSource(at.transport, "notes/")
        alice, other = await at.opened("notes/a"), await at.opened("other")
        waiting = asyncio.create_task(source.wait(0))
        other.set_field("n", 1)
        await other.commit()
        assert not waiting.done()
        alice.set_field("n", 1)
        await alice.commit()
        await waiting
        await source.wait(0)
        assert [event.seq for event in (await source.page(0)).events] == [2]


async def test_a_position_that_is_too_old_a_rollback_and_another_relay_are_told_apart() -> None:
    async with line() as at:
        await write(at)
        await at.log.trim(9)
        with pytest.raises(ReplayTooOldError) as old:
            await at.source.page(3)
        assert old.value.min_seq == 9
        assert [event.seq for event in await all_events(at.source, 8)] == list(range(9, 17))
        assert (await at.source.status()).min_seq == 9
        with pytest.raises(LogBehindError) as behind:
            await at.source.page(17)
        assert (behind.value.head, behind.value.checkpoint) == (16, 17)
        stranger = FeedSource(at.transport, relay_id="f" * 32)
        for question in (stranger.page(8), stranger.status(), stranger.bootstrap()):
            with pytest.raises(OtherRelayError):
                await question


async def test_after_a_trimmed_feed_the_snapshots_and_the_rest_are_left() -> None:
    async with line() as at:
        await write(at)
        await at.log.trim(9)
        position, current = await at.source.bootstrap()
        events = [event async for event in current]
        assert position == 16
        assert {event.document for event in events} == {"notes/a", "notes/b", "other"}
        found = [event.seq async for event in at.source.snapshots(["notes/a", "notes/b"], 16)]
        expected = [event.seq async for event in at.database.snapshots(["notes/a", "notes/b"], 16)]
        assert found == expected == [5, 10]
        documents = [key async for key in at.source.documents()]
        folder = Folder(at.source, BY_KEYS, ARCHIVE)
        folded = await folder.anew(documents, {}, since=0, to=position)
        assert folded.reports == []
        kept = Kept()
        kept.apply(folded.window)
        assert {key: row["value"] for key, row in kept.by_document().items()} == {
            key: {"text": list("abc"), "title": key} for key in ("notes/a", "notes/b")
        }


async def test_the_log_of_one_document_and_its_records_are_read() -> None:
    async with line() as at:
        await write(at)
        over_network = [each async for each in at.source.elements("notes/a", 0)]
        assert over_network == [each async for each in at.database.elements("notes/a", 0)]
        floor = over_network[1].ts
        await at.log.compact([Removal("notes/a", (), floor)])
        with pytest.raises(CheckpointTooOldError) as caught:
            [each async for each in at.source.elements("notes/a", 0)]
        assert caught.value.floor == floor
        assert await at.source.record("notes/a", "roster") is None
        await at.log.put_record("notes/a", "roster", b"{}", None)
        assert await at.source.record("notes/a", "roster") == "{}"


class Lying(MemoryLog):
    """A relay's log that shows documents that nobody has asked for."""

    async def feed(self, since: int, until: int | None, wanted: Filter, **options: Any) -> FeedPage:
        return await super().feed(since, until, Filter(), **options)

    async def bootstrap(self, wanted: Filter, **options: Any) -> Bootstrap:
        return await super().bootstrap(Filter(), **options)

    async def find(self, ids: Sequence[str], wanted: Filter, **options: Any) -> list[LogEvent]:
        return await super().find(ids, Filter(), **options)


async def test_a_relay_hands_an_archive_nothing_that_it_did_not_ask_for() -> None:
    async with line(Lying()) as at:
        alice = await at.opened("private/x")
        alice.set_field("n", 1)
        await alice.commit()
        await alice.snapshot()
        source = FeedSource(at.transport, "public/")
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: source.page(0),
            lambda: source.status(),
            lambda: source.bootstrap(),
            lambda: anext(source.documents()),
            lambda: anext(source.snapshots(["public/x"], 2)),
            lambda: anext(FeedSource(at.transport, "").snapshots(["public/x"], 2)),
        ]
        for ask in asked:
            with pytest.raises(FalseAnswerError):
                await ask()


async def test_a_lost_connection_is_outlasted() -> None:
    log = MemoryLog()
    async with asyncio.timeout(PATIENCE_S):
        async with Relay.serve(log) as relay:
            port = int(relay.url.rpartition(":")[2].strip("/"))
            transport = WebSocketTransport(relay.url, identity=ARCHIVE, backoff=HASTE)
            await transport.__aenter__()
            source = FeedSource(transport)
            assert await all_events(source) == []
            waiting = asyncio.create_task(source.wait(0))
        try:
            async with (
                Relay.serve(log, port=port) as relay,
                WebSocketTransport(relay.url, identity=ALICE) as peer,
            ):
                document = WalDocument(
                    "a",
                    transport=peer,
                    identity=ALICE,
                    writers=MEMBERS,
                    snapshot_role=MEMBERS,
                )
                await document.open()
                document.set_field("n", 1)
                await document.commit()
                await waiting
                assert len(await all_events(source)) == 1
        finally:
            await transport.__aexit__(None, None, None)
