"""Clients whose relay has let go of the past: they begin from an archive, and go on live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from tests.rigged import ALICE, BOB, MALLORY, MEMBERS, signed
from walstore import WalStore
from walstore.archive.authority import Authority
from walstore.archive.bootstrap import (
    ArchivedSnapshots,
    ArchivedTransport,
    NoPastError,
    archived_elements,
)
from walstore.archive.engine import Engine
from walstore.archive.feed_source import FeedSource
from walstore.archive.folder import Folder
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.memory import MemoryDestination
from walstore.archive.modes import SEALED, EventTable, FoldedTable, SealedTable
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Action, RowChange, Window
from walstore.archive.writer import Table, Writer
from walstore.canon import canonical_bytes
from walstore.crdt import pack_ops
from walstore.document import Body, CheckpointTooOldError, PrunedLogError, WalDocument
from walstore.document.opening import SnapshotVerdict
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.net import WebSocketTransport
from walstore.net.backoff import Backoff
from walstore.relay.log import Removal
from walstore.relay.memory import MemoryLog
from walstore.relay.server import Relay
from walstore.signed import Identity
from walstore.signed.author import sign_document

CAROL = Identity.from_seed(bytes([7]) * 32)
ARCHIVE = Identity.from_seed(bytes([9]) * 32)
HASTE = Backoff(quick_ms_min=0, quick_ms_max=2, pause_ms_min=1, pause_ms_max=20, lasting_ms=0)
KEY = "notes/a"
EVERYBODY = [*MEMBERS, CAROL.public_key]


class World:
    """A relay, whoever writes there, and an archive of it."""

    def __init__(self, relay: Relay, log: MemoryLog, peer: WebSocketTransport) -> None:
        self.relay, self.log, self.peer = relay, log, peer
        self.place = MemoryDestination("here")
        self.archive = Archive(self.place, "notes/")
        self._document: WalDocument | None = None

    async def write(self, *words: str) -> None:
        """Have Alice write words, one element for each."""
        if self._document is None:
            self._document = await self.document(self.peer, ALICE).open()
        for word in words:
            self._document.insert_text("body", 0, word)
            await self._document.commit()
        await self._document.pull()

    @property
    def text(self) -> str:
        assert self._document is not None
        return self._document.text("body")

    async def snapshot(self) -> None:
        """Have Alice publish a snapshot."""
        assert self._document is not None
        await self._document.snapshot()

    def document(
        self, transport: WebSocketTransport, who: Identity = BOB, **options: Any
    ) -> WalDocument:
        settings: dict[str, Any] = {
            "snapshot_store": transport,
            "writers": MEMBERS,
            "snapshot_role": MEMBERS,
            "on_author_error": "skip",
            **options,
        }
        return WalDocument(KEY, transport=transport, identity=who, **settings)

    async def keep(self, mode: str = "sealed") -> None:
        """Archive what there is."""
        async with WebSocketTransport(self.relay.url, identity=ARCHIVE, backoff=HASTE) as reader:
            source = FeedSource(reader, "notes/")
            table: EventTable = SealedTable(source)
            if mode == "folded":
                authority = Authority(writers={"": MEMBERS}, producers={"": MEMBERS})
                table = FoldedTable(source, self.archive, Folder(source, authority, ARCHIVE))
            kind = table.kind
            writer = Writer(
                Table("notes", "notes/", *kind[1:], kind.mode, self.log.relay_id, 3),
                [self.place],
                base_formats=[JsonlFormat()],
                diff_formats=[JsonlFormat()],
                policy=Policy(),
                now_ms=lambda: 1_700_000_000_000,
            )
            await Engine(source, table, writer, interval_ms=1000, buffer_bytes_max=2**20).run_once()

    async def prune(self, keep: int = 1) -> int:
        """Let go of all but the newest elements; up to where."""
        page = await self.log.page(KEY, 0, count_max=1000, bytes_max=2**20)
        floor = page.rows[-1 - keep].ts
        await self.log.compact([Removal(KEY, (), floor)])
        return floor

    def transport(self, who: Identity = BOB, **options: Any) -> ArchivedTransport:
        settings: dict[str, Any] = {"archive": self.archive, "snapshot_role": MEMBERS, **options}
        return ArchivedTransport(self.relay.url, identity=who, backoff=HASTE, **settings)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    log = MemoryLog()
    async with (
        asyncio.timeout(30),
        Relay.serve(log) as relay,
        WebSocketTransport(relay.url, identity=ALICE, backoff=HASTE) as peer,
    ):
        yield World(relay, log, peer)


# ── elements ───────────────────────────────────────────────────────────────────────────────


async def test_a_reader_begins_from_the_archive_and_goes_on_live() -> None:
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        await world.keep()
        await world.write("four ", "five ")
        await world.prune(keep=2)
        async with WebSocketTransport(world.relay.url, identity=BOB, backoff=HASTE) as plain:
            with pytest.raises(PrunedLogError):
                await world.document(plain).open()
        async with world.transport() as transport:
            document = await world.document(transport).open()
            assert document.text("body") == world.text == "five four three two one "
            assert document.detected_gaps() == []
            async with transport.follow(KEY, document.current_checkpoint) as follow:
                await world.write("six ")
                await follow.wait()
                await document.pull()
            assert document.text("body") == world.text
            # It writes on as if it had read everything at the relay.
            document.insert_text("body", 0, "seven ")
            await document.commit()
        assert document.text("body").startswith("seven six five ")


async def test_a_reader_that_fell_behind_reads_only_what_it_lacks() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        async with world.transport() as transport:
            document = await world.document(transport).open()
            checkpoint = document.current_checkpoint
            await world.write("three ", "four ", "five ")
            await world.keep()
            await world.prune()
            page = await transport.pull(KEY, checkpoint)
            assert len(page) == 3
            assert await document.pull() == 3
            assert document.text("body") == world.text


async def test_a_store_begins_from_the_archive_too() -> None:
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        await world.keep()
        await world.prune()
        async with (
            world.transport() as transport,
            WalStore.open(
                relay=transport, key=KEY, identity=BOB, writers=MEMBERS, snapshot_role=MEMBERS
            ) as store,
        ):
            assert store.text("body") == world.text
            await world.write("four ")
            async with asyncio.timeout(20):
                while store.text("body") != world.text:
                    await asyncio.sleep(0.01)


async def test_a_snapshot_by_the_role_is_preferred_to_the_archive() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.keep()
        await world.snapshot()
        await world.write("three ")
        await world.prune()
        async with world.transport() as transport:
            with pytest.raises(CheckpointTooOldError):
                await transport.pull(KEY, 0)
            document = await world.document(transport).open()
            assert document.snapshot_verdict is SnapshotVerdict.TRUSTED
            assert document.text("body") == world.text
        # For whoever does not believe it, the archive stands.
        async with world.transport(snapshot_role=[CAROL.public_key]) as transport:
            document = await world.document(transport, snapshot_role=[CAROL.public_key]).open()
            assert document.snapshot_verdict is SnapshotVerdict.NONE
            assert document.text("body") == world.text


async def test_a_snapshot_is_held_against_the_archive_where_all_is_wanted() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.snapshot()
        await world.write("three ")
        await world.keep()
        await world.prune()
        async with world.transport(snapshot_role=None) as transport:
            document = await world.document(transport, posture="re-derive").open()
            assert document.snapshot_verdict is SnapshotVerdict.VERIFIED
            assert document.text("body") == world.text


# ── what cannot stand for the past ─────────────────────────────────────────────────────────


async def refused(world: World, **options: Any) -> str:
    """Why the archive is of no use; the relay's own answer stands."""
    async with world.transport(**options) as transport:
        with pytest.raises(CheckpointTooOldError) as caught:
            await transport.pull(KEY, 0)
        return str(caught.value.__cause__)


