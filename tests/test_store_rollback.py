"""Stores whose relay was put back to an older copy of its database, and go on with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_bytes
from typing import Any, cast

import pytest

from tests.put_back import Prunable, live, met, quiet, signatures, until_same, until_told, write
from tests.rigged import RiggedLog, write_packed
from tests.stores import ADA, BEN, CAM, KEY, PATIENCE_S, check_log, until, until_sent
from tests.vault import Vault, vault
from walstore.canon import parse
from walstore.crdt.runs import Insert
from walstore.document.faults import (
    ReadOnlyError,
)
from walstore.document.ports import Body, LogBehindError, RawElement, StoredSnapshot
from walstore.errors import PeerError, TransportError, UsageError
from walstore.local import LocalFile, LocalFileDamagedError, LocalFileFullError
from walstore.net import MemoryTransport
from walstore.net.memory import MemoryRecords, MemorySnapshots
from walstore.sealed import ContentKeys, NativeEncryptor
from walstore.signed import Identity, sign_append
from walstore.signed.card import Card
from walstore.store.change import Change
from walstore.store.replica import NoRelayError
from walstore.store.rolled_back import AcceptedRollback
from walstore.store.store import WalStore
from walstore.wire.envelope import read_header

pytestmark = pytest.mark.usefixtures("haste")

# ── what is in memory alone ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_on_file", [False, True])
@pytest.mark.parametrize("history_max", [None, 1, 4])
async def test_who_knows_only_their_newest_versions_sends_all_of_their_own_again(
    tmp_path: Path, history_max: int | None, is_on_file: bool
) -> None:
    relay, path = Prunable(), tmp_path / "ada.wal" if is_on_file else None
    async with quiet(ADA, relay, path, history_max=history_max) as ada:
        await write(ada, "first")
        saved = relay.saved()
        await write(ada, *map(str, range(20)))
        shown = ada["words"]
        relay.put_back(saved, ada)
        await met(ada)
        accepted = await ada.accept_rollback()
        assert (accepted.sent_again, accepted.stranded, ada["words"]) == (20, 0, shown)
        await ada.flush()
        await ada.pull()
        await ada.document.reread()
        async with quiet(CAM, relay) as cam:
            assert (ada["words"], cam["words"], cam.status.gaps) == (shown, shown, ())


async def test_what_stands_for_lost_elements_stays_while_some_of_them_are_missing() -> None:
    """That the newest of a session is back says nothing of those before it."""
    relay = Prunable()
    async with (
        quiet(ADA, relay) as ada,
        quiet(BEN, relay, history_max=1) as ben,
    ):
        await write(ada, "first")
        saved = relay.saved()
        await write(ada, *map(str, range(6)))
        await ben.pull()
        shown = ben["words"]
        lost = relay.saved()[len(saved) :]
        relay.put_back(saved, ada, ben)
        await met(ben)
        assert (await ben.accept_rollback()).stranded == 6
        # Two before the third are missing, and three after it; then the newest is back, too.
        for raw, stranded in ((lost[2], 5), (lost[-1], 4)):
            await relay.append(KEY, Body(raw.data, raw.author, raw.signature))
            await ben.pull()
            assert ben.status.stranded == stranded
            assert ben["words"] == shown
        for raw in lost:
            await relay.append(KEY, Body(raw.data, raw.author, raw.signature))
        await ben.pull()
        assert ben.status.stranded == 0
        assert ben["words"] == shown


# ── two clients of a relay ─────────────────────────────────────────────────────────────


class Table:
    """Two people who write into each other's text, and a relay that forgets some of it."""

    def __init__(self, relay: Vault, directory: Path, *, is_on_file: bool) -> None:
        self.relay = relay
        self.paths = [directory / name if is_on_file else None for name in ("ada.wal", "ben.wal")]
        self.stack = AsyncExitStack()
        self.before: list[RawElement] = []

    async def prepare(self) -> None:
        """Write before and after a copy of the database is taken."""
        self.ada, self.ben = [
            await self.stack.enter_async_context(live(who, self.relay.url, path))
            for who, path in zip((ADA, BEN), self.paths, strict=True)
        ]
        self.ada.set_text("note", "one two")
        self.ada["title"] = "first"
        await until_same(self.ada, self.ben)
        await until_sent(self.ada, self.ben)
        await self.relay.save("older")
        await until([self.ada, self.ben], lambda: self.are_live)
        for count in range(4):
            # Each hangs on what the other has typed.
            for store, mark in ((self.ben, "b"), (self.ada, "a")):
                store.edit_text("note", len(store.text("note")) - 2, 0, f"<{mark}{count}>")
                store["title"] = f"{mark}{count}"
                store.put("by", f"{mark}{count}", count)
                await until_same(self.ada, self.ben)
        await until_sent(self.ada, self.ben)
        self.before = await self.relay.elements()

    @property
    def are_live(self) -> bool:
        return self.ada.status.state == self.ben.status.state == "live"

    async def close(self) -> None:
        await self.stack.aclose()