async def test_an_archive_that_does_not_reach_the_relay_is_not_used() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.keep()
        await world.write("three ", "four ")
        await world.prune()
        assert "the relay begins at" in await refused(world)


async def test_an_archive_that_is_not_there_is_not_used() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.prune()
        assert "there is no archive" in await refused(world)


async def test_an_archive_of_another_relay_is_not_used() -> None:
    async with a_world() as there, a_world() as here:
        for world in (there, here):
            await world.write("one ", "two ")
            await world.keep()
        await here.prune()
        assert "another relay" in await refused(here, archive=there.archive)


async def test_a_damaged_archive_is_not_used() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.keep()
        await world.prune()
        async for listed in world.place.list("notes/epoch="):
            found = await world.place.get(listed.key)
            assert found is not None
            await world.place.put(listed.key, found.body.replace(b'"seq":1', b'"seq":9'))
        assert "its hash is another one" in await refused(world)


async def test_a_folded_archive_has_no_elements() -> None:
    async with a_world() as world:
        await world.write("one ", "two ")
        await world.keep("folded")
        await world.prune()
        assert "it is folded" in await refused(world)


async def test_an_archive_that_began_late_is_not_used_where_elements_are_missing() -> None:
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        await world.snapshot()
        floor = await world.prune()
        # The archive begins now: it has what is left, and the rows of what is gone.
        await world.keep()
        with pytest.raises(NoPastError, match="let go of"):
            await archived_elements(world.archive, KEY, floor=floor)