@pytest.mark.parametrize("copy", ["empty", "older"])
@pytest.mark.parametrize("is_on_file", [False, True])
async def test_everybody_accepts_and_nothing_is_lost_or_there_twice(
    tmp_path: Path, copy: str, is_on_file: bool
) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=is_on_file)
        await table.prepare()
        ada, ben, shown = table.ada, table.ben, table.ada.materialize()
        changes: list[Change] = []
        ada.subscribe("**", changes.append)
        await relay.put_back(copy)
        kept = await relay.elements()
        await until_told(ada, ben)
        with pytest.raises(ReadOnlyError):
            ada["title"] = "other"

        lost = [each for each in table.before if each.signature not in signatures(kept)]
        by_ada = sum(each.author == ADA.public_key for each in lost)
        accepted = await ada.accept_rollback()
        assert accepted == AcceptedRollback(by_ada, len(lost) - by_ada)
        assert (ada.status.rollback, ada.status.reason) == (None, "")
        assert ada.status.stranded == len(lost) - by_ada > 0
        # Nothing vanishes, not even for a moment.
        assert (ada.materialize(), changes) == (shown, [])
        ada["by whom"] = "Ada, after it"
        await until_sent(ada)

        # Meanwhile the log has gone on beyond what Ben has read: he is asked all the same.
        assert await ben.accept_rollback() == AcceptedRollback(len(lost) - by_ada, 0)
        await until_same(ada, ben)
        after = await relay.elements()
        assert ada.materialize() == {**shown, "by whom": "Ada, after it"}
        # Byte for byte, each once.
        assert set(signatures(after).values()) == {1}
        assert signatures(table.before).keys() <= signatures(after).keys()
        check_log(after)
        async with live(CAM, relay.url) as cam:
            assert cam.materialize() == ada.materialize()
            assert (cam.status.gaps, cam.status.forks, cam.status.rejected) == ((), (), ())
        assert (ada.status.forks, ben.status.forks) == ((), ())
        ben.edit_text("note", 0, 0, "on and on ")
        await until([ada], lambda: ada.text("note").startswith("on and on "))
        await table.close()


@pytest.mark.parametrize("is_on_file", [False, True])
async def test_a_relay_that_lost_everything_is_gone_on_with(
    tmp_path: Path, is_on_file: bool
) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=is_on_file)
        await table.prepare()
        ada, ben, shown = table.ada, table.ben, table.ada.materialize()
        await relay.lose_all()
        await until_told(ada, ben)
        assert (ada.status.state, ada.status.is_read_only) == ("refused", False)
        assert "another log under its key" in str(ada.status.rollback)
        # What is written meanwhile waits.
        ada["title"] = "meanwhile"
        await until([ada], lambda: ada.status.unsent == 1)
        assert await relay.elements() == []
        by_ada = sum(each.author == ADA.public_key for each in table.before)
        assert await ada.accept_rollback() == AcceptedRollback(by_ada, len(table.before) - by_ada)
        await until_sent(ada)
        assert (ada.status.state, ada.status.rollback, ada.status.reason) == ("live", None, "")
        assert ben.status.rollback is not None
        await ben.accept_rollback()
        await until_same(ada, ben)
        assert ben.materialize() == {**shown, "title": "meanwhile"}
        after = await relay.elements()
        assert set(signatures(after).values()) == {1}
        assert signatures(table.before).keys() <= signatures(after).keys()
        check_log(after)
        await table.close()
        if is_on_file:
            async with live(ADA, relay.url, table.paths[0]) as ada:
                await ada.pull()
                assert (ada.status.state, ada.status.rollback) == ("live", None)


async def test_a_lost_log_is_the_one_before_again_if_accepting_fails(tmp_path: Path) -> None:
    async with (
        vault(tmp_path / "relay") as relay,
        live(ADA, relay.url, tmp_path / "ada.wal") as ada,
    ):
        ada["title"] = "first"
        await until_sent(ada)
        await relay.save("right")
        await relay.lose_all()
        await until_told(ada)
        await relay.stop()
        with pytest.raises(TransportError):
            await ada.accept_rollback()
        assert ada.status.rollback is not None
        await relay.start()
        await relay.put_back("right")
        await until([ada], lambda: (ada.status.state, ada.status.rollback) == ("live", None))
        await ada.pull()
        assert ada["title"] == "first"