async def test_a_writer_of_whom_nothing_is_left_is_missed_all_the_same() -> None:
    async with a_world() as world:
        async with WebSocketTransport(world.relay.url, identity=BOB, backoff=HASTE) as peer:
            bob = await world.document(peer).open()
            bob.set_field("title", "Bob's")
            await bob.commit()
        await world.write("one ", "two ")
        await world.snapshot()
        # All of Alice's elements are there, and count from 1. That of Bob is not.
        await world.log.trim(2)
        await world.keep()
        rows = [row async for row in world.archive.rows()]
        assert [row["kind"] for row in rows] == ["element", "element", "snapshot"]
        with pytest.raises(NoPastError, match="elements are missing"):
            await archived_elements(
                world.archive, KEY, floor=1, is_producer=MEMBERS.__contains__, may_lack=True
            )
        # What others have signed says nothing of what there was.
        assert len(await archived_elements(world.archive, KEY, floor=1, may_lack=True)) == 2


@pytest.mark.parametrize("role", [[CAROL.public_key], None])
async def test_an_archive_that_has_missed_events_is_no_past(role: list[str] | None) -> None:
    async with a_world() as world:
        async with WebSocketTransport(world.relay.url, identity=BOB, backoff=HASTE) as peer:
            bob = await world.document(peer).open()
            bob.set_field("title", "Bob's")
            await bob.commit()
        await world.write("one ", "two ")
        # The feed begins above Bob's element, and nobody whose word counts has told of that.
        await world.log.trim(2)
        await world.keep()
        assert (await world.archive.manifest()).gap_upto == 1
        await world.prune()
        assert "events up to 1 may be missing" in await refused(world, snapshot_role=role)


@pytest.mark.parametrize("role", [MEMBERS, None])
async def test_a_stranger_makes_no_past_unusable(role: list[str] | None) -> None:
    """Neither by an element that leaves others of theirs out, nor by what a snapshot counts."""
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        data = {
            "v": 2,
            "author": MALLORY.public_key,
            "session": "s" * 8,
            "seq": 2,
            "prev": "ab" * 32,
            "body": {"ops": pack_ops([])},
        }
        counts = {"writerSeq": {ALICE.public_key: 1000}, "producedBy": MALLORY.public_key}
        content = {"state": {}, "uptoTs": 5, **counts}
        proof = sign_document(KEY + SNAPSHOT_SUFFIX, content, MALLORY)
        async with WebSocketTransport(world.relay.url, identity=MALLORY, backoff=HASTE) as peer:
            element = signed(data, MALLORY, document_key=KEY)
            proofs = element["authorPubkey"], element["authorSignature"]
            await peer.append(KEY, Body(canonical_bytes(data), *proofs))
            await peer.write(
                KEY + SNAPSHOT_SUFFIX,
                {
                    **content,
                    "authorPubkey": MALLORY.public_key,
                    "authorSignature": proof.author_signature,
                },
                None,
            )
        await world.write("four ", "five ")
        await world.keep()
        await world.prune(keep=2)
        rows = [row async for row in world.archive.rows()]
        assert {row["author"] for row in rows} == {ALICE.public_key, MALLORY.public_key}
        async with world.transport(snapshot_role=role) as transport:
            document = await world.document(transport).open()
            assert document.text("body") == world.text == "five four three two one "
            assert document.detected_gaps() == []