async def test_who_pulls_by_hand_is_told_of_another_log_and_may_accept_it(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay, quiet(ADA, relay.url) as ada:
        ada["title"] = "first"
        await ada.flush()
        await ada.pull()
        await relay.lose_all()
        await until([ada], lambda: ada.status.state != "offline")
        with pytest.raises(TransportError, match="another log"):
            await ada.pull()
        assert ada.status.rollback is not None
        assert await ada.accept_rollback() == AcceptedRollback(1, 0)
        await ada.flush()
        assert len(await relay.elements()) == 1


async def test_what_was_accepted_holds_the_next_time(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=True)
        await table.prepare()
        shown = table.ada.materialize()
        await table.close()
        await relay.put_back("older")
        async with live(ADA, relay.url, table.paths[0]) as ada:
            await until_told(ada)
            # It is met again each time, until it is accepted.
        async with live(ADA, relay.url, table.paths[0]) as ada:
            await until_told(ada)
            await ada.accept_rollback()
            await until_sent(ada)
            stranded = ada.status.stranded
        assert stranded == 4
        for url in (None, relay.url, relay.url):
            async with live(ADA, url, table.paths[0]) as ada:
                assert ada.materialize() == shown
                assert ada.status.stranded == stranded
                if url is not None:
                    await ada.pull()
                assert ada.status.rollback is None
                ada["title"] = shown["title"]
                if url is not None:
                    await until_sent(ada)
        # Whoever was away meets it as well, and brings back what only they can.
        async with (
            live(ADA, relay.url, table.paths[0]) as ada,
            live(BEN, relay.url, table.paths[1]) as ben,
        ):
            await until_told(ben)
            await ben.accept_rollback()
            await until_same(ada, ben)
            assert ada.materialize() == shown
            check_log(await relay.elements())
        with LocalFile.open(tmp_path / "ada.wal", document_key=KEY, author=ADA.public_key) as file:
            assert file.pending().size == 0


async def test_edits_that_were_not_sent_yet_are_sent_after_those_that_were_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ada.wal"
    async with vault(tmp_path / "relay") as relay:
        async with quiet(ADA, relay.url, path) as ada:
            await write(ada, "one")
            await relay.save("older")
            await until([ada], lambda: ada.status.state == "live")
            await write(ada, "two", "three")
        async with quiet(ADA, None, path) as ada:
            ada.list("words").append("four")
        await relay.put_back("older")
        async with live(ADA, relay.url, path) as ada:
            await until_told(ada)
            assert await ada.accept_rollback() == AcceptedRollback(2, 0)
            assert ada["words"] == ["one", "two", "three", "four"]
            ada.list("words").append("five")
            await until_sent(ada)
        check_log(await relay.elements())
        async with live(BEN, relay.url) as ben:
            assert ben["words"] == ["one", "two", "three", "four", "five"]
            assert ben.status.gaps == ()


async def test_a_relay_that_loses_the_same_again_is_accepted_again(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=True)
        await table.prepare()
        ada, ben, shown = table.ada, table.ben, table.ada.materialize()
        for copy in ("older", "empty", "older"):
            await relay.put_back(copy)
            for store in (ada, ben):
                await until_told(store)
                await store.accept_rollback()
            await until_same(ada, ben)
            await until_sent(ada, ben)
            assert ada.materialize() == shown
        check_log(await relay.elements())
        await table.close()


async def test_a_relay_that_is_put_right_again_is_accepted_without_a_loss(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=True)
        await table.prepare()
        await relay.save("right")
        await relay.put_back("empty")
        await until_told(table.ada, table.ben)
        await relay.put_back("right")
        await until([table.ada, table.ben], lambda: table.are_live)
        assert await table.ada.accept_rollback() == AcceptedRollback(0, 0)
        assert await table.ben.accept_rollback() == AcceptedRollback(0, 0)
        table.ada["title"] = "on"
        await until_same(table.ada, table.ben)
        assert len(await relay.elements()) == len(table.before) + 1
        await table.close()


async def test_no_snapshot_hides_that_a_log_was_put_back_while_it_was_taken(
    tmp_path: Path,
) -> None:
    log = MemoryTransport()
    copies: list[list[RawElement]] = []

    class Slow(MemorySnapshots):
        async def read(self, snapshot_key: str) -> StoredSnapshot | None:
            stored = await super().read(snapshot_key)
            if copies:
                # The log was read by now, over a connection that is gone.
                log._logs[KEY] = copies.pop()
                assert ada._replica is not None
                ada._replica.doubt()
            return stored

    snapshots = Slow()
    async with quiet(ADA, log, tmp_path / "ada.wal", snapshots=snapshots) as ada:
        await write(ada, "one")
        copy = list(log._logs[KEY])
        await write(ada, "two")
        copies.append(copy)
        with pytest.raises(LogBehindError):
            await ada.snapshot()
        assert snapshots._documents == {}
        await met(ada)
        assert await ada.accept_rollback() == AcceptedRollback(1, 0)


# ── authors who do not come back ───────────────────────────────────────────────────────


async def test_what_nobody_sends_again_can_be_written_anew(tmp_path: Path) -> None:
    async with vault(tmp_path / "relay") as relay:
        table = Table(relay, tmp_path, is_on_file=True)
        await table.prepare()
        shown = table.ada.materialize()
        await table.close()
        await relay.put_back("older")
        async with live(ADA, relay.url, table.paths[0]) as ada:
            await until_told(ada)
            await ada.accept_rollback()
            await until_sent(ada)
            async with live(CAM, relay.url) as cam:
                # What hangs on something that is lost cannot be shown without it.
                assert cam.text("note") != shown["note"]
                ada.rewrite_stranded()
                assert ada.status.stranded == 0
                assert ada.materialize() == shown
                await until_sent(ada)
                await until([cam], lambda: cam.materialize() == shown)
            ada.undo()
            assert ada.text("note") != "".join(shown["note"])
            ada.redo()
            await until_sent(ada)
        async with live(ADA, relay.url, table.paths[0]) as ada:
            assert (ada.materialize(), ada.status.stranded) == (shown, 0)


@pytest.mark.parametrize("is_on_file", [False, True])
async def test_what_somebody_has_written_anew_is_let_go_of_by_the_others(
    tmp_path: Path, is_on_file: bool
) -> None:
    log, path = MemoryTransport(), tmp_path / "cam.wal" if is_on_file else None
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada, quiet(CAM, log, path) as cam:
        await write(ada, "one")
        copy = list(log._logs[KEY])
        async with quiet(BEN, log) as ben:
            await write(ben, "two")
        await ada.pull()
        await cam.pull()
        log._logs[KEY] = copy
        for store in (ada, cam):
            await met(store)
            await store.accept_rollback()
        ada.rewrite_stranded()
        await ada.flush()
        await cam.pull()
        assert sorted(cam["words"]) == ["one", "two", "two"]
        changes: list[Change] = []
        cam.subscribe("**", changes.append)
        cam.drop_stranded()
        assert (cam["words"], cam.status.stranded) == (["one", "two"], 0)
        assert [change.path for change in changes] == ["words"]
        cam.drop_stranded()
        cam.list("words").append("three")
        await cam.flush()
        await ada.pull()
        assert ada["words"] == cam["words"] == ["one", "two", "three"]
    if is_on_file:
        async with quiet(CAM, log, path) as cam:
            assert (cam["words"], cam.status.stranded) == (["one", "two", "three"], 0)


async def test_what_cannot_be_written_anew_stays_as_it_is(tmp_path: Path) -> None:
    log = MemoryTransport()
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada, quiet(BEN, log) as ben:
        await write(ada, "one")
        copy = list(log._logs[KEY])
        ben["size"] = 1
        ben.list("words").append("two")
        await ben.flush()
        await ada.pull()
        log._logs[KEY] = copy
        await met(ada)
        await ada.accept_rollback()
        with pytest.MonkeyPatch.context() as patch:

            def refuse(*_: Any) -> None:
                raise UsageError("no")

            patch.setattr("walstore.document.content.Content.revert_to", refuse)
            with pytest.raises(UsageError):
                ada.rewrite_stranded()
        assert ada.materialize() == {"size": 1, "words": ["one", "two"]}
        assert ada.status.stranded == 1
        ada["title"] = "on"
        await ada.flush()


# ── logs that begin with a snapshot ────────────────────────────────────────────────────


@pytest.mark.parametrize("is_on_file", [False, True])
async def test_what_only_a_snapshot_stood_for_is_shown_until_it_is_back(
    tmp_path: Path, is_on_file: bool
) -> None:
    """Ben has never had the elements that were lost, but what they fold to."""
    log, snapshots = Prunable(), MemorySnapshots()
    path = tmp_path / "ben.wal" if is_on_file else None
    async with quiet(ADA, log, tmp_path / "ada.wal", snapshots=snapshots) as ada:
        await write(ada, "one")
        older = log.saved()
        await write(ada, "two", "three")
        await ada.snapshot()
        await write(ada, "four")
        async with quiet(BEN, log, path, snapshots=snapshots) as ben:
            await write(ben, "five")
            words = ["one", "two", "three", "four", "five"]
            log.put_back(older, ada, ben)
            snapshots._documents.clear()
            await met(ben)
            assert await ben.accept_rollback() == AcceptedRollback(1, 3)
            await ben.flush()
            await ben.pull()
            assert ben["words"] == words
            assert ben.status.stranded == 3
            if not is_on_file:
                return
        for _ in range(2):
            async with quiet(BEN, log, path, snapshots=snapshots) as ben:
                assert (ben["words"], ben.status.stranded) == (words, 3)
                await ben.pull()
                await ben.document.reread()
                assert (ben["words"], ben.status.stranded) == (words, 3)
        await met(ada)
        assert await ada.accept_rollback() == AcceptedRollback(3, 0)
        await ada.flush()
        await ada.pull()
        async with quiet(BEN, log, path, snapshots=snapshots) as ben:
            await ben.pull()
            assert (ben["words"], ben.status.stranded) == (words, 0)
            assert ada["words"] == words
        with LocalFile.open(tmp_path / "ben.wal", document_key=KEY, author=BEN.public_key) as file:
            assert file.stranded() is None


@pytest.mark.parametrize("is_back", [False, True])
async def test_what_a_snapshot_stood_for_in_the_midst_of_a_session_is_shown_as_well(
    tmp_path: Path, *, is_back: bool
) -> None:
    """What was lost once and sent again is above what followed it: that may be all that is lost."""
    log, snapshots, path = Prunable(), MemorySnapshots(), tmp_path / "ben.wal"
    words = ["one", "two", "three"]
    async with quiet(ADA, log) as ada:
        await write(ada, *words)
    one, two, three = log.saved()
    log.put_back([one, three, two._replace(ts=three.ts + 1)])
    async with quiet(CAM, log, snapshots=snapshots) as cam:
        await cam.pull()
        await cam.snapshot()
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await ben.pull()
        log.put_back([one, three], ben)
        snapshots._documents.clear()
        await met(ben)
        assert await ben.accept_rollback() == AcceptedRollback(0, 1)
        assert (ben["words"], ben.status.stranded) == (words, 1)
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await ben.pull()
        assert (ben["words"], ben.status.stranded) == (words, 1)
        if is_back:
            await log.append(KEY, Body(two.data, two.author, two.signature))
            await ben.pull()
            assert (ben["words"], ben.status.stranded, ben.status.gaps) == (words, 0, ())
        else:
            ben.drop_stranded()
            assert (ben["words"], ben.status.stranded) == (["one"], 0)


async def test_an_older_snapshot_and_log_are_gone_on_with(tmp_path: Path) -> None:
    log, snapshots = Prunable(), MemorySnapshots()
    async with quiet(ADA, log, tmp_path / "ada.wal", snapshots=snapshots) as ada:
        await write(ada, "one", "two")
        await ada.snapshot()
        older, document = log.saved(), dict(snapshots._documents)
        await write(ada, "three")
        await ada.snapshot()
        async with quiet(BEN, log, tmp_path / "ben.wal", snapshots=snapshots) as ben:
            await write(ben, "four")
            await ada.pull()
            log.put_back(older, ada, ben)
            snapshots._documents = document
            await met(ada)
            await met(ben)
            assert await ada.accept_rollback() == AcceptedRollback(1, 1)
            await ada.flush()
            assert await ben.accept_rollback() == AcceptedRollback(1, 0)
            await ben.flush()
            await ada.pull()
            await ben.pull()
            assert ada["words"] == ben["words"] == ["one", "two", "three", "four"]
            assert ada.status.stranded == 0
            await ada.snapshot()
    for who, path in ((ADA, tmp_path / "ada.wal"), (BEN, tmp_path / "ben.wal"), (CAM, None)):
        async with quiet(who, log, path, snapshots=snapshots) as store:
            await store.pull()
            assert store["words"] == ["one", "two", "three", "four"]
            assert store.status.rollback is None


async def test_a_snapshot_that_reaches_beyond_its_log_is_gone_on_with(tmp_path: Path) -> None:
    """The log was put back, and what keeps the snapshots was not."""
    log, snapshots = Prunable(), MemorySnapshots()
    async with quiet(ADA, log, tmp_path / "ada.wal", snapshots=snapshots) as ada:
        await write(ada, "one")
        older = log.saved()
        await write(ada, "two", "three")
        await ada.snapshot()
        log.put_back(older, ada)
        await met(ada)
        assert await ada.accept_rollback() == AcceptedRollback(0, 0)
        await write(ada, "four")
    async with quiet(ADA, log, tmp_path / "ada.wal", snapshots=snapshots) as ada:
        await ada.pull()
        assert ada.status.rollback is None
        assert ada["words"] == ["one", "two", "three", "four"]


# ── files that cannot keep what is read ────────────────────────────────────────────────


async def test_an_own_edit_stays_on_file_while_no_state_can_be_kept_that_stands_for_it(
    tmp_path: Path,
) -> None:
    """Ben begins with a snapshot, and cannot keep a state for it: something of Ada's is missing."""
    log, snapshots, path = Prunable(), MemorySnapshots(), tmp_path / "ben.wal"
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "one")
        await ada.snapshot()
        await write(ada, "missing", "three")
    one, _, three = log.saved()
    log.put_back([one, three])
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await write(ben, "own")
        assert (ben["words"], ben.document.own_snapshot()) == (["one", "own"], None)
        assert (ben.status.unsent, ben.document.unconfirmed) == (0, 0)
    log.put_back([one, three])
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        assert ben["words"] == ["one", "own"]
        await met(ben)
        await ben.accept_rollback()
        await ben.flush()
        await ben.pull()
        assert (ben["words"], ben.status.unsent) == (["one", "own"], 0)
    async with quiet(CAM, log, snapshots=snapshots) as cam:
        assert cam["words"] == ["one", "own"]
    with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
        assert file.pending().bodies == []


async def test_who_begins_from_a_snapshot_keeps_what_they_wrote_after_it(tmp_path: Path) -> None:
    """As whoever has lost their file does, or has another device."""
    log, snapshots, path = Prunable(), MemorySnapshots(), tmp_path / "again.wal"
    async with quiet(BEN, log, snapshots=snapshots) as ben:
        await write(ben, "one")
        await ben.snapshot()
        older = log.saved()
        await write(ben, "two", "three")
    for _ in range(2):
        async with quiet(BEN, log, path, snapshots=snapshots) as ben:
            assert ben["words"] == ["one", "two", "three"]
    log.put_back(older)
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await met(ben)
        assert await ben.accept_rollback() == AcceptedRollback(2, 0)
        await ben.flush()
        await ben.pull()
    async with quiet(CAM, log, snapshots=snapshots) as cam:
        assert cam["words"] == ["one", "two", "three"]


async def test_what_was_dropped_while_no_state_can_be_kept_does_not_come_back(
    tmp_path: Path,
) -> None:
    log, snapshots, path = Prunable(), MemorySnapshots(), tmp_path / "ben.wal"
    async with quiet(BEN, log, path) as ben:
        await write(ben, "one")
        older = log.saved()
        async with quiet(CAM, log) as cam:
            await write(cam, "lost")
        await ben.pull()
        log.put_back(older, ben)
        await met(ben)
        assert (await ben.accept_rollback()).stranded == 1
    async with quiet(ADA, log, snapshots=snapshots) as ada:
        await write(ada, "two")
        await ada.snapshot()
        await write(ada, "missing", "four")
    one, two, _, four = log.saved()
    log.put_back([one, two, four])
    log.floor = two.ts
    async with quiet(BEN, log, path, snapshots=snapshots) as ben:
        await ben.pull()
        assert (ben.status.stranded, ben.document.own_snapshot()) == (1, None)
        ben.drop_stranded()
    async with quiet(BEN, None, path) as ben:
        assert (ben["words"], ben.status.stranded) == (["one"], 0)