async def archive_of(*rows: dict[str, Any]) -> Archive:
    """A sealed archive of any rows."""
    place = MemoryDestination("here")
    writer = Writer(
        Table("notes", "notes/", SEALED.key_fields, SEALED.columns, SEALED.mode),
        [place],
        base_formats=[JsonlFormat()],
        diff_formats=[JsonlFormat()],
        policy=Policy(),
        now_ms=lambda: 1,
    )
    await writer.open()
    changes = [RowChange(Action.INSERT, (row["document"], row["seq"]), None, row) for row in rows]
    await writer.commit(Window(0, 9, changes, len(changes)))
    return Archive(place, "notes/")


async def test_an_archive_without_the_document_is_not_used_whatever_is_gone() -> None:
    with pytest.raises(NoPastError, match="no element"):
        await archived_elements(await archive_of(), KEY, floor=0)


async def test_a_relay_that_says_that_nothing_is_gone_gets_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(transport: object, key: str, checkpoint: int) -> None:
        raise CheckpointTooOldError(0)

    monkeypatch.setattr(WebSocketTransport, "pull", gone)
    archive = await archive_of()
    relay = ArchivedTransport("ws://127.0.0.1:1", identity=BOB, archive=archive, snapshot_role=None)
    for _ in range(2):
        with pytest.raises(CheckpointTooOldError):
            await relay.pull(KEY, 0)


@pytest.mark.parametrize("count", ["many", None, 1.5, True, [], {}])
async def test_a_snapshot_that_counts_in_anything_but_numbers_covers_nothing(count: Any) -> None:
    content = {
        "state": {},
        "uptoTs": 5,
        "writerSeq": {CAROL.public_key: count},
        "producedBy": CAROL.public_key,
    }
    proof = sign_document(KEY + SNAPSHOT_SUFFIX, content, CAROL)
    signature = {"authorPubkey": CAROL.public_key, "authorSignature": proof.author_signature}
    text = canonical_bytes({**content, **signature})
    row = {
        "document": KEY,
        "seq": 1,
        "kind": "snapshot",
        "id": sha256(text).hexdigest(),
        "ts": 5,
        "author": CAROL.public_key,
        "signature": "",
        "accepted_ms": 1,
        "vc": content["writerSeq"],
        "deleted": False,
        "data": text.decode(),
    }
    with pytest.raises(NoPastError, match="missing"):
        await archived_elements(
            await archive_of(row), KEY, floor=0, is_producer=CAROL.public_key.__eq__
        )


# ── states ─────────────────────────────────────────────────────────────────────────────────


async def test_a_reader_begins_from_the_state_of_a_folded_archive() -> None:
    role = [*MEMBERS, ARCHIVE.public_key]
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        await world.keep("folded")
        await world.write("four ")
        await world.prune()
        async with WebSocketTransport(world.relay.url, identity=BOB, backoff=HASTE) as relay:
            snapshots = ArchivedSnapshots(
                relay, world.archive, snapshot_role=role, relay_id=lambda: relay.relay_id
            )
            document = await world.document(
                relay, snapshot_store=snapshots, snapshot_role=role
            ).open()
            assert document.text("body") == world.text == "four three two one "
            document.insert_text("body", 0, "five ")
            await document.commit()
            # What it publishes then goes to the relay.
            await document.snapshot()
            stored = await relay.read(f"{KEY}__snapshot")
            assert stored is not None
            assert stored.document["producedBy"] == BOB.public_key  # type: ignore[index]


async def test_a_state_by_a_key_without_the_role_is_not_used() -> None:
    async with a_world() as world:
        await world.write("one ", "two ", "three ")
        await world.keep("folded")
        await world.prune()
        async with WebSocketTransport(world.relay.url, identity=BOB, backoff=HASTE) as relay:
            snapshots = ArchivedSnapshots(relay, world.archive, snapshot_role=MEMBERS)
            with pytest.raises(PrunedLogError):
                await world.document(relay, snapshot_store=snapshots).open()
            # The relay's own is preferred, as soon as there is one.
            await world.snapshot()
            document = await world.document(relay, snapshot_store=snapshots).open()
            assert document.text("body") == world.text