# ── failing on the way ─────────────────────────────────────────────────────────────────


async def test_without_a_roll_back_there_is_nothing_to_accept(tmp_path: Path) -> None:
    async with quiet(ADA, MemoryTransport()) as ada:
        await write(ada, "one")
        assert await ada.accept_rollback() == AcceptedRollback(0, 0)
        ada.rewrite_stranded()
        assert ada["words"] == ["one"]
    async with quiet(ADA, None, tmp_path / "ada.wal") as ada:
        with pytest.raises(NoRelayError):
            await ada.accept_rollback()


async def test_a_relay_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    class Shy(MemoryTransport):
        is_away = False

        async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
            if self.is_away and checkpoint == 0:
                raise TransportError("away", retryable=True)
            return await super().pull(document_key, checkpoint)

    log = Shy()
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada:
        await write(ada, "one", "two")
        log._logs[KEY].pop()
        log._known.clear()
        await met(ada)
        log.is_away = True
        with pytest.raises(TransportError, match="away"):
            await ada.accept_rollback()
        assert ada.status.rollback is not None
        assert ada["words"] == ["one", "two"]
        log.is_away = False
        assert await ada.accept_rollback() == AcceptedRollback(1, 0)
        await ada.flush()
        assert len(log._logs[KEY]) == 2


async def test_a_disk_that_is_full_changes_nothing(tmp_path: Path) -> None:
    log = Prunable()
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada, quiet(BEN, log) as ben:
        await write(ada, "one")
        older = log.saved()
        await write(ben, "two")
        await ada.pull()
        await write(ada, "three")
        log.put_back(older, ada, ben)
        await met(ada)
        with pytest.MonkeyPatch.context() as patch:

            def refuse(*_: Any) -> None:
                raise LocalFileFullError(tmp_path)

            patch.setattr("walstore.local.queue.Queue.rewrite", refuse)
            with pytest.raises(LocalFileFullError):
                await ada.accept_rollback()
        assert ada.status.rollback is not None
        assert ada["words"] == ["one", "two", "three"]
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada:
        assert ada["words"] == ["one", "two", "three"]
        await met(ada)
        assert await ada.accept_rollback() == AcceptedRollback(1, 1)
        await ada.flush()


async def test_a_damaged_file_gives_back_what_was_stranded_as_well(tmp_path: Path) -> None:
    log, path = Prunable(), tmp_path / "ada.wal"
    async with quiet(ADA, log, path) as ada, quiet(BEN, log) as ben:
        await write(ada, "one")
        older = log.saved()
        await write(ben, "two")
        await ada.pull()
        log.put_back(older, ada, ben)
        await met(ada)
        await ada.accept_rollback()
    text = bytearray(path.read_bytes())
    at = text.index(b"two")
    text[at : at + 3] = b"xxx"
    path.write_bytes(text)
    with pytest.raises(LocalFileDamagedError):
        async with quiet(ADA, log, path):
            pass


# ── sealed documents, and those who may write ──────────────────────────────────────────


async def test_nothing_of_what_was_lost_is_written_plain(tmp_path: Path) -> None:
    secret, log, snapshots = "the quick brown fox", Prunable(), MemorySnapshots()
    sealed = {"encryptor": NativeEncryptor(ContentKeys(1, {1: bytes(32)}), randomness=token_bytes)}
    paths = [tmp_path / "ada.wal", tmp_path / "ben.wal"]
    async with quiet(ADA, log, paths[0], snapshots=snapshots, **sealed) as ada:
        await write(ada, "one")
        older = log.saved()
        await write(ada, secret)
        await ada.snapshot()
        async with quiet(BEN, log, paths[1], snapshots=snapshots, **sealed) as ben:
            await write(ada, secret)
            await write(ben, secret)
            await ada.pull()
            log.put_back(older, ada, ben)
            snapshots._documents.clear()
            for store, expected in ((ada, (2, 1)), (ben, (1, 2))):
                await met(store)
                assert await store.accept_rollback() == AcceptedRollback(*expected)
            assert ada["words"] == ben["words"] == ["one", secret, secret, secret]
            files = [each for each in tmp_path.iterdir() if each.is_file()]
            assert not any(secret.encode() in each.read_bytes() for each in files)
    async with quiet(BEN, None, paths[1], **sealed) as ben:
        assert ben["words"] == ["one", secret, secret, secret]


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_what_is_sent_again_is_the_same_after_a_new_key_too(
    tmp_path: Path, wire: str
) -> None:
    log, keys = Prunable(), {1: bytes(32), 2: bytes([1]) * 32}
    ada_keys, ben_keys = (
        NativeEncryptor(ContentKeys(1, {1: keys[1]}), randomness=token_bytes) for _ in "ab"
    )
    async with (
        quiet(ADA, log, tmp_path / "ada.wal", wire=wire, encryptor=ada_keys) as ada,
        quiet(BEN, log, tmp_path / "ben.wal", wire=wire, encryptor=ben_keys) as ben,
    ):
        await write(ada, "one")
        older = log.saved()
        for store, word in ((ben, "two"), (ada, "three"), (ada, "four")):
            if word == "four":
                for encryptor in (ada_keys, ben_keys):
                    encryptor.adopt(ContentKeys(2, keys))
            await store.pull()
            await write(store, word)
        await ben.pull()
        before = log.saved()
        log.put_back(older, ada, ben)
        for store, expected in ((ada, (2, 1)), (ben, (1, 0))):
            await met(store)
            assert await store.accept_rollback() == AcceptedRollback(*expected)
            await store.flush()
        await ben.pull()
        await ada.pull()
        assert ada["words"] == ben["words"] == ["one", "two", "three", "four"]
        assert signatures(log.saved()) == signatures(before)
        assert (ada.status.stranded, ada.status.gaps, ada.status.forks) == (0, (), ())


async def test_who_may_no_longer_write_is_not_shown_from_the_file(tmp_path: Path) -> None:
    log, path = Prunable(), tmp_path / "ada.wal"
    async with quiet(ADA, log, path) as ada, quiet(BEN, log) as ben:
        await write(ada, "one")
        older = log.saved()
        await write(ben, "two")
        await ada.pull()
        log.put_back(older, ada, ben)
        await met(ada)
        await ada.accept_rollback()
        assert ada["words"] == ["one", "two"]
    async with quiet(ADA, log, path, writers=[ADA.public_key]) as ada:
        assert ada["words"] == ["one"]
    async with quiet(ADA, log, path) as ada:
        assert ada["words"] == ["one", "two"]


async def test_a_shared_document_comes_back_with_its_members(tmp_path: Path) -> None:
    """The relay has lost the roster and the keyring as well; the owner has them."""
    async with vault(tmp_path / "relay") as relay, AsyncExitStack() as stack:
        ada = await stack.enter_async_context(
            WalStore.open(
                KEY,
                identity=ADA,
                relay=relay.url,
                path=tmp_path / "ada.wal",
                owner=ADA.public_key,
                is_sealed=True,
                autocommit_ms=0,
            )
        )
        ada.set_text("note", "one ")
        await until_sent(ada)
        invitation = await ada.sharing.invite(Card.of(BEN))
        ben = await stack.enter_async_context(
            WalStore.join(str(invitation), identity=BEN, path=tmp_path / "ben.wal", autocommit_ms=0)
        )
        for store, word in ((ben, "two "), (ada, "three "), (ben, "four ")):
            store.edit_text("note", len(store.text("note")), 0, word)
            await until_same(ada, ben)
        await until_sent(ada, ben)
        await relay.put_back("empty")
        for store in (ben, ada):
            await until_told(store)
            await store.accept_rollback()
        await until_same(ada, ben)
        assert ben.text("note") == "one two three four "
        ben.edit_text("note", 0, 0, "> ")
        await until_same(ada, ben)
        check_sessions(await relay.elements())
        # Ada's store gives them back by itself, a moment after it was connected.
        async with asyncio.timeout(PATIENCE_S):
            while not await is_found(ben):
                await asyncio.sleep(0)


class Shared(Prunable, MemoryRecords):
    """A log in memory that can be put back, with the records of who shares it."""

    def __init__(self) -> None:
        Prunable.__init__(self)
        MemoryRecords.__init__(self)


class Circle:
    """Ada, who owns a sealed document, Ben, who has not heard of its new key, and Cam, who was
    invited after it.
    """

    def __init__(self) -> None:
        self.log = Shared()
        self.snapshots = MemorySnapshots()
        self._older: tuple[list[RawElement], dict[str, bytes], int] = [], {}, 0

    def store(self, who: Identity) -> WalStore:
        return WalStore.open(
            KEY,
            identity=who,
            relay=self.log,
            snapshots=self.snapshots,
            owner=ADA.public_key,
            is_sealed=True,
            autocommit_ms=None,
        )

    async def rotate(self, ada: WalStore) -> None:
        await ada.sharing.rotate()
        await ada.sharing.invite(Card.of(CAM))

    def save(self) -> None:
        self._older = self.log.saved(), dict(self.snapshots._documents), self.log.clock

    async def put_back(self, *stores: WalStore) -> None:
        """Put back log, snapshot and clock."""
        elements, documents, self.log.clock = self._older
        self.log.put_back(elements, *stores)
        self.snapshots._documents = dict(documents)
        for store in stores:
            await met(store)

    async def check(self, ada: WalStore) -> None:
        """Have Cam see what Ada sees, before long."""
        await ada.flush()
        async with asyncio.timeout(PATIENCE_S):
            while ada.sharing.is_snapshot_due:
                await asyncio.sleep(0)
        async with self.store(CAM) as cam:
            assert (cam["words"], cam.status.unreadable) == (ada["words"], 0)


async def test_who_came_after_a_new_key_sees_what_a_lost_snapshot_told_of_an_old_one() -> None:
    circle = Circle()
    async with circle.store(ADA) as ada:
        await write(ada, "one")
        await ada.sharing.invite(Card.of(BEN))
        async with circle.store(BEN) as ben:
            await ben.pull()
            await circle.rotate(ada)
            await write(ben, "two")
        circle.save()
        await ada.pull()
        await circle.check(ada)
        await write(ada, "three")
        await circle.put_back(ada)
        await ada.accept_rollback()
        await circle.check(ada)


async def test_who_came_after_a_new_key_can_open_the_snapshot_of_a_relay_that_was_put_back() -> (
    None
):
    circle = Circle()
    async with circle.store(ADA) as ada:
        await write(ada, "one")
        # It covers everything, and is sealed with the old key.
        await ada.snapshot()
        circle.save()
        await circle.rotate(ada)
        await write(ada, "two")
        await circle.put_back(ada)
        await ada.accept_rollback()
        await circle.check(ada)


async def test_what_is_sent_again_under_an_old_key_is_told_to_who_came_after_the_new_one() -> None:
    circle = Circle()
    async with circle.store(ADA) as ada:
        await write(ada, "one")
        await ada.sharing.invite(Card.of(BEN))
        async with circle.store(BEN) as ben:
            await ben.pull()
            await circle.rotate(ada)
            circle.save()
            await write(ben, "two")
            await ada.pull()
            await circle.check(ada)
            await circle.put_back(ada, ben)
            await ada.accept_rollback()
            ada.drop_stranded()
            await circle.check(ada)
            await ben.accept_rollback()
            await ben.flush()
        await ada.pull()
        assert ada["words"] == ["one", "two"]
        await circle.check(ada)


async def is_found(store: WalStore) -> bool:
    """Whether roster and keyring are where they should be."""
    try:
        await store.sharing.refresh()
    except PeerError:
        return False
    return True


def check_sessions(elements: list[RawElement]) -> None:
    """Every session counts up from 1, by 1, whatever is sealed in its elements."""
    counted: Counter[tuple[str, str]] = Counter()
    for element in elements:
        header = read_header(cast("dict[str, Any]", parse(element.data)))
        assert header is not None
        counted[element.author, header.session] += 1
        assert header.seq == counted[element.author, header.session]


async def test_an_author_who_claims_to_have_written_much_costs_nothing(tmp_path: Path) -> None:
    log = RiggedLog()
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada:
        await write(ada, "one")
        insert = Insert("words", "", 5, "", 0, ["far"])
        far = write_packed(BEN, [insert], session="s", seq=2**40)
        signed_here = sign_append(KEY, far["data"], BEN)
        log.add(far["data"], BEN.public_key, signed_here.author_signature)
        await ada.pull()
        assert len(ada["words"]) == 2
        assert ada.status.gaps[0].got == 2**40
        del log.elements[1]
        assert ada._replica is not None
        ada._replica.doubt()
        await met(ada)
        async with asyncio.timeout(5):
            assert await ada.accept_rollback() == AcceptedRollback(0, 1)
        assert len(ada["words"]) == 2


async def test_accepting_takes_turns_with_everything_else(tmp_path: Path) -> None:
    log = Prunable()
    async with live(ADA, log, tmp_path / "ada.wal") as ada, live(BEN, log) as ben:
        ada.list("words").append("one")
        await until_same(ada, ben)
        await until_sent(ada, ben)
        older = log.saved()
        ada.list("words").append("two")
        await until_same(ada, ben)
        await until_sent(ada, ben)
        log.put_back(older, ada, ben)
        await met(ada)
        await met(ben)
        accepted = await asyncio.gather(
            *(store.accept_rollback() for store in (ada, ben, ada, ben)),
            *(store.pull() for store in (ada, ben)),
            return_exceptions=True,
        )
        assert not [each for each in accepted if isinstance(each, UsageError)]
        ada.list("words").append("three")
        await until_same(ada, ben)
        assert ada["words"] == ["one", "two", "three"]
        check_log(log.saved())
